"""Reads segments from files, in this process or another one; uses no part of the store except the codec of
groups."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from magnetar.io.crc32c import crc32c
from magnetar.ledger.embedded.group import (
    CHECKSUM_END,
    ENTRIES,
    GROUP_HEADER,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    RUN_HEADER,
    RUN_HEADER_BYTES,
    body_is_whole,
    take_entries,
)
from magnetar.ledger.embedded.index import RUN_FIELDS, PartIndex, load_part
from magnetar.ledger.embedded.segment_header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)

ReadAt = Callable[[int, int], bytes]
"""Returns bytes of a file; arguments: the number of bytes, the offset. Returns fewer bytes only at the end of
the file."""

_WINDOW = 1 << 20


class RunAt(NamedTuple):
    """The description of a run in the table of a group, and the position of the run's body."""

    kind: int
    entries: int
    ledger_id: int
    first_entry_id: int
    confirmed: int
    body_at: int
    """The offset of the run's body in the segment."""
    body_length: int
    checksum: int


class Group(NamedTuple):
    """A group with a valid header and table; bodies may be damaged."""

    offset: int
    length: int
    sequence: int
    durable_up_to: int
    runs: list[RunAt]
    broken_runs: list[RunAt]
    """Runs whose body does not match its checksum."""

    @property
    def end(self) -> int:
        return self.offset + self.length


class SegmentReader:
    """The groups of one segment, read through a window that moves forward."""

    def __init__(self, read_at: ReadAt, size: int, segment_id: int) -> None:
        """:param size: the size of the file in bytes"""
        self.segment_id = segment_id
        self.size = size
        self._read_at = read_at
        self._window = b""
        self._window_at = 0

    def header(self) -> SegmentHeader | None:
        """Returns the segment's header; None if it is not valid or belongs to another segment id."""
        header = decode_segment_header(self._read_at(SEGMENT_HEADER_BYTES, 0))
        return header if header is not None and header.segment_id == self.segment_id else None

    def bytes_at(self, offset: int, length: int) -> bytes:
        """Returns up to ``length`` bytes at ``offset``, from the window if it has them."""
        begin = offset - self._window_at
        if begin < 0 or begin + length > len(self._window):
            self._window = self._read_at(max(length, _WINDOW), offset)
            self._window_at = offset
            begin = 0
        return self._window[begin : begin + length]

    def group_at(self, offset: int) -> Group | None:
        """Returns the group at ``offset``; None unless its header and table are valid and belong to this
        offset."""
        head = self.bytes_at(offset, GROUP_HEADER_BYTES)
        if len(head) < GROUP_HEADER_BYTES:
            return None
        magic, checksum, length, count, segment_id, own_offset, sequence, durable = GROUP_HEADER.unpack(head)
        table_end = GROUP_HEADER_BYTES + RUN_HEADER_BYTES * count
        if magic != GROUP_MAGIC or segment_id != self.segment_id or own_offset != offset:
            return None
        if length < table_end or offset + length > self.size:
            return None
        data = self.bytes_at(offset, length)
        if len(data) < length or crc32c(memoryview(data)[CHECKSUM_END:table_end]) != checksum:
            return None
        return _with_runs(data, Group(offset, length, sequence, durable, [], []), table_end)

    def groups(self, offset: int, sequence: int) -> Iterator[Group]:
        """Iterates over undamaged groups from ``offset`` on, as long as their sequence numbers ascend without
        gaps from ``sequence``."""
        while (group := self.group_at(offset)) is not None:
            if group.sequence != sequence or group.broken_runs:
                return
            yield group
            offset += group.length
            sequence += 1

    def groups_beyond(self, offset: int) -> Iterator[Group]:
        """Iterates over the groups of this segment with valid header and table that a search from ``offset``
        on finds, whether they are contiguous or not."""
        position = offset
        while position + GROUP_HEADER_BYTES <= self.size:
            data = self._read_at(_WINDOW, position)
            found = data.find(GROUP_MAGIC)
            while found >= 0:
                group = self.group_at(position + found)
                if group is not None:
                    yield group
                found = data.find(GROUP_MAGIC, found + 1)
            # A magic may span two reads.
            position += max(1, len(data) - len(GROUP_MAGIC) + 1)

    def claimed_ledgers(self, offset: int) -> set[int]:
        """Returns the ledgers in the table of a damaged group; a guess for error texts."""
        head = self.bytes_at(offset, GROUP_HEADER_BYTES)
        if len(head) < GROUP_HEADER_BYTES:
            return set()
        count = min(GROUP_HEADER.unpack(head)[3], 4096)
        data = self.bytes_at(offset, GROUP_HEADER_BYTES + RUN_HEADER_BYTES * count)
        whole = (len(data) - GROUP_HEADER_BYTES) // RUN_HEADER_BYTES * RUN_HEADER_BYTES
        table = data[GROUP_HEADER_BYTES : GROUP_HEADER_BYTES + whole]
        claimed = (RUN_HEADER.unpack_from(table, at) for at in range(0, whole, RUN_HEADER_BYTES))
        return {run[2] for run in claimed if run[0] <= 3 and 0 < run[2] < 1 << 48}

    def entries(self, run: RunAt) -> list[bytes] | None:
        """Returns the entries of a run; None if it is not a run of entries, or its body does not match its
        checksum."""
        data = self._read_at(run.body_length, run.body_at)
        if run.kind != ENTRIES or not body_is_whole(data, 0, run.body_length, run.checksum):
            return None
        starts, ends = array("q"), array("q")
        take_entries(data, 0, run.entries, 0, run.entries, run.body_length, starts, ends)
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]


class EntriesDamaged(Exception):
    """Entries in a segment do not match their checksum; the message names them."""


def entries_of_part(
    segment: SegmentReader, read_index: ReadAt, ledger_id: int, first: int, last: int
) -> Iterator[tuple[int, bytes]] | None:
    """Iterates over entries ``first`` to ``last`` of a ledger with their ids, in a segment of a read plan.

    Returns None if the index does not contain them; the caller must then ask the store. The caller holds a
    shared lock on the segment's file and has checked its header.

    :raises EntriesDamaged: some entries do not match their checksum; raised during the iteration
    """
    part = load_part(read_index, segment.segment_id, ledger_id, first)
    if part is None or part.last_entry_id < last:
        return None
    return _entries_of_part(segment, part, ledger_id, first, last)


def _entries_of_part(
    segment: SegmentReader, part: PartIndex, ledger_id: int, first: int, last: int
) -> Iterator[tuple[int, bytes]]:
    for number in range(part.run_of(first), part.run_of(last) + 1):
        run_first, count = part.entries_of(number)
        at = number * RUN_FIELDS
        offset, length, checksum = part.runs[at + 1 : at + 4]
        data = segment.bytes_at(offset, length)
        if not body_is_whole(data, 0, length, checksum):
            raise EntriesDamaged(
                f"segment {segment.segment_id} at offset {offset}: entries {run_first} to "
                f"{run_first + count - 1} of ledger {ledger_id} are damaged"
            )
        starts, ends = array("q"), array("q")
        skip = max(0, first - run_first)
        wanted = min(count, last + 1 - run_first) - skip
        take_entries(data, 0, count, skip, wanted, length, starts, ends)
        for index, start in enumerate(starts):
            yield run_first + skip + index, data[start : ends[index]]


def _with_runs(data: bytes, group: Group, table_end: int) -> Group:
    body_at = table_end
    for fields in RUN_HEADER.iter_unpack(memoryview(data)[GROUP_HEADER_BYTES:table_end]):
        kind, entries, ledger_id, first, confirmed, length, checksum = fields
        run = RunAt(kind, entries, ledger_id, first, confirmed, group.offset + body_at, length, checksum)
        group.runs.append(run)
        if not body_is_whole(data, body_at, length, checksum):
            group.broken_runs.append(run)
        body_at += length
    return group
