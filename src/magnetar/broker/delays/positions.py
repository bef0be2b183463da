"""The set of a topic's entries that wait for their delivery time, with a byte per entry."""

from __future__ import annotations

from magnetar.ledger.entry_run import EntryRun
from magnetar.managed_ledger.position import Position

_ROOM = 4096
"""Entries by which the marks of a ledger grow."""


class WaitingPositions:
    """A set of positions."""

    __slots__ = ("_counts", "_marks", "count")

    def __init__(self) -> None:
        self._marks: dict[int, bytearray] = {}
        self._counts: dict[int, int] = {}
        """The number of marked entries by ledger; never 0."""
        self.count = 0

    def __contains__(self, position: Position) -> bool:
        marks = self._marks.get(position[0])
        return marks is not None and position[1] < len(marks) and marks[position[1]] == 1

    def add(self, ledger_id: int, entry_id: int) -> bool:
        """Adds a position; returns whether it is new."""
        marks = self._marks.get(ledger_id)
        if marks is None:
            marks = self._marks[ledger_id] = bytearray()
            self._counts[ledger_id] = 0
        if entry_id >= len(marks):
            marks.extend(bytes(entry_id + _ROOM - len(marks)))
        elif marks[entry_id]:
            return False
        marks[entry_id] = 1
        self._counts[ledger_id] += 1
        self.count += 1
        return True

    def discard(self, ledger_id: int, entry_id: int) -> bool:
        """Removes a position; returns whether it was in the set."""
        if (ledger_id, entry_id) not in self:
            return False
        self._marks[ledger_id][entry_id] = 0
        self._gone(ledger_id, 1)
        return True

    def _gone(self, ledger_id: int, count: int) -> None:
        self.count -= count
        left = self._counts[ledger_id] - count
        if left:
            self._counts[ledger_id] = left
        else:
            del self._counts[ledger_id], self._marks[ledger_id]

    def has_any_of(self, run: EntryRun, first: int, end: int) -> bool:
        """Whether any of entries [first, end) of a run is in the set."""
        marks = self._marks.get(run.ledger_id)
        base = run.first_entry_id
        return marks is not None and marks.find(1, base + first, base + end) >= 0

    def marks_of(self, ledger_id: int, first: int, end: int) -> bytes | bytearray:
        """Returns the marks of entries [first, end) of a ledger, possibly fewer."""
        marks = self._marks.get(ledger_id)
        return b"" if marks is None else marks[first:end]

    def drop_through(self, last: Position) -> None:
        """Removes everything at or below a position."""
        for ledger_id in [each for each in self._marks if each <= last[0]]:
            marks = self._marks[ledger_id]
            end = len(marks) if ledger_id < last[0] else min(last[1] + 1, len(marks))
            dropped = marks.count(1, 0, max(end, 0))
            if dropped:
                marks[:end] = bytes(end)
                self._gone(ledger_id, dropped)

    @property
    def ledgers(self) -> list[int]:
        """The ledgers that have positions in the set."""
        return list(self._marks)

    def marks_without(self, ledger_id: int, others: WaitingPositions) -> bytes:
        """Returns a byte, 0 or 1, for each entry of a ledger, without those that are in ``others``."""
        marks = self._marks.get(ledger_id, bytearray())
        other = others._marks.get(ledger_id)
        if other is None:
            return bytes(marks)
        mine, theirs = int.from_bytes(marks, "little"), int.from_bytes(other, "little")
        return (mine & ~theirs).to_bytes(len(marks), "little")

    def take_marks(self, ledger_id: int, marks: bytearray) -> None:
        """Adds the marks of a ledger that has none in the set."""
        count = marks.count(1)
        if count:
            self._marks[ledger_id] = marks
            self._counts[ledger_id] = count
            self.count += count

    def add_all(self, other: WaitingPositions) -> None:
        """Adds the positions of another set."""
        for ledger_id, marks in other._marks.items():
            mine = self._marks.pop(ledger_id, bytearray())
            self.count -= self._counts.pop(ledger_id, 0)
            size = max(len(mine), len(marks))
            both = int.from_bytes(mine, "little") | int.from_bytes(marks, "little")
            self.take_marks(ledger_id, bytearray(both.to_bytes(size, "little")))

    def clear(self) -> None:
        self._marks.clear()
        self._counts.clear()
        self.count = 0

    def size(self) -> int:
        """The bytes of its marks."""
        return sum(map(len, self._marks.values()))
