"""What a connection has to send: gathered over one turn of the loop, and held within bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import Loop

MESSAGES_HIGH_WATER = 1024 * 1024
"""Unsent bytes beyond which no messages are written to a connection."""

REQUESTS_HIGH_WATER = 16 * 1024 * 1024
"""Unsent bytes beyond which a connection is not read, either: its client does not take its answers."""


class Outgoing:
    """The sending half of a connection."""

    __slots__ = (
        "_frames",
        "_loop",
        "_on_overfull",
        "_on_room",
        "_overfull",
        "_paused",
        "_planned",
        "_size",
        "_transport",
    )

    def __init__(self, loop: Loop, on_room: Callable[[], None], on_overfull: Callable[[bool], None]) -> None:
        """:param on_room: messages may be written again

        :param on_overfull: called with True when reading is to stop, with False when it may go on
        """
        self._loop = loop
        self._on_room = on_room
        self._on_overfull = on_overfull
        self._transport: Any = None
        self._frames: list[bytes | bytearray] = []
        self._size = 0
        self._planned = False
        self._paused = False
        self._overfull = False

    def use(self, transport: Any) -> None:
        """From now on frames go there; None drops them."""
        self._transport = transport
        if transport is None:
            self._frames = []
            self._size = 0
        else:
            transport.set_write_buffer_limits(high=MESSAGES_HIGH_WATER, low=MESSAGES_HIGH_WATER // 2)

    @property
    def room(self) -> int:
        """Bytes of messages that may be queued now; 0 and below: none."""
        return 0 if self._paused else MESSAGES_HIGH_WATER - self._size

    def queue(self, frames: bytes | bytearray) -> None:
        """Sends frames together with everything else of this turn of the loop."""
        self._frames.append(frames)
        self._size += len(frames)
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._planned = False
        frames, self._frames = self._frames, []
        size, self._size = self._size, 0
        transport = self._transport
        if not frames or transport is None or transport.is_closing():
            return
        transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if not self._overfull and transport.get_write_buffer_size() > REQUESTS_HIGH_WATER:
            self._overfull = True
            self._on_overfull(True)
        if size >= MESSAGES_HIGH_WATER and not self._paused:
            # What stopped at the bound of one turn, and not for the socket, goes on in the next.
            self._on_room()

    def pause(self) -> None:
        """The transport has more unsent than it wants."""
        self._paused = True

    def resume(self) -> None:
        """Half of it is sent."""
        self._paused = False
        if self._overfull:
            self._overfull = False
            self._on_overfull(False)
        self._on_room()
