"""The replicated subscriptions of one topic: takes snapshots, and handles the markers of other clusters."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from uuid import UUID

from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.broker.replication.clusters import SnapshotFigures, SubscriptionSettings
from magnetar.broker.replication.subscriptions.markers import (
    REQUEST,
    RESPONSE,
    SNAPSHOT,
    UPDATE,
    TakenSnapshot,
    decode_request,
    decode_response,
    decode_snapshot,
    decode_update,
    encode_request,
    encode_response,
    encode_snapshot,
    encode_update,
    marker_entry,
)
from magnetar.broker.replication.subscriptions.snapshots import (
    CarriedSubscription,
    PendingSnapshot,
    SnapshotCache,
)
from magnetar.broker.subscriptions.cursor_kinds import COMPACTION, check_new_subscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.entries import Marker
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.within import NoConnection
from magnetar.errors import BrokerError, ServiceNotReady, TopicTerminated
from magnetar.io.interfaces import Cancellable, Io
from magnetar.io.tasks import TaskScope
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.metadata.interface import MetadataError
from magnetar.protocol.errors import EntryError

log = logging.getLogger(__name__)

_LONGEST_WAIT = 10
"""The time between two checks doubles while a cluster is unreachable, up to this number of snapshot
periods."""


class ReplicatedSubscriptions:
    """The replicated subscriptions of a topic that is in more than one cluster. Requests of other clusters
    are always answered; snapshots are taken while the topic has a replicated subscription and messages are
    published to it."""

    def __init__(
        self,
        io: Io,
        topic: Topic,
        cluster: str,
        others: Callable[[], Sequence[str]],
        settings: SubscriptionSettings,
        figures: SnapshotFigures,
    ) -> None:
        """:param cluster: the broker's own cluster

        :param others: returns the other clusters of the topic
        """
        self._io = io
        self._topic = topic
        self._cluster = cluster
        self._others = others
        self._settings = settings
        self._figures = figures
        self._carried: dict[Subscription, CarriedSubscription] = {}
        self._pending: PendingSnapshot | None = None
        self._published = False
        """Whether messages, not only markers, were published since the start of the last snapshot."""
        self._looked: Position = topic.max_read_position
        self._markers = 0
        """The number of markers stored since the last check for published messages."""
        self._timer: Cancellable | None = None
        self._wait = settings.snapshot_seconds
        """The time from one check to the next, in seconds."""
        self._follows = False
        self._updates: dict[str, Position] = {}
        """The positions that other clusters reported for subscriptions that are being created, by
        subscription."""
        self._tasks = TaskScope(io.loop, topic.full_name, lambda _work, error: topic.fail(error))
        """Tasks in progress."""
        self._ended = False
        self._producer: Producer | None = None
        """The producer of markers; None until the first marker is written."""
        topic.markers.reader = self
        self.subscriptions_changed()

    # When a snapshot is taken

    def subscriptions_changed(self) -> None:
        """Starts or stops snapshots, after a subscription was made replicated or no longer replicated."""
        if self._ended:
            return
        wanted = [each for each in self._topic.subscriptions.values() if each.replicated]
        for gone in self._carried.keys() - set(wanted):
            self._let_go(gone)
        for subscription in wanted if self._settings.enabled else ():
            if subscription not in self._carried:
                cache = SnapshotCache(self._settings.cached, self._entries_between)
                carried = CarriedSubscription(
                    subscription, cache, self._topic.markers.pass_over, self._tell, lambda: self.hindrance
                )
                self._carried[subscription] = subscription.carried = carried
                # The subscription has no snapshot of what was published before.
                self._published = self._topic.managed_ledger.ledgers.total_entries() > 0
        if self._carried and not self._follows:
            self._follows = True
            self._looked, self._markers = self._topic.max_read_position, 0
            self._topic.followers.add(self._look_later)
        elif not self._carried and self._follows:
            self._rest()
        if self._published:
            self._look_later()

    def _let_go(self, subscription: Subscription) -> None:
        self._carried.pop(subscription)
        subscription.carried = None

    def _let_go_of_deleted(self) -> None:
        subscriptions = self._topic.subscriptions
        for each in [each for each in self._carried if subscriptions.get(each.name) is not each]:
            self._let_go(each)

    def _entries_between(self, start: Position, end: Position) -> int:
        ledgers = self._topic.managed_ledger.ledgers
        return ledgers.entries_after(start) - ledgers.entries_after(end)

    def _look_later(self) -> None:
        if self._timer is None and not self._ended:
            self._timer = self._topic.wheel.schedule(self._wait, self._look)

    def _look(self) -> None:
        """Reports the progress of subscriptions, checks the pending snapshot, and starts a snapshot if one is
        due.
        """
        self._timer = None
        topic = self._topic
        self._let_go_of_deleted()
        if not self._carried:
            self._rest()
            return
        stored = topic.managed_ledger.ledgers.entries_after(self._looked)
        if stored > self._markers:
            self._published = True
        self._looked, self._markers = topic.max_read_position, 0
        for carried in self._carried.values():
            carried.moved()
        now = self._io.loop.time()
        if self._pending is not None:
            self._check_pending(self._pending, now)
        if self._published and self._pending is None and self._others():
            seconds = self._settings.snapshot_seconds
            if self._away():
                self._wait = min(self._wait * 2, seconds * _LONGEST_WAIT)
            else:
                self._wait = seconds
                self._begin(now)
        if self._published or self._pending is not None:
            self._look_later()

    def _check_pending(self, pending: PendingSnapshot, now: float) -> None:
        """Abandons a snapshot that takes too long, or that was started for another list of clusters."""
        if now - pending.started >= self._settings.timeout_seconds:
            log.warning(
                "snapshot for replicated subscriptions abandoned: not all clusters answered",
                extra={"topic": self._topic.full_name, "clusters": sorted(pending.waits_for)},
            )
            self._figures.timed_out += 1
            self._drop_pending()
        elif pending.clusters != set(self._others()):
            self._drop_pending()

    def _away(self) -> list[str]:
        """Returns the unreachable clusters, without which no snapshot can be taken now."""
        replicators = self._topic.replicators
        return [
            cluster
            for cluster in self._others()
            if cluster not in replicators or not replicators[cluster].connected
        ]

    @property
    def hindrance(self) -> str:
        """The reason why the progress of subscriptions does not reach other clusters, as a sentence; empty:
        no reason is known."""
        if self._pending is not None:
            seconds = int(self._io.loop.time() - self._pending.started)
            missing = ", ".join(sorted(self._pending.waits_for))
            return f"a snapshot has waited {seconds} s for {missing}" if seconds else ""
        away = self._away() if self._published else []
        return f"not connected to {', '.join(away)}, and a snapshot needs all clusters" if away else ""

    def _rest(self) -> None:
        """Stops checking, because no subscription needs snapshots."""
        if self._follows:
            self._follows = False
            self._topic.followers.remove(self._look_later)
        self._drop_pending()
        self._published = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Taking a snapshot

    def _begin(self, now: float) -> None:
        self._pending = PendingSnapshot(self._new_id(), self._others(), now)
        self._figures.pending += 1
        self._published = False
        self._ask(self._pending)

    def _new_id(self) -> str:
        return str(UUID(bytes=self._io.randomness.token(16), version=4))

    def _ask(self, pending: PendingSnapshot) -> None:
        self._write(REQUEST, encode_request(pending.asked_by, self._cluster), None)

    def _drop_pending(self) -> None:
        if self._pending is not None:
            self._pending = None
            self._figures.pending -= 1
            # Whatever was published before its start still has no snapshot.
            self._published = True

    def _answered(self, payload: bytes, position: Position) -> None:
        """Handles an answer to a request for positions.

        :param position: the position of the answer in this cluster
        """
        request_id, cluster, there = decode_response(payload)
        pending = self._pending
        if pending is None or not pending.answered(request_id, cluster, there):
            return
        if pending.needs_second_round:
            pending.begin_second_round(self._new_id())
            self._ask(pending)
            return
        self._pending = None
        self._figures.pending -= 1
        self._figures.taken.add((self._io.loop.time() - pending.started) * 1000)
        snapshot = TakenSnapshot(pending.snapshot_id, position, pending.positions)
        self._write(SNAPSHOT, encode_snapshot(snapshot), self._cluster)

    # Markers

    def _write(self, kind: int, payload: bytes, to: str | None) -> None:
        """Stores a marker.

        :param to: the only cluster that gets the marker; None: all clusters
        """
        topic = self._topic
        if topic.terminated or topic.closing or topic.fenced:
            return
        publish = Publish(
            self._markers_producer(), array("q", (0,)), array("q", (-1,)), 0, topic.clock.monotonic()
        )
        publish.completes = False
        entry = marker_entry(kind, payload, topic.clock.wall_ms(), to)
        topic.markers.on_their_way[publish] = Marker(kind, payload, None)
        try:
            topic.publish(publish, entry, array("q", (0,)), array("q", (len(entry),)), len(entry))
        except (ServiceNotReady, TopicTerminated):
            # Replication continues where the topic is loaded next.
            topic.markers.on_their_way.pop(publish, None)

    def _markers_producer(self) -> Producer:
        if self._producer is None:
            # A snapshot that lacks a marker times out.
            self._producer = NoConnection().producer_of(self._topic, "pulsar.marker")
        return self._producer

    def stored(self, marker: Marker, position: Position) -> None:
        """Handles a marker that is durable at a position."""
        self._markers += 1
        try:
            if marker.origin is None:
                if marker.kind == SNAPSHOT:
                    self._taken(decode_snapshot(marker.payload))
            elif self._settings.enabled:
                self._came(marker, marker.origin, position)
        except EntryError as error:
            log.warning(
                "marker ignored: it cannot be read",
                extra={
                    "topic": self._topic.full_name,
                    "cluster": marker.origin,
                    "marker_type": marker.kind,
                    "error": str(error),
                },
            )

    def _taken(self, snapshot: TakenSnapshot) -> None:
        self._let_go_of_deleted()
        for carried in list(self._carried.values()):
            carried.keep(snapshot)

    def _came(self, marker: Marker, origin: str, position: Position) -> None:
        if marker.kind == REQUEST:
            request_id, asker = decode_request(marker.payload)
            if (asker or origin) in self._others():
                answer = encode_response(request_id, self._cluster, self._topic.max_read_position)
                self._write(RESPONSE, answer, asker or origin)
        elif marker.kind == RESPONSE:
            self._answered(marker.payload, position)
        elif marker.kind == UPDATE:
            name, positions = decode_update(marker.payload)
            if self._cluster in positions:
                self._move(name, positions[self._cluster], origin)

    # Subscriptions

    def _tell(self, subscription: str, passed: TakenSnapshot) -> None:
        self._write(UPDATE, encode_update(subscription, passed.remote), None)

    def _move(self, name: str, position: Position, origin: str) -> None:
        """Moves the cursor of a subscription that has passed a snapshot in another cluster to the snapshot's
        position in this cluster."""
        if name == COMPACTION:
            # Everything before the compaction cursor counts as compacted here, so no other cluster may move
            # it.
            return
        known = self._topic.subscriptions.get(name)
        if known is not None:
            self._move_to(known, position)
            return
        if name in self._updates:
            self._updates[name] = max(self._updates[name], position)
            return
        self._updates[name] = position
        self._tasks.start(self._make(name, origin), "making a replicated subscription")

    def _move_to(self, subscription: Subscription, position: Position) -> None:
        if not subscription.durable or subscription.closing:
            # A reader of the same name is unrelated; during a seek or the end of a subscription, its own move
            # counts.
            return
        if position > self._topic.max_read_position:
            log.warning(
                "position of a replicated subscription ignored: it is beyond the last entry",
                extra={
                    "topic": self._topic.full_name,
                    "subscription": subscription.name,
                    "position": f"{position[0]}:{position[1]}",
                },
            )
            return
        subscription.skip_to(position)
        # The subscription is in use in another cluster: it does not expire here.
        subscription.last_active_ms = self._topic.clock.wall_ms()
        self._topic.markers.pass_over(subscription)
        carried = self._carried.get(subscription)
        if carried is not None:
            carried.moved_from_elsewhere(position)

    async def _make(self, name: str, origin: str) -> None:
        """Creates a subscription that exists in another cluster, and moves its cursor to the reported
        position."""
        topic = self._topic
        try:
            check_new_subscription(name, topic.settings.replicator_prefix)
            made = await topic.subscriptions.subscribe(name, EARLIEST, {}, durable=True, create=True)
            made.replicate(True)
            self._move_to(made, self._updates[name])
            await made.cursor.flush()
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            log.warning(
                "cannot create the replicated subscription",
                extra={
                    "topic": topic.full_name,
                    "subscription": name,
                    "cluster": origin,
                    "error": str(error),
                },
            )
        finally:
            self._updates.pop(name, None)

    # Ending

    def end(self) -> None:
        """Ends all work, because the topic is being closed, or is in one cluster only from now on."""
        self._rest()
        self._ended = True
        self._tasks.cancel()
        for subscription in list(self._carried):
            self._let_go(subscription)
        if self._topic.markers.reader is self:
            self._topic.markers.reader = None
