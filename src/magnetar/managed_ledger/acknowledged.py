"""The acknowledgements of a cursor: mark-delete position, individual entries, bits inside batches.

Entries are kept per ledger, so that a subscription whose consumers acknowledge roughly in order takes little
memory, however many messages it has acknowledged (``hot_ranges``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice

from magnetar.invariants import must
from magnetar.managed_ledger.hot_ranges import EntryRanges
from magnetar.managed_ledger.position import Position

_RANGE_FRAME = 8
"""The number of bytes of an encoded range besides its four numbers: the tags, and two position sizes."""


def varint_size(value: int) -> int:
    """Returns the number of bytes of a varint in a protobuf record."""
    return max(1, (value.bit_length() + 6) // 7) if value >= 0 else 10


WHOLE = -1
"""Stands in place of a batch's bits if the whole entry is acknowledged."""


class AcknowledgedState:
    """The positions that one cursor has consumed. The cursor checks whether the entries exist."""

    __slots__ = ("batches", "mark_delete", "ranges")

    def __init__(self, mark_delete: Position) -> None:
        self.mark_delete = mark_delete
        self.ranges: dict[int, EntryRanges] = {}
        self.batches: dict[Position, int] = {}
        """The bits of partly acknowledged batches; bit i is set while message i is still to be delivered."""

    def add_range(self, ledger_id: int, start: int, end: int) -> int:
        """Marks entries [start, end) of a ledger as consumed; returns how many were not consumed before."""
        if ledger_id < self.mark_delete[0]:
            return 0
        if ledger_id == self.mark_delete[0]:
            start = max(start, self.mark_delete[1] + 1)
        if start >= end:
            return 0
        ranges = self.ranges.get(ledger_id)
        if ranges is None:
            ranges = self.ranges[ledger_id] = EntryRanges()
        added = ranges.add(start, end)
        if self.batches:
            self._drop_batches(ledger_id, start, end)
        return added

    def add_each(self, ledger_id: int, entry_ids: array[int], first: int, stop: int, limit: int) -> int:
        """Marks the entries in ``entry_ids[first:stop]`` that are below ``limit`` as consumed.

        :returns: how many were not consumed before
        """
        lowest = 0
        mark_ledger, mark_entry = self.mark_delete
        if ledger_id <= mark_ledger:
            if ledger_id < mark_ledger:
                return 0
            lowest = mark_entry + 1
        ranges = self.ranges.get(ledger_id)
        if ranges is None:
            ranges = EntryRanges()
        added = ranges.add_each(entry_ids, first, stop, lowest, limit)
        if added:
            self.ranges[ledger_id] = ranges
            if self.batches:
                for entry_id in entry_ids[first:stop]:
                    if entry_id < limit:
                        self.batches.pop((ledger_id, entry_id), None)
        return added

    def _drop_batches(self, ledger_id: int, start: int, end: int) -> None:
        if end - start <= len(self.batches):
            for entry_id in range(start, end):
                self.batches.pop((ledger_id, entry_id), None)
            return
        for position in [p for p in self.batches if p[0] == ledger_id and start <= p[1] < end]:
            del self.batches[position]

    def contains(self, ledger_id: int, entry_id: int) -> bool:
        """Whether the entry is consumed."""
        if (ledger_id, entry_id) <= self.mark_delete:
            return True
        ranges = self.ranges.get(ledger_id)
        return ranges is not None and ranges.contains(entry_id)

    def move_mark_delete(self, position: Position) -> None:
        """Sets the mark-delete position, forward or back; drops all acknowledgements at or below it."""
        self.mark_delete = position
        ledger_id, entry_id = position
        for other in [i for i in self.ranges if i <= ledger_id]:
            ranges = self.ranges[other]
            if other == ledger_id:
                ranges.forget_below(entry_id + 1)
            if other < ledger_id or ranges.is_empty():
                del self.ranges[other]
        if self.batches:
            for found in [p for p in self.batches if p <= position]:
                del self.batches[found]

    def clear_above(self) -> None:
        """Drops all acknowledgements above the mark-delete position."""
        self.ranges.clear()
        self.batches.clear()

    def forget_ledgers_before(self, ledger_id: int) -> None:
        """Drops the acknowledgements in ledgers older than ``ledger_id``, which were deleted."""
        for other in [i for i in self.ranges if i < ledger_id]:
            del self.ranges[other]
        for found in [p for p in self.batches if p[0] < ledger_id]:
            del self.batches[found]

    def forget_behind(self, position: Position) -> None:
        """Drops the acknowledgements of entries after a position, which are lost or were moved to another
        ledger.
        """
        ledger_id, entry_id = position
        for other in [i for i in self.ranges if i >= ledger_id]:
            ranges = self.ranges[other]
            if other > ledger_id or ranges.end() > entry_id + 1:
                del self.ranges[other]
                if other == ledger_id:
                    for start, end in ranges.in_order():
                        self.add_range(other, start, min(end, entry_id + 1))
        for found in [p for p in self.batches if p > position]:
            del self.batches[found]

    def block_count(self) -> int:
        """Returns the number of blocks (of 1024 entries each) with gaps, a measure of the cost of iterating
        over all ranges."""
        return sum(ranges.block_count() for ranges in self.ranges.values())

    def add_words(self, ledger_id: int, words: array[int]) -> None:
        """Marks as consumed the entries of a ledger whose bits are set in ``words``; does nothing if an entry
        of the ledger is marked already.

        :param words: a bitmap of signed 64-bit words, the word with the lowest entries first
        """
        if ledger_id < self.mark_delete[0] or ledger_id in self.ranges:
            return
        ranges = EntryRanges()
        ranges.add_words(words)
        if ledger_id == self.mark_delete[0]:
            ranges.forget_below(self.mark_delete[1] + 1)
        if not ranges.is_empty():
            self.ranges[ledger_id] = ranges

    def range_count(self) -> int:
        return sum(ranges.range_count() for ranges in self.ranges.values())

    def ranges_size(self, limit: int) -> int:
        """Returns the number of bytes that the first ``limit`` ranges take in a cursor's record."""
        return sum(
            _RANGE_FRAME + 2 * varint_size(ledger_id) + varint_size(start - 1) + varint_size(end - 1)
            for ledger_id, start, end in self.ranges_in_order(limit)
        )

    def individually_deleted(self) -> int:
        """Returns the number of entries consumed above the mark-delete position."""
        return sum(ranges.count() for ranges in self.ranges.values())

    def individually_deleted_up_to(self, position: Position) -> int:
        """Returns the number of entries consumed above the mark-delete position, at or below ``position``."""
        limit, last = position
        count = 0
        for ledger_id, start, end in self._all_ranges():
            if ledger_id < limit:
                count += end - start
            elif ledger_id == limit:
                count += max(0, min(end, last + 1) - start)
        return count

    def _all_ranges(self) -> Iterator[tuple[int, int, int]]:
        for ledger_id in sorted(self.ranges):
            for start, end in self.ranges[ledger_id].in_order():
                yield ledger_id, start, end

    def ranges_in_order(self, limit: int) -> Iterator[tuple[int, int, int]]:
        """Yields the first ``limit`` ranges as (ledger id, start, end)."""
        return islice(self._all_ranges(), limit)

    def batches_in_order(self, limit: int) -> list[tuple[Position, int]]:
        return sorted(self.batches.items())[:limit]

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: an entry at or below the mark-delete position is kept, or an entry is kept
            twice
        """
        for ledger_id, ranges in self.ranges.items():
            must(not ranges.is_empty(), "ledger", ledger_id, "has ranges without entries")
            start = next(iter(ranges.in_order()))[0]
            must((ledger_id, start) > self.mark_delete, (ledger_id, start), "is behind", self.mark_delete)
        for position, left in self.batches.items():
            must(left > 0, "of the batch at", position, "nothing is left")
            must(not self.contains(*position), "the batch at", position, "is consumed as a whole, too")

    def copy(self) -> AcknowledgedState:
        other = AcknowledgedState(self.mark_delete)
        for ledger_id, ranges in self.ranges.items():
            other.ranges[ledger_id] = ranges.copy()
        other.batches = dict(self.batches)
        return other

    def describe_ranges(self) -> str:
        """Returns the ranges in Pulsar's notation: ``[(3:4..3:7],(5:-1..5:0]]``."""
        inner = ",".join(
            f"({ledger}:{start - 1}..{ledger}:{end - 1}]" for ledger, start, end in self._all_ranges()
        )
        return f"[{inner}]"
