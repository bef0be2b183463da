"""Credentials, with the official client's classes."""

from __future__ import annotations

import json
from collections.abc import Callable

from magnetar.pulsar.boundary import check_type, refuse
from magnetar.security.client_authentication import authentication, oauth2

__all__ = [
    "AthenzAuthentication",
    "BasicAuthentication",
    "Oauth2Authentication",
    "PulsarAuthentication",
    "TlsAuthentication",
    "TokenAuthentication",
]


class PulsarAuthentication(authentication.Authentication):
    """Base class of credentials."""

    def __init__(self, dynamicLibPath: str, authParamsString: str) -> None:
        """Always fails: authentication plugins of the C++ client cannot be loaded.

        :raises OperationNotSupported: always
        """
        raise refuse(
            "Authentication(dynamicLibPath, authParamsString)",
            f"the client cannot load {dynamicLibPath!r}, a plugin of the C++ client; use "
            "AuthenticationToken, AuthenticationTLS, AuthenticationBasic or AuthenticationOauth2",
        )


class TlsAuthentication(PulsarAuthentication, authentication.AuthenticationTLS):
    """Authentication by a TLS certificate."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        """:param certificate_path: PEM file with the client's certificate and its certificate chain

        :param private_key_path: PEM file with the private key, not encrypted
        :raises ValueError: an argument is not a string
        """
        check_type(str, certificate_path, "certificate_path")
        check_type(str, private_key_path, "private_key_path")
        authentication.AuthenticationTLS.__init__(self, certificate_path, private_key_path)


class TokenAuthentication(PulsarAuthentication, authentication.AuthenticationToken):
    """Authentication by a token."""

    def __init__(self, token: str | Callable[[], str]) -> None:
        """:param token: a token, or a function that returns a token

        :raises ValueError: the argument is neither a string nor a function, or is not a valid token
        """
        if not (isinstance(token, str) or callable(token)):
            raise ValueError("Argument token is expected to be of type 'str' or a function returning 'str'")
        authentication.AuthenticationToken.__init__(self, token)


class BasicAuthentication(PulsarAuthentication, authentication.AuthenticationBasic):
    """Authentication by a name and a password."""

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        """:param auth_params_string: a JSON object with ``username``, ``password`` and optionally ``method``,
            instead of the other arguments

        :raises ValueError: an argument has the wrong type, or the JSON is malformed
        """
        if auth_params_string is not None:
            params = json.loads(check_type(str, auth_params_string, "auth_params_string"))
            if not isinstance(params, dict):
                raise ValueError("auth_params_string must be a JSON object")
            username, password = params.get("username"), params.get("password")
            method = params.get("method", method)
        authentication.AuthenticationBasic.__init__(
            self,
            check_type(str, username, "username"),
            check_type(str, password, "password"),
            check_type(str, method, "method"),
        )


class Oauth2Authentication(PulsarAuthentication, oauth2.AuthenticationOauth2):
    """Authentication by OAuth 2.0 client credentials."""

    def __init__(self, auth_params_string: str) -> None:
        """:param auth_params_string: a JSON object with the parameters of
            :class:`magnetar.client.AuthenticationOauth2`

        :raises ValueError: a parameter is missing or malformed
        """
        check_type(str, auth_params_string, "auth_params_string")
        oauth2.AuthenticationOauth2.__init__(self, auth_params_string)


class AthenzAuthentication(PulsarAuthentication):
    """Athenz authentication, which is not supported."""

    def __init__(self, auth_params_string: str) -> None:
        """:raises OperationNotSupported: always"""
        check_type(str, auth_params_string, "auth_params_string")
        raise refuse("AuthenticationAthenz", "Magnetar does not support Athenz; use tokens or TLS")
