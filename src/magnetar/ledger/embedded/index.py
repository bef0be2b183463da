"""The positions of the runs in a segment: arrays in memory until it is sealed, then an index file."""

from __future__ import annotations

import struct
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from magnetar.io.crc32c import crc32c

RUN_FIELDS = 4
"""The number of array elements of a run: its first entry minus the first entry of the part, then offset,
length and checksum of its body."""
_MAGIC = b"MGSEGIDX"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQI")
"""Magic, format version, number of parts, segment id, end of the last group, checksum of the preceding
fields."""
_PART = struct.Struct("<qqqIIII")
"""Ledger id, first and last entry, number of runs, offset of the runs, their checksum, checksum of the
preceding fields."""
_SWAP = sys.byteorder != "little"


class PartIndex(NamedTuple):
    """The runs with consecutive entries of one ledger in one segment."""

    first_entry_id: int
    last_entry_id: int
    runs: array[int]
    """The runs, each with :data:`RUN_FIELDS` 32-bit numbers."""

    def run_of(self, entry_id: int) -> int:
        """Returns the index of the run that contains an entry of this part."""
        delta = entry_id - self.first_entry_id
        runs = self.runs
        low, high = 0, len(runs) // RUN_FIELDS
        while low + 1 < high:
            middle = (low + high) // 2
            if runs[middle * RUN_FIELDS] <= delta:
                low = middle
            else:
                high = middle
        return low

    def run_count(self) -> int:
        return len(self.runs) // RUN_FIELDS

    def entries_of(self, run: int) -> tuple[int, int]:
        """Returns the first entry id of a run and its number of entries."""
        at = run * RUN_FIELDS
        begin = self.runs[at]
        after = at + RUN_FIELDS
        if after < len(self.runs):
            end = self.runs[after]
        else:
            end = self.last_entry_id - self.first_entry_id + 1
        return self.first_entry_id + begin, end - begin

    def stored(self) -> int:
        """Returns the bytes of the bodies of all runs."""
        return sum(self.runs[2::RUN_FIELDS])


class GrowingIndex:
    """The index of a segment that is being written."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._runs: dict[int, array[int]] = {}
        self.run_count = 0

    def add(self, ledger_id: int, first: int, count: int, offset: int, length: int, checksum: int) -> None:
        """Adds a run; the runs of a ledger must be added in order and without gaps."""
        runs = self._runs.get(ledger_id)
        if runs is None:
            runs = self._runs[ledger_id] = array("I")
            self._first[ledger_id] = first
        elif self._last[ledger_id] + 1 != first:
            raise AssertionError(
                f"ledger {ledger_id} continues with entry {first} after entry {self._last[ledger_id]}"
            )
        runs.extend((first - self._first[ledger_id], offset, length, checksum))
        self._last[ledger_id] = first + count - 1
        self.run_count += 1

    def part(self, ledger_id: int) -> PartIndex | None:
        runs = self._runs.get(ledger_id)
        if runs is None:
            return None
        return PartIndex(self._first[ledger_id], self._last[ledger_id], runs)

    def stored(self) -> int:
        """Returns the bytes of the bodies of all runs."""
        return sum(sum(runs[2::RUN_FIELDS]) for runs in self._runs.values())

    def ledger_ids(self) -> list[int]:
        """Returns the ledgers of all parts, ascending."""
        return sorted(self._runs)


def encode_index(segment_id: int, end: int, parts: Sequence[tuple[int, PartIndex]]) -> bytes:
    """Returns the content of a segment's index file; ``parts`` ascend by ledger and first entry."""
    fields = (_MAGIC, _VERSION, len(parts), segment_id, end)
    header = _HEADER.pack(*fields, 0)[:-4]
    table: list[bytes] = [header + struct.pack("<I", crc32c(header))]
    bodies: list[bytes] = []
    at = _HEADER.size + _PART.size * len(parts)
    for ledger_id, part in parts:
        runs = _bytes_of(part.runs)
        row = _PART.pack(
            ledger_id,
            part.first_entry_id,
            part.last_entry_id,
            part.run_count(),
            at,
            crc32c(runs),
            0,
        )[:-4]
        table.append(row + struct.pack("<I", crc32c(row)))
        bodies.append(runs)
        at += len(runs)
    return b"".join(table + bodies)


def load_part(
    read_at: Callable[[int, int], bytes], segment_id: int, ledger_id: int, entry_id: int
) -> PartIndex | None:
    """Returns the part that contains an entry, found by bisection in an index file.

    Returns None if the file does not contain the entry, or a checksum does not match. The segment itself must
    then be read.
    """
    count = _count_of(read_at, segment_id)
    if count is None:
        return None
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        row = read_at(_PART.size, _HEADER.size + _PART.size * middle)
        if len(row) < _PART.size or crc32c(row[:-4]) != _PART.unpack(row)[6]:
            return None
        found, first, last, runs, at, runs_checksum, _ = _PART.unpack(row)
        if (found, last) < (ledger_id, entry_id):
            low = middle + 1
        elif (found, first) > (ledger_id, entry_id):
            high = middle
        else:
            data = read_at(runs * RUN_FIELDS * 4, at)
            return None if crc32c(data) != runs_checksum else PartIndex(first, last, _array_of(data))
    return None


def load_parts(read_at: Callable[[int, int], bytes], segment_id: int) -> list[tuple[int, PartIndex]] | None:
    """Returns all parts of an index file; None if a checksum does not match."""
    count = _count_of(read_at, segment_id)
    if count is None:
        return None
    table = read_at(_PART.size * count, _HEADER.size)
    parts = []
    for begin in range(0, _PART.size * count, _PART.size):
        row = table[begin : begin + _PART.size]
        if len(row) < _PART.size or crc32c(row[:-4]) != _PART.unpack(row)[6]:
            return None
        ledger_id, first, last, runs, at, checksum, _ = _PART.unpack(row)
        data = read_at(runs * RUN_FIELDS * 4, at)
        if crc32c(data) != checksum:
            return None
        parts.append((ledger_id, PartIndex(first, last, _array_of(data))))
    return parts


def _count_of(read_at: Callable[[int, int], bytes], segment_id: int) -> int | None:
    """Returns the number of parts in an index file; None if it is not an index of the segment."""
    header = read_at(_HEADER.size, 0)
    if len(header) < _HEADER.size:
        return None
    magic, version, count, owner, _, checksum = _HEADER.unpack(header)
    if magic != _MAGIC or version != _VERSION or owner != segment_id or crc32c(header[:-4]) != checksum:
        return None
    return int(count)


class IndexCache:
    """The most recently used parts of sealed segments, up to a number of bytes."""

    _PART_OVERHEAD = 400

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: OrderedDict[tuple[int, int, int], PartIndex] = OrderedDict()
        self.bytes = 0

    def get(self, segment_id: int, ledger_id: int, first: int) -> PartIndex | None:
        part = self._parts.get((segment_id, ledger_id, first))
        if part is not None:
            self._parts.move_to_end((segment_id, ledger_id, first))
        return part

    def put(self, segment_id: int, ledger_id: int, part: PartIndex) -> None:
        key = (segment_id, ledger_id, part.first_entry_id)
        self._forget(key)
        self._parts[key] = part
        self.bytes += self._cost(part)
        while self.bytes > self._max_bytes and len(self._parts) > 1:
            self._forget(next(iter(self._parts)))

    def drop_segments(self, segment_ids: Mapping[int, object] | set[int]) -> None:
        for key in [key for key in self._parts if key[0] in segment_ids]:
            self._forget(key)

    def _forget(self, key: tuple[int, int, int]) -> None:
        part = self._parts.pop(key, None)
        if part is not None:
            self.bytes -= self._cost(part)

    def _cost(self, part: PartIndex) -> int:
        return len(part.runs) * 4 + self._PART_OVERHEAD


def _bytes_of(runs: array[int]) -> bytes:
    if _SWAP:
        runs = array("I", runs)
        runs.byteswap()
    return runs.tobytes()


def _array_of(data: bytes) -> array[int]:
    runs = array("I")
    runs.frombytes(data)
    if _SWAP:
        runs.byteswap()
    return runs


class NewPart(NamedTuple):
    """The entries of a ledger in a rewritten segment, without gaps."""

    ledger_id: int
    runs: PartIndex
    stored: int
    """The total size of the bodies of these runs, in bytes."""


class PartsBuilder:
    """Collects the index of a segment in which the entries of a ledger may have gaps."""

    def __init__(self) -> None:
        self.parts: list[NewPart] = []
        self.runs = 0

    def add(self, ledger_id: int, first: int, count: int, place: tuple[int, int, int]) -> None:
        offset, length, checksum = place
        last = first + count - 1
        self.runs += 1
        if self.parts:
            part = self.parts[-1]
            if part.ledger_id == ledger_id and part.runs.last_entry_id + 1 == first:
                part.runs.runs.extend((first - part.runs.first_entry_id, offset, length, checksum))
                index = part.runs._replace(last_entry_id=last)
                self.parts[-1] = NewPart(ledger_id, index, part.stored + length)
                return
        runs = array("I", (0, offset, length, checksum))
        self.parts.append(NewPart(ledger_id, PartIndex(first, last, runs), length))
