"""Slots that were reassigned while their former holder still has unacknowledged messages of them.

The new holder receives nothing of a slot before the former one has acknowledged or returned all its messages
of it: so no key is ever with two consumers at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from magnetar.broker.consumers.key_ranges import KeyedMember


class _Draining:
    __slots__ = ("attempts", "entries", "holder")

    def __init__(self, holder: KeyedMember, entries: int, attempts: int) -> None:
        self.holder = holder
        self.entries = entries
        self.attempts = attempts


class DrainingSlots:
    """``count`` slots are draining; ``cleared`` were drained so far."""

    __slots__ = ("_slots", "cleared", "count", "drained")

    def __init__(self) -> None:
        self._slots: dict[int, _Draining] = {}
        self.count = 0
        self.cleared = 0
        self.drained: list[int] = []
        """Slots that were drained since the list was last emptied."""

    def recount(
        self,
        held: Iterable[tuple[KeyedMember, dict[int, int]]],
        owner: Callable[[int], KeyedMember | None],
    ) -> None:
        """Determines the draining slots again after slots were reassigned.

        :param held: the number of entries per slot that each consumer holds
        """
        former = self._slots
        self._slots = {}
        for holder, slots in held:
            for slot, entries in slots.items():
                if owner(slot) is holder:
                    continue
                known = former.get(slot)
                attempts = known.attempts if known is not None and known.holder is holder else 0
                self._slots[slot] = _Draining(holder, entries, attempts)
        self.count = len(self._slots)

    def blocks(self, slot: int) -> bool:
        """Whether messages of a slot must not be sent now."""
        return slot in self._slots

    def turned_away(self, slot: int) -> None:
        """Counts an entry that was not sent because its slot is draining."""
        self._slots[slot].attempts += 1

    def released(self, holder: KeyedMember, slot: int) -> bool:
        """Called when a consumer holds one entry of a slot less; returns whether the slot has drained."""
        draining = self._slots.get(slot)
        if draining is None or draining.holder is not holder:
            return False
        draining.entries -= 1
        if draining.entries:
            return False
        del self._slots[slot]
        self.count -= 1
        self.cleared += 1
        self.drained.append(slot)
        return True

    def of(self, holder: Any) -> list[tuple[int, int, int]]:
        """Returns the slots that a consumer drains, ascending, each with the number of entries that it holds
        and of those that were not sent."""
        return sorted(
            (slot, draining.entries, draining.attempts)
            for slot, draining in self._slots.items()
            if draining.holder is holder
        )

    def entries(self) -> int:
        """Returns the number of entries that are held of draining slots."""
        return sum(draining.entries for draining in self._slots.values())

    def clear(self) -> None:
        self._slots.clear()
        self.drained.clear()
        self.count = 0
