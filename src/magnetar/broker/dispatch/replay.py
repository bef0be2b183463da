"""Positions of a shared subscription that are to be delivered again, in order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from magnetar.managed_ledger.position import Position


class ReplayPositions:
    """A set of positions that gives out its lowest range."""

    __slots__ = ("_heap", "_set")

    def __init__(self) -> None:
        self._heap: list[Position] = []
        self._set: set[Position] = set()

    def __len__(self) -> int:
        return len(self._set)

    def __contains__(self, position: Position) -> bool:
        return position in self._set

    def __iter__(self) -> Iterator[Position]:
        return iter(self._set)

    def add(self, position: Position) -> None:
        if position not in self._set:
            self._set.add(position)
            heapq.heappush(self._heap, position)

    def discard(self, position: Position) -> None:
        """Takes a position out; its place in the heap is dropped when it comes to the front."""
        self._set.discard(position)
        while self._heap and self._heap[0] not in self._set:
            heapq.heappop(self._heap)

    def first_range(self, limit: int) -> tuple[Position, int]:
        """The lowest position and how many consecutive ones follow it, itself included, at most ``limit``.

        :raises IndexError: it is empty
        """
        while self._heap[0] not in self._set:
            heapq.heappop(self._heap)
        ledger_id, entry_id = self._heap[0]
        count = 1
        while count < limit and (ledger_id, entry_id + count) in self._set:
            count += 1
        return (ledger_id, entry_id), count

    def drop_through(self, last: Position) -> None:
        """Takes out everything at or below a position."""
        while self._heap and (self._heap[0] <= last or self._heap[0] not in self._set):
            self._set.discard(heapq.heappop(self._heap))

    def clear(self) -> None:
        self._heap.clear()
        self._set.clear()
