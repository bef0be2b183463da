"""Prepares a store's directory for new groups when it is opened. Calls block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from magnetar.io.interfaces import Disk, File
from magnetar.ledger.embedded.checkpoint import Checkpoint, SealedSegment
from magnetar.ledger.embedded.index import PartsBuilder, encode_index
from magnetar.ledger.embedded.ledger_table import LedgerRow, LedgerTable
from magnetar.ledger.embedded.log_end import read_log_end
from magnetar.ledger.embedded.recovery import LogReplay, read_checkpoint
from magnetar.ledger.embedded.rewrite import LiveRun, Place, Rewritten, places_of, rewrite_runs
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG
from magnetar.ledger.embedded.segment_table import SegmentTable
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import DataDamaged

_BYTES_BESIDE_RUN = 256
"""The bytes of a run besides its body, rounded up: its rows in the group and the index, and its share of
headers."""
_ROOM_TO_GO_ON = 64 << 10
_STEP_BYTES = 1 << 20


class FoundSegments(NamedTuple):
    sealed: list[SealedSegment]
    leftovers: list[int]
    """The ids of segments that are not needed; their files are removed once no checkpoint names them."""
    next_segment_id: int
    next_sequence: int

    def table(self) -> SegmentTable:
        """Returns a table of the found segments; the log then adds its own segments to it."""
        table = SegmentTable(self.next_segment_id)
        for segment in self.sealed:
            table.seal(segment)
        table.add_leftovers(self.leftovers)
        return table


def open_directory(
    disk: Disk,
    directory: str,
    files: SegmentFiles,
    settings: EmbeddedSettings,
    store_id: bytes,
    table: LedgerTable,
) -> FoundSegments:
    """Reads the checkpoint into ``table``, replays the log after it, and rewrites that part of the log to new
    segments.

    The old log is never continued, because its pages may look written without being durable. Its content is
    safe from the next checkpoint on, which must be written before the store serves. If there is no room to
    rewrite it, its segments are overwritten in place with their own content, and sealed.

    :raises DataDamaged: acknowledged bytes do not read back
    """
    checkpoint = read_checkpoint(disk, directory, files)
    table.start_at(checkpoint.next_ledger_id)
    for row in checkpoint.ledgers:
        table.adopt(row)
    present = files.segment_ids()
    _refuse_missing(checkpoint, present, files)
    replay = LogReplay(files, checkpoint, table)
    try:
        replay.run()
        end = read_log_end(disk, directory, store_id)
        if end is not None:
            end.check(replay.sequence, files.segment_path(end.segment_id))
        next_id = max([checkpoint.next_segment_id, *(segment_id + 1 for segment_id in present)])
        new_ids = iter(range(next_id, next_id + len(replay.runs) + 1))
        live = replay.live_runs()
        rewritten: list[Rewritten] = []
        kept: list[SealedSegment] = []
        if disk.free_bytes() < _room_to_move(live):
            kept = seal_in_place(files, replay)
        else:
            rewritten = rewrite_runs(files, store_id, settings, lambda: next(new_ids), live)
    finally:
        replay.close()
    touched = {run.ledger_id for run in replay.runs}
    rows = [table.rows[ledger_id] for ledger_id in touched if ledger_id in table.rows]
    moved = replay.ends.keys() - {segment.segment_id for segment in kept}
    _replace_rewritten(table, rows, moved, rewritten)
    known = {segment.segment_id for segment in [*checkpoint.segments, *kept]}
    sealed = [*checkpoint.segments, *kept, *(entry.segment for entry in rewritten)]
    leftovers = [segment_id for segment_id in present if segment_id not in known]
    return FoundSegments(sealed, leftovers, next_id + len(rewritten), replay.sequence)


def _room_to_move(live: Iterable[LiveRun]) -> int:
    """Returns an upper bound of the bytes needed to rewrite these runs, with indexes, and to continue the
    log."""
    return _ROOM_TO_GO_ON + sum(run.body_length + _BYTES_BESIDE_RUN for run in live)


def _replace_rewritten(
    table: LedgerTable, rows: Iterable[LedgerRow], sources: set[int], rewritten: Iterable[Rewritten]
) -> None:
    """Switches the ledgers ``rows`` from the segments ``sources`` to the rewritten segments."""
    new: dict[int, list[Place]] = {}
    for ledger_id, place in places_of(rewritten):
        new.setdefault(ledger_id, []).append(place)
    for row in rows:
        table.replace_parts(row, sources, new.get(row.ledger_id, ()))


def _refuse_missing(checkpoint: Checkpoint, present: Iterable[int], files: SegmentFiles) -> None:
    missing = {segment.segment_id for segment in checkpoint.segments} - set(present)
    if not missing:
        return
    ledgers = {
        row.ledger_id for row in checkpoint.ledgers if any(part[0] in missing for part in row.each_part())
    }
    paths = ", ".join(files.segment_path(segment_id) for segment_id in sorted(missing))
    verb = "is" if len(missing) == 1 else "are"
    raise DataDamaged(
        f"{paths} {verb} missing, with entries of the ledgers {', '.join(map(str, sorted(ledgers)))}; "
        "restore the data directory from a backup"
    )


def seal_in_place(files: SegmentFiles, replay: LogReplay) -> list[SealedSegment]:
    """Seals the segments of a replayed log; returns them, durable with their indexes when this returns.

    Each is truncated after its last group, which frees room, and every byte is written again in place,
    because bytes that read back may never have reached the device.

    :raises DataDamaged: a run does not match its checksum
    """
    runs: dict[str, list[LiveRun]] = {}
    for run in sorted(replay.runs, key=lambda run: (run.ledger_id, run.first_entry_id)):
        # Including deleted entries, as the ledgers' rows have them.
        if run.ledger_id in replay.table.rows:
            runs.setdefault(run.source.path, []).append(run)
    sealed = []
    for segment_id, end in replay.ends.items():
        found = runs.get(files.segment_path(segment_id))
        if found is None:
            continue
        file = files.open_to_seal(segment_id)
        try:
            _write_over(file, end)
        finally:
            file.close()
        sealed.append(_write_index(files, segment_id, end, found))
    files.sync_directory()
    return sealed


def _write_over(file: File, end: int) -> None:
    file.truncate(end)
    for offset in range(0, end, _STEP_BYTES):
        file.write_durably(file.read(min(_STEP_BYTES, end - offset), offset), offset)
    # Direct writes fill the last block with zeros.
    file.truncate(end)
    file.sync()


def _write_index(files: SegmentFiles, segment_id: int, end: int, runs: list[LiveRun]) -> SealedSegment:
    builder = PartsBuilder()
    for run in runs:
        run.read()
        place = (run.body_at, run.body_length, run.checksum)
        builder.add(run.ledger_id, run.first_entry_id, run.entries, place)
    index = encode_index(segment_id, end, [(part.ledger_id, part.runs) for part in builder.parts])
    files.write_within(len(index), lambda: files.write_index(segment_id, index))
    by_ledger: dict[int, int] = {}
    for part in builder.parts:
        by_ledger[part.ledger_id] = by_ledger.get(part.ledger_id, 0) + part.stored
    stored, largest = sum(by_ledger.values()), max(by_ledger.values())
    return SealedSegment(segment_id, LOG, end, end, builder.runs, stored, largest)
