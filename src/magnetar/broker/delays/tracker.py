"""Entries of one subscription that wait for their delivery time, and the timer that tells when one is due."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magnetar.broker.delays.positions import WaitingPositions
from magnetar.broker.delays.records import RECORD_BYTES, behind, hash_of, pack, position_of, time_of
from magnetar.invariants import must
from magnetar.io.interfaces import Clock
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.entry_run import EntryRun
from magnetar.managed_ledger.position import Position

_LONGEST_SLEEP = 60.0
"""Seconds. Delivery times are those of the wall clock, which may be set while a timer runs."""


@dataclass(frozen=True, slots=True)
class DelaySettings:
    active: bool = True
    """Whether messages may wait at all."""
    tick_ms: int = 1000
    """How often it is looked, at most, what has become due."""
    strict: bool = True
    """Nothing goes before its time; else up to a tick before it."""
    look_ahead: int = 50_000
    """When so many wait, all with the same delay, nothing more is read before the first is due; 0: it is."""


class DelayTracker:
    """Whoever reads entries in order gives those to it whose time is to come, and leaps over them later.

    :param due: called when something may be due
    """

    def __init__(
        self, clock: Clock, wheel: TimerWheel, settings: DelaySettings, due: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._wheel = wheel
        self._settings = settings
        self._due = due
        self.waiting = WaitingPositions()
        self._handed_out = WaitingPositions()
        """What became due before it was read: it is not to be delivered once more when it is."""
        self._heap: list[int] = []
        """Records of all that waits, and of some that do not any more."""
        self._timer: Any = None
        self._timer_for = 0
        self._last_look = -1e9
        self._same_delay = True
        """Whether each became due after the one that was read before it."""
        self._latest = 0

    def __len__(self) -> int:
        """Entries that wait."""
        return self.waiting.count

    def use(self, settings: DelaySettings) -> None:
        """Goes by other settings from now on; what waits already goes on waiting."""
        self._settings = settings
        self._arm()

    def size(self) -> int:
        """Bytes in memory, roughly."""
        return self.waiting.size() + self._handed_out.size() + len(self._heap) * RECORD_BYTES

    def _cutoff_ms(self) -> int:
        now = self._clock.wall_ms()
        return now if self._settings.strict else now + self._settings.tick_ms

    # What is read

    def add(self, deliver_at: int, ledger_id: int, entry_id: int, key_hash: int) -> bool:
        """Whether the entry waits from now on; else it is to be delivered now.

        :param deliver_at: ms since 1970
        """
        if not self._settings.active or deliver_at <= self._cutoff_ms():
            self.passed_by()
            return False
        if not self.waiting.add(ledger_id, entry_id):
            return True
        if deliver_at < self._latest - self._settings.tick_ms:
            self._same_delay = False
        self._latest = max(self._latest, deliver_at)
        heapq.heappush(self._heap, pack(deliver_at, ledger_id, entry_id, key_hash))
        self._arm()
        return True

    def passed_by(self) -> None:
        """An entry was read that does not wait."""
        if self.waiting.count:
            self._same_delay = False

    @property
    def pauses_reading(self) -> bool:
        """Whether whatever is read next would wait longer than all that waits."""
        most = self._settings.look_ahead
        return 0 < most <= self.waiting.count and self._same_delay and not self.is_due()

    def knows_any_of(self, run: EntryRun, first: int, end: int) -> bool:
        """Whether :meth:`knows` any of entries [first, end) of a run."""
        handed_out = self._handed_out
        return self.waiting.has_any_of(run, first, end) or handed_out.has_any_of(run, first, end)

    def knows(self, position: Position) -> bool:
        """Whether an entry that is read is not to be delivered for that: it waits, or has gone its way."""
        return position in self.waiting or position in self._handed_out

    def behind(self, position: Position) -> Position:
        """The first position at or behind ``position``, in its ledger, that is to be read.

        What lies before ``position`` has been read.
        """
        if self._handed_out.count:
            self._handed_out.drop_through((position[0], position[1] - 1))
        while True:
            found = self._handed_out.behind(self.waiting.behind(position))
            if found == position:
                return found
            position = found

    def rewound(self) -> None:
        """Everything is read anew, but what waits: nobody holds any of it."""
        self._handed_out.clear()

    # What is due, or consumed

    def is_due(self) -> bool:
        """Whether :meth:`take_due` may find something."""
        return bool(self._heap) and time_of(self._heap[0]) <= self._cutoff_ms()

    def take_due(self, limit: int, unread: Position) -> list[tuple[Position, int]]:
        """Takes out up to ``limit`` entries whose time has come, with the hashes of their keys.

        :param unread: from here on entries are still to be read
        """
        heap = self._heap
        found: list[tuple[Position, int]] = []
        last = behind(self._cutoff_ms())
        while heap and heap[0] < last and len(found) < limit:
            record = heapq.heappop(heap)
            position = position_of(record)
            if self.waiting.discard(*position):
                found.append((position, hash_of(record)))
                if position >= unread:
                    self._handed_out.add(*position)
        self._taken()
        return found

    def _taken(self) -> None:
        if not self.waiting.count:
            self._begin_anew()
        self._arm()

    def _begin_anew(self) -> None:
        self._heap.clear()
        self._same_delay = True
        self._latest = 0

    def discard(self, position: Position) -> None:
        """It was consumed while it waited."""
        if self.waiting.discard(*position):
            self._taken()

    def drop_through(self, last: Position) -> None:
        """Everything at or below a position was consumed."""
        if self.waiting.count:
            self.waiting.drop_through(last)
            self._taken()

    def clear(self) -> None:
        """Nothing waits any more: it is read anew."""
        self.waiting.clear()
        self._begin_anew()
        self._arm()

    # The timer

    def _arm(self) -> None:
        """Sees to it that whoever delivers hears of the first that becomes due.

        Of what is due already they heard: they ask when they can deliver.
        """
        first = time_of(self._heap[0]) if self._heap else 0
        if self._timer is not None:
            if first and first >= self._timer_for:
                return
            self._timer.cancel()
            self._timer = None
        if not first:
            return
        now_ms = self._clock.wall_ms()
        if first <= now_ms:
            return
        next_look = self._last_look + self._settings.tick_ms / 1000 - self._clock.monotonic()
        seconds = max((first - now_ms + 1) / 1000, next_look)
        self._timer_for = first
        self._timer = self._wheel.schedule(min(seconds, _LONGEST_SLEEP), self._look)

    def _look(self) -> None:
        self._timer = None
        if self.is_due():
            self._last_look = self._clock.monotonic()
            self._due()
        self._arm()

    def close(self) -> None:
        """Tells nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """:raises BrokenInvariant: something waits that never becomes due"""
        known = {position_of(record) for record in self._heap}
        must(len(known) >= self.waiting.count, self.waiting.count, "wait, and", len(known), "become due")
        if self._heap and time_of(self._heap[0]) > self._clock.wall_ms():
            must(self._timer is not None, "nobody is told when the first one is due")
