"""What goes on behind the log: sealing, checkpoints, and the end of dead segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from magnetar.io.interfaces import Io, Worker
from magnetar.io.jobs import run_job
from magnetar.io.slices import each
from magnetar.ledger.embedded.checkpoint import (
    Checkpoint,
    CheckpointRows,
    SealedSegment,
    encode_checkpoint,
    write_checkpoint,
)
from magnetar.ledger.embedded.compaction import Compacted, Compaction
from magnetar.ledger.embedded.index import PartIndex, encode_index
from magnetar.ledger.embedded.index_lookup import IndexLookup
from magnetar.ledger.embedded.ledger_table import LedgerTable
from magnetar.ledger.embedded.opening import replace_rewritten
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_supply import LogSegment

T = TypeVar("T")


class Maintenance:
    """One task that runs while there is something to do; its steps never overlap."""

    def __init__(
        self,
        io: Io,
        directory: str,
        worker: Worker,
        files: SegmentFiles,
        table: LedgerTable,
        lookup: IndexLookup,
        reads: SegmentReads,
        compaction: Compaction,
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self.reclaimed: Callable[[], None]
        """Called when segments have gone."""
        self.sealed: dict[int, SealedSegment] = {}
        self.next_segment_id = 1
        self.log_start: tuple[int, int] = (1, 1)
        """Segment id and first sequence number of what the next checkpoint leaves to replay."""
        self._io = io
        self._directory = directory
        self._worker = worker
        self._files = files
        self._table = table
        self._lookup = lookup
        self._reads = reads
        self._compaction = compaction
        self._failed = failed
        self._to_seal: list[tuple[LogSegment, int]] = []
        self._dead: dict[int, int] = {}
        """Segments no checkpoint knows any more, until nobody reads them, and their sizes where known."""
        self._task: Any = None
        self._stopping = False

    @property
    def dead_bytes(self) -> int:
        """Of segments that go as soon as nobody reads them."""
        return sum(self._dead.values())

    def take_segment_id(self) -> int:
        segment_id = self.next_segment_id
        self.next_segment_id += 1
        return segment_id

    def add_sealed(self, segments: Iterable[SealedSegment]) -> None:
        """Takes note of segments that are complete and have their index."""
        for segment in segments:
            self.sealed[segment.segment_id] = segment
            self._lookup.ends[segment.segment_id] = segment.end

    def add_leftovers(self, segment_ids: Iterable[int]) -> None:
        """Takes note of segments that the next checkpoint makes superfluous."""
        self._dead.update(dict.fromkeys(segment_ids, 0))

    def seal(self, segment: LogSegment, next_sequence: int) -> None:
        """Takes over a segment of the log that is full."""
        self._to_seal.append((segment, next_sequence))
        self.wake()

    def wake(self) -> None:
        """Looks for something to do, soon."""
        if self._task is not None or self._stopping:
            return
        if not self._has_work():
            self._compaction.consider(self.sealed, self.take_segment_id)
        else:
            self._task = self._io.loop.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Waits for the step under way; there are no more after it."""
        self._stopping = True
        await self._compaction.stop()
        while self._task is not None:
            ended = self._io.loop.create_future()
            self._task.add_done_callback(partial(_resolve, ended))
            await ended

    async def seal_last(self, segment: LogSegment, next_sequence: int) -> None:
        """At a clean stop: seals the active segment too, so that nothing is left to replay."""
        self._to_seal.append((segment, next_sequence))
        try:
            await self._seal()
            await self._retire()
        except OSError as error:
            self._failed("cannot write the ledger store at its end", error)

    async def checkpoint(self) -> None:
        """Writes a checkpoint without the segments nobody wants, which may go then."""
        live = self._table.live_bytes
        self._table.emptied.clear()
        kept = [segment for segment in self.sealed.values() if live.get(segment.segment_id, 0) > 0]
        kept_ids = frozenset(segment.segment_id for segment in kept)
        gone = [segment_id for segment_id in self.sealed if segment_id not in kept_ids]
        log_segment_id, log_sequence = self.log_start
        checkpoint = Checkpoint(
            self._table.next_ledger_id, self.next_segment_id, log_segment_id, log_sequence, kept
        )
        rows = CheckpointRows(kept_ids)
        await each(self._io, "checkpoint", list(self._table.rows.values()), rows.add)
        await self._job(partial(self._write_checkpoint, checkpoint, rows))
        for segment_id in gone:
            self._dead[segment_id] = self.sealed.pop(segment_id).size
        self._lookup.cache.drop_segments(set(gone))

    def _write_checkpoint(self, checkpoint: Checkpoint, rows: CheckpointRows) -> None:
        pieces = encode_checkpoint(checkpoint, rows)
        self._files.make_room(sum(map(len, pieces)))
        write_checkpoint(self._io.disk, self._directory, pieces)

    async def _run(self) -> None:
        while self._has_work():
            if self._to_seal:
                await self._seal()
            elif (compacted := self._compaction.take_result()) is not None:
                await self._switch_to(compacted)
            elif self._holds_nothing_wanted():
                await self.checkpoint()
            else:
                await self._retire()
            self._compaction.consider(self.sealed, self.take_segment_id)

    def _has_work(self) -> bool:
        if self._to_seal or self._compaction.has_result or self._holds_nothing_wanted():
            return True
        return any(not self._reads.is_pinned(segment_id) for segment_id in self._dead)

    def _holds_nothing_wanted(self) -> bool:
        """Whether there are sealed segments that a checkpoint would let go."""
        return any(segment_id in self.sealed for segment_id in self._table.emptied)

    def _ended(self, task: Any) -> None:
        self._task = None
        error = task.exception()
        if error is not None:
            self._failed("cannot maintain the ledger store", error)
            return
        self.wake()

    async def _seal(self) -> None:
        """Writes the indexes of full segments, then a checkpoint that makes their replay unnecessary."""
        segments, self._to_seal = self._to_seal, []
        rows = self._table.rows
        for segment, next_sequence in segments:
            parts = [entry for entry in segment.index.parts() if entry[0] in rows]
            sealed = await self._job(partial(self._write_sealed, segment, parts))
            for ledger_id, part in parts:
                self._lookup.cache.put(segment.segment_id, ledger_id, part)
            self.add_sealed([sealed])
            del self._lookup.growing[segment.segment_id]
            self._reads.unpin(segment.segment_id)
            self.log_start = (segment.segment_id + 1, next_sequence)
            for ledger_id, _ in parts:
                row = rows.get(ledger_id)
                if row is not None and row.forgotten:
                    self._table.forget(row, row.forgotten, self._lookup.growing)
        await self._job(self._files.sync_directory)
        await self.checkpoint()

    def _write_sealed(self, segment: LogSegment, parts: list[tuple[int, PartIndex]]) -> SealedSegment:
        """Runs on the worker: an index may have 100,000 runs."""
        index = encode_index(segment.segment_id, segment.end, parts)
        self._files.make_room(len(index))
        self._files.write_index(segment.segment_id, index)
        size = self._files.trim(segment.file, segment.end)
        return _sealed(segment, size, [part for _, part in parts])

    async def _retire(self) -> None:
        """Recycles or removes dead segments that nobody reads."""
        free = [segment_id for segment_id in self._dead if not self._reads.is_pinned(segment_id)]
        for segment_id in free:
            del self._dead[segment_id]
            self._lookup.ends.pop(segment_id, None)
            self._reads.drop(segment_id)
            await self._job(partial(self._files.retire, segment_id))
        self.reclaimed()

    async def _switch_to(self, compacted: Compacted) -> None:
        """Points the ledgers to the segments a compaction wrote, then lets go of those it read."""
        rows = [
            self._table.rows[ledger_id] for ledger_id in compacted.ledgers if ledger_id in self._table.rows
        ]
        replace_rewritten(self._table, rows, compacted.sources, compacted.rewritten)
        self.add_sealed(entry.segment for entry in compacted.rewritten)
        await self.checkpoint()

    async def _job(self, job: Callable[[], T]) -> T:
        return await run_job(self._io.loop, self._worker, job)


def _sealed(segment: LogSegment, size: int, parts: list[PartIndex]) -> SealedSegment:
    stored = [part.stored() for part in parts]
    largest = max(stored, default=0)
    runs = sum(part.run_count() for part in parts)
    return SealedSegment(segment.segment_id, LOG, size, segment.end, runs, sum(stored), largest)


def _resolve(future: Any, _: Any) -> None:
    if not future.done():
        future.set_result(None)
