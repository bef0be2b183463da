"""Compaction: rewrites sealed segments with few live entries, small segments, and segments that are not
sorted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from magnetar.io.files import SpaceExhausted, is_shortage
from magnetar.io.interfaces import File, Future, Io, Task, Worker
from magnetar.io.slices import each
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, run_job
from magnetar.ledger.embedded.checkpoint import SealedSegment
from magnetar.ledger.embedded.index import RUN_FIELDS, PartIndex
from magnetar.ledger.embedded.index_lookup import IndexLookup
from magnetar.ledger.embedded.ledger_table import LedgerTable
from magnetar.ledger.embedded.rewrite import LiveRun, Rewriting, Rewritten, RunDamaged
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_table import Segment, SegmentState, SegmentTable
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import DataDamaged

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 60.0
"""The delay in seconds after a rewrite that failed because space was short."""


class Compactions(NamedTuple):
    """Totals of compactions since the store was opened."""

    minor: int
    """The number of segments rewritten by minor compactions."""
    major: int
    sorted: int
    """The number of segments rewritten to sort them by ledger, or because many were small."""
    written_bytes: int
    reclaimed_bytes: int
    """The bytes by which the new segments are smaller than the rewritten ones."""
    running: bool


class Segments(NamedTuple):
    """The parts of a store through which compaction accesses the segments."""

    table: SegmentTable
    files: SegmentFiles
    lookup: IndexLookup
    reads: SegmentReads
    store_id: bytes


class Compacted(NamedTuple):
    """The result of a rewrite: new, durable segments with the live entries of the segments ``sources``."""

    sources: set[int]
    ledgers: set[int]
    rewritten: list[Rewritten]


class _LivePart(NamedTuple):
    ledger_id: int
    segment_id: int
    runs: PartIndex
    forgotten: int
    """The id of the ledger's first entry that is still needed; earlier entries are not rewritten."""


class _Abandoned(Exception):
    """A rewrite is abandoned, because the store is stopping."""


class _SegmentDamaged(Exception):
    """A segment cannot be rewritten because a part of it does not read back as it was written."""

    def __init__(self, segment_id: int) -> None:
        super().__init__(segment_id)
        self.segment_id = segment_id


MINOR = "minor"
MAJOR = "major"
SORTING = "sorting"


class _Schedule:
    """The times at which segments with few live entries are rewritten: the fewer live entries, the sooner."""

    def __init__(self, settings: EmbeddedSettings, now: float) -> None:
        self._settings = settings
        self._minor_at = now + settings.minor_compaction_interval
        self._major_at = now + settings.major_compaction_interval

    def due(self, now: float, *, urgent: bool) -> tuple[str, float]:
        """Returns the kind of compaction, and the share of live bytes (0 to 1) below which this kind rewrites
        a segment; the share is 0 if no compaction is due."""
        settings = self._settings
        if now >= self._major_at or urgent:
            return MAJOR, max(settings.major_compaction_threshold, settings.minor_compaction_threshold)
        return MINOR, settings.minor_compaction_threshold if now >= self._minor_at else 0.0

    def done(self, kind: str, now: float) -> None:
        """Schedules the next compaction of a kind that has nothing left to rewrite. A major compaction counts
        also as a minor compaction."""
        if kind == MAJOR:
            self._major_at = now + self._settings.major_compaction_interval
        if kind == MAJOR or now >= self._minor_at:
            self._minor_at = now + self._settings.minor_compaction_interval


class Compaction:
    """Chooses segments and rewrites them on its own worker, one set at a time."""

    def __init__(
        self,
        io: Io,
        settings: EmbeddedSettings,
        segments: Segments,
        table: LedgerTable,
        failed: Callable[[str, BaseException], None],
        finished: Callable[[], None],
    ) -> None:
        """:param finished: called when there is a result to apply, or when :meth:`consider` should be called
        again"""
        self._finished = finished
        self._io = io
        self._settings = settings
        self._segments = segments
        self._table = table
        self._failed = failed
        self._worker: Worker | None = None
        self._tasks = TaskScope(io.loop, "compaction of segments")
        self._task: Task[None] | None = None
        self._result: Compacted | None = None
        self._not_before = 0.0
        self._schedule = _Schedule(settings, io.loop.time())
        self._rewriting: Rewriting | None = None
        self._pause: Future[None] | None = None
        self._stopping = False
        self._rewritten = {MINOR: 0, MAJOR: 0, SORTING: 0}
        self._written_bytes = 0
        self._reclaimed_bytes = 0
        self._urgent = False

    @property
    def has_result(self) -> bool:
        return self._result is not None

    def take_result(self) -> Compacted | None:
        result, self._result = self._result, None
        return result

    @property
    def done(self) -> Compactions:
        under_way = 0 if self._rewriting is None else self._rewriting.bytes
        return Compactions(
            self._rewritten[MINOR],
            self._rewritten[MAJOR],
            self._rewritten[SORTING],
            self._written_bytes + under_way,
            self._reclaimed_bytes,
            self._task is not None,
        )

    def hurry(self, urgent: bool) -> None:
        """Sets whether space is short; while space is short, compaction neither waits for intervals nor
        pauses."""
        self._urgent = urgent
        if urgent:
            self._not_before = self._io.loop.time()
            self._end_pause()

    async def consider(self) -> None:
        """Starts to rewrite the segments that are most worth rewriting; does nothing if there are no such
        segments, or if a rewrite is already in progress.

        No segment may be sealed or removed during the call.
        """
        if self._task is not None or self._result is not None or self._stopping:
            return
        now = self._io.loop.time()
        if now < self._not_before:
            return
        kind, chosen = await self._choose(now)
        if self._stopping:
            return
        if not chosen:
            self._wait_until(now + self._settings.gc_wait_seconds)
            return
        live = sum(self._table.live_bytes.get(segment.segment_id, 0) for segment in chosen)
        # Two adjacent outputs hold more than one segment's worth, so this number of ids always suffices.
        take_id = self._segments.table.take_id
        ids = [take_id() for _ in range(2 * (2 * live // self._settings.segment_bytes + 2))]
        self._task = self._tasks.answer(self._rewrite(kind, chosen, ids))
        self._task.add_done_callback(self._ended)

    def _wait_until(self, when: float) -> None:
        if when > self._io.loop.time():
            self._not_before = when
            self._io.loop.call_at(when, self._look_again)

    def _look_again(self) -> None:
        if not self._stopping:
            self._finished()

    async def stop(self) -> None:
        """Abandons the rewrite in progress, and waits until it has ended."""
        self._stopping = True
        self._result = None
        self._end_pause()
        while self._task is not None:
            await finished(self._io.loop, self._task)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    async def _choose(self, now: float) -> tuple[str, list[SealedSegment]]:
        """Returns the reason for a rewrite, and the segments to rewrite; no segments: nothing to rewrite."""
        settings = self._settings
        kind, threshold = self._schedule.due(now, urgent=self._urgent)
        known: list[SealedSegment] = []
        small: list[SealedSegment] = []
        sparse: list[SealedSegment] = []
        sparse_only: list[SealedSegment] = []

        def look_at(row: Segment) -> None:
            segment = row.sealed
            if segment is None or row.damaged:
                return
            known.append(segment)
            is_small = segment.end * 2 < settings.segment_bytes
            if is_small:
                small.append(segment)
            if self._is_sparse(segment, threshold):
                sparse.append(segment)
                if not is_small:
                    sparse_only.append(segment)

        rows = sorted(self._segments.table.of(SegmentState.SEALED).items())
        await each(self._io, "compaction", (row for _, row in rows), look_at)
        if len(small) >= settings.small_segments:
            return SORTING, self._fitting(small + sparse_only)
        if sparse:
            return kind, self._fitting(sparse)
        self._schedule.done(kind, now)
        return SORTING, await self._first_mixed(known[: -settings.sort_behind or None])

    async def _first_mixed(self, candidates: list[SealedSegment]) -> list[SealedSegment]:
        """Returns the first segment that is worth sorting, as a list; empty: no segment is worth sorting."""
        mixed: list[SealedSegment] = []

        def look_at(segment: SealedSegment) -> None:
            if not mixed and not segment.settled and self._is_mixed(segment):
                mixed.append(segment)
            elif not mixed:
                segment.settled = True

        await each(self._io, "compaction", candidates, look_at)
        return mixed

    def _is_sparse(self, segment: SealedSegment, threshold: float) -> bool:
        return self._table.live_bytes.get(segment.segment_id, 0) < threshold * segment.stored

    def _is_mixed(self, segment: SealedSegment) -> bool:
        """Whether reads of one ledger in a segment must skip entries of other ledgers, because the runs are
        short.
        """
        if segment.kind != LOG or not segment.runs:
            return False
        short = segment.stored < segment.runs * self._settings.sorted_run_bytes
        return short and segment.largest * 2 < segment.stored

    def _fitting(self, candidates: list[SealedSegment]) -> list[SealedSegment]:
        """Returns the first candidates, as many as have live entries for one new segment; at least one."""
        chosen: list[SealedSegment] = []
        total = 0
        for segment in candidates:
            total += self._table.live_bytes.get(segment.segment_id, 0)
            if chosen and total > self._settings.segment_bytes:
                break
            chosen.append(segment)
        return chosen

    async def _rewrite(self, kind: str, chosen: list[SealedSegment], ids: list[int]) -> None:
        sources = {segment.segment_id for segment in chosen}
        for segment_id in sources:
            self._segments.reads.pin(segment_id)
        if self._worker is None:
            self._worker = self._io.start_worker("ledger-compaction")
        loop, worker = self._io.loop, self._worker
        try:
            indexes = await run_job(loop, worker, lambda: self._indexes(sorted(sources)))
            parts = await self._live_parts(indexes)
            rewritten = await self._write(parts, iter(ids))
            ledgers = {ledger_id for _, ledger_id, _ in indexes}
            if not self._stopping:
                self._result = Compacted(sources, ledgers, rewritten)
                self._count(kind, chosen, rewritten)
        except _SegmentDamaged as damage:
            _log.error("cannot rewrite a segment; keeping it: %s", damage.__cause__)
            # The next choice leaves the segment out, and has the others that were chosen with it.
            self._mark_damaged(damage.segment_id)
            await run_job(loop, worker, lambda: self._segments.files.discard(ids))
        except OSError as error:
            if not is_shortage(error):
                raise
            # What was written so far is not referenced.
            _log.warning("not enough disk space to rewrite segments: %s", error)
            await run_job(loop, worker, lambda: self._segments.files.discard(ids))
            self._wait_until(loop.time() + _RETRY_SECONDS)
        except _Abandoned:
            # The next opening of the store removes what was written so far.
            return
        finally:
            self._rewriting = None
            for segment_id in sources:
                self._segments.reads.unpin(segment_id)

    def _mark_damaged(self, segment_id: int) -> None:
        segment = self._segments.table.get(segment_id)
        if segment is not None:
            segment.damaged = True

    def _count(self, kind: str, chosen: list[SealedSegment], rewritten: list[Rewritten]) -> None:
        self._rewritten[kind] += len(chosen)
        written = sum(one.segment.size for one in rewritten)
        self._written_bytes += written
        self._reclaimed_bytes += max(0, sum(segment.size for segment in chosen) - written)

    async def _write(self, parts: list[_LivePart], ids: Iterator[int]) -> list[Rewritten]:
        """Writes the parts to new segments, group by group, with pauses in which other work can use the disk.

        :raises _SegmentDamaged: the checksum of a run does not match
        :raises SpaceExhausted: the disk has not enough room
        """
        loop, worker = self._io.loop, self._worker
        assert worker is not None
        opened: dict[int, File] = {}
        rewriting: Rewriting | None = None
        try:
            rewriting = await run_job(loop, worker, lambda: self._begin(parts, opened, ids))
            self._rewriting = rewriting
            while True:
                begun, written, entries = loop.time(), rewriting.bytes, rewriting.entries
                if not await run_job(loop, worker, rewriting.step):
                    break
                took = loop.time() - begun
                await self._rest(took, rewriting.bytes - written, rewriting.entries - entries)
            return await run_job(loop, worker, rewriting.finish)
        except RunDamaged as damage:
            segment_id = next(each for each, file in opened.items() if file.path == damage.path)
            raise _SegmentDamaged(segment_id) from damage
        finally:
            # Not awaited: a destroyed task must not wait.
            worker.submit(lambda: _close_all(rewriting, opened), self._closed)

    def _closed(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._failed("cannot close the rewritten segments", error)

    async def _rest(self, took: float, written: int, entries: int) -> None:
        """Pauses after a step, to keep the limits of the time share and of the rates.

        :param took: the duration of the step in seconds
        :param written: the number of bytes that the step wrote
        :param entries: the number of entries that the step wrote
        """
        if self._urgent or self._stopping:
            return
        settings = self._settings
        seconds = took * (1 / settings.compaction_share - 1)
        for rate, done in (
            (settings.compaction_bytes_per_second, written),
            (settings.compaction_entries_per_second, entries),
        ):
            if rate > 0:
                seconds = max(seconds, done / rate - took)
        if seconds > 0:
            self._pause = self._io.loop.create_future()
            timer = self._io.loop.call_later(seconds, self._end_pause)
            await self._pause
            timer.cancel()

    def _end_pause(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    def _ended(self, task: Task[None]) -> None:
        self._task = None
        error = task.exception()
        if error is not None:
            self._failed("cannot rewrite segments", error)
            return
        if self._stopping:
            return
        self._finished()

    def _indexes(self, segment_ids: list[int]) -> list[tuple[int, int, PartIndex]]:
        """Returns (segment id, ledger id, part) of all parts, sorted by ledger and entry. Runs on the worker.

        :raises _SegmentDamaged: the index of a segment is lost, and cannot be rebuilt from the segment
        """
        found: list[tuple[int, int, PartIndex]] = []
        for segment_id in segment_ids:
            try:
                parts = self._segments.lookup.all_parts(segment_id)
            except DataDamaged as damage:
                raise _SegmentDamaged(segment_id) from damage
            found.extend((segment_id, ledger_id, part) for ledger_id, part in parts)
        found.sort(key=lambda index: (index[1], index[2].first_entry_id))
        return found

    async def _live_parts(self, indexes: list[tuple[int, int, PartIndex]]) -> list[_LivePart]:
        """Returns the parts with entries that are still needed, in the order of ledgers and entries."""
        live: list[_LivePart] = []

        def take(index: tuple[int, int, PartIndex]) -> None:
            segment_id, ledger_id, part = index
            row = self._table.rows.get(ledger_id)
            if row is None:
                return
            place = row.part_of(part.first_entry_id)
            if place is not None and place[0] == segment_id:
                live.append(_LivePart(ledger_id, segment_id, part, row.forgotten))

        await each(self._io, "compaction", indexes, take)
        return live

    def _begin(self, parts: list[_LivePart], opened: dict[int, File], ids: Iterator[int]) -> Rewriting:
        """Starts writing the new segments. Runs on the worker."""
        files = self._segments.files
        needed = sum(part.runs.stored() for part in parts) + self._settings.segment_bytes // 4
        free = self._io.disk.free_bytes()
        if free < needed:
            raise SpaceExhausted(
                f"compaction needs {needed} free bytes of disk space, but only {free} are free"
            )
        for part in parts:
            if part.segment_id not in opened:
                opened[part.segment_id] = files.open(part.segment_id)
        runs = self._live_runs(parts, opened)
        return Rewriting(files, self._segments.store_id, self._settings, lambda: next(ids), runs)

    def _live_runs(self, parts: list[_LivePart], opened: Mapping[int, File]) -> Iterator[LiveRun]:
        for part in parts:
            index = part.runs
            for number in range(index.run_count()):
                if self._stopping:
                    raise _Abandoned
                first, count = index.entries_of(number)
                if first + count <= part.forgotten:
                    continue
                at = number * RUN_FIELDS
                offset, length, checksum = index.runs[at + 1 : at + 4]
                source = opened[part.segment_id]
                yield LiveRun(part.ledger_id, first, count, source, offset, length, checksum)


def _close_all(rewriting: Rewriting | None, opened: Mapping[int, File]) -> None:
    if rewriting is not None:
        rewriting.close()
    for file in opened.values():
        file.close()
