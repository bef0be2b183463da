"""Recovery at the start: reads the checkpoint, replays the log after it, and distinguishes torn groups from
damaged groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from magnetar.io.interfaces import Disk, File
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.checkpoint import (
    CHECKPOINT_NAME,
    Checkpoint,
    CheckpointRows,
    decode_checkpoint,
    encode_checkpoint,
    write_checkpoint,
)
from magnetar.ledger.embedded.group import (
    ENTRIES,
    LEDGER_CLOSED,
    LEDGER_CREATED,
    LEDGER_DELETED,
)
from magnetar.ledger.embedded.ledger_table import LedgerTable, decode_closed
from magnetar.ledger.embedded.reader import Group, RunAt, SegmentReader
from magnetar.ledger.embedded.rewrite import LiveRun
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG, SEGMENT_HEADER_BYTES
from magnetar.ledger.interface import DataDamaged


def read_checkpoint(disk: Disk, directory: str, files: SegmentFiles) -> Checkpoint:
    """Returns the last checkpoint; in a new directory, an empty one is written first.

    :raises DataDamaged: the checkpoint is damaged, or is missing although there are segments
    """
    path = f"{directory}/{CHECKPOINT_NAME}"
    if not disk.exists(path):
        segments = files.segment_ids()
        if segments:
            raise DataDamaged(f"{path} is missing, but {files.segment_path(segments[0])} exists")
        # From now on, segments without a checkpoint mean that the checkpoint was removed.
        empty = Checkpoint()
        write_checkpoint(disk, directory, encode_checkpoint(empty, CheckpointRows(frozenset())))
        return empty
    file = disk.open(path, write=False)
    try:
        return decode_checkpoint(file.read(file.size(), 0), path)
    finally:
        file.close()


@dataclass
class _TailSegment:
    segment_id: int
    file: File
    reader: SegmentReader
    log: bool
    """Whether the segment's header is valid and marks it as part of the log."""


@dataclass
class LogReplay:
    """The part of the log after a checkpoint, applied to a table.

    After the replay, ``runs`` has the entries of this part, and ``sequence`` is the next group's number.
    """

    files: SegmentFiles
    checkpoint: Checkpoint
    table: LedgerTable
    sequence: int = 0
    runs: list[LiveRun] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """The end of the last group of each segment that has groups."""
    _open: list[File] = field(default_factory=list)

    def run(self) -> None:
        """Replays the log.

        :raises DataDamaged: acknowledged bytes do not read back; the message names file, offset and ledgers
        """
        self.sequence = self.checkpoint.log_sequence
        segments = self._tail_segments()
        stop_segment = 0
        stop_offset = SEGMENT_HEADER_BYTES
        for number, segment in enumerate(segments):
            if not segment.log:
                continue
            for group in segment.reader.groups(SEGMENT_HEADER_BYTES, self.sequence):
                self._apply(segment, group)
                self.sequence = group.sequence + 1
                stop_segment, stop_offset = number, group.end
        self._refuse_damage(segments, stop_segment, stop_offset)
        self._refuse_gaps()

    def live_runs(self) -> list[LiveRun]:
        """Returns the live entries of the replayed part, sorted by ledger and entry."""
        rows = self.table.rows
        live = []
        for run in self.runs:
            row = rows.get(run.ledger_id)
            if row is not None and run.first_entry_id + run.entries > row.forgotten:
                live.append(run)
        live.sort(key=lambda run: (run.ledger_id, run.first_entry_id))
        return live

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open.clear()

    def _tail_segments(self) -> list[_TailSegment]:
        sealed = {segment.segment_id for segment in self.checkpoint.segments}
        tail = []
        for segment_id in self.files.segment_ids():
            if segment_id < self.checkpoint.log_segment_id or segment_id in sealed:
                continue
            file = self.files.open(segment_id)
            self._open.append(file)
            reader = SegmentReader(file.read, file.size(), segment_id)
            header = reader.header()
            tail.append(_TailSegment(segment_id, file, reader, header is not None and header.kind == LOG))
        return tail

    def _apply(self, segment: _TailSegment, group: Group) -> None:
        table = self.table
        self.ends[segment.segment_id] = group.end
        for run in group.runs:
            if run.kind == ENTRIES:
                self._apply_entries(segment, run)
            elif run.kind == LEDGER_CREATED:
                table.create(run.ledger_id, segment.reader.bytes_at(run.body_at, run.body_length))
            elif run.kind == LEDGER_CLOSED:
                body = segment.reader.bytes_at(run.body_at, run.body_length)
                table.close(run.ledger_id, *decode_closed(body))
            elif run.kind == LEDGER_DELETED:
                table.delete(run.ledger_id)
            else:
                raise DataDamaged(
                    f"{segment.file.path} at offset {group.offset}: a run of the unknown kind {run.kind}"
                )

    def _apply_entries(self, segment: _TailSegment, run: RunAt) -> None:
        row = self.table.rows.get(run.ledger_id)
        if row is None:
            # Deleted later in the log: the checkpoint was written while the ledger was being deleted.
            return
        entry_bytes = run.body_length - 4 * run.entries
        self.table.add_run(
            row, segment.segment_id, run.first_entry_id, run.entries, run.body_length, entry_bytes
        )
        self.runs.append(
            LiveRun(
                run.ledger_id,
                run.first_entry_id,
                run.entries,
                segment.file,
                run.body_at,
                run.body_length,
                run.checksum,
            )
        )

    def _refuse_damage(self, segments: list[_TailSegment], number: int, offset: int) -> None:
        """Raises DataDamaged if a group after the end of the replay proves that more groups were durable."""
        for segment in segments[number:]:
            begin = offset if segment is segments[number] else SEGMENT_HEADER_BYTES
            for group in segment.reader.groups_beyond(begin):
                if group.durable_up_to >= self.sequence:
                    self._report(segments[number], offset, self._ledgers_behind(segments, number, offset))

    def _ledgers_behind(self, segments: list[_TailSegment], number: int, offset: int) -> set[int]:
        """Returns the ledgers that lost entries: the ledgers with damaged runs if the group's table is
        intact; otherwise the ledgers in its damaged table, and ledgers with a gap after the group.
        """
        damaged = segments[number].reader.group_at(offset)
        if damaged is not None and damaged.sequence == self.sequence:
            return {run.ledger_id for run in damaged.broken_runs}
        ledgers = segments[number].reader.claimed_ledgers(offset)
        for group in _groups_of(segments[number:], offset):
            for run in group.runs:
                row = self.table.rows.get(run.ledger_id)
                if run.kind == ENTRIES and (row is None or run.first_entry_id > row.last_entry_id + 1):
                    ledgers.add(run.ledger_id)
        return ledgers

    def _report(self, segment: _TailSegment, offset: int, ledgers: set[int]) -> None:
        names = ", ".join(map(str, sorted(ledgers))) or "not readable"
        raise DataDamaged(
            f"{segment.file.path} at offset {offset}: group {self.sequence} was acknowledged but is "
            f"damaged; ledgers: {names}"
        )

    def _refuse_gaps(self) -> None:
        for row in self.table.rows.values():
            expected = None
            for segment_id, first, last, _ in row.each_part():
                if expected is not None and first != expected:
                    self._missing(row.ledger_id, expected, first - 1, segment_id)
                expected = last + 1
            end = row.last_entry_id + 1
            if expected is None:
                expected = max(row.forgotten, 0)
            if expected < end:
                self._missing(row.ledger_id, expected, end - 1, None)

    def _missing(self, ledger_id: int, first: int, last: int, segment_id: int | None) -> None:
        place = "the log" if segment_id is None else f"the log before {self.files.segment_path(segment_id)}"
        raise DataDamaged(f"entries {first} to {last} of ledger {ledger_id} are missing from {place}")


def _groups_of(segments: list[_TailSegment], offset: int) -> Iterator[Group]:
    for number, segment in enumerate(segments):
        yield from segment.reader.groups_beyond(offset if number == 0 else SEGMENT_HEADER_BYTES)
