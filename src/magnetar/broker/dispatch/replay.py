"""Positions of a shared subscription that are to be delivered again, in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from magnetar.managed_ledger.position import Position

_TRIMMED = 1000
"""Of what lies in front of the first position so much is kept, at most, before it is thrown away."""

_FEW = 100
"""What is less than this part of the row is put into it one by one."""


class ReplayPositions:
    """A set of positions that gives out its lowest ones."""

    __slots__ = ("_begin", "_row", "_set", "_unsorted")

    def __init__(self) -> None:
        self._set: set[Position] = set()
        self._row: list[Position] = []
        """In order, from ``_begin`` on; some of them were taken out."""
        self._begin = 0
        self._unsorted: list[Position] = []
        """The others, some of them taken out and some of them twice."""

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
        """Takes a position out; its place in the row is passed over."""
        self._set.discard(position)
        if not self._set:
            self.clear()

    def lowest(self, limit: int, gap: int) -> list[Position]:
        """The lowest positions in order, at most ``limit``, all in one ledger, of which each has an entry id
        at most ``gap`` above that of the one before it.

        :raises IndexError: it is empty
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
        """Puts what was added into the row, where nothing is to be twice."""
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
        """Takes out everything at or below a position."""
        self._set = {each for each in self._set if each > last}
        if not self._set:
            self.clear()

    def clear(self) -> None:
        self._set.clear()
        self._row.clear()
        self._begin = 0
        self._unsorted.clear()
