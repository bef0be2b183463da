"""The ledgers of a managed ledger in order, the existing positions, and the distances between them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import LedgerSummary


class LedgerList:
    """The ledgers in ascending order of ids. For the open (last) ledger, ``entries`` counts the durable
    entries.
    """

    def __init__(self, summaries: Iterable[LedgerSummary] = ()) -> None:
        self._by_id: dict[int, LedgerSummary] = {s.ledger_id: s for s in summaries}
        self._ids: list[int] = sorted(self._by_id)

    def __iter__(self) -> Iterator[LedgerSummary]:
        return (self._by_id[i] for i in self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._by_id

    def get(self, ledger_id: int) -> LedgerSummary | None:
        return self._by_id.get(ledger_id)

    def last_stored(self) -> Position:
        """Returns the position of the last entry or, without entries, the position before the first entry."""
        for summary in reversed(list(self)):
            if summary.entries:
                return (summary.ledger_id, summary.entries - 1)
        return (self.first_id(), -1)

    def last(self) -> LedgerSummary | None:
        return self._by_id[self._ids[-1]] if self._ids else None

    def first_id(self) -> int:
        """Returns the id of the oldest ledger; -1 if the list is empty."""
        return self._ids[0] if self._ids else -1

    def add(self, summary: LedgerSummary) -> None:
        if self._ids and summary.ledger_id <= self._ids[-1]:
            raise ValueError(f"ledger id {summary.ledger_id} is not above {self._ids[-1]}")
        self._ids.append(summary.ledger_id)
        self._by_id[summary.ledger_id] = summary

    def put_back(self, summaries: Iterable[LedgerSummary]) -> None:
        """Adds ledgers at their places in order, for example if their removal could not be stored."""
        self._by_id.update((summary.ledger_id, summary) for summary in summaries)
        self._ids = sorted(self._by_id)

    def remove(self, ledger_id: int) -> None:
        del self._by_id[ledger_id]
        self._ids.remove(ledger_id)

    def total_entries(self) -> int:
        return sum(s.entries for s in self._by_id.values())

    def total_size(self) -> int:
        return sum(s.size for s in self._by_id.values())

    def exists(self, position: Position) -> bool:
        """Whether an entry is stored at a position."""
        summary = self._by_id.get(position[0])
        return summary is not None and 0 <= position[1] < summary.entries

    def first_at_or_after(self, position: Position) -> Position:
        """Returns the first position, at or after ``position``, that is readable now or will be appended
        next.

        Missing ledgers are skipped. After the last entry, the result is the position of the next append to
        the last ledger.
        """
        ledger_id, entry_id = position
        known = self._by_id.get(ledger_id)
        if known is not None and 0 <= entry_id < known.entries:
            return position
        index = bisect_left(self._ids, ledger_id)
        if index == len(self._ids):
            if not self._ids:
                return position
            last = self._by_id[self._ids[-1]]
            return (last.ledger_id, last.entries)
        if self._ids[index] != ledger_id:
            entry_id = 0
        entry_id = max(entry_id, 0)
        while index < len(self._ids):
            summary = self._by_id[self._ids[index]]
            if entry_id < summary.entries or index == len(self._ids) - 1:
                return (summary.ledger_id, min(entry_id, summary.entries))
            index += 1
            entry_id = 0
        raise AssertionError("unreachable: the loop returns at the last ledger")

    def after(self, position: Position) -> Position:
        """Returns the first readable position after ``position``."""
        return self.first_at_or_after((position[0], position[1] + 1))

    def before(self, position: Position) -> Position:
        """Returns the last stored position before ``position``; if there is no such position, (first ledger,
        -1).
        """
        ledger_id, entry_id = position
        index = bisect_right(self._ids, ledger_id) - 1
        if index >= 0:
            summary = self._by_id[self._ids[index]]
            if summary.ledger_id == ledger_id and entry_id > 0 and summary.entries:
                return (ledger_id, min(entry_id, summary.entries) - 1)
            if summary.ledger_id < ledger_id and summary.entries:
                return (summary.ledger_id, summary.entries - 1)
            while index > 0:
                index -= 1
                summary = self._by_id[self._ids[index]]
                if summary.entries:
                    return (summary.ledger_id, summary.entries - 1)
        return (self.first_id(), -1)

    def entries_after(self, position: Position) -> int:
        """Returns the number of stored entries after the given position."""
        ledger_id, entry_id = position
        count = 0
        for other in self._ids[bisect_left(self._ids, ledger_id) :]:
            summary = self._by_id[other]
            count += (
                summary.entries - max(0, min(entry_id + 1, summary.entries))
                if other == ledger_id
                else summary.entries
            )
        return count

    def size_after(self, position: Position) -> int:
        """Returns the number of bytes after a position. The share of the position's own ledger is estimated
        from numbers of entries."""
        ledger_id, entry_id = position
        total = 0
        for other in self._ids[bisect_left(self._ids, ledger_id) :]:
            summary = self._by_id[other]
            if other != ledger_id:
                total += summary.size
            elif summary.entries:
                left = summary.entries - max(0, min(entry_id + 1, summary.entries))
                total += summary.size * left // summary.entries
        return total

    def nth_after(self, position: Position, count: int) -> Position:
        """Returns the position of the ``count``-th stored entry after ``position``; if fewer entries follow,
        of the last entry.
        """
        current = position
        left = count
        ledger_id, entry_id = position
        for other in self._ids[bisect_left(self._ids, ledger_id) :]:
            summary = self._by_id[other]
            start = max(entry_id + 1, 0) if other == ledger_id else 0
            here = summary.entries - start
            if here <= 0:
                continue
            if here >= left:
                return (other, start + left - 1)
            left -= here
            current = (other, summary.entries - 1)
        return current

    def consumed_through(self, position: Position) -> list[LedgerSummary]:
        """Returns the ledgers that end at or before ``position``, oldest first; never the last ledger."""
        found = []
        for ledger_id in self._ids[:-1]:
            summary = self._by_id[ledger_id]
            if (ledger_id, summary.entries - 1) > position:
                break
            found.append(summary)
        return found
