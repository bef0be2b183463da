"""Snapshots of replicated subscriptions: in progress, or not passed by a subscription yet."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from magnetar.broker.replication.subscriptions.markers import SNAPSHOT, TakenSnapshot, decode_snapshot
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_entry

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription

_local: Callable[[TakenSnapshot], Position] = attrgetter("local")


class SnapshotCache:
    """The snapshots that a subscription has not passed yet, in the order of their local positions.

    A full cache is thinned out evenly: the oldest and the newest snapshot stay, and of the other snapshots,
    the snapshot whose neighbours are closest to each other is dropped. So a subscription that lags far behind
    finds snapshots all along its backlog, and not only at the end.
    """

    def __init__(self, limit: int, distance: Callable[[Position, Position], int]) -> None:
        """:param limit: the number of snapshots to keep, at least 1

        :param distance: returns the number of entries between two positions; the first argument is the lower
            position
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
        """Adds a snapshot, unless it is already in the cache."""
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
        """Removes all snapshots at or below a position; returns the newest of them, or None if no snapshot is
        removed.
        """
        count = bisect_right(self._kept, mark_delete, key=_local)
        if not count:
            return None
        newest = self._kept[count - 1]
        del self._kept[:count]
        return newest


class PendingSnapshot:
    """A snapshot in progress: the clusters that have answered, and their positions.

    With one other cluster there is one round; with several other clusters there are two rounds.

    When a cluster answers, a message that it has from a third cluster may not have arrived in the local
    cluster yet. The third cluster's answer in the second round comes after that message. So the snapshot has
    the positions from the first round; its local position is the position of the last answer in the second
    round.
    """

    def __init__(self, snapshot_id: str, clusters: Iterable[str], started: float) -> None:
        """:param started: the time of the start in seconds, on the loop's clock"""
        self.snapshot_id = snapshot_id
        self.asked_by = snapshot_id
        """The id of the pending request. Each round has its own id, so that an answer that is delivered twice
        is never mistaken for an answer of the next round."""
        self.started = started
        self.positions: dict[str, Position] = {}
        """The positions in the answers of the first round, by cluster."""
        self.clusters = frozenset(clusters)
        self._missing = set(self.clusters)
        self._second = False

    @property
    def waits_for(self) -> frozenset[str]:
        """Returns the clusters that have not answered in this round."""
        return frozenset(self._missing)

    def answered(self, request_id: str, cluster: str, position: Position) -> bool:
        """Adds an answer, unless it belongs to another round; returns whether it was the last answer of this
        round."""
        if request_id != self.asked_by or cluster not in self._missing:
            return False
        self._missing.discard(cluster)
        if not self._second:
            self.positions[cluster] = position
        return not self._missing

    @property
    def needs_second_round(self) -> bool:
        return len(self.clusters) > 1 and not self._second

    def begin_second_round(self, request_id: str) -> None:
        self._second = True
        self.asked_by = request_id
        self._missing = set(self.clusters)


class CarriedSubscription:
    """A replicated subscription whose progress is reported to other clusters."""

    def __init__(
        self,
        subscription: Subscription,
        cache: SnapshotCache,
        pass_over: Callable[[Subscription], None],
        tell: Callable[[str, TakenSnapshot], None],
        hindered: Callable[[], str],
    ) -> None:
        """:param pass_over: moves the subscription past markers at the end of the topic, if everything before
            them is consumed

        :param tell: writes an update for the other clusters when the subscription has passed a snapshot
        :param hindered: returns the reason why no snapshots are taken, as a sentence; empty: no reason is
            known
        """
        self.subscription = subscription
        self.cache = cache
        self._pass_over = pass_over
        self._tell = tell
        self._hindered = hindered

    @property
    def snapshots(self) -> int:
        """The number of snapshots that the subscription has not passed yet."""
        return len(self.cache)

    @property
    def hindrance(self) -> str:
        """The reason why the subscription's progress does not reach other clusters, as a sentence; empty: no
        reason is known."""
        return self._hindered()

    def keep(self, snapshot: TakenSnapshot) -> None:
        """Adds a snapshot that was taken."""
        self.cache.add(snapshot)
        self.moved()

    def met(self, entry: bytes) -> None:
        """Handles a marker that the dispatcher has read. It may be a snapshot from before the load of the
        topic, or from before the subscription was marked as replicated."""
        try:
            parsed = parse_entry(entry, verify_checksum=False)
            if parsed.metadata.marker_type != SNAPSHOT or parsed.metadata.HasField("replicated_from"):
                return
            snapshot = decode_snapshot(parsed.payload)
        except EntryError:
            # Consumers do not get markers, whatever they contain.
            return
        self.cache.add(snapshot)

    def moved(self) -> None:
        """Reports a snapshot that the subscription has passed; called when the mark-delete position may have
        moved."""
        if self.subscription.closing:
            # The subscription is being deleted, or a seek moves it and calls this again at its end.
            return
        self._pass_over(self.subscription)
        passed = self.cache.passed(self.subscription.cursor.mark_delete)
        if passed is not None:
            self._tell(self.subscription.name, passed)

    def moved_from_elsewhere(self, position: Position) -> None:
        """Handles progress that another cluster has reported: snapshots up to the position need no report."""
        self.cache.passed(position)
        self.moved()
