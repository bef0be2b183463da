"""Entries of one subscription that wait for their delivery time, and the timer that tells when one is due."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import Any

from magnetar.broker.delays.index import KIND, DelayIndex
from magnetar.broker.delays.positions import WaitingPositions
from magnetar.broker.delays.records import RECORD_BYTES, behind, hash_of, pack, position_of, time_of
from magnetar.invariants import must
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.slices import each
from magnetar.io.waiting import finished
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.entry_run import EntryRun
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.hot_ranges import BLOCK_ENTRIES, EntryRanges
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.side_ledgers import SideLedgers
from magnetar.metadata.interface import MetadataError

log = logging.getLogger(__name__)

_LONGEST_SLEEP = 60.0
"""Seconds. Delivery times are those of the wall clock, which may be set while a timer runs."""
_SAVE_SECONDS = 60.0
"""Between two times that is written what has become of what lies in ledgers."""
_RETRY_SECONDS = 10.0
"""After which it is tried again to write something."""
_MOST_IN_MEMORY = 2
"""Reading pauses when so many times ``in_memory`` records are there that could not be written."""
_BLOCKS_AT_ONCE = 500
"""Blocks of entries over which reading leaps at a time."""
_WORTH_SAVING = 10_000
"""So many that wait are written when the topic is closed; fewer are read again as quickly."""


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
    in_memory: int = 30_000
    """Of so many that wait the times are kept in memory, the others' in ledgers."""


class DelayTracker:
    """Whoever reads entries in order gives those to it whose time is to come, and leaps over them later.

    What is in memory alone is lost with the process: it is read again. Of what lies in ledgers the next life
    knows without reading the topic.

    :param due: called when something may be due
    :param lost: called when nothing is known any more of what waits: it is to be read again
    """

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        wheel: TimerWheel,
        settings: DelaySettings,
        cursor: Cursor,
        due: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._wheel = wheel
        self._settings = settings
        self._cursor = cursor
        self._due = due
        self._lost = lost
        self.waiting = WaitingPositions()
        self._handed_out = WaitingPositions()
        """What became due before it was read: it is not to be delivered once more when it is."""
        self._heap: list[int] = []
        """Records of what waits and is in no ledger, and of some that do not wait any more."""
        self._unsaved = WaitingPositions()
        """The positions in the heap."""
        storage = cursor.storage
        self._index = DelayIndex(storage.side, self._told) if storage is not None else None
        self._working: Any = None
        self._next_save = self._not_before = -1e9
        """When what has become of ledgers is written; and when anything is, after something failed."""
        self.not_written = ""
        """Why ledgers could not be brought up to date the last time; empty: they could."""
        self._retry: Any = None
        self._changed = False
        """Something became due since what lies in ledgers was written."""
        self._closed = False
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
        marks = self.waiting.size() + self._handed_out.size() + self._unsaved.size()
        index = 0 if self._index is None else self._index.size()
        return marks + index + len(self._heap) * RECORD_BYTES

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
        if self._index is not None:
            self._index.covers = max(self._index.covers, (ledger_id, entry_id))
        heapq.heappush(self._heap, pack(deliver_at, ledger_id, entry_id, key_hash))
        self._unsaved.add(ledger_id, entry_id)
        if self._is_too_much:
            self._work()
        self._arm()
        return True

    @property
    def _is_too_much(self) -> bool:
        return self._index is not None and len(self._heap) > self._settings.in_memory

    @property
    def is_full(self) -> bool:
        """Whether so much is in memory that could not be written that nothing more is read."""
        return self._index is not None and len(self._heap) > _MOST_IN_MEMORY * self._settings.in_memory

    def passed_by(self) -> None:
        """An entry was read that does not wait."""
        if self.waiting.count:
            self._same_delay = False

    @property
    def pauses_reading(self) -> bool:
        """Whether whatever is read next would wait longer than all that waits, or has no room in memory
        before what is there was written."""
        if (self.is_full or (self._working is not None and self._is_too_much)) and not self.is_due():
            return True
        most = self._settings.look_ahead
        return 0 < most <= self.waiting.count and self._same_delay and not self.is_due()

    def knows_any_of(self, run: EntryRun, first: int, end: int) -> bool:
        """Whether :meth:`knows` any of entries [first, end) of a run."""
        handed_out = self._handed_out
        return self.waiting.has_any_of(run, first, end) or handed_out.has_any_of(run, first, end)

    def knows(self, position: Position) -> bool:
        """Whether an entry that is read is not to be delivered for that: it waits, or has gone its way."""
        return position in self.waiting or position in self._handed_out

    def behind(self, position: Position, consumed: EntryRanges | None) -> Position:
        """The first position at or behind ``position``, in its ledger, that is to be read; or, where that is
        far, one on the way there.

        What lies before ``position`` has been read.

        :param consumed: entries of the ledger that are
        """
        ledger_id, entry_id = position
        if self._handed_out.count:
            self._handed_out.drop_through((ledger_id, entry_id - 1))
        if not self.knows(position) and (consumed is None or not consumed.contains(entry_id)):
            return position
        number = entry_id // BLOCK_ENTRIES
        for block in range(number, number + _BLOCKS_AT_ONCE):
            first = block * BLOCK_ENTRIES
            end = first + BLOCK_ENTRIES
            # Bytes of 0 and 1, the first lowest: they do not carry over into each other.
            known = int.from_bytes(self.waiting.marks_of(ledger_id, first, end), "little")
            known |= int.from_bytes(self._handed_out.marks_of(ledger_id, first, end), "little")
            if consumed is not None:
                known |= int.from_bytes(consumed.marks_of(block), "little")
            place = known.to_bytes(BLOCK_ENTRIES, "little").find(0, max(0, entry_id - first))
            if place >= 0:
                return ledger_id, first + place
        return ledger_id, (number + _BLOCKS_AT_ONCE) * BLOCK_ENTRIES

    def hand_out(self, position: Position) -> None:
        """It is held by somebody, or waits for delivery: it is not to be delivered when it is read."""
        self._handed_out.add(*position)

    def rewound(self) -> None:
        """Everything is read anew, but what waits: nobody holds any of it."""
        self._handed_out.clear()
        # What is read again may not wait at all.
        self.passed_by()

    # What is due, or consumed

    def is_due(self) -> bool:
        """Whether :meth:`take_due` may find something."""
        first = self._first()
        return first is not None and time_of(first) <= self._cutoff_ms()

    def _first(self) -> int | None:
        """The first record in memory."""
        near = self._index.near if self._index is not None else None
        if near and (not self._heap or near[0] < self._heap[0]):
            return near[0]
        return self._heap[0] if self._heap else None

    def next_due_ms(self) -> int | None:
        """When the first of what waits is due, in ms since 1970; None: nothing waits, or that is on disk."""
        first = self._first()
        return None if first is None else time_of(first)

    def take_due(self, limit: int, unread: Position, *, ahead: bool) -> list[tuple[Position, int]]:
        """Takes out up to ``limit`` entries whose time has come, with the hashes of their keys.

        :param unread: from here on entries are still to be read
        :param ahead: whether those are taken out, too; else they are delivered when they are read
        """
        found: list[tuple[Position, int]] = []
        last = behind(self._cutoff_ms())
        while len(found) < limit and (record := self._first()) is not None and record < last:
            position = position_of(record)
            if self._heap and self._heap[0] == record:
                heapq.heappop(self._heap)
                self._unsaved.discard(*position)
            elif self._index is not None:
                heapq.heappop(self._index.near)
                self._changed = True
            if self.waiting.discard(*position) and (ahead or position < unread):
                found.append((position, hash_of(record)))
                if position >= unread:
                    self._handed_out.add(*position)
        self._taken()
        return found

    def _taken(self) -> None:
        if not self.waiting.count:
            self._same_delay = True
            self._latest = 0
            self._heap.clear()
            self._unsaved.clear()
            self._forget_if_empty()
        elif self._changed and self._clock.monotonic() >= self._next_save:
            self._work()
        self._arm()

    def discard(self, position: Position) -> None:
        """It was consumed while it waited."""
        if self.waiting.discard(*position):
            self._taken()

    def drop_through(self, last: Position) -> None:
        """Everything at or below a position was consumed."""
        if self.waiting.count:
            self.waiting.drop_through(last)
            self._taken()

    # What lies in ledgers

    async def load(self) -> None:
        """Takes up what the life before left; without it everything is read again."""
        if self._index is None or self._cursor.storage is None:
            return
        waiting = await self._index.load(self._cursor.state, self._cursor.storage.moves)
        if waiting is not None:
            self.waiting = waiting
            self._same_delay = False
            self._forget_if_empty()
        self._arm()

    def _forget_if_empty(self) -> None:
        """Lets ledgers go when nothing waits that they know of."""
        if not self.waiting.count and self._index is not None and self._index.runs and not self._closed:
            self._forget()

    def _told(self, lost: bool) -> None:
        if lost:
            self._forget()
            self._lost()
        elif self.is_due():
            self._due()
        self._arm()

    def _forget(self) -> None:
        """Nothing of what waits is known any more."""
        self.waiting.clear()
        self._heap.clear()
        self._unsaved.clear()
        if self._index is not None and self._working is None:
            self._working = self._loop.create_task(self._forget_index(self._index))

    async def _forget_index(self, index: DelayIndex) -> None:
        try:
            await index.forget()
        finally:
            self._working = None

    def _work(self) -> None:
        """Brings ledgers up to date, if nobody does so already and it is time."""
        if self._index is None or self._working is not None or self._closed:
            return
        if self._clock.monotonic() >= self._not_before:
            self._working = self._loop.create_task(self._write(self._index, everything=False))

    async def _write(self, index: DelayIndex, *, everything: bool) -> None:
        storage = self._cursor.storage
        if storage is None:
            return
        try:
            if self._is_too_much or (everything and self._heap):
                await self._write_run(index, storage.side)
            self._changed = False
            await index.save(storage.moves, self.waiting, lambda: self._unsaved)
            self.not_written = ""
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            self._not_before = self._clock.monotonic() + _RETRY_SECONDS
            self.not_written = str(error)
            if not self._closed:
                self._write_later()
                log.warning("index of delayed messages not written", extra={"error": str(error)})
        finally:
            self._working = None
            self._next_save = self._clock.monotonic() + _SAVE_SECONDS
        if self._is_too_much:
            self._work()
        self._forget_if_empty()
        if not self._closed:
            # Reading may have waited for this.
            self._due()
        self._arm()

    def _write_later(self) -> None:
        """Tries again after a while: nothing may be read until then that would ask for it."""
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._wheel.schedule(_RETRY_SECONDS + 0.1, self._write_again)

    def _write_again(self) -> None:
        self._retry = None
        if self._is_too_much:
            self._work()
        else:
            self.not_written = ""

    async def _write_run(self, index: DelayIndex, side: SideLedgers) -> None:
        """Moves all records in the heap to a run."""
        heap, self._heap = self._heap, []
        unsaved, self._unsaved = self._unsaved, WaitingPositions()
        records: list[int] = []

        def take(_step: int) -> None:
            record = heapq.heappop(heap)
            if position_of(record) in self.waiting:
                records.append(record)

        try:
            await each(side.io, KIND, range(len(heap)), take)
            if not records:
                return
            run = await index.write_run(records)
        except BaseException:
            self._heap = records + heap + self._heap
            heapq.heapify(self._heap)
            self._unsaved.add_all(unsaved)
            raise
        if self._closed:
            await index.delete_run(run)
            return
        index.add_run(run)

    async def finish(self) -> None:
        """Writes what is worth it, for the next life; whoever calls closes it then."""
        if self._index is None:
            return
        while self._working is not None:
            await finished(self._loop, self._working)
        if self._index.runs or len(self._heap) >= min(_WORTH_SAVING, self._settings.in_memory):
            self._working = self._loop.create_task(self._write(self._index, everything=True))
            await finished(self._loop, self._working)

    # The timer

    def _arm(self) -> None:
        """Sees to it that whoever delivers hears of the first that becomes due.

        Of what is due already they heard: they ask when they can deliver.
        """
        if self._closed:
            return
        index = self._index
        wanted = None if index is None else index.first_wanted_ms
        first = time_of(self._heap[0]) if self._heap else wanted
        if first is not None and wanted is not None:
            first = min(first, wanted)
        if index is not None and index.runs:
            index.read_due(self._cutoff_ms())
        if first is None:
            self._sleep()
            return
        if self._timer is not None and first >= self._timer_for:
            return
        now_ms = self._clock.wall_ms()
        # What is due is asked for; it is not due any more when the clock goes back.
        seconds = (first - now_ms + 1) / 1000 if first > now_ms else _LONGEST_SLEEP
        next_look = self._last_look + self._settings.tick_ms / 1000 - self._clock.monotonic()
        seconds = min(max(seconds, next_look), _LONGEST_SLEEP)
        until = now_ms + int(seconds * 1000)
        if self._timer is None or until < self._timer_for - 1:
            self._sleep()
            self._timer_for = until
            self._timer = self._wheel.schedule(seconds, self._look)

    def _sleep(self) -> None:
        """Nobody is told for now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self.is_due():
            self._last_look = self._clock.monotonic()
            self._due()
        self._arm()

    def close(self, *, forget: bool = False) -> None:
        """Tells nobody any more.

        :param forget: the cursor was set elsewhere: nothing of this is found again
        """
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._index is not None:
            self._index.closed = True
            if forget:
                self._loop.create_task(self._index.forget())
        self._sleep()

    def check(self) -> None:
        """:raises BrokenInvariant: something waits that never becomes due"""
        must(self.waiting.count >= 0, "fewer than none wait")
        if self._index is None:
            known = {position_of(record) for record in self._heap}
            must(len(known) >= self.waiting.count, self.waiting.count, "wait, and", len(known), "become due")
        if self._heap and not self._closed:
            must(self._timer is not None, "nobody is told when the first one is due")
