"""Writes live runs of other segments to new segments, sorted by ledger. Calls block."""

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
from magnetar.ledger.embedded.index import NewPart, PartsBuilder, encode_index
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_header import REWRITTEN, SEGMENT_HEADER_BYTES, SegmentHeader
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import DataDamaged


class RunDamaged(DataDamaged):
    """A run does not match its checksum."""

    def __init__(self, run: LiveRun) -> None:
        self.path = run.source.path
        """The path of the segment."""
        super().__init__(
            f"{self.path} at offset {run.body_at}: entries {run.first_entry_id} to "
            f"{run.first_entry_id + run.entries - 1} of ledger {run.ledger_id} are damaged"
        )


class LiveRun(NamedTuple):
    """A run that is still needed, and its current position."""

    ledger_id: int
    first_entry_id: int
    entries: int
    source: File
    body_at: int
    body_length: int
    checksum: int

    def read(self) -> bytes:
        """Returns the body of the run.

        :raises RunDamaged: the body does not match its checksum
        """
        body = self.source.read(self.body_length, self.body_at)
        if not body_is_whole(body, 0, self.body_length, self.checksum):
            raise RunDamaged(self)
        return body


class Rewritten(NamedTuple):
    segment: SealedSegment
    parts: list[NewPart]


Place = tuple[int, int, int, int]
"""A part of a ledger: segment id, first entry, last entry, bytes stored."""


def places_of(rewritten: Iterable[Rewritten]) -> Iterator[tuple[int, Place]]:
    """Iterates over (ledger id, part) of all parts of these segments."""
    for entry in rewritten:
        for part in entry.parts:
            runs = part.runs
            place = (entry.segment.segment_id, runs.first_entry_id, runs.last_entry_id, part.stored)
            yield part.ledger_id, place


class _SegmentWriter:
    """A rewritten segment that is being written."""

    def __init__(self, files: SegmentFiles, store_id: bytes, segment_id: int) -> None:
        self._files = files
        self._segment_id = segment_id
        self._file = files.create_rewritten(segment_id)
        try:
            self._file.write(SegmentHeader(segment_id, store_id, REWRITTEN, 0).encode(), 0)
        except OSError:
            self._file.close()
            raise
        self._sequence = 1
        self._parts = PartsBuilder()
        self.end = SEGMENT_HEADER_BYTES

    def add_group(self, runs: list[Run]) -> None:
        # durable-up-to stays 0, so that replay never takes these groups as evidence about the log.
        data, places = build_group(self._segment_id, self.end, self._sequence, 0, runs)
        # Not through the page cache: rewritten data is cold, and commits of the log are delayed less.
        self._file.write_durably(data, self.end)
        for number, run in enumerate(runs):
            at = 3 * number
            self._parts.add(run[2], run[3], run[1], (places[at], places[at + 1], places[at + 2]))
        self._sequence += 1
        self.end += len(data)

    def close(self) -> None:
        self._file.close()

    def finish(self) -> Rewritten:
        # The last block was filled with zeros.
        self._file.truncate(self.end)
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


class Rewriting:
    """Copies runs, which ascend by ledger and entry, to new segments: one group per step.

    Adjacent runs are merged up to the size ``run_bytes`` of the settings. Without runs no segment is created.
    """

    def __init__(
        self,
        files: SegmentFiles,
        store_id: bytes,
        settings: EmbeddedSettings,
        next_id: Callable[[], int],
        runs: Iterable[LiveRun],
    ) -> None:
        self._files = files
        self._store_id = store_id
        self._limit = settings.segment_bytes
        self._next_id = next_id
        self._groups = _groups(_merged(runs, settings.run_bytes), settings.compaction_group_bytes)
        self._writer: _SegmentWriter | None = None
        self._finished: list[Rewritten] = []
        self.bytes = 0
        """The number of bytes written so far."""
        self.entries = 0

    def step(self) -> bool:
        """Writes the next group; returns False if all groups are written.

        :raises RunDamaged: a run does not match its checksum
        """
        found = next(self._groups, None)
        if found is None:
            return False
        group, size = found
        if self._writer is not None and self._writer.end + size > self._limit:
            self._finished.append(self._writer.finish())
            self._writer = None
        if self._writer is None:
            self._writer = _SegmentWriter(self._files, self._store_id, self._next_id())
        self._writer.add_group(group)
        self.bytes += size
        self.entries += sum(run[1] for run in group)
        return True

    def finish(self) -> list[Rewritten]:
        """Returns the new segments, durable when this returns."""
        if self._writer is not None:
            self._finished.append(self._writer.finish())
            self._writer = None
        if self._finished:
            self._files.sync_directory()
        return self._finished

    def close(self) -> None:
        """Closes the files that an abandoned rewrite left open."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def rewrite_runs(
    files: SegmentFiles,
    store_id: bytes,
    settings: EmbeddedSettings,
    next_id: Callable[[], int],
    runs: Iterable[LiveRun],
) -> list[Rewritten]:
    """Performs all steps of a :class:`Rewriting`, without a pause.

    :raises RunDamaged: a run does not match its checksum
    """
    rewriting = Rewriting(files, store_id, settings, next_id, runs)
    while rewriting.step():
        pass
    return rewriting.finish()


def _merged(runs: Iterable[LiveRun], limit: int) -> Iterator[tuple[Run, int]]:
    """Iterates over runs for a group and their sizes; adjacent runs of one ledger are merged."""
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
    """Iterates over groups of runs of about ``limit`` bytes, and their sizes."""
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
