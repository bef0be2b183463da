"""A tunnel between a client and its broker: forwards bytes without interpreting them.

Each piece is read once and written once. While one side does not read, the other side is not read either, so
the bytes in transit are bounded by the buffers of both transports.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar.io.interfaces import Cancellable, Loop, Transport

log = logging.getLogger(__name__)

_BUFFER_BYTES = 256 * 1024
"""Number of bytes in one side's write buffer at which reading from the other side stops."""
_GRACE_SECONDS = 5.0
"""Maximum time to send the remaining data to one side after the other side has disconnected, in seconds."""


class TunnelSide:
    """One direction of a tunnel; the protocol of the sender's transport (``StreamProtocol``)."""

    __slots__ = ("_other", "_tunnel", "moved", "pieces", "transport")

    def __init__(self, tunnel: Tunnel, transport: Transport, other: Transport) -> None:
        self._tunnel = tunnel
        self.transport = transport
        self._other = other
        self.pieces = 0
        self.moved = 0

    def data_received(self, data: bytes) -> None:
        self._other.write(data)
        self.pieces += 1
        self.moved += len(data)

    def pause_writing(self) -> None:
        self._other.pause_reading()

    def resume_writing(self) -> None:
        if not self._tunnel.ended:
            self._other.resume_reading()

    def connection_made(self, transport: Transport) -> None:
        """Does nothing: the transport is already connected."""

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._tunnel.lost(self)


class Tunnel:
    """A tunnel between a client and a broker, in both directions."""

    def __init__(
        self, loop: Loop, client: Transport, broker: Transport, gone: Callable[[Tunnel], object]
    ) -> None:
        """:param client: the client's transport, whose reading is paused
        :param broker: the broker's transport, whose reading is paused
        :param gone: called once, when both sides have disconnected
        """
        self._loop = loop
        self._gone = gone
        self.ended = False
        self._left = 2
        self._grace: Cancellable | None = None
        self.from_client = TunnelSide(self, client, broker)
        self.from_broker = TunnelSide(self, broker, client)

    def open(self, from_client: bytes, from_broker: bytes) -> None:
        """Starts the tunnel; the arguments are the bytes that were already received."""
        for side, waiting in ((self.from_client, from_client), (self.from_broker, from_broker)):
            side.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
            side.transport.set_protocol(side)
            if waiting:
                side.data_received(waiting)
        for side in (self.from_client, self.from_broker):
            side.transport.resume_reading()

    @property
    def pieces(self) -> int:
        return self.from_client.pieces + self.from_broker.pieces

    @property
    def moved(self) -> int:
        """Number of forwarded bytes in both directions."""
        return self.from_client.moved + self.from_broker.moved

    def close(self) -> None:
        """Closes both sides after pending data is sent, within a time limit."""
        if self.ended:
            return
        self.ended = True
        for side in (self.from_client, self.from_broker):
            if not side.transport.is_closing():
                side.transport.pause_reading()
            side.transport.close()
        self._grace = self._loop.call_later(_GRACE_SECONDS, self._abort)

    def _abort(self) -> None:
        for side in (self.from_client, self.from_broker):
            side.transport.abort()

    def lost(self, _side: TunnelSide) -> None:
        self.close()
        self._left -= 1
        if not self._left:
            if self._grace is not None:
                self._grace.cancel()
            self._gone(self)
