"""Authentication while the broker's clock is ahead of the real clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from magnetar.security.authentication import Authenticator, Claim
from magnetar.security.authentication_counts import AuthenticationCounts
from magnetar.security.principal import Principal


class AheadAuthenticator:
    """Checks credentials with the real clock; their expiry is postponed by the broker's lead.

    An advance beyond the expiry lets them expire as usual: the broker requests new ones.
    """

    def __init__(self, real: Authenticator, ahead_ms: Callable[[], int]) -> None:
        self._real = real
        self._ahead_ms = ahead_ms

    @property
    def asks(self) -> bool:
        return self._real.asks

    async def authenticate(self, claim: Claim) -> Principal:
        """See :class:`magnetar.security.authentication.Authenticator`."""
        principal = await self._real.authenticate(claim)
        if principal.expires is None:
            return principal
        return replace(principal, expires=principal.expires + self._ahead_ms() / 1000)

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        self._real.listen(changed)

    @property
    def authentication_counts(self) -> Sequence[AuthenticationCounts]:
        return self._real.authentication_counts

    async def close(self) -> None:
        await self._real.close()
