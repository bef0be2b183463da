"""One side of a simulated connection: a transport like asyncio's."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from magnetar.io.interfaces import StreamProtocol
from magnetar.lazy_dataclass import dataclass
from simulated_io.loop import SimulatedLoop

_HIGH_WATER = 64 << 10
_END = b""
"""Marks in the stream where the sender closed."""


class EndpointNetwork(Protocol):
    def told(self, link: Any, what: str, size: int = 0) -> None: ...
    def answers(self, address: tuple[str, int]) -> bool: ...


class EndpointLink(Protocol):
    """What both sides of a connection share. It owns them, so it is implemented in a module above
    this one."""

    silent: bool
    ending: bool

    @property
    def loop(self) -> SimulatedLoop: ...
    @property
    def network(self) -> EndpointNetwork: ...
    @property
    def conditions(self) -> Conditions: ...

    def delay(self) -> float: ...
    def flight(self) -> bool: ...
    def pieces(self, data: bytes) -> list[bytes]: ...
    def reset(self) -> None: ...
    def gone(self) -> None: ...


class Endpoint:
    """See :class:`magnetar.io.interfaces.Transport`.

    Written data is not copied before it is sent, so that a buffer that is reused too early shows up as wrong
    bytes on the other side.
    """

    def __init__(
        self, link: EndpointLink, loop: SimulatedLoop, own: tuple[str, int], other: tuple[str, int]
    ) -> None:
        self.link = link
        self.loop = loop
        self.peer: Endpoint
        self.protocol: Any = None
        self.lost = False
        """``connection_lost`` was scheduled or called."""
        self.dead = False
        """The process has ended."""
        self.most_unsent = 0
        """The largest ``get_write_buffer_size`` so far."""
        self._told_lost = False
        self._addresses = {"peername": other, "sockname": own}
        self._unsent: deque[bytes | bytearray | memoryview] = deque()
        self._unsent_size = 0
        self._sending = False
        self._writing_paused = False
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._closing = False
        self._ended = False
        self._arrived: deque[bytes] = deque()
        self._held = 0
        """Bytes on their way to this side, or arrived and not read."""
        self._last_arrival = 0.0
        self._reading_paused = False
        self._reading_planned = False

    def begin(self, factory: Callable[[], StreamProtocol]) -> None:
        """Makes the protocol and calls its ``connection_made``."""
        self.protocol = factory()
        self.protocol.connection_made(self)
        self._plan_reading()

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.lost or self.dead or not data:
            return
        self._unsent.append(data)
        self._unsent_size += len(data)
        self._plan_sending()
        unsent = self.get_write_buffer_size()
        self.most_unsent = max(self.most_unsent, unsent)
        if unsent > self._high and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Sequence[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return max(0, self._unsent_size - self.link.conditions.send_buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else (4 * low if low is not None else _HIGH_WATER)
        self._low = low if low is not None else self._high // 4

    def set_protocol(self, protocol: StreamProtocol) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._addresses.get(name, default)

    def _plan_sending(self) -> None:
        if not self._sending:
            self._sending = True
            self.link.loop.call_later(self.link.delay(), self._send)

    def _send(self) -> None:
        """Sends what the other side has room for."""
        self._sending = False
        link, peer = self.link, self.peer
        if self._told_lost and not self._closing:
            return
        if peer.dead and (not link.silent or link.network.answers(self._addresses["peername"])):
            # Its machine answers that it does not know this connection.
            link.loop.call_later(link.delay(), self.broken)
            return
        if peer.dead or link.silent or link.ending:
            return
        data = self._take(link.conditions.window - peer._held)
        if data:
            if link.flight():
                link.network.told(link, "cut", len(data))
                link.reset()
                # A part of it may have arrived before.
                data = data[: len(data) // 2]
            if data:
                link.network.told(link, "carries", len(data))
                peer._under_way(link.pieces(data), len(data))
        if self._unsent_size and peer._held < link.conditions.window:
            self._plan_sending()
        self._after_sending()

    def _take(self, room: int) -> bytes:
        parts: list[bytes] = []
        while self._unsent and room > 0:
            part = self._unsent.popleft()
            if len(part) > room:
                self._unsent.appendleft(memoryview(part)[room:])
                part = memoryview(part)[:room]
            room -= len(part)
            self._unsent_size -= len(part)
            parts.append(bytes(part))
        return b"".join(parts)

    def _after_sending(self) -> None:
        unsent = self.get_write_buffer_size()
        if self._writing_paused and unsent <= self._low and not self.lost and not self.dead:
            self._writing_paused = False
            self.loop.call_soon(self._resume_writing)
        if self._closing:
            if not unsent:
                self._lose(None)
            if not self._unsent_size and not self._ended:
                self._ended = True
                self.peer._under_way([_END], 0)

    def _resume_writing(self) -> None:
        if not self.lost and not self._writing_paused:
            self.protocol.resume_writing()

    # Reading

    def _under_way(self, pieces: list[bytes], size: int) -> None:
        self._held += size
        loop = self.link.loop
        self._last_arrival = max(self._last_arrival, loop.time() + self.link.delay())
        loop.call_at(self._last_arrival, self._arrive, pieces)

    def _arrive(self, pieces: list[bytes]) -> None:
        link = self.link
        if link.silent or self.dead:
            return
        if self.lost or self._closing:
            if pieces != [_END]:
                # No process is there to read it.
                link.loop.call_later(link.delay(), self.peer.broken)
            return
        self._arrived.extend(pieces)
        self._plan_reading()

    def _plan_reading(self) -> None:
        if self._arrived and not self._reading_planned and not self._reading_paused:
            self._reading_planned = True
            self.loop.call_soon(self._read)

    def _read(self) -> None:
        """Passes one piece to the protocol."""
        self._reading_planned = False
        if self._reading_paused or self._closing or self.lost or not self._arrived or self.protocol is None:
            return
        piece = self._arrived.popleft()
        if piece == _END:
            if not self.protocol.eof_received():
                self.close()
            return
        self._held -= len(piece)
        if self.peer._unsent_size:
            self.peer._plan_sending()
        self.protocol.data_received(piece)
        self._plan_reading()

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._plan_reading()

    # Ending

    def is_closing(self) -> bool:
        return self._closing or self.lost

    def close(self) -> None:
        """Sends what was written, then ends."""
        if not self._closing and not self.lost:
            self._closing = True
            if self._unsent_size:
                self._plan_sending()
                if not self.get_write_buffer_size():
                    self._lose(None)
            else:
                self._after_sending()

    def abort(self) -> None:
        """Ends at once; the other side's connection is reset."""
        if not self._told_lost:
            self._drop()
            if not self.link.silent:
                self.link.loop.call_later(self.link.delay(), self.peer.broken)
            self._lose(None)

    def broken(self) -> None:
        """The connection was reset."""
        if not self.lost and not self.dead:
            self._drop()
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def die(self, *, silently: bool) -> None:
        """The process has ended."""
        self.dead = True
        self._drop()
        if silently:
            self.link.silent = True
        elif not self.link.silent:
            self.link.loop.call_later(self.link.delay(), self.peer.broken)
        self._forget()

    def _drop(self) -> None:
        self._unsent.clear()
        self._unsent_size = 0
        self._arrived.clear()
        self._closing = False

    def _lose(self, error: Exception | None) -> None:
        if not self.lost:
            self.lost = True
            self.loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        self._told_lost = True
        if self.protocol is not None:
            self.link.network.told(self.link, "lost")
            self.protocol.connection_lost(error)
        self._forget()

    def _forget(self) -> None:
        if (self._told_lost or self.dead) and (self.peer._told_lost or self.peer.dead):
            self.link.gone()


@dataclass
class Conditions:
    """The conditions of connections that are made from now on. Times in virtual seconds, sizes in bytes."""

    latency: float = 0.001
    """The longest travel time of a piece."""
    window: int = 64 << 10
    """The most that is sent and not yet read by the other side: a slow reader holds its sender back."""
    send_buffer: int = 64 << 10
    """What the operating system accepts from a sender; ``get_write_buffer_size`` counts what is beyond it."""
    pieces: int = 1
    """The most pieces that a flight is cut into; 0: into single bytes, as long as it is small."""
    refused: float = 0.0
    """The share of connections that are refused."""
    unanswered: float = 0.0
    """The share of connections that time out."""
    cut: float = 0.0
    """The share of connections that are reset after a random number of flights."""
    longest_life: int = 200
    """The most flights, of both directions, before such a connection is reset."""
    connect_timeout: float = 10.0
