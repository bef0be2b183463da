"""The sending half of a connection: frames gathered over a turn, and limits on unsent bytes.

Unsent bytes are bytes in the transport's write buffer: they were written and not yet sent to the client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

from magnetar.invariants import Fail, must, violated
from magnetar.io.interfaces import Buffer, Clock, Future, Loop, Task, Transport, joined
from magnetar.io.waiting import settle
from magnetar.ledger.interface import EntryRun

log = logging.getLogger(__name__)

MESSAGES_HIGH_WATER = 1024 * 1024
"""The number of unsent bytes at which no more messages are written to a connection."""

REQUESTS_HIGH_WATER = 16 * 1024 * 1024
"""The number of unsent bytes at which reading pauses, too, because the client does not read its answers."""

TIGHT_HIGH_WATER = 64 * 1024
"""Replaces :data:`MESSAGES_HIGH_WATER` while all connections together exceed their budget."""

TIGHT_REQUESTS_HIGH_WATER = 256 * 1024
"""Replaces :data:`REQUESTS_HIGH_WATER` while all connections together exceed their budget."""

UNSENT_BUDGET = 64 * 1024 * 1024
"""The number of unsent bytes of all connections at which the limits of each connection are tightened."""

_END = 4
"""The multiple of the budget at which the connections with the most unsent bytes are closed."""

_RECOUNT_SECONDS = 0.1


class UnsentBytes:
    """The number of queued and unsent bytes of all connections. The number may be too high; it is corrected
    before a limit is applied.
    """

    __slots__ = ("_budget", "_clock", "_counted_at", "members", "used")

    def __init__(self, clock: Clock, budget: int = UNSENT_BUDGET) -> None:
        self._clock = clock
        self._budget = budget
        self._counted_at = -_RECOUNT_SECONDS
        self.members: set[Outgoing] = set()
        self.used = 0

    def expect(self, reading: Task[EntryRun | None], size: int) -> None:
        """Counts bytes that are being read from the ledger store, until the read ends."""
        self.used += size
        reading.add_done_callback(lambda _ended: self._came(size))

    def _came(self, size: int) -> None:
        self.used -= size
        if self.used < 0:
            self.violated(None)

    def violated(self, fail: Fail | None) -> NoReturn:
        """Counts the bytes of all connections anew, so that the other connections continue, and reports the
        broken invariant.

        :param fail: closes the connection where the violation was found; None if the reader of entries found
            the violation
        """
        found, self.used = self.used, sum(max(0, member.counted) for member in self.members)
        violated(fail, "unsent bytes of all connections", "at least 0", found)

    def over(self) -> bool:
        """Whether the budget is exceeded. If so, corrects the number of bytes, at most every 0.1 s; above
        four times the budget, closes the connections with the most unsent bytes.
        """
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
        """Checks invariants.

        :raises BrokenInvariant: the total is less than the sum over the connections
        """
        queued = sum(member.counted for member in self.members)
        must(self.used >= queued >= 0, self.used, "bytes are counted, and connections have", queued)


class Outgoing:
    """The sending half of a connection."""

    __slots__ = (
        "_counted",
        "_fail",
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
        fail: Fail | None = None,
    ) -> None:
        """:param on_room: called when messages may be written again

        :param on_overfull: called with True when reading must stop, with False when it may continue
        :param fail: closes the connection after an internal error
        """
        self._fail = fail
        self._loop = loop
        self._on_room = on_room
        self._on_overfull = on_overfull
        self._transport: Transport | None = None
        self._frames: list[Buffer] = []
        self._size = 0
        self._planned = False
        self._paused = False
        self._overfull = False
        self._tight = False
        self.unsent = unsent
        self._counted = 0
        """The bytes of this connection in ``unsent``, without queued bytes."""
        self._takers: list[Future[None]] = []

    def use(self, transport: Transport | None) -> None:
        """Sets the transport to which frames are sent; None: frames are dropped."""
        self._transport = transport
        if transport is None:
            self.unsent.members.discard(self)
            self.unsent.used -= self._size + self._counted
            self._frames = []
            self._size = self._counted = 0
            self._wake_takers()
            if self.unsent.used < 0:
                self.unsent.violated(self._fail)
        else:
            self.unsent.members.add(self)
            transport.set_write_buffer_limits(high=MESSAGES_HIGH_WATER, low=MESSAGES_HIGH_WATER // 2)

    @property
    def room(self) -> int:
        """Returns the bytes of messages that may be queued now; 0 or below: no bytes."""
        if self._paused:
            return 0
        if self.unsent.over():
            self._tighten()
            return 0 if self._paused else TIGHT_HIGH_WATER - self._size
        return MESSAGES_HIGH_WATER - self._size

    def _tighten(self) -> None:
        """Lowers the limits at which the transport pauses and resumes."""
        if not self._tight and self._transport is not None:
            self._tight = True
            self._transport.set_write_buffer_limits(high=TIGHT_HIGH_WATER, low=TIGHT_HIGH_WATER // 2)

    def count_again(self) -> None:
        """Updates the count of unsent bytes from the transport's write buffer."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self.unsent.used += unsent - self._counted
        self._counted = unsent

    def queue(self, frames: Buffer) -> None:
        """Sends frames together with all other frames of this turn; the caller must not change the buffer."""
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
        of_all = self.unsent
        of_all.used = left = of_all.used - size
        if left < 0:
            of_all.violated(self._fail)
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
            # Messages that stopped at the limit of one turn, not for the socket, go on in the next turn.
            self._on_room()

    def _is_too_much(self, unsent: int) -> bool:
        """Whether the unsent bytes exceed a limit above which the broker pauses reading from the client."""
        if unsent > REQUESTS_HIGH_WATER:
            return True
        if self.unsent.over():
            self._tighten()
            return self._paused
        return False

    async def taken(self) -> None:
        """Returns when the transport's write buffer is not full; if it is full, waits until it is at most
        half full, or the client is disconnected.
        """
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
        """Whether the client reads more slowly than the broker sends."""
        return self._paused

    @property
    def unsent_in_socket(self) -> int:
        """Returns the number of bytes in the transport's write buffer, as of the last count."""
        return self._counted

    @property
    def counted(self) -> int:
        """Returns the bytes of this connection in the total of all connections."""
        return self._size + self._counted

    def give_up(self) -> None:
        """Closes the connection of a client that does not read the data it requested."""
        log.warning("closing the connection: too many bytes are unsent", extra={"bytes": self._counted})
        self.unsent.used -= self._counted
        self._counted = 0
        if self._transport is not None:
            self._transport.abort()

    def make_room(self) -> int:
        """Writes queued frames, for messages that cannot wait; returns :attr:`room`."""
        if self._size and not self._paused:
            self.flush()
        return self.room

    def pause(self) -> None:
        """Called when the transport's write buffer has reached its limit: pauses writing."""
        self._paused = True

    def resume(self) -> None:
        """Called when the transport's write buffer has fallen to half of its limit: resumes writing."""
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
