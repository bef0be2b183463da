"""Finds the runs with the entries of a ledger, in memory, in the cache or in index files."""

from __future__ import annotations

from magnetar.io.files import is_shortage
from magnetar.ledger.embedded.group import ENTRIES
from magnetar.ledger.embedded.index import (
    IndexCache,
    PartIndex,
    PartsBuilder,
    encode_index,
    load_part,
    load_parts,
)
from magnetar.ledger.embedded.reader import SegmentReader
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import SEGMENT_HEADER_BYTES
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_table import SegmentTable
from magnetar.ledger.interface import DataDamaged


class IndexLookup:
    """Finds entries in segments. The index of a growing segment is in memory; the index of a sealed segment
    is in an index file and partly in a cache.
    """

    def __init__(
        self, files: SegmentFiles, reads: SegmentReads, segments: SegmentTable, cache_bytes: int
    ) -> None:
        self.cache = IndexCache(cache_bytes)
        self._files = files
        self._reads = reads
        self._segments = segments

    async def part(self, segment_id: int, ledger_id: int, first: int, entry_id: int) -> PartIndex:
        """Returns the part of a pinned segment that begins at ``first`` and contains ``entry_id``.

        :raises DataDamaged: neither the index file nor the segment has valid data
        :raises LedgerUnreadable: the operating system cannot read the files
        """
        segment = self._segments.get(segment_id)
        if segment is not None and segment.log is not None:
            part = segment.log.index.part(ledger_id)
        else:
            part = self.cache.get(segment_id, ledger_id, first)
        if part is None:
            part = await self._reads.job(segment_id, lambda: self._load(segment_id, ledger_id, entry_id))
            self.cache.put(segment_id, ledger_id, part)
        return part

    def all_parts(self, segment_id: int) -> list[tuple[int, PartIndex]]:
        """Returns the whole index of a pinned, sealed segment. Blocks; runs on a worker.

        :raises DataDamaged: neither the index file nor the segment has valid data
        """
        try:
            file = self._files.open_index(segment_id)
        except FileNotFoundError:
            return self._rebuild(segment_id)
        try:
            parts = load_parts(file.read, segment_id)
        finally:
            file.close()
        return parts if parts is not None else self._rebuild(segment_id)

    def _load(self, segment_id: int, ledger_id: int, entry_id: int) -> PartIndex:
        """Reads a part from an index file; if the file is missing or damaged, from the segment. Blocks."""
        try:
            file = self._files.open_index(segment_id)
        except FileNotFoundError:
            return self._find(self._rebuild(segment_id), segment_id, ledger_id, entry_id)
        try:
            part = load_part(file.read, segment_id, ledger_id, entry_id)
        finally:
            file.close()
        if part is None:
            return self._find(self._rebuild(segment_id), segment_id, ledger_id, entry_id)
        return part

    def _rebuild(self, segment_id: int) -> list[tuple[int, PartIndex]]:
        end = self._segments.end_of(segment_id)
        file = self._files.open(segment_id)
        try:
            reader = SegmentReader(file.read, file.size(), segment_id)
            parts = rebuild_index(reader, file.path, end)
        finally:
            file.close()
        try:
            self._files.write_index(segment_id, encode_index(segment_id, end, parts))
        except OSError as error:
            # The rebuilt index is used without a file: consumers must be able to drain a full disk.
            if not is_shortage(error):
                raise
        return parts

    def _find(
        self, parts: list[tuple[int, PartIndex]], segment_id: int, ledger_id: int, entry_id: int
    ) -> PartIndex:
        for owner, part in parts:
            if owner == ledger_id and part.first_entry_id <= entry_id <= part.last_entry_id:
                return part
        path = self._files.segment_path(segment_id)
        raise DataDamaged(f"{path}: the segment does not contain entry {entry_id} of ledger {ledger_id}")


def rebuild_index(reader: SegmentReader, path: str, end: int) -> list[tuple[int, PartIndex]]:
    """Rebuilds the index of a segment from the segment's groups; returns ledger ids with their parts, in the
    order of ledgers and entries.

    :param end: the offset at which the last group ends
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
