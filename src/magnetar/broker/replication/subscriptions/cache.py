"""The snapshots that a subscription has not passed yet."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from operator import attrgetter

from magnetar.broker.replication.subscriptions.markers import TakenSnapshot
from magnetar.managed_ledger.position import Position

_local: Callable[[TakenSnapshot], Position] = attrgetter("local")


class SnapshotCache:
    """Snapshots in the order of their local positions.

    A full cache is thinned out evenly: the oldest and the newest snapshot stay, and of the others the one
    whose neighbours are closest to each other is dropped. A subscription that lags far behind thus finds
    snapshots all along its way, and not only at the end.
    """

    def __init__(self, limit: int, distance: Callable[[Position, Position], int]) -> None:
        """:param limit: the number of snapshots to keep, at least 1

        :param distance: the number of entries between two positions, the lower one first
        """
        self._limit = limit
        self._distance = distance
        self._kept: list[TakenSnapshot] = []

    def __len__(self) -> int:
        return len(self._kept)

    def positions(self) -> list[Position]:
        """The local positions of the kept snapshots."""
        return [each.local for each in self._kept]

    def add(self, snapshot: TakenSnapshot) -> None:
        """Adds a snapshot; one that is known already is not added twice."""
        at = bisect_right(self._kept, snapshot.local, key=_local)
        if at and self._kept[at - 1].local == snapshot.local:
            return
        insort(self._kept, snapshot, key=_local)
        if len(self._kept) > self._limit:
            del self._kept[self._least_missed()]

    def _least_missed(self) -> int:
        kept = self._kept
        if len(kept) <= 2:
            # Keeps the older one, which is passed first.
            return len(kept) - 1
        inner = range(1, len(kept) - 1)
        return min(inner, key=lambda at: self._distance(kept[at - 1].local, kept[at + 1].local))

    def passed(self, mark_delete: Position) -> TakenSnapshot | None:
        """Removes all snapshots at or below a position; returns the newest of them."""
        count = bisect_right(self._kept, mark_delete, key=_local)
        if not count:
            return None
        newest = self._kept[count - 1]
        del self._kept[:count]
        return newest
