"""Positions of a Key_Shared subscription that wait to be delivered, with their slots, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from magnetar.broker.dispatch.key_shared import KeyedMember
from magnetar.managed_ledger.position import Position


class KeyedReplay:
    """The positions that wait to be delivered, each with the slot of its key; in order for each consumer.

    :meth:`arrange` must be called after every reassignment of slots.
    """

    __slots__ = ("_blocked", "_heaps", "_slots")

    def __init__(self) -> None:
        self._slots: dict[Position, int] = {}
        self._heaps: dict[KeyedMember, list[tuple[Position, int]]] = {}
        """For each consumer: the waiting positions, each with its slot. A position that was removed may be
        added again with another slot, which then applies."""
        self._blocked: dict[int, list[Position]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, position: Position) -> bool:
        return position in self._slots

    def __iter__(self) -> Iterator[Position]:
        return iter(self._slots)

    def add(self, position: Position, slot: int, owner: KeyedMember | None, *, blocked: bool) -> None:
        """Adds a position that waits to be delivered.

        :param owner: the consumer that has the slot; None: no consumer
        :param blocked: whether the slot is draining
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
        """Returns the lowest position that waits only for permits of a consumer; None: no position does."""
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
        """Returns the lowest of all positions that wait for permits; None if no position does."""
        fronts = [front for owner in list(self._heaps) if (front := self.front(owner)) is not None]
        return min(fronts, default=None)

    def waits_for(self, owner: KeyedMember) -> bool:
        """Whether any position waits for a consumer."""
        return owner in self._heaps and self.front(owner) is not None

    def take(self, owner: KeyedMember, last: Position, limit: int) -> list[tuple[Position, int]]:
        """Removes and returns up to ``limit`` positions at or below ``last`` that wait for a consumer, with
        their slots.
        """
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
        """Reports that a slot has drained: the slot's positions now wait for permits of ``owner``."""
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
        """Removes all positions at or below ``last``."""
        for position in [each for each in self._slots if each <= last]:
            del self._slots[position]

    def clear(self) -> None:
        self._slots.clear()
        self._heaps.clear()
        self._blocked.clear()
