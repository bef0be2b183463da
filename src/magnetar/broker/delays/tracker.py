"""Tracks the delayed entries of one subscription, with a timer for the entry that is due first."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from magnetar.broker.delays.index import KIND, DelayIndex, WaitingPositions
from magnetar.broker.delays.runs import RECORD_BYTES, behind, hash_of, pack, position_of, time_of
from magnetar.invariants import Fail, must, violated
from magnetar.io.interfaces import Cancellable, Clock, Loop, Task
from magnetar.io.slices import each
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import EntryRun, LedgerError
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.hot_ranges import BLOCK_ENTRIES, EntryRanges
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.side_ledgers import SideLedgers
from magnetar.metadata.interface import MetadataError

log = logging.getLogger(__name__)

_LONGEST_SLEEP = 60.0
"""The longest timer in seconds, because delivery times refer to the wall clock, which may be set while a
timer runs."""
_SAVE_SECONDS = 60.0
"""The seconds between saves of the index after entries of its ledgers were delivered."""
_RETRY_SECONDS = 10.0
"""The number of seconds after which a failed write is repeated."""
_MOST_IN_MEMORY = 2
"""Reading pauses when memory holds more than this many times :attr:`DelaySettings.in_memory` records; memory
holds that many records only if writes fail.
"""
_BLOCKS_AT_ONCE = 500
"""The maximum number of blocks of entries that one call of :meth:`DelayTracker.behind` skips."""
_WORTH_SAVING = 10_000
"""Closing saves the index if at least this number of records is in memory. Fewer entries can be read again
from the topic in the same time."""


@dataclass(frozen=True, slots=True)
class DelaySettings:
    active: bool = True
    """Whether delayed delivery is enabled."""
    tick_ms: int = 1000
    """The minimum time between two checks for entries that are due, in ms."""
    strict: bool = True
    """Whether no entry is delivered before its time; False: up to a tick earlier."""
    look_ahead: int = 50_000
    """The number of waiting entries with the same delay at which reading pauses until one of them is due; 0:
    reading never pauses.
    """
    in_memory: int = 30_000
    """The maximum number of records of waiting entries in memory; if there are more, the records are written
    to ledgers.
    """


class DelayTracker:
    """Takes the entries with a future delivery time from a dispatcher, which then skips them.

    Entries that are only in memory are lost with the process, and found again by reading the topic. The index
    in ledgers is loaded without reading the topic.

    :param due: called when entries may be due, or reading may continue after a pause
    :param lost: called when the index was lost, so that the topic must be read again
    :param failed: closes the topic after an internal error
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
        failed: Fail,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._wheel = wheel
        self._settings = settings
        self._cursor = cursor
        self._due = due
        self._fail = failed
        self._lost = lost
        self.waiting = WaitingPositions()
        self._handed_out = WaitingPositions()
        """Entries that were delivered, or moved to the replay list, before the cursor has read them, so that
        the cursor must skip them."""
        self._heap: list[int] = []
        """Records that are in no ledger; the entries of some of these records no longer wait."""
        self._unsaved = WaitingPositions()
        """The positions of the entries whose records are in the heap."""
        storage = cursor.storage
        self._index = DelayIndex(storage.side, self._told, failed) if storage is not None else None
        self._tasks = TaskScope(loop, "delayed messages", lambda _work, error: failed(error))
        self._working: Task[None] | None = None
        self._next_save = self._not_before = -1e9
        """The time of the next save, and the earliest time of the next write after a failure."""
        self.not_written = ""
        """The error of the last attempt to write the index; empty: the attempt succeeded."""
        self._retry: Cancellable | None = None
        self._changed = False
        """Whether an entry of the index's ledgers was delivered since the last save."""
        self._closed = False
        self._timer: Cancellable | None = None
        self._timer_for = 0
        self._last_look = -1e9
        self._same_delay = True
        """Whether the entries seem to have the same delay: each is due after the entry that was read before
        it."""
        self._latest = 0

    def __len__(self) -> int:
        """Returns the number of waiting entries."""
        return self.waiting.count

    def use(self, settings: DelaySettings) -> None:
        """Applies changed settings. Entries that wait already keep waiting, even if delayed delivery is
        turned off."""
        self._settings = settings
        self._arm()

    def size(self) -> int:
        """Returns the approximate memory use of the tracker in bytes."""
        marks = self.waiting.size() + self._handed_out.size() + self._unsaved.size()
        index = 0 if self._index is None else self._index.size()
        return marks + index + len(self._heap) * RECORD_BYTES

    def _cutoff_ms(self) -> int:
        now = self._clock.wall_ms()
        return now if self._settings.strict else now + self._settings.tick_ms

    # Reading

    def add(self, deliver_at: int, ledger_id: int, entry_id: int, key_hash: int) -> bool:
        """Adds an entry; returns False if it must be delivered now instead of waiting.

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
        """Whether reading must stop because too many records in memory cannot be written."""
        return self._index is not None and len(self._heap) > _MOST_IN_MEMORY * self._settings.in_memory

    def passed_by(self) -> None:
        """Records that the last entry that was read does not have to wait."""
        if self.waiting.count:
            self._same_delay = False

    @property
    def pauses_reading(self) -> bool:
        """Whether to pause reading: the next entries would wait longer than all known entries, or there is no
        memory for the next entries until records have been written to ledgers.
        """
        if (self.is_full or (self._working is not None and self._is_too_much)) and not self.is_due():
            return True
        most = self._settings.look_ahead
        return 0 < most <= self.waiting.count and self._same_delay and not self.is_due()

    def knows_any_of(self, run: EntryRun, first: int, end: int) -> bool:
        """Whether :meth:`knows` applies to any of entries [first, end) of a run."""
        handed_out = self._handed_out
        return self.waiting.has_any_of(run, first, end) or handed_out.has_any_of(run, first, end)

    def knows(self, position: Position) -> bool:
        """Whether an entry that is read must be skipped: it waits, or :meth:`hand_out` has marked it."""
        return position in self.waiting or position in self._handed_out

    def behind(self, position: Position, consumed: EntryRanges | None) -> Position:
        """Returns the first position at or after ``position``, in the same ledger, that must be read; if that
        position is far away, a position in between.

        The caller has read all entries before ``position``.

        :param consumed: the acknowledged entries of the ledger; None: none is acknowledged
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
            # The bytes are 0 or 1, the first one lowest.
            known = int.from_bytes(self.waiting.marks_of(ledger_id, first, end), "little")
            known |= int.from_bytes(self._handed_out.marks_of(ledger_id, first, end), "little")
            if consumed is not None:
                known |= int.from_bytes(consumed.marks_of(block), "little")
            place = known.to_bytes(BLOCK_ENTRIES, "little").find(0, max(0, entry_id - first))
            if place >= 0:
                return ledger_id, first + place
        return ledger_id, (number + _BLOCKS_AT_ONCE) * BLOCK_ENTRIES

    def hand_out(self, position: Position) -> None:
        """Marks an entry that a consumer holds, or that is in the replay list, so that the cursor skips
        it."""
        self._handed_out.add(*position)

    def rewound(self) -> None:
        """Handles a rewind of the cursor: all entries are read again, except those that wait."""
        self._handed_out.clear()
        # Entries that are read again may have no delay.
        self.passed_by()

    # Entries that are due or acknowledged

    def is_due(self) -> bool:
        """Whether :meth:`take_due` may return entries."""
        first = self._first()
        return first is not None and time_of(first) <= self._cutoff_ms()

    def _first(self) -> int | None:
        """Returns the first record in memory; None if no record is in memory."""
        near = self._index.near if self._index is not None else None
        if near and (not self._heap or near[0] < self._heap[0]):
            return near[0]
        return self._heap[0] if self._heap else None

    def next_due_ms(self) -> int | None:
        """Returns the time at which the first waiting entry in memory is due, in ms since 1970.

        Returns None if no entry waits, or all waiting entries are in the index on disk.
        """
        first = self._first()
        return None if first is None else time_of(first)

    def take_due(self, limit: int, unread: Position, *, ahead: bool) -> list[tuple[Position, int]]:
        """Removes and returns up to ``limit`` entries that are due, with the hashes of their keys.

        :param unread: the position of the first entry that the cursor has not read
        :param ahead: whether to return unread entries, too; False: they are delivered when they are read
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
        count = self.waiting.count
        if count < 0:
            violated(self._fail, f"entries of cursor {self._cursor.name} that wait", "at least 0", count)
        if self._index is None and len(self._heap) < count:
            what = f"records of the entries of cursor {self._cursor.name} that wait"
            violated(self._fail, what, f"at least {count}", len(self._heap))
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
        """Removes a waiting entry that was acknowledged."""
        if self.waiting.discard(*position):
            self._taken()

    def drop_through(self, last: Position) -> None:
        """Removes all entries at or below ``last``, which were acknowledged."""
        if self.waiting.count:
            self.waiting.drop_through(last)
            self._taken()

    # The index in ledgers

    async def load(self) -> None:
        """Loads the saved index. Without a usable saved index, no entry is known: the topic must be read
        again.

        :raises LedgerError: the saved state cannot be read now
        """
        if self._index is None or self._cursor.storage is None:
            return
        waiting = await self._index.load(self._cursor.state, self._cursor.storage.moves)
        if waiting is not None:
            self.waiting = waiting
            self._same_delay = False
            self._forget_if_empty()
        self._arm()

    def _forget_if_empty(self) -> None:
        """Deletes the ledgers of the index if no entry waits."""
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
        """Discards the index with all waiting entries."""
        self.waiting.clear()
        self._heap.clear()
        self._unsaved.clear()
        if self._index is not None and self._working is None:
            self._working = self._tasks.start(self._forget_index(self._index), "the deletion of the index")

    async def _forget_index(self, index: DelayIndex) -> None:
        try:
            await index.forget()
        finally:
            self._working = None

    def _work(self) -> None:
        """Starts to update the index, unless an update is running, or the last update failed a short time
        ago.
        """
        if self._index is None or self._working is not None or self._closed:
            return
        if self._clock.monotonic() >= self._not_before:
            self._working = self._tasks.start(
                self._write(self._index, everything=False), "a write of the index"
            )

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
                log.warning(
                    "cannot write the index of delayed messages; trying again", extra={"error": str(error)}
                )
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
        """Schedules another attempt to write, because nothing else would cause a write while reading is
        paused.
        """
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
        """Moves all records of the heap to a run."""
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
        """Saves the index if that is worthwhile (:data:`_WORTH_SAVING`); the caller closes the tracker
        afterwards."""
        if self._index is None:
            return
        while self._working is not None:
            await finished(self._loop, self._working)
        if self._index.runs or len(self._heap) >= min(_WORTH_SAVING, self._settings.in_memory):
            self._working = self._tasks.start(
                self._write(self._index, everything=True), "the last write of the index"
            )
            await finished(self._loop, self._working)

    # The timer

    def _arm(self) -> None:
        """Sets the timer for the entry that becomes due next.

        Entries that are due already need no timer: dispatchers ask for due entries when they can deliver
        entries.
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
        # Due entries need no timer, unless the wall clock is set back.
        seconds = (first - now_ms + 1) / 1000 if first > now_ms else _LONGEST_SLEEP
        next_look = self._last_look + self._settings.tick_ms / 1000 - self._clock.monotonic()
        seconds = min(max(seconds, next_look), _LONGEST_SLEEP)
        until = now_ms + int(seconds * 1000)
        if self._timer is None or until < self._timer_for - 1:
            self._sleep()
            self._timer_for = until
            self._timer = self._wheel.schedule(seconds, self._look)

    def _sleep(self) -> None:
        """Cancels the timer."""
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
        """Stops the timer and all callbacks.

        :param forget: whether to delete the index, because the cursor was moved
        """
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._index is not None:
            self._index.closed = True
            if forget:
                self._tasks.start(self._index.forget(), "the deletion of the index")
        self._sleep()

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: an entry waits that would never become due
        """
        must(self.waiting.count >= 0, "fewer than none wait")
        if self._index is None:
            known = {position_of(record) for record in self._heap}
            must(len(known) >= self.waiting.count, self.waiting.count, "wait, and", len(known), "become due")
        if self._heap and not self._closed:
            must(self._timer is not None, "no timer is set for the first delayed entry")
