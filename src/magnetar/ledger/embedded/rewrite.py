"""Writes live runs of other segments into new ones, sorted by ledger. Calls block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from magnetar.io.interfaces import File
from magnetar.ledger.embedded.checkpoint import SealedSegment
from magnetar.ledger.embedded.group import (
    ENTRIES,
    GROUP_HEADER_BYTES,
    LENGTH_BYTES,
    RUN_HEADER_BYTES,
    Run,
    body_is_whole,
    build_group,
)
from magnetar.ledger.embedded.index import encode_index
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import REWRITTEN, SEGMENT_HEADER_BYTES, SegmentHeader
from magnetar.ledger.embedded.segment_parts import NewPart, PartsBuilder
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import DataDamaged


class LiveRun(NamedTuple):
    """A run that is still wanted, and where it lies now."""

    ledger_id: int
    first_entry_id: int
    entries: int
    source: File
    body_at: int
    body_length: int
    checksum: int

    def read(self) -> bytes:
        """:raises DataDamaged: the body does not carry its checksum"""
        body = self.source.read(self.body_length, self.body_at)
        if not body_is_whole(body, 0, self.body_length, self.checksum):
            raise DataDamaged(
                f"{self.source.path} at offset {self.body_at}: entries {self.first_entry_id} to "
                f"{self.first_entry_id + self.entries - 1} of ledger {self.ledger_id} are damaged"
            )
        return body


class Rewritten(NamedTuple):
    segment: SealedSegment
    parts: list[NewPart]


class _SegmentWriter:
    """One rewritten segment while it is written."""

    def __init__(self, files: SegmentFiles, store_id: bytes, segment_id: int) -> None:
        self._files = files
        self._segment_id = segment_id
        self._file = files.create_rewritten(segment_id)
        self._file.write(SegmentHeader(segment_id, store_id, REWRITTEN, 0).encode(), 0)
        self._sequence = 1
        self._parts = PartsBuilder()
        self.end = SEGMENT_HEADER_BYTES

    def add_group(self, runs: list[Run]) -> None:
        # durable-up-to stays 0: replay never takes these groups for a witness of the log.
        data, places = build_group(self._segment_id, self.end, self._sequence, 0, runs)
        self._file.write(data, self.end)
        self._file.sync()
        for number, run in enumerate(runs):
            at = 3 * number
            self._parts.add(run[2], run[3], run[1], (places[at], places[at + 1], places[at + 2]))
        self._sequence += 1
        self.end += len(data)

    def finish(self) -> Rewritten:
        self._file.sync()
        self._file.close()
        parts = self._parts.parts
        index = [(part.ledger_id, part.runs) for part in parts]
        self._files.write_index(self._segment_id, encode_index(self._segment_id, self.end, index))
        stored = sum(part.stored for part in parts)
        runs = self._parts.runs
        sealed = SealedSegment(
            self._segment_id, REWRITTEN, self.end, self.end, runs, stored, stored, settled=True
        )
        return Rewritten(sealed, parts)


def rewrite_runs(
    files: SegmentFiles,
    store_id: bytes,
    settings: EmbeddedSettings,
    next_id: Callable[[], int],
    runs: Iterable[LiveRun],
) -> list[Rewritten]:
    """Copies ``runs``, which ascend by ledger and entry, into new segments, durable when this returns.

    Neighbours are merged up to the size of a run. An empty ``runs`` makes no segment.

    :raises DataDamaged: a run does not carry its checksum
    """
    finished: list[Rewritten] = []
    writer: _SegmentWriter | None = None
    for group, size in _groups(_merged(runs, settings.run_bytes), settings.group_bytes):
        if writer is not None and writer.end + size > settings.segment_bytes:
            finished.append(writer.finish())
            writer = None
        if writer is None:
            writer = _SegmentWriter(files, store_id, next_id())
        writer.add_group(group)
    if writer is not None:
        finished.append(writer.finish())
        files.sync_directory()
    return finished


def _merged(runs: Iterable[LiveRun], limit: int) -> Iterator[tuple[Run, int]]:
    """Runs for a group and their sizes, neighbours of one ledger merged."""
    lengths: list[bytes] = []
    payloads: list[bytes] = []
    ledger_id = first = count = size = 0
    for run in runs:
        adjacent = lengths and run.ledger_id == ledger_id and run.first_entry_id == first + count
        if lengths and (not adjacent or size + run.body_length > limit):
            yield (ENTRIES, count, ledger_id, first, first + count - 1, lengths + payloads), size
            lengths, payloads = [], []
        if not lengths:
            ledger_id, first, count, size = run.ledger_id, run.first_entry_id, 0, RUN_HEADER_BYTES
        body = run.read()
        lengths.append(body[: LENGTH_BYTES * run.entries])
        payloads.append(body[LENGTH_BYTES * run.entries :])
        count += run.entries
        size += run.body_length
    if lengths:
        yield (ENTRIES, count, ledger_id, first, first + count - 1, lengths + payloads), size


def _groups(runs: Iterable[tuple[Run, int]], limit: int) -> Iterator[tuple[list[Run], int]]:
    """Runs together in groups of about ``limit`` bytes, and the groups' sizes."""
    group: list[Run] = []
    total = GROUP_HEADER_BYTES
    for run, size in runs:
        if group and total + size > limit:
            yield group, total
            group, total = [], GROUP_HEADER_BYTES
        group.append(run)
        total += size
    if group:
        yield group, total
