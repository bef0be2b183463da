"""Which entries of a ledger a cursor has consumed, as ranges.

A hot module: plain Python that also compiles, with the C types in ``hot_ranges.pxd``. The consumers of a
Key_Shared subscription acknowledge entries that lie apart, so one range a message comes in here.
"""

from __future__ import annotations

from array import array


class EntryRanges:
    """Half-open ranges [start, end) of entry ids of one ledger, ascending, apart from each other."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> int:
        """Adds [start, end); returns how many entries were not in it before."""
        starts = self.starts
        ends = self.ends
        count = len(ends)
        if not count or start > _at(ends, count - 1):
            starts.append(start)
            ends.append(end)
            return end - start
        if start == _at(ends, count - 1):
            ends[count - 1] = end
            return end - start
        first = _at_or_above(ends, start)
        low = _at(starts, first)
        high = _at(ends, first)
        if end < low:
            starts.insert(first, start)
            ends.insert(first, end)
            return end - start
        covered = high - low
        last = first + 1
        while last < count and _at(starts, last) <= end:
            high = _at(ends, last)
            covered += high - _at(starts, last)
            last += 1
        if last - first > 1:
            # Most often it closes the gap between two.
            del starts[first + 1 : last]
            del ends[first + 1 : last]
        if start < low:
            starts[first] = low = start
        if end > high:
            high = end
        ends[first] = high
        return high - low - covered

    def add_each(self, entry_ids: array[int], first: int, stop: int, lowest: int, limit: int) -> int:
        """Adds ``entry_ids[first:stop]`` as far as they are in [lowest, limit); how many were not in it."""
        added = 0
        index = first
        while index < stop:
            start = entry_ids[index]
            end = start + 1
            index += 1
            while index < stop and entry_ids[index] == end:
                end += 1
                index += 1
            if start < lowest:
                start = lowest
            if end > limit:
                end = limit
            if start < end:
                added += self.add(start, end)
        return added

    def contains(self, entry_id: int) -> bool:
        return self.end_of_range_at(entry_id) != entry_id

    def end_of_range_at(self, entry_id: int) -> int:
        """The end of the range that holds ``entry_id``; ``entry_id`` itself when none does."""
        index = _at_or_above(self.ends, entry_id + 1)
        if index < len(self.ends) and _at(self.starts, index) <= entry_id:
            return _at(self.ends, index)
        return entry_id

    def start_of_next_range(self, entry_id: int) -> int | None:
        """The first start at or above ``entry_id``."""
        index = _at_or_above(self.starts, entry_id)
        return self.starts[index] if index < len(self.starts) else None

    def forget_below(self, entry_id: int) -> None:
        """Drops everything below ``entry_id``."""
        index = _at_or_above(self.ends, entry_id + 1)
        del self.starts[:index]
        del self.ends[:index]
        if self.starts and self.starts[0] < entry_id:
            self.starts[0] = entry_id

    def count(self) -> int:
        return sum(self.ends) - sum(self.starts)


def _at(values: list[int], index: int) -> int:
    return values[index]


def _at_or_above(values: list[int], wanted: int) -> int:
    """The index of the first of ascending values that is at least ``wanted``."""
    low = 0
    high = len(values)
    while low < high:
        middle = (low + high) >> 1
        if _at(values, middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def same_ledger_until(ledger_ids: array[int], first: int, count: int) -> int:
    """Up to where, at most ``count``, positions lie in the ledger of the one at ``first``."""
    index = first + 1
    while index < count and ledger_ids[index] == ledger_ids[first]:
        index += 1
    return index


def consecutive_until(entry_ids: array[int], first: int, stop: int) -> int:
    """Up to where, at most ``stop``, each entry follows the one before."""
    index = first + 1
    while index < stop and entry_ids[index] == entry_ids[first] + index - first:
        index += 1
    return index
