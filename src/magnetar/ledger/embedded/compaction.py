"""Rewriting sealed segments: those that hold little, those that are small, those that are out of order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from magnetar.io.interfaces import File, Io, Worker
from magnetar.io.jobs import run_job
from magnetar.ledger.embedded.checkpoint import SealedSegment
from magnetar.ledger.embedded.index import RUN_FIELDS, PartIndex
from magnetar.ledger.embedded.index_lookup import IndexLookup
from magnetar.ledger.embedded.ledger_table import LedgerTable
from magnetar.ledger.embedded.rewrite import LiveRun, Rewritten, rewrite_runs
from magnetar.ledger.embedded.segment_files import SegmentFiles, SpaceExhausted
from magnetar.ledger.embedded.segment_header import LOG
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import DataDamaged

_log = logging.getLogger(__name__)

_SHARE = 0.2
"""Of the time, at most, that is spent on rewriting."""


class Segments(NamedTuple):
    """Access to a store's segments."""

    files: SegmentFiles
    lookup: IndexLookup
    reads: SegmentReads
    store_id: bytes


class Compacted(NamedTuple):
    """New segments that are durable and hold what was wanted of ``sources``."""

    sources: set[int]
    ledgers: set[int]
    rewritten: list[Rewritten]


class _LivePart(NamedTuple):
    ledger_id: int
    segment_id: int
    runs: PartIndex
    forgotten: int
    """Entries below this are left out."""


class _Abandoned(Exception):
    """The store is stopping."""


class Compaction:
    """Chooses segments and rewrites them on a worker of its own, one set at a time."""

    def __init__(
        self,
        io: Io,
        settings: EmbeddedSettings,
        segments: Segments,
        table: LedgerTable,
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self.finished: Callable[[], None]
        """Called when there is a result to take."""
        self._io = io
        self._settings = settings
        self._segments = segments
        self._table = table
        self._failed = failed
        self._worker: Worker | None = None
        self._task: Any = None
        self._result: Compacted | None = None
        self._damaged: set[int] = set()
        self._not_before = 0.0
        self._stopping = False

    @property
    def has_result(self) -> bool:
        return self._result is not None

    def take_result(self) -> Compacted | None:
        result, self._result = self._result, None
        return result

    def consider(self, sealed: Mapping[int, SealedSegment], take_id: Callable[[], int]) -> None:
        """Begins to rewrite the segments most worth it, if any is and none is under way."""
        if self._task is not None or self._result is not None or self._stopping:
            return
        if self._io.loop.time() < self._not_before:
            return
        chosen = self._choose([entry for key, entry in sorted(sealed.items()) if key not in self._damaged])
        if not chosen:
            return
        live = sum(self._table.live_bytes.get(segment.segment_id, 0) for segment in chosen)
        # Two neighbouring outputs hold more than one segment's worth: so many ids are always enough.
        ids = [take_id() for _ in range(2 * (2 * live // self._settings.segment_bytes + 2))]
        self._task = self._io.loop.create_task(self._rewrite(chosen, ids))
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Gives up what is under way and waits until it has ended."""
        self._stopping = True
        self._result = None
        while self._task is not None:
            ended = self._io.loop.create_future()
            self._task.add_done_callback(lambda _, ended=ended: ended.done() or ended.set_result(None))
            await ended

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def _choose(self, sealed: Sequence[SealedSegment]) -> list[SealedSegment]:
        settings = self._settings
        live = self._table.live_bytes
        sparse = [
            segment
            for segment in sealed
            if live.get(segment.segment_id, 0) < settings.sparse_fraction * segment.stored
        ]
        small = [segment for segment in sealed if segment.end * 2 < settings.segment_bytes]
        if len(small) >= settings.small_segments:
            return self._fitting(small + [segment for segment in sparse if segment not in small])
        if sparse:
            return self._fitting(sparse)
        for segment in sealed[: -settings.sort_behind or None]:
            if not segment.settled and self._is_mixed(segment):
                return [segment]
            segment.settled = True
        return []

    def _is_mixed(self, segment: SealedSegment) -> bool:
        """Whether reading one ledger means jumping through the segment."""
        if segment.kind != LOG or not segment.runs:
            return False
        short = segment.stored < segment.runs * self._settings.sorted_run_bytes
        return short and segment.largest * 2 < segment.stored

    def _fitting(self, candidates: list[SealedSegment]) -> list[SealedSegment]:
        """As many as fit together into one new segment, at least one."""
        chosen: list[SealedSegment] = []
        total = 0
        for segment in candidates:
            total += self._table.live_bytes.get(segment.segment_id, 0)
            if chosen and total > self._settings.segment_bytes:
                break
            chosen.append(segment)
        return chosen

    async def _rewrite(self, chosen: list[SealedSegment], ids: list[int]) -> None:
        begun = self._io.loop.time()
        sources = {segment.segment_id for segment in chosen}
        for segment_id in sources:
            self._segments.reads.pin(segment_id)
        try:
            if self._worker is None:
                self._worker = self._io.start_worker("ledger-compaction")
            loop, worker = self._io.loop, self._worker
            indexes = await run_job(loop, worker, lambda: self._indexes(sorted(sources)))
            parts = self._live_parts(indexes)
            rewritten = await run_job(loop, worker, lambda: self._write(parts, iter(ids)))
            ledgers = {ledger_id for _, ledger_id, _ in indexes}
            if not self._stopping:
                self._result = Compacted(sources, ledgers, rewritten)
        except DataDamaged as damage:
            _log.error("a segment cannot be rewritten and is kept as it is: %s", damage)
            self._damaged |= sources
            await run_job(loop, worker, lambda: self._segments.files.discard(ids))
        except SpaceExhausted as full:
            _log.warning("no room to rewrite segments: %s", full)
            self._not_before = begun + 60.0
        except _Abandoned:
            # The next opening removes what was written so far.
            return
        finally:
            now = self._io.loop.time()
            self._not_before = max(self._not_before, now + (now - begun) * (1 / _SHARE - 1))
            for segment_id in sources:
                self._segments.reads.unpin(segment_id)

    def _ended(self, task: Any) -> None:
        self._task = None
        error = task.exception()
        if error is not None:
            self._failed("cannot rewrite segments", error)
            return
        if self._stopping:
            return
        self.finished()
        if self._result is None:
            return
        self._io.loop.call_at(self._not_before, self.finished)

    def _indexes(self, segment_ids: list[int]) -> list[tuple[int, int, PartIndex]]:
        """(segment id, ledger id, part) of all parts. Runs on the worker."""
        return [
            (segment_id, ledger_id, part)
            for segment_id in segment_ids
            for ledger_id, part in self._segments.lookup.all_parts(segment_id)
        ]

    def _live_parts(self, indexes: list[tuple[int, int, PartIndex]]) -> list[_LivePart]:
        """Those of the parts that somebody still wants, by ledger and entry."""
        live = []
        for segment_id, ledger_id, part in indexes:
            row = self._table.rows.get(ledger_id)
            if row is None:
                continue
            place = row.part_of(part.first_entry_id)
            if place is not None and place[0] == segment_id:
                live.append(_LivePart(ledger_id, segment_id, part, row.forgotten))
        live.sort(key=lambda entry: (entry.ledger_id, entry.runs.first_entry_id))
        return live

    def _write(self, parts: list[_LivePart], ids: Iterator[int]) -> list[Rewritten]:
        """Runs on the worker."""
        files = self._segments.files
        wanted = sum(part.runs.stored() for part in parts)
        free = self._io.disk.free_bytes()
        if free < wanted + self._settings.segment_bytes // 4:
            raise SpaceExhausted(f"{wanted} bytes are to be rewritten, {free} are free")
        opened: dict[int, File] = {}
        try:
            for part in parts:
                if part.segment_id not in opened:
                    opened[part.segment_id] = files.open(part.segment_id)
            runs = self._live_runs(parts, opened)
            return rewrite_runs(files, self._segments.store_id, self._settings, lambda: next(ids), runs)
        finally:
            for file in opened.values():
                file.close()

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
