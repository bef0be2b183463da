"""Reading of a compacted topic: first the last compacted ledger, then the newer entries of the topic."""

from __future__ import annotations

from collections import deque

from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.ledger.interface import EntryRun, NoSuchLedger
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry_reader import bound_run, slice_run
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.position import EARLIEST, LATEST, Position

_READ_BYTES = 256 * 1024
_READ_ENTRIES = 256
"""The maximum number of entries per read; most entries become runs of one entry."""


class ReadStart:
    """The position at which a subscription begins to read. The cursor does not know this position if only the
    compacted ledger still has it."""

    __slots__ = ("_cursor", "_ledgers", "_mark", "_start")

    def __init__(self, cursor: Cursor, ledgers: LedgerList, start: Position | None) -> None:
        """:param start: the first position to deliver, as requested by the client; None if unknown"""
        self._cursor = cursor
        self._ledgers = ledgers
        self.begin_at(start)

    def begin_at(self, start: Position | None) -> None:
        self._start = start
        self._mark = self._cursor.mark_delete

    def first_wanted(self) -> Position:
        """Returns the first unconsumed position."""
        cursor = self._cursor
        mark = cursor.mark_delete
        nothing = mark == (self._ledgers.first_id(), -1)
        # Trimming of the topic moves it as well.
        untouched = mark == self._mark or (nothing and not cursor.durable)
        if untouched and self._start not in (None, LATEST):
            return self._start
        if self._start is None and cursor.durable and nothing:
            # Nothing shows that the subscription has ever consumed anything.
            return EARLIEST
        return mark[0], mark[1] + 1

    def passed(self, position: Position) -> bool:
        """Records that all entries up to a position are consumed; returns whether only the compacted ledger
        has the position, so that this object, and not the cursor, stores the progress.
        """
        if position[0] < self._ledgers.first_id() and position >= self.first_wanted():
            self.begin_at((position[0], position[1] + 1))
            return True
        return False


class CompactedReading:
    """Takes the place of the cursor for a consumer that reads the compacted topic.

    A consumer finishes the compacted ledger that it began to read, even when another compaction replaces it,
    and then continues with the topic itself, so it also gets messages that the later compaction has removed.
    Only entries that were trimmed before the consumer read them are read from the newer compacted ledger.
    """

    def __init__(
        self, cursor: Cursor, ledgers: LedgerList, compaction: TopicCompaction, start: ReadStart
    ) -> None:
        self._cursor = cursor
        self._ledgers = ledgers
        self._compaction = compaction
        self._start = start
        self._ledger: CompactedLedger | None = None
        """The compacted ledger that is being read; None: the topic itself is read."""
        self._next: Position = (-1, -1)
        """The first position that was not read yet."""
        self._until: Position = (-1, -1)
        """The last position that is read from the compacted ledger."""
        self._index: int | None = None
        """The index of the next entry of the compacted ledger; None: it must be searched for."""
        self._opened: deque[EntryRun] = deque()
        """Entries that were read from the compacted ledger and not returned yet."""
        self._rewinds = 0
        self.rewind()

    # Position

    def rewind(self) -> None:
        """Moves the read position back to the first unconsumed message; a read in progress returns None."""
        self._rewinds += 1
        self._cursor.rewind()
        self._leave_ledger()
        self._begin_at(self._start.first_wanted())

    def _begin_at(self, position: Position, until: Position = LATEST) -> None:
        """Sets the next position to read.

        :param until: the last position to read from a compacted ledger; later positions are read from the
            topic
        """
        self._next = position
        current = self._compaction.current
        if current is not None and position <= current.horizon:
            current.use()
            self._ledger = current
            self._until = min(until, current.horizon)
            self._index = None

    def _leave_ledger(self) -> None:
        self._opened.clear()
        if self._ledger is not None:
            self._ledger.release()
            self._ledger = None

    def close(self) -> None:
        """Releases the compacted ledger and invalidates a read in progress."""
        self._rewinds += 1
        self._leave_ledger()

    def _look_for_gap(self) -> None:
        """Switches to the compacted ledger if the topic was trimmed at the next position to read."""
        if self._ledger is None and self._next[0] < self._ledgers.first_id():
            self._begin_at(self._next, (self._ledgers.first_id(), -1))

    def _end_of_ledger(self) -> None:
        self._next = max(self._next, (self._until[0], self._until[1] + 1))
        self._leave_ledger()
        self._cursor.read_position = max(self._cursor.read_position, self._next)

    # The interface of a cursor

    def has_more(self) -> bool:
        """Whether there may be entries to read."""
        self._look_for_gap()
        return self._ledger is not None or self._cursor.has_more()

    def read_cached(self, max_entries: int, max_bytes: int) -> EntryRun | None:
        """Returns the next entries if they are in memory, otherwise None."""
        self._look_for_gap()
        if self._ledger is None:
            return self._went_on(self._cursor.read_cached(max_entries, max_bytes))
        if not self._opened:
            return None
        run = self._opened.popleft()
        part = bound_run(slice_run(run, run.first_entry_id, max_entries), max_bytes)
        if part.count < run.count:
            self._opened.appendleft(slice_run(run, part.first_entry_id + part.count, run.count))
        return self._went_on(part)

    def _went_on(self, run: EntryRun | None) -> EntryRun | None:
        if run is not None:
            last = run.ledger_id, run.first_entry_id + run.count - 1
            self._next = last[0], last[1] + 1
            if self._ledger is None and last[0] in self._ledgers:
                # The next position may be in another ledger, and this one be trimmed, without a gap. If this
                # ledger was trimmed already, the ones after it may be too.
                self._next = self._ledgers.after(last)
        return run

    async def read(self, max_entries: int, max_bytes: int) -> EntryRun | None:
        """Returns the next entries; None if no entry is available, if the reading was rewound meanwhile, or
        if the caller must try again.

        :raises LedgerError: the entries cannot be read
        """
        self._look_for_gap()
        ledger = self._ledger
        if ledger is None:
            return self._went_on(await self._cursor.read(max_entries, max_bytes))
        rewinds = self._rewinds
        ledger.use()
        try:
            opened = await self._read_ledger(ledger, max_bytes)
        except NoSuchLedger:
            if self._compaction.current is ledger:
                raise
            # The compaction was removed together with its ledger: only the topic itself is left.
            opened = []
        finally:
            ledger.release()
        if self._rewinds != rewinds or self._ledger is not ledger:
            return None
        if not opened:
            self._end_of_ledger()
            return None
        self._opened.extend(opened)
        return self.read_cached(max_entries, max_bytes)

    async def _read_ledger(self, ledger: CompactedLedger, max_bytes: int) -> list[EntryRun]:
        rewinds = self._rewinds
        index = self._index
        if index is None:
            index = await ledger.find(self._next)
        last = await ledger.entries() - 1
        if index > last:
            return []
        run = await ledger.read(index, min(last, index + _READ_ENTRIES - 1), min(max_bytes, _READ_BYTES))
        if self._rewinds == rewinds:
            self._index = run.first + run.count
        return [each for each in run.runs() if (each.ledger_id, each.first_entry_id) <= self._until]

    def unconsumed_parts(self, run: EntryRun) -> list[tuple[int, int]]:
        """Returns the index ranges [first, end) of a run that are not consumed."""
        if run.ledger_id < self._ledgers.first_id():
            # The topic has trimmed the ledger, so the cursor no longer knows what is consumed.
            return [(0, run.count)]
        return self._cursor.unconsumed_parts(run)
