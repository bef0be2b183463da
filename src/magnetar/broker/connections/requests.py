"""Requests of one connection that are in progress: how many there may be, and answers that are large."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from magnetar.broker.flow.connection import ClientConnection
from magnetar.io.interfaces import Loop
from magnetar.io.mutex import Mutex
from magnetar.io.places import FairSemaphore

MOST = 256
"""Requests in progress beyond which a connection is not read; it is read on when half of them have ended."""

MOST_BYTES = 1024 * 1024
"""And so many bytes of them. One request may be larger, alone."""

MOST_OPENING = 32
"""Topics being loaded and subscriptions being made for one connection; further ones wait in order.

All that wait for one commit of the metadata go on in one turn of the loop: this bounds how long the turn is.
"""


class Requests:
    """A client that pipelines faster than it is answered, or takes no answers, waits; others do not."""

    __slots__ = ("_connection", "_large", "_loop", "_opening", "bytes", "count", "paused")

    def __init__(self, connection: ClientConnection, loop: Loop) -> None:
        self._connection = connection
        self._loop = loop
        self.count = 0
        self.bytes = 0
        self.paused = False
        """Whether the connection is not read because of them."""
        self._large: Mutex | None = None
        self._opening: FairSemaphore | None = None

    def began(self, size: int) -> None:
        """:param size: bytes of the request"""
        self.count += 1
        self.bytes += size
        if not self.paused and (self.count >= MOST or self.bytes >= MOST_BYTES):
            self.paused = True
            self._connection.pause_reading()

    def ended(self, size: int) -> None:
        """:param size: as :meth:`began` was told"""
        self.count -= 1
        self.bytes -= size
        if self.paused and self.count <= MOST // 2 and self.bytes <= MOST_BYTES // 2:
            self.paused = False
            self._connection.resume_reading()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """While a request waits for other clients, for as long as these please, it does not count."""
        self.ended(0)
        try:
            yield
        finally:
            self.began(0)

    def opening(self) -> FairSemaphore:
        """Around loading a topic or making a subscription: see :data:`MOST_OPENING`."""
        if self._opening is None:
            self._opening = FairSemaphore(self._loop, MOST_OPENING)
        return self._opening

    @asynccontextmanager
    async def large_answer(self) -> AsyncIterator[None]:
        """Around making an answer that may take megabytes: one after another, when the last one has gone out.

        The connection may be closed when the turn comes.
        """
        if self._large is None:
            self._large = Mutex(self._loop)
        async with self._large:
            await self._connection.outgoing.taken()
            yield
