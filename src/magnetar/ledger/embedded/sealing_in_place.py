"""Seals the rest of a log in place, for a start that has no room to rewrite it. Calls block."""

from __future__ import annotations

from magnetar.io.interfaces import File
from magnetar.ledger.embedded.checkpoint import SealedSegment
from magnetar.ledger.embedded.index import encode_index
from magnetar.ledger.embedded.recovery import LogReplay
from magnetar.ledger.embedded.rewrite import LiveRun
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import LOG
from magnetar.ledger.embedded.segment_parts import PartsBuilder

_STEP_BYTES = 1 << 20


def seal_in_place(files: SegmentFiles, replay: LogReplay) -> list[SealedSegment]:
    """Returns the segments of a replayed log, durable with their indexes when this returns.

    Each is truncated behind its last group, which frees room, and every byte is written again in place: bytes
    that read back may never have reached the device.

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
