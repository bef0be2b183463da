"""Who clients are, for a fuzzed broker that asks: whoever proves nothing may everything, others little."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.errors import AuthenticationFailure
from magnetar.io.interfaces import Io
from magnetar.io.waiting import sleep
from magnetar.security.authentication import Authenticated, Credentials
from magnetar.security.chain import ProviderChain

GOOD = "good"


class Word:
    """A provider that takes the word of a client for its role, for as many seconds as it has letters."""

    method = "word"

    def __init__(self, io: Io) -> None:
        self._io = io

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        await sleep(self._io.loop, 0.01)
        try:
            role = credentials.data.decode()
        except UnicodeDecodeError as error:
            raise AuthenticationFailure("The word is no text") from error
        if not role or "!" in role:
            raise AuthenticationFailure("No word")
        return Authenticated(role, self._io.clock.wall_ms() / 1000 + len(role))

    def listen(self, changed: Callable[[], None]) -> None:
        """It never changes its mind."""

    async def close(self) -> None:
        """It holds nothing."""


def guard(io: Io) -> ProviderChain:
    """Lets in whoever gives a word; proxies may speak for others."""
    return ProviderChain(io, [Word(io)], anonymous_role=GOOD, proxy_roles=lambda: frozenset({"proxy"}))
