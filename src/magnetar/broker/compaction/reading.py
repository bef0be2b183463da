"""Reading a topic compacted: what the last compaction left, then what came since."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.ledger.entry_run import EntryRun
from magnetar.ledger.interface import NoSuchLedger
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry_reader import bound_run, slice_run
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.position import Position

_READ_BYTES = 256 * 1024


class ReaderStart(Protocol):
    """Where a subscription begins to read: a room above this one has subscriptions."""

    def first_wanted(self) -> Position:
        """The first position that was not consumed; EARLIEST for the very first message."""
        ...


class CompactedReading:
    """Stands in for a cursor when a consumer reads compacted.

    Whoever has begun to read goes on with what it began with: when another compaction replaces the ledger it
    reads, it reads that one to its end, and goes on with the topic itself. So it sees what was deleted since,
    too. Only where the topic was trimmed meanwhile it takes the newer compacted ledger instead.
    """

    def __init__(
        self, cursor: Cursor, ledgers: LedgerList, compaction: TopicCompaction, start: ReaderStart
    ) -> None:
        self._cursor = cursor
        self._ledgers = ledgers
        self._compaction = compaction
        self._start = start
        self._ledger: CompactedLedger | None = None
        """The one that is read; None: the topic itself is read."""
        self._next: Position = (-1, -1)
        """The first position that was not read yet."""
        self._index: int | None = None
        """The next entry of the compacted ledger; None: it is to be looked for."""
        self._opened: deque[EntryRun] = deque()
        """Read from the compacted ledger and not given to anybody yet."""
        self._rewinds = 0
        self.rewind()

    # Where it stands

    def rewind(self) -> None:
        """Reads again from the first message that is not consumed; a read under way gives nothing."""
        self._rewinds += 1
        self._cursor.rewind()
        self._leave_ledger()
        self._begin_at(self._start.first_wanted())

    def _begin_at(self, position: Position) -> None:
        self._next = position
        current = self._compaction.current
        if current is not None and position <= current.horizon:
            current.use()
            self._ledger = current
            self._index = None

    def _leave_ledger(self) -> None:
        self._opened.clear()
        if self._ledger is not None:
            self._ledger.release()
            self._ledger = None

    def close(self) -> None:
        """It is not read on."""
        self._rewinds += 1
        self._leave_ledger()

    def _look_for_gap(self) -> None:
        """The topic may have been trimmed where it is read next: then what was there is compacted."""
        if self._ledger is None and self._next[0] < self._ledgers.first_id():
            self._begin_at(self._next)

    def _end_of_ledger(self) -> None:
        ledger = self._ledger
        assert ledger is not None
        self._next = max(self._next, (ledger.horizon[0], ledger.horizon[1] + 1))
        self._leave_ledger()
        self._cursor.read_position = max(self._cursor.read_position, self._next)

    # As a cursor

    def has_more(self) -> bool:
        """Whether there is something to read now, or to look for."""
        self._look_for_gap()
        return self._ledger is not None or self._cursor.has_more()

    def read_cached(self, max_entries: int, max_bytes: int) -> EntryRun | None:
        """The next entries if they are in memory."""
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
            # In the topic what follows may be in another ledger, and this one go: that is no gap.
            self._next = self._ledgers.after(last) if self._ledger is None else (last[0], last[1] + 1)
        return run

    async def read(self, max_entries: int, max_bytes: int) -> EntryRun | None:
        """The next entries; None when there are none, or it was rewound meanwhile, or is to be asked again.

        :raises LedgerError: they cannot be read
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
            # The compaction was taken away with what it left: the topic itself is all there is.
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
        run = await ledger.read(index, last, min(max_bytes, _READ_BYTES))
        if self._rewinds == rewinds:
            self._index = run.first + run.count
        return run.runs()

    def unconsumed_parts(self, run: EntryRun) -> list[tuple[int, int]]:
        """Index ranges [first, end) of a run that are not consumed."""
        if run.ledger_id < self._ledgers.first_id():
            # The topic does not have it any more, so nothing tells that it is consumed.
            return [(0, run.count)]
        return self._cursor.unconsumed_parts(run)
