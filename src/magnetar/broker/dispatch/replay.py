"""The replay list of a shared subscription: positions to be delivered again, in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from magnetar.managed_ledger.position import Position

_TRIMMED = 1000
"""At this many unused elements before the first position the list is trimmed."""

_FEW = 100
"""Positions are inserted one by one if they are fewer than this fraction (1/n) of the list."""


class ReplayPositions:
    """A set of positions that returns its lowest ones."""

    __slots__ = ("_begin", "_row", "_set", "_unsorted")

    def __init__(self) -> None:
        self._set: set[Position] = set()
        self._row: list[Position] = []
        """Sorted from ``_begin`` on; some of them have been removed from the set."""
        self._begin = 0
        self._unsorted: list[Position] = []
        """Added since the last sort, possibly removed from the set or twice."""

    def __len__(self) -> int:
        return len(self._set)

    def __contains__(self, position: Position) -> bool:
        return position in self._set

    def __iter__(self) -> Iterator[Position]:
        return iter(self._set)

    def add(self, position: Position) -> None:
        if position not in self._set:
            self._set.add(position)
            self._unsorted.append(position)

    def discard(self, position: Position) -> None:
        """Removes a position; its element in the list is skipped."""
        self._set.discard(position)
        if not self._set:
            self.clear()

    def lowest(self, limit: int, gap: int) -> list[Position]:
        """Returns the lowest positions in order, at most ``limit``, all in one ledger, each with an entry id
        at most ``gap`` above the previous one.

        :raises IndexError: the set is empty
        """
        if self._unsorted:
            self._sort()
        row, present = self._row, self._set
        at = self._begin
        while row[at] not in present:
            at += 1
        self._begin = at
        if at > _TRIMMED:
            del row[:at]
            self._begin = at = 0
        found = [row[at]]
        ledger_id, last = row[at]
        for place in range(at + 1, len(row)):
            position = row[place]
            if len(found) == limit or position[0] != ledger_id or position[1] - last > gap:
                break
            if position in present:
                found.append(position)
                last = position[1]
        return found

    def _sort(self) -> None:
        """Merges added positions into the sorted list, without duplicates."""
        added, self._unsorted = sorted(set(self._unsorted)), []
        row = self._row
        if self._begin == len(row) or row[-1] < added[0]:
            row += added
        elif len(added) * _FEW < len(row):
            for position in added:
                at = bisect_left(row, position, self._begin)
                if at == len(row) or row[at] != position:
                    row.insert(at, position)
        else:
            at = bisect_left(row, added[0], self._begin)
            row[at:] = sorted({*row[at:], *added})

    def drop_through(self, last: Position) -> None:
        """Removes everything at or below a position."""
        self._set = {each for each in self._set if each > last}
        if not self._set:
            self.clear()

    def clear(self) -> None:
        self._set.clear()
        self._row.clear()
        self._begin = 0
        self._unsorted.clear()
