"""Translates positions of a topic to its new ledger ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.position import EARLIEST, Position


class Moved(NamedTuple):
    """One ledger of a topic."""

    old: int
    new: int
    entries: int
    """-1: the ledger was deleted before; it has a new id for positions that refer to it."""


class MovedLedgers:
    """The ledgers of one topic. Old and new ids ascend, so the order of positions is kept."""

    def __init__(self, ledgers: Iterable[Moved]) -> None:
        self._all = {each.old: each for each in ledgers}
        self._kept = sorted(each for each in self._all.values() if each.entries >= 0)

    def exactly(self, position: Position) -> Position | None:
        """Returns the new position of a message, also of a deleted one; None: its ledger was not exported."""
        moved = self._all.get(position[0])
        return None if moved is None else (moved.new, position[1])

    def mark(self, position: Position) -> Position:
        """Returns the mark-delete position after which the same entries remain.

        For a deleted ledger it is before the next existing one; it is never beyond the last entry of a
        ledger.
        """
        ledger_id, entry_id = position
        at = bisect_right(self._kept, (ledger_id, 1 << 63, 0))
        if at and self._kept[at - 1].old == ledger_id:
            moved = self._kept[at - 1]
            return moved.new, min(entry_id, moved.entries - 1)
        if at < len(self._kept):
            return self._kept[at].new, -1
        if not self._kept:
            return EARLIEST
        last = self._kept[-1]
        return last.new, last.entries - 1

    def state(self, state: AcknowledgedState) -> AcknowledgedState:
        """Returns the acknowledged state of a cursor, without entries of deleted ledgers."""
        found = AcknowledgedState(self.mark(state.mark_delete))
        for moved in self._kept:
            ranges = state.ranges.get(moved.old)
            if ranges is not None:
                for start, end in ranges.in_order():
                    found.add_range(moved.new, start, min(end, moved.entries))
        for (ledger_id, entry_id), left in state.batches.items():
            kept = self._all.get(ledger_id)
            if kept is not None and entry_id < kept.entries and not found.contains(kept.new, entry_id):
                found.batches[(kept.new, entry_id)] = left
        return found
