"""Reading ledgers of the embedded store, and read plans for readers in other processes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.invariants import must
from magnetar.io.interfaces import Cancellable, Io
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.group import body_is_whole, take_entries
from magnetar.ledger.embedded.index import RUN_FIELDS, PartIndex
from magnetar.ledger.embedded.index_lookup import IndexLookup
from magnetar.ledger.embedded.ledger_table import LedgerRow, LedgerTable
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_table import SegmentTable
from magnetar.ledger.interface import (
    DataDamaged,
    EntryRun,
    LedgerMetadata,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchReadPlan,
    PlannedRange,
    ReadPlan,
    StoreClosed,
    TooManyReadPlans,
)

_TOKEN_BYTES = 16


class ReadContext(NamedTuple):
    """The objects that all readers of a store share."""

    table: LedgerTable
    segments: SegmentTable
    lookup: IndexLookup
    reads: SegmentReads
    files: SegmentFiles
    coalesce_gap: int


class _Extent(NamedTuple):
    """Adjacent runs of a part that are read together: the runs with indexes from ``run`` to ``after - 1``, in
    ``length`` bytes of the segment at ``offset``."""

    run: int
    after: int
    offset: int
    length: int


class EmbeddedReader:
    def __init__(self, row: LedgerRow, context: ReadContext) -> None:
        self._row = row
        self._context = context
        self._closed = False
        self._background = False

    @property
    def metadata(self) -> LedgerMetadata:
        """The current metadata of the ledger."""
        return self._row.metadata()

    def in_background(self) -> None:
        self._background = True

    def has_confirmed(self, entry_id: int) -> None:
        """Does nothing, because the writer uses the same store."""

    async def last_add_confirmed(self) -> int:
        return self._row.last_entry_id

    def close(self) -> None:
        self._closed = True

    async def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        row = self._row
        if self._closed:
            raise StoreClosed(f"the reader of ledger {row.ledger_id} is closed")
        self._still_there()
        if first < 0 or first > min(last, row.last_entry_id):
            raise NoSuchEntry(
                f"ledger {row.ledger_id} has no entry {first}: the last entry is {row.last_entry_id}"
            )
        last = min(last, row.last_entry_id)
        runs: list[EntryRun] = []
        left = max_bytes
        while first <= last and (left > 0 or not runs):
            place = row.part_of(first)
            if place is None:
                if runs:
                    break
                raise NoSuchEntry(
                    f"entry {first} of ledger {row.ledger_id} is no longer stored: its writer released it"
                )
            run = await self._read_extent(place, first, last, left, bool(runs))
            if run is None:
                break
            self._still_there()
            runs.append(run)
            if self._background:
                break
            first += run.count
            left -= run.size()
        return runs

    def _still_there(self) -> None:
        if self._context.table.rows.get(self._row.ledger_id) is not self._row:
            raise NoSuchLedger(self._row.ledger_id)

    async def _read_extent(
        self, place: tuple[int, int, int], first: int, last: int, max_bytes: int, optional: bool
    ) -> EntryRun | None:
        """Reads entries from ``first`` on that lie close together; returns None if ``optional`` is true and
        not even one entry fits into ``max_bytes``.

        :param place: segment id, first entry and last entry of the part that contains ``first``
        """
        context = self._context
        segment_id, part_first, _ = place
        context.reads.pin(segment_id)
        try:
            part = await context.lookup.part(segment_id, self._row.ledger_id, part_first, first)
            extent = self._plan(part, first, last, max_bytes)
            ahead = not self._background
            data = await context.reads.read(segment_id, extent.length, extent.offset, ahead=ahead)
        finally:
            context.reads.unpin(segment_id)
        starts, ends = array("q"), array("q")
        if self._background:
            # Otherwise the rest of a run, after the last entry that fits, would be read once more.
            max_bytes = max(max_bytes, len(data))
        taken = self._take(segment_id, part, extent, data, (first, last, max_bytes, optional), starts, ends)
        if not taken:
            return None
        return EntryRun(self._row.ledger_id, first, taken, data, starts, ends)

    def _plan(self, part: PartIndex, first: int, last: int, max_bytes: int) -> _Extent:
        """Returns the bytes of a segment to read: the run that contains ``first`` and the runs after it until
        they have enough entries or bytes, or the next run is too far away in the file."""
        runs = part.runs
        begin = part.run_of(first)
        at = begin * RUN_FIELDS
        offset = runs[at + 1]
        end = offset + runs[at + 2]
        gap = self._context.coalesce_gap
        after = begin + 1
        # The first run may have few of the wanted entries: for a waiting reader, only later runs count.
        following = end - offset if self._background else 0
        for number in range(after, part.run_count()):
            at = number * RUN_FIELDS
            begins, length = runs[at + 1], runs[at + 2]
            too_far = begins < end or begins - end > gap
            if too_far or following >= max_bytes or part.first_entry_id + runs[at] > last:
                break
            following += length
            end = begins + length
            after = number + 1
        return _Extent(begin, after, offset, end - offset)

    def _take(
        self,
        segment_id: int,
        part: PartIndex,
        extent: _Extent,
        data: bytes,
        wanted: tuple[int, int, int, bool],
        starts: array[int],
        ends: array[int],
    ) -> int:
        """Checks the runs of an extent and appends the bounds of their entries; returns the number of
        entries."""
        first, last, left, optional = wanted
        taken = 0
        for number in range(extent.run, extent.after):
            at = number * RUN_FIELDS
            body_at = part.runs[at + 1] - extent.offset
            run_first, count = part.entries_of(number)
            if not body_is_whole(data, body_at, part.runs[at + 2], part.runs[at + 3]):
                self._damaged(segment_id, part.runs[at + 1], run_first, run_first + count - 1)
            skip = first + taken - run_first
            want = min(count - skip, last - first - taken + 1)
            got, size = take_entries(data, body_at, count, skip, want, left, starts, ends)
            if not got and not taken and not optional:
                got, size = take_entries(data, body_at, count, skip, 1, len(data), starts, ends)
            taken += got
            left -= size
            if got < want or left <= 0:
                break
        return taken

    def _damaged(self, segment_id: int, offset: int, first: int, last: int) -> None:
        raise DataDamaged(
            f"{self._context.files.segment_path(segment_id)} at offset {offset}: entries {first} to {last} "
            f"of ledger {self._row.ledger_id} are damaged"
        )


@dataclass(slots=True)
class _Held:
    segments: frozenset[int]
    expiry: Cancellable


class EmbeddedReadPlans:
    """The read plans of one store; see :class:`magnetar.ledger.interface.ReadPlans`.

    A plan pins its segments like a read in this process: their files and indexes keep their names and bytes
    until the plan is released or expires. A reader that uses the plan after that finds the header of another
    segment, or no file.
    """

    def __init__(self, io: Io, context: ReadContext, most_plans: int) -> None:
        self._io = io
        self._context = context
        self._most = most_plans
        self._plans: dict[str, _Held] = {}
        self._closed = False

    def make(self, ranges: Sequence[tuple[int, int, int]], seconds: float) -> ReadPlan:
        if self._closed:
            raise StoreClosed("the ledger store is closed")
        if len(self._plans) >= self._most:
            raise TooManyReadPlans(f"{self._most} read plans are already held, the maximum: release one")
        planned = [part for wanted in ranges for part in self._sealed_parts(*wanted)]
        segments = frozenset(part.segment_id for part in planned)
        for segment_id in segments:
            self._context.reads.pin(segment_id)
        plan_id = self._io.randomness.token(_TOKEN_BYTES).hex()
        self._plans[plan_id] = _Held(segments, self._expire_in(plan_id, seconds))
        return ReadPlan(plan_id, seconds, planned)

    def prolong(self, plan_id: str, seconds: float) -> None:
        held = self._held(plan_id)
        held.expiry.cancel()
        held.expiry = self._expire_in(plan_id, seconds)

    def release(self, plan_id: str) -> None:
        held = self._plans.pop(plan_id, None)
        if held is None:
            return
        held.expiry.cancel()
        for segment_id in held.segments:
            self._context.reads.unpin(segment_id)

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: a segment of a plan is not pinned
        """
        for plan_id, held in self._plans.items():
            for segment_id in held.segments:
                pinned = self._context.reads.is_pinned(segment_id)
                must(pinned, "read plan", plan_id, "does not keep segment", segment_id)

    def close(self) -> None:
        """Releases all plans; none outlives the store."""
        self._closed = True
        for plan_id in list(self._plans):
            self.release(plan_id)

    def _held(self, plan_id: str) -> _Held:
        held = self._plans.get(plan_id)
        if held is None:
            raise NoSuchReadPlan(
                f"read plan {plan_id} does not exist: it was released, or it has expired; make a new one"
            )
        return held

    def _expire_in(self, plan_id: str, seconds: float) -> Cancellable:
        return self._io.loop.call_later(seconds, self.release, plan_id)

    def _sealed_parts(self, ledger_id: int, first: int, last: int) -> list[PlannedRange]:
        """Returns the ranges of entries ``first`` to ``last`` in sealed segments; empty for a
        deleted ledger."""
        row = self._context.table.rows.get(ledger_id)
        if row is None:
            return []
        files, segments = self._context.files, self._context.segments
        found = []
        for segment_id, part_first, part_last, _ in row.each_part():
            begin, end = max(first, part_first), min(last, part_last)
            if segments.may_grow(segment_id) or begin > end:
                continue
            found.append(
                PlannedRange(
                    ledger_id,
                    begin,
                    end,
                    segment_id,
                    files.segment_path(segment_id),
                    files.index_path(segment_id),
                )
            )
        return found
