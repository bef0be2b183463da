"""The credentials of a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.client.exceptions import ErrorGettingAuthenticationData
from magnetar.io.interfaces import ClientIo
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials

AuthData = tuple[str, bytes]
"""The name of an authentication method, and its data."""
NO_AUTH_DATA: AuthData = ("", b"")


def auth_data_source(io: ClientIo, authentication: Authentication) -> Callable[[], Awaitable[AuthData]]:
    """Returns a function that returns new credentials.

    The function raises ErrorGettingAuthenticationData if none are available.
    """

    async def get_auth_data() -> AuthData:
        try:
            if authentication.blocks:
                return authentication.method, await io.apart(authentication.data)
            return authentication.method, authentication.data()
        except NoCredentials as error:
            raise ErrorGettingAuthenticationData(str(error)) from None

    return get_auth_data
