"""What a connection has to send: gathered over one turn of the loop, and held within bounds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from magnetar.invariants import must
from magnetar.io.interfaces import Buffer, Clock, Loop
from magnetar.io.pieces import joined
from magnetar.io.waiting import settle

log = logging.getLogger(__name__)

MESSAGES_HIGH_WATER = 1024 * 1024
"""Unsent bytes beyond which no messages are written to a connection."""

REQUESTS_HIGH_WATER = 16 * 1024 * 1024
"""Unsent bytes beyond which a connection is not read, either: its client does not take its answers."""

TIGHT_HIGH_WATER = 64 * 1024
"""In place of :data:`MESSAGES_HIGH_WATER` while all connections together are over their budget."""

TIGHT_REQUESTS_HIGH_WATER = 256 * 1024
"""In place of :data:`REQUESTS_HIGH_WATER` then."""

UNSENT_BUDGET = 64 * 1024 * 1024
"""Unsent bytes of all connections together beyond which each may have little."""

_END = 4
"""Beyond so many budgets the connections with most are closed: what many have together is too much, too."""

_RECOUNT_SECONDS = 0.1


class UnsentBytes:
    """What all connections have queued or unsent: an upper bound, counted again before it restricts."""

    __slots__ = ("_budget", "_clock", "_counted_at", "members", "used")

    def __init__(self, clock: Clock, budget: int = UNSENT_BUDGET) -> None:
        self._clock = clock
        self._budget = budget
        self._counted_at = -_RECOUNT_SECONDS
        self.members: set[Outgoing] = set()
        self.used = 0

    def expect(self, reading: Any, size: int) -> None:
        """Counts bytes that are being read until the read has ended: they are queued then."""
        self.used += size
        reading.add_done_callback(lambda _ended: self._came(size))

    def _came(self, size: int) -> None:
        self.used -= size

    def over(self) -> bool:
        """Whether it is more than the budget."""
        if self.used <= self._budget:
            return False
        now = self._clock.monotonic()
        if now - self._counted_at >= _RECOUNT_SECONDS:
            self._counted_at = now
            for member in self.members:
                member.count_again()
            if self.used > _END * self._budget:
                self._close_fullest()
        return self.used > self._budget

    def _close_fullest(self) -> None:
        for member in sorted(self.members, key=lambda member: member.unsent_in_socket, reverse=True):
            if self.used <= _END * self._budget or member.unsent_in_socket <= TIGHT_HIGH_WATER:
                break
            member.give_up()

    def check(self) -> None:
        """:raises BrokenInvariant: less is counted than connections have queued"""
        queued = sum(member.counted for member in self.members)
        must(self.used >= queued >= 0, self.used, "bytes are counted, and connections have", queued)


class Outgoing:
    """The sending half of a connection."""

    __slots__ = (
        "_counted",
        "_frames",
        "_loop",
        "_on_overfull",
        "_on_room",
        "_overfull",
        "_paused",
        "_planned",
        "_size",
        "_takers",
        "_tight",
        "_transport",
        "unsent",
    )

    def __init__(
        self,
        loop: Loop,
        on_room: Callable[[], None],
        on_overfull: Callable[[bool], None],
        unsent: UnsentBytes,
    ) -> None:
        """:param on_room: messages may be written again

        :param on_overfull: called with True when reading is to stop, with False when it may go on
        """
        self._loop = loop
        self._on_room = on_room
        self._on_overfull = on_overfull
        self._transport: Any = None
        self._frames: list[Buffer] = []
        self._size = 0
        self._planned = False
        self._paused = False
        self._overfull = False
        self._tight = False
        self.unsent = unsent
        self._counted = 0
        """What of ``unsent`` is its own, beside what is queued."""
        self._takers: list[Any] = []

    def use(self, transport: Any) -> None:
        """From now on frames go there; None drops them."""
        self._transport = transport
        if transport is None:
            self.unsent.members.discard(self)
            self.unsent.used -= self._size + self._counted
            self._frames = []
            self._size = self._counted = 0
            self._wake_takers()
        else:
            self.unsent.members.add(self)
            transport.set_write_buffer_limits(high=MESSAGES_HIGH_WATER, low=MESSAGES_HIGH_WATER // 2)

    @property
    def room(self) -> int:
        """Bytes of messages that may be queued now; 0 and below: none."""
        if self._paused:
            return 0
        if self.unsent.over():
            self._tighten()
            return 0 if self._paused else TIGHT_HIGH_WATER - self._size
        return MESSAGES_HIGH_WATER - self._size

    def _tighten(self) -> None:
        """From now on the transport says at less that it has enough, and when it has room again."""
        if not self._tight and self._transport is not None:
            self._tight = True
            self._transport.set_write_buffer_limits(high=TIGHT_HIGH_WATER, low=TIGHT_HIGH_WATER // 2)

    def count_again(self) -> None:
        """Takes note of what its socket has taken meanwhile."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self.unsent.used += unsent - self._counted
        self._counted = unsent

    def queue(self, frames: Buffer) -> None:
        """Sends frames, which nobody changes any more, together with everything else of this turn."""
        size = len(frames)
        self._frames.append(frames)
        self._size += size
        self.unsent.used += size
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._planned = False
        frames, self._frames = self._frames, []
        size, self._size = self._size, 0
        self.unsent.used -= size
        transport = self._transport
        if not frames or transport is None or transport.is_closing():
            return
        pieces = frames if len(frames) == 1 else joined(frames, size)
        if len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)
        unsent = transport.get_write_buffer_size()
        self.unsent.used += unsent - self._counted
        self._counted = unsent
        if unsent > TIGHT_REQUESTS_HIGH_WATER and not self._overfull and self._is_too_much(unsent):
            self._overfull = True
            self._on_overfull(True)
        if size >= (TIGHT_HIGH_WATER if self._tight else MESSAGES_HIGH_WATER) and not self._paused:
            # What stopped at the bound of one turn, and not for the socket, goes on in the next.
            self._on_room()

    def _is_too_much(self, unsent: int) -> bool:
        """Whether requests of a client that has so much to take are not read."""
        if unsent > REQUESTS_HIGH_WATER:
            return True
        if self.unsent.over():
            self._tighten()
            return self._paused
        return False

    async def taken(self) -> None:
        """Returns when the client has taken most of what it was sent, or is gone."""
        if self._size and not self._paused:
            self.flush()
        if self.unsent.over():
            self._tighten()
        if self._paused and self._transport is not None:
            taken = self._loop.create_future()
            self._takers.append(taken)
            await taken

    def _wake_takers(self) -> None:
        takers, self._takers = self._takers, []
        for taken in takers:
            settle(taken)

    @property
    def paused(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self._paused

    @property
    def unsent_in_socket(self) -> int:
        """Bytes that were written and, when they were counted last, not sent."""
        return self._counted

    @property
    def counted(self) -> int:
        """Its part of what all connections have unsent."""
        return self._size + self._counted

    def give_up(self) -> None:
        """Ends the connection of a client that took too little of what it asked for."""
        log.warning("closing a connection with too much unsent", extra={"bytes": self._counted})
        self.unsent.used -= self._counted
        self._counted = 0
        if self._transport is not None:
            self._transport.abort()

    def make_room(self) -> int:
        """Writes what is queued now, for what cannot wait; returns :attr:`room`."""
        if self._size and not self._paused:
            self.flush()
        return self.room

    def pause(self) -> None:
        """The transport has more unsent than it wants."""
        self._paused = True

    def resume(self) -> None:
        """Half of it is sent."""
        self._paused = False
        self.count_again()
        if self._tight and self._transport is not None and not self.unsent.over():
            self._tight = False
            self._transport.set_write_buffer_limits(high=MESSAGES_HIGH_WATER, low=MESSAGES_HIGH_WATER // 2)
        if self._overfull:
            self._overfull = False
            self._on_overfull(False)
        self._wake_takers()
        self._on_room()
