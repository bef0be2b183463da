"""A replicated subscription whose progress is reported to other clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.broker.replication.subscriptions.cache import SnapshotCache
from magnetar.broker.replication.subscriptions.markers import SNAPSHOT, TakenSnapshot, decode_snapshot
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_entry

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription


class CarriedSubscription:
    def __init__(
        self,
        subscription: Subscription,
        cache: SnapshotCache,
        pass_over: Callable[[Subscription], None],
        tell: Callable[[str, TakenSnapshot], None],
        hindered: Callable[[], str],
    ) -> None:
        """:param pass_over: moves the subscription past markers at the end of the topic, if it stands before
            them

        :param tell: writes an update for the other clusters: the subscription has passed a snapshot
        :param hindered: returns why no snapshots are taken, as a sentence; empty: no reason is known
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
        """Why the subscription does not move in other clusters, as a sentence; empty: no reason is known."""
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
        """The mark-delete position may have moved."""
        if self.subscription.closing:
            # The subscription is being deleted, or a seek moves it and calls this again at its end.
            return
        self._pass_over(self.subscription)
        passed = self.cache.passed(self.subscription.cursor.mark_delete)
        if passed is not None:
            self._tell(self.subscription.name, passed)

    def moved_from_elsewhere(self, position: Position) -> None:
        """Another cluster moved the subscription to a position: snapshots up to there need no report."""
        self.cache.passed(position)
        self.moved()
