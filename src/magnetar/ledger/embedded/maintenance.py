"""Background work on the log: sealing segments, writing checkpoints, and removing dead segments."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from magnetar.io.files import copy_file, is_shortage
from magnetar.io.interfaces import Cancellable, Disk, Future, Io, Task, Worker
from magnetar.io.slices import each
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import Reminder, finished, run_job
from magnetar.ledger.embedded.checkpoint import (
    CHECKPOINT_NAME,
    Checkpoint,
    CheckpointRows,
    SealedSegment,
    encode_checkpoint,
    write_checkpoint,
)
from magnetar.ledger.embedded.compaction import Compacted, Compaction, Segments
from magnetar.ledger.embedded.index import PartIndex, encode_index
from magnetar.ledger.embedded.ledger_table import LedgerTable
from magnetar.ledger.embedded.rewrite import Place, places_of
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG
from magnetar.ledger.embedded.segment_supply import LogSegment
from magnetar.ledger.embedded.segment_table import Segment, SegmentState

_log = logging.getLogger(__name__)

T = TypeVar("T")
NewPlaces = dict[int, list[Place]]

_RETRY_SECONDS = 10.0
"""The delay in seconds after a step that had no room for an index or a checkpoint."""


class LogStart(NamedTuple):
    """The position where the replay after the next checkpoint will begin."""

    segment_id: int
    sequence: int
    """The sequence number of the first group of the segment where the replay will begin."""


class Maintenance:
    """The task that does the background work, one step at a time; ``reminder`` wakes it for new work.

    Only its steps seal, retire and remove segments.
    """

    def __init__(
        self,
        io: Io,
        directory: str,
        worker: Worker,
        segments: Segments,
        table: LedgerTable,
        compaction: Compaction,
        reminder: Reminder,
        log_start: LogStart,
        reclaimed: Callable[[], None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        """:param reclaimed: called when segments have been removed"""
        self._io = io
        self._checkpoints = _CheckpointFile(io.disk, directory, segments.files)
        self._worker = worker
        self._files = segments.files
        self._segments = segments.table
        self._lookup = segments.lookup
        self._reads = segments.reads
        self._table = table
        self._compaction = compaction
        self._reminder = reminder
        self._log_start = log_start
        self._reclaimed = reclaimed
        self._failed = failed
        self._tasks = TaskScope(io.loop, "maintenance of the ledger store")
        self._task: Task[None] | None = None
        self._retry: Cancellable | None = None
        self._not_before = 0.0
        """The time on the loop's clock when a step that had no room is tried again."""
        self._stopping = False
        self._stepping = False
        self._holds = 0
        """The number of callers of :meth:`hold` that have not called :meth:`let_go`."""
        self._changed: list[Future[None]] = []
        """Completed when a step ends, and when the last holder calls :meth:`let_go`."""

    def start(self) -> None:
        """Starts the task."""
        self._task = self._tasks.answer(self._run())
        self._task.add_done_callback(self._ended)
        self._reminder.remind()

    async def stop(self) -> None:
        """Stops compaction, does the remaining work if there is room on the disk, and ends the task."""
        self._stopping = True
        await self._compaction.stop()
        self._reminder.remind()
        if self._task is not None:
            await finished(self._io.loop, self._task)
        if self._retry is not None:
            self._retry.cancel()

    async def seal_last(self) -> None:
        """Seals full segments at a clean stop, if there is room for indexes, so that the next start replays
        nothing."""
        try:
            await self._seal()
            await self._retire()
        except OSError as error:
            if not is_shortage(error):
                self._failed("cannot write the ledger store while it closes", error)
            _log.warning(
                "not enough disk space for the ledger store's own files; the next start replays the log: %s",
                error,
            )

    async def checkpoint(self) -> None:
        """Writes a checkpoint without segments that are no longer needed, which may then be removed."""
        live, emptied, segments = self._table.live_bytes, self._table.emptied, self._segments
        sealed = segments.of(SegmentState.SEALED)
        emptied.intersection_update({one for one in emptied if one in sealed or segments.may_grow(one)})
        kept: list[SealedSegment] = []

        def look_at(segment: SealedSegment) -> None:
            emptied.discard(segment.segment_id)
            if live.get(segment.segment_id, 0) > 0:
                kept.append(segment)
            else:
                segments.leave(segment.segment_id)

        await each(self._io, "checkpoint", segments.sealed(), look_at)
        checkpoint = Checkpoint(self._table.next_ledger_id, segments.next_id, *self._log_start, kept)
        # Including segments that were leaving when there was no room for a checkpoint.
        gone = list(segments.of(SegmentState.LEAVING))
        rows = CheckpointRows(frozenset(segment.segment_id for segment in kept))
        await each(self._io, "checkpoint", list(self._table.rows.values()), rows.add)
        await self._job(partial(self._checkpoints.write, checkpoint, rows))
        for segment_id in gone:
            segments.die(segment_id)
        self._lookup.cache.drop_segments(set(gone))

    async def _run(self) -> None:
        while not self._stopping:
            await self._reminder.wait()
            working = self._io.loop.time() >= self._not_before
            while working:
                while self._holds:
                    await self._change()
                self._stepping = True
                try:
                    working = await self._step()
                except OSError as error:
                    self._wait_for_room(error)
                    break
                finally:
                    self._stepping = False
                    self._tell_change()
                await self._compaction.consider()

    async def hold(self, checkpoint_copy: str) -> None:
        """Waits for the end of the current step, and begins no further step until :meth:`let_go` is called.

        :param checkpoint_copy: path for a copy of the last durable checkpoint
        :raises OSError: the copy cannot be written
        """
        self._holds += 1
        try:
            while self._stepping:
                await self._change()
            await self._job(partial(self._checkpoints.copy, checkpoint_copy))
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        self._holds -= 1
        self._tell_change()

    async def _change(self) -> None:
        changed = self._io.loop.create_future()
        self._changed.append(changed)
        await changed

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)

    def _wait_for_room(self, error: OSError) -> None:
        """Schedules another attempt of a step that failed. Nothing is lost, because the last checkpoint and
        the log stay valid until the step has succeeded.

        :raises OSError: the cause was not a lack of room or of file descriptors
        """
        if not is_shortage(error):
            raise error
        _log.warning("not enough disk space for the ledger store's own files; trying again: %s", error)
        self._not_before = self._io.loop.time() + _RETRY_SECONDS
        self._retry = self._io.loop.call_at(self._not_before, self._reminder.remind)

    async def _step(self) -> bool:
        """Does the most urgent piece of work; returns False if there is nothing to do."""
        if self._segments.of(SegmentState.FULL):
            await self._seal()
        elif (compacted := self._compaction.take_result()) is not None:
            await self._switch_to(compacted)
        elif self._holds_nothing_wanted():
            await self.checkpoint()
        elif self._free():
            await self._retire()
        else:
            return False
        return True

    def _holds_nothing_wanted(self) -> bool:
        """Whether a checkpoint would release sealed segments."""
        sealed = self._segments.of(SegmentState.SEALED)
        if self._segments.of(SegmentState.LEAVING):
            return True
        return any(segment_id in sealed for segment_id in self._table.emptied)

    def _free(self) -> list[int]:
        """Returns dead segments without readers."""
        dead = self._segments.of(SegmentState.DEAD)
        return [segment_id for segment_id in dead if not self._reads.is_pinned(segment_id)]

    def _ended(self, task: Task[None]) -> None:
        error = task.exception()
        if error is not None:
            self._failed("cannot maintain the ledger store", error)

    async def _seal(self) -> None:
        """Writes the indexes of full segments, then a checkpoint that makes their replay unnecessary."""
        for row in list(self._segments.of(SegmentState.FULL).values()):
            await self._seal_one(row)
        await self._job(self._files.sync_directory)
        await self.checkpoint()

    async def _seal_one(self, row: Segment) -> None:
        segment, rows = row.log, self._table.rows
        assert segment is not None
        parts: list[tuple[int, PartIndex]] = []

        def take(ledger_id: int) -> None:
            part = segment.index.part(ledger_id) if ledger_id in rows else None
            if part is not None:
                parts.append((ledger_id, part))

        def keep(found: tuple[int, PartIndex]) -> None:
            self._lookup.cache.put(segment.segment_id, *found)

        def forget(found: tuple[int, PartIndex]) -> None:
            ledger = rows.get(found[0])
            if ledger is not None and ledger.forgotten:
                self._table.forget(ledger, ledger.forgotten, self._segments.may_grow)

        # The index no longer grows. Sorting 100,000 ids would block the loop too long.
        ledger_ids = await self._job(segment.index.ledger_ids)
        await each(self._io, "sealing", ledger_ids, take)
        sealed = await self._job(partial(self._write_sealed, segment, parts))
        await each(self._io, "sealing", parts, keep)
        self._sealed(sealed)
        self._reads.unpin(segment.segment_id)
        self._log_start = LogStart(segment.segment_id + 1, row.next_sequence)
        await each(self._io, "sealing", parts, forget)

    def _write_sealed(self, segment: LogSegment, parts: list[tuple[int, PartIndex]]) -> SealedSegment:
        """Writes the index of a full segment, which may have 100,000 runs. Runs on the worker."""
        index = encode_index(segment.segment_id, segment.end, parts)
        write = partial(self._files.write_index, segment.segment_id, index)
        self._files.write_within(len(index), write)
        size = self._files.trim(segment.file, segment.end)
        return _figures(segment, size, [part for _, part in parts])

    async def _retire(self) -> None:
        """Recycles or removes dead segments without readers."""
        for segment_id in self._free():
            self._reads.drop(segment_id)
            await self._job(partial(self._files.retire, segment_id))
            self._segments.remove(segment_id)
        self._reclaimed()

    async def _switch_to(self, compacted: Compacted) -> None:
        """Switches the ledgers to the segments that a compaction wrote, then releases its source segments."""
        for entry in compacted.rewritten:
            self._segments.rewritten(entry.segment)
        new: NewPlaces = {}

        def note(found: tuple[int, Place]) -> None:
            new.setdefault(found[0], []).append(found[1])

        def switch(ledger_id: int) -> None:
            row = self._table.rows.get(ledger_id)
            if row is not None:
                self._table.replace_parts(row, compacted.sources, new.get(ledger_id, ()))

        await each(self._io, "switching", places_of(compacted.rewritten), note)
        await each(self._io, "switching", compacted.ledgers, switch)
        for entry in compacted.rewritten:
            self._sealed(entry.segment)
        await self.checkpoint()

    def _sealed(self, sealed: SealedSegment) -> None:
        self._segments.seal(sealed)
        if sealed.segment_id not in self._table.live_bytes:
            self._table.emptied.add(sealed.segment_id)

    async def _job(self, job: Callable[[], T]) -> T:
        return await run_job(self._io.loop, self._worker, job)


class _CheckpointFile:
    """Writes checkpoints; its methods block."""

    def __init__(self, disk: Disk, directory: str, files: SegmentFiles) -> None:
        self._disk = disk
        self._directory = directory
        self._files = files

    def write(self, checkpoint: Checkpoint, rows: CheckpointRows) -> None:
        pieces = encode_checkpoint(checkpoint, rows)
        write = partial(write_checkpoint, self._disk, self._directory, pieces)
        self._files.write_within(sum(map(len, pieces)), write)

    def copy(self, target: str) -> None:
        copy_file(self._disk, f"{self._directory}/{CHECKPOINT_NAME}", target)


def _figures(segment: LogSegment, size: int, parts: list[PartIndex]) -> SealedSegment:
    """Returns the row of a sealed segment. Bytes of ledgers that were deleted before the sealing count as
    stored, so that the segment counts as sparse."""
    largest = max((part.stored() for part in parts), default=0)
    runs = sum(part.run_count() for part in parts)
    return SealedSegment(segment.segment_id, LOG, size, segment.end, runs, segment.index.stored(), largest)
