"""Who this client is, as brokers are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.client.exceptions import ErrorGettingAuthenticationData
from magnetar.io.interfaces import ClientIo
from magnetar.security.proofs.proof import Authentication, NoProof

Proof = tuple[str, bytes]
"""The name of an authentication method, and its data."""
NO_PROOF: Proof = ("", b"")


def prover(io: ClientIo, authentication: Authentication) -> Callable[[], Awaitable[Proof]]:
    """What gives a fresh proof.

    It raises ErrorGettingAuthenticationData where there is none.
    """

    async def prove() -> Proof:
        try:
            if authentication.blocks:
                return authentication.method, await io.apart(authentication.data)
            return authentication.method, authentication.data()
        except NoProof as error:
            raise ErrorGettingAuthenticationData(str(error)) from None

    return prove
