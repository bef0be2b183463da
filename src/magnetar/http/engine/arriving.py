"""The body of a request that is read as it comes, for what is too large to be gathered."""

from __future__ import annotations

from typing import Any, Protocol

from magnetar.errors import InvalidRequest
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import settle

MOST_BYTES = 256 * 1024
"""That have come and were not taken: from here on the socket is not read. One more read may lie above it."""


class Socket(Protocol):
    """Where it comes from."""

    def hold(self, held: bool) -> None:
        """Whether nothing is to be read for now."""
        ...


class ArrivingBody:
    """Whoever reads it slowly keeps the client from sending; nothing of it is gathered.

    :param seconds: without a byte, after which the client is given up
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
        self._waiter: Any = None

    # what the connection calls

    def feed(self, data: bytes | bytearray) -> None:
        if not self._left_aside:
            self._came += data
            if len(self._came) > MOST_BYTES and not self._held:
                self._held = True
                self._socket.hold(True)
        self._wake()

    def end(self) -> None:
        """All of it has come."""
        self._over = True
        self._wake()

    def fail(self, reason: str) -> None:
        """Nothing more of it will come; nothing happens where all of it has."""
        if not self._over:
            self._failure = self._failure or reason
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            settle(waiter)

    async def leave_aside(self) -> None:
        """Takes what is still to come and keeps nothing: a client that sends does not hear its answer before.

        Ends also where it does not come.
        """
        self._left_aside = True
        self._came.clear()
        self._read_on()
        while not self._over and not self._failure:
            await self._wait()

    # what the handler calls

    async def next(self) -> bytes:
        """What has come since, as soon as there is anything; empty: that was all.

        :raises InvalidRequest: the client has gone, or sends nothing, before its end
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
