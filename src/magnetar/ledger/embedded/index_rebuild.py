"""Rebuilds the index of a segment from the segment itself, if the index file is missing or damaged."""

from __future__ import annotations

from magnetar.ledger.embedded.group import ENTRIES
from magnetar.ledger.embedded.index import PartIndex
from magnetar.ledger.embedded.reader import SegmentReader
from magnetar.ledger.embedded.segment_header import SEGMENT_HEADER_BYTES
from magnetar.ledger.embedded.segment_parts import PartsBuilder
from magnetar.ledger.interface import DataDamaged


def rebuild_index(reader: SegmentReader, path: str, end: int) -> list[tuple[int, PartIndex]]:
    """Returns the parts of a segment, ascending by ledger and entry.

    :param end: the end of the last group
    :raises DataDamaged: the checksum of a group's header or table does not match
    """
    offset = SEGMENT_HEADER_BYTES
    runs = []
    while offset < end:
        group = reader.group_at(offset)
        if group is None:
            ledgers = ", ".join(map(str, sorted(reader.claimed_ledgers(offset)))) or "not readable"
            raise DataDamaged(f"{path} at offset {offset}: the group is damaged; ledgers: {ledgers}")
        runs += [run for run in group.runs if run.kind == ENTRIES]
        offset = group.end
    runs.sort(key=lambda run: (run.ledger_id, run.first_entry_id))
    builder = PartsBuilder()
    for run in runs:
        place = (run.body_at, run.body_length, run.checksum)
        builder.add(run.ledger_id, run.first_entry_id, run.entries, place)
    return [(part.ledger_id, part.runs) for part in builder.parts]
