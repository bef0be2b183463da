"""Positions of a shared or Key_Shared subscription that wait to be delivered again, in order."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator

from magnetar.broker.consumers.key_ranges import KeyedMember
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


class KeyedReplay:
    """The waiting positions of a Key_Shared subscription, with their slots.

    A set of positions with their slots, in order for each consumer. After every reassignment of slots
    :meth:`arrange` has to be called.
    """

    __slots__ = ("_blocked", "_heaps", "_slots")

    def __init__(self) -> None:
        self._slots: dict[Position, int] = {}
        self._heaps: dict[KeyedMember, list[tuple[Position, int]]] = {}
        """With slots: a position that was taken out may come back with another slot, which counts."""
        self._blocked: dict[int, list[Position]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, position: Position) -> bool:
        return position in self._slots

    def __iter__(self) -> Iterator[Position]:
        return iter(self._slots)

    def add(self, position: Position, slot: int, owner: KeyedMember | None, *, blocked: bool) -> None:
        """:param owner: the consumer that has the slot; None: no consumer

        :param blocked: the slot is draining
        """
        if position in self._slots:
            return
        self._slots[position] = slot
        if blocked:
            self._blocked.setdefault(slot, []).append(position)
        elif owner is not None:
            heapq.heappush(self._heaps.setdefault(owner, []), (position, slot))

    def discard(self, position: Position) -> None:
        """Removes a position; its element in a heap is skipped when it comes to the front."""
        self._slots.pop(position, None)

    def front(self, owner: KeyedMember) -> Position | None:
        """Returns the lowest position that only waits for permits of a consumer."""
        heap = self._heaps.get(owner)
        if heap is None:
            return None
        while heap:
            position, slot = heap[0]
            if self._slots.get(position) == slot:
                return position
            heapq.heappop(heap)
        del self._heaps[owner]
        return None

    def lowest(self) -> Position | None:
        """Returns the lowest of all positions that wait for permits."""
        fronts = [front for owner in list(self._heaps) if (front := self.front(owner)) is not None]
        return min(fronts, default=None)

    def waits_for(self, owner: KeyedMember) -> bool:
        """Whether any position waits for a consumer."""
        return owner in self._heaps and self.front(owner) is not None

    def take(self, owner: KeyedMember, last: Position, limit: int) -> list[tuple[Position, int]]:
        """Removes and returns up to ``limit`` positions not above ``last`` of a consumer, with slots."""
        found: list[tuple[Position, int]] = []
        while len(found) < limit and (position := self.front(owner)) is not None and position <= last:
            heapq.heappop(self._heaps[owner])
            found.append((position, self._slots.pop(position)))
        return found

    def holds_back(self) -> bool:
        """Whether any position waits for a slot to drain."""
        return any(
            self._slots.get(position) == slot
            for slot, positions in self._blocked.items()
            for position in positions
        )

    def blocked(self) -> dict[int, int]:
        """Returns the number of positions that wait for slots to drain, by slot."""
        found = {}
        for slot, positions in self._blocked.items():
            waiting = sum(self._slots.get(position) == slot for position in positions)
            if waiting:
                found[slot] = waiting
        return found

    def unblock(self, slot: int, owner: KeyedMember | None) -> None:
        """Called when a slot has drained: its positions wait for its owner from now on."""
        for position in self._blocked.pop(slot, ()):
            if self._slots.get(position) == slot and owner is not None:
                heapq.heappush(self._heaps.setdefault(owner, []), (position, slot))

    def arrange(self, owner_of: Callable[[int], KeyedMember | None], blocks: Callable[[int], bool]) -> None:
        """Sorts all positions again by the owners of their slots."""
        self._heaps.clear()
        self._blocked.clear()
        for position in sorted(self._slots):
            slot = self._slots[position]
            if blocks(slot):
                self._blocked.setdefault(slot, []).append(position)
                continue
            owner = owner_of(slot)
            if owner is not None:
                self._heaps.setdefault(owner, []).append((position, slot))

    def drop_through(self, last: Position) -> None:
        """Removes everything at or below a position."""
        for position in [each for each in self._slots if each <= last]:
            del self._slots[position]

    def clear(self) -> None:
        self._slots.clear()
        self._heaps.clear()
        self._blocked.clear()
