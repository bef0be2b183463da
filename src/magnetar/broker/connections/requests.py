"""Requests in progress on a connection: limits on their number and bytes, and large answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from magnetar.broker.flow.connection import ClientConnection
from magnetar.io.interfaces import Loop
from magnetar.io.mutex import Mutex
from magnetar.io.places import FairSemaphore

MOST = 256
"""Requests in progress at which reading pauses; it resumes when half of them have ended."""

MOST_BYTES = 1024 * 1024
"""The same limit in bytes. A single request may be larger."""

MOST_OPENING = 32
"""Topics being loaded and subscriptions being created for one connection; further ones wait in order.

All that wait for the same commit of the metadata continue in one turn of the loop: this bounds its length.
"""


class Requests:
    """Makes a client wait that sends requests faster than they are answered, or does not read the answers."""

    __slots__ = ("_connection", "_large", "_loop", "_opening", "bytes", "count", "paused")

    def __init__(self, connection: ClientConnection, loop: Loop) -> None:
        self._connection = connection
        self._loop = loop
        self.count = 0
        self.bytes = 0
        self.paused = False
        """Whether reading is paused because of them."""
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
        """:param size: the same as for :meth:`began`"""
        self.count -= 1
        self.bytes -= size
        if self.paused and self.count <= MOST // 2 and self.bytes <= MOST_BYTES // 2:
            self.paused = False
            self._connection.resume_reading()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Excludes a request from the counts while it waits for other clients, for any length of time."""
        self.ended(0)
        try:
            yield
        finally:
            self.began(0)

    def opening(self) -> FairSemaphore:
        """Limits loading topics and creating subscriptions: see :data:`MOST_OPENING`."""
        if self._opening is None:
            self._opening = FairSemaphore(self._loop, MOST_OPENING)
        return self._opening

    @asynccontextmanager
    async def large_answer(self) -> AsyncIterator[None]:
        """Guards an answer that may take megabytes: the next one begins when the last one has been sent.

        The connection may have closed when the body runs.
        """
        if self._large is None:
            self._large = Mutex(self._loop)
        async with self._large:
            await self._connection.outgoing.taken()
            yield
