"""The body of a request that its handler reads while it arrives, for bodies that are too large for memory."""

from __future__ import annotations

from typing import Protocol

from magnetar.errors import InvalidRequest
from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import settle

MOST_BYTES = 256 * 1024
"""Unread bytes above which the socket is not read. One more read may exceed the limit."""


class Socket(Protocol):
    """The connection that receives the body."""

    def hold(self, held: bool) -> None:
        """Pauses or resumes reading from the socket."""
        ...


class ArrivingBody:
    """A body that is not collected in memory; a slow handler slows down the client.

    :param seconds: time without a byte after which the request fails
    """

    def __init__(self, loop: Loop, socket: Socket, seconds: float) -> None:
        self._loop = loop
        self._socket = socket
        self._seconds = seconds
        self._came = bytearray()
        self._held = False
        self._left_aside = False
        self._over = False
        self._failure = ""
        self._waiter: Future[None] | None = None

    # called by the connection

    def feed(self, data: bytes | bytearray) -> None:
        if not self._left_aside:
            self._came += data
            if len(self._came) > MOST_BYTES and not self._held:
                self._held = True
                self._socket.hold(True)
        self._wake()

    def end(self) -> None:
        """Notes that the body is complete."""
        self._over = True
        self._wake()

    def fail(self, reason: str) -> None:
        """Notes that the rest will not arrive; does nothing if the body is complete."""
        if not self._over:
            self._failure = self._failure or reason
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            settle(waiter)

    async def leave_aside(self) -> None:
        """Reads and discards the rest, because a client that is sending does not read the answer.

        Also returns if the rest does not arrive.
        """
        self._left_aside = True
        self._came.clear()
        self._read_on()
        while not self._over and not self._failure:
            await self._wait()

    # called by the handler

    async def next(self) -> bytes:
        """Returns the next bytes as soon as some have arrived; empty: the end.

        :raises InvalidRequest: the client disconnected or stopped sending before the end
        """
        while not self._came and not self._over:
            if self._failure:
                raise InvalidRequest(self._failure)
            await self._wait()
        data = bytes(self._came)
        self._came.clear()
        self._read_on()
        return data

    def _read_on(self) -> None:
        if self._held:
            self._held = False
            if not self._over:
                self._socket.hold(False)

    async def _wait(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        stalled = self._loop.call_later(self._seconds, self.fail, "The body did not arrive in time")
        try:
            await waiter
        finally:
            stalled.cancel()
