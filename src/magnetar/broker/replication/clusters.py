"""The objects that all replicators of a broker share: clients of other clusters, settings, and memory for
entries.

There is a client for each cluster, made from the cluster's record and replaced when the record changes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.policies.records import CLUSTERS, Clusters
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.errors import BrokerError
from magnetar.invariants import must, violated
from magnetar.io.interfaces import Io, Loop
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import outcome
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.measures import Timings
from magnetar.metadata.interface import Change, MetadataError, MetadataStore
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.hot_replication import ReplicationRun

if TYPE_CHECKING:
    from magnetar.broker.flow.loop_budget import BudgetTaker
    from magnetar.broker.replication.remote_producer import BaseReplicator
    from magnetar.client.client import Client

log = logging.getLogger(__name__)
Record = Mapping[str, object]
Ask = Callable[[str, str, Mapping[str, str], bytes], Awaitable[object]]
"""Sends an administrative request to a cluster: method, path, query and a JSON body.

Raises BrokerError if the cluster refuses the request or does not answer.
"""


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Settings that all replicated subscriptions of a broker share."""

    enabled: bool = True
    """``enableReplicatedSubscriptions``: whether subscriptions can be replicated."""
    snapshot_seconds: float = 1.0
    """``replicatedSubscriptionsSnapshotFrequencyMillis``: the minimum time between two snapshots of a topic,
    in seconds."""
    timeout_seconds: float = 30.0
    """``replicatedSubscriptionsSnapshotTimeoutSeconds``: the time in seconds after which a pending snapshot
    is abandoned."""
    cached: int = 10
    """``replicatedSubscriptionsSnapshotMaxCachedPerSubscription``: the maximum number of snapshots that are
    kept for a subscription."""


@dataclass(slots=True)
class SnapshotFigures:
    """Statistics of the snapshots of all replicated subscriptions of a broker, since its start."""

    pending: int = 0
    """The number of snapshots in progress."""
    timed_out: int = 0
    taken: Timings = field(default_factory=Timings)
    """The durations of completed snapshots, in milliseconds."""


class Way(NamedTuple):
    """The two means to access a cluster: a client, and requests to its HTTP interface."""

    client: Client
    ask: Ask


Reach = Callable[[str, Record], Way]
"""Returns the client and the administration of a cluster, from its name and its record.

Raises BrokerError if the record does not contain the necessary addresses.
"""


class RemoteCluster:
    """One cluster, with its record at the time when this object was created."""

    def __init__(self, name: str, record: Record, way: Way, run: ReplicationRun) -> None:
        """:param run: the encoder that all replicators to this cluster use, one at a time; each replicator
        has its own schema versions"""
        self.name = name
        self.record = record
        self.client = way.client
        self.ask = way.ask
        self.run = run
        self.ended = False
        """Whether the record has been replaced or deleted."""


class RemoteClusters:
    def __init__(
        self,
        loop: Loop,
        metadata: MetadataStore,
        clusters: Clusters,
        local: str,
        reach: Reach,
        own: Callable[[], Record],
    ) -> None:
        """:param local: the name of the broker's own cluster

        :param own: returns the record of the own cluster with this broker's addresses instead of the stored
            addresses
        """
        self._own = own
        self._loop = loop
        self._clusters = clusters
        self._local = local
        self._reach = reach
        self._known: dict[str, RemoteCluster] = {}
        self._runs: dict[str, ReplicationRun] = {}
        self._tasks = TaskScope(loop, "other clusters", owner_goes_on)
        self._opening: KeyedTasks[str, RemoteCluster] = KeyedTasks(self._tasks)
        self.changed: Callable[[str], None] = lambda _name: None
        """Called with the name of a cluster whose record was changed or deleted."""
        metadata.listen(CLUSTERS, self._metadata_changed)

    async def get(self, name: str) -> RemoteCluster:
        """Returns the cluster of that name.

        :raises BrokerError: the cluster does not exist, or its record lacks the necessary addresses
        :raises MetadataError: the record cannot be read now
        """
        known = self._known.get(name)
        if known is not None:
            return known
        return await outcome(self._loop, self._opening.answer(name, lambda: self._open(name)))

    def run(self, name: str) -> ReplicationRun:
        """Returns the encoder for the replicators to a cluster, even if the cluster cannot be reached."""
        found = self._runs.get(name)
        if found is None:
            found = self._runs[name] = ReplicationRun(self._local.encode(), name.encode())
        return found

    async def _open(self, name: str) -> RemoteCluster:
        record = await self._record(name)
        made = RemoteCluster(name, record, self._reach(name, record), self.run(name))
        self._known[name] = made
        return made

    async def _record(self, name: str) -> Record:
        return self._own() if name == self._local else await self._clusters.get(name)

    def _metadata_changed(self, change: Change) -> None:
        name = change.path.removeprefix(f"{CLUSTERS}/").partition("/")[0]
        if name in self._known:
            self._tasks.start(self._look_again(name), "reading a changed record")
        elif name not in self._opening:
            # Replicators that could not reach the cluster try again at once.
            self.changed(name)

    async def _look_again(self, name: str) -> None:
        known = self._known.get(name)
        try:
            record: Record | None = await self._record(name)
        except BrokerError:
            record = None
        except MetadataError as error:
            log.warning("cannot read the record of a cluster", extra={"cluster": name, "error": str(error)})
            return
        if known is None or known is not self._known.get(name) or record == known.record:
            return
        del self._known[name]
        known.ended = True
        log.info("cluster record changed", extra={"cluster": name, "deleted": record is None})
        self.changed(name)
        await known.client.close()

    async def close(self) -> None:
        """Closes the clients."""
        known, self._known = list(self._known.values()), {}
        for each in known:
            each.ended = True
            await each.client.close()


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Settings that all replicators of a broker share."""

    cluster: str
    """The name of the broker's own cluster."""
    queue_size: int = 1000
    """``replicationProducerQueueSize``: the maximum number of entries that a replicator has in flight."""
    start_at_earliest: bool = False
    """``replicationStartAt``: whether an added cluster also gets the messages that are stored already."""
    makes_topics: bool = True
    """``createTopicToRemoteClusterForReplication``: whether topics are also created in the other clusters."""
    check_seconds: float = 600.0
    """``replicationPolicyCheckDurationSeconds``: the period, in seconds, of the check whether topics have the
    replicators that their policies require; 0: no checks."""
    migration_check_seconds: float = 0.0
    """``clusterMigrationCheckDurationSeconds``: the period, in seconds, of the check whether loaded topics
    must migrate to another cluster; 0: this is checked only when a topic is loaded."""
    makes_resources_of_moved: bool = False
    """``clusterMigrationAutoResourceCreation``: whether tenant, namespace and topic are first created in the
    other cluster."""
    backoff: tuple[float, float] = (0.1, 60.0)
    """The minimum and the maximum delay between two attempts, in seconds."""
    subscriptions: SubscriptionSettings = field(default_factory=SubscriptionSettings)


class InFlightBytes:
    """The bytes that all replicators together have sent and that are not confirmed yet."""

    def __init__(self, loop: Loop, limit: Callable[[], int]) -> None:
        """:param limit: returns ``magnetarReplicationBufferBytes``; when it is reached, replicators wait in
        turn"""
        self._loop = loop
        self._limit = limit
        self.used = 0
        self._of: dict[BaseReplicator, int] = {}
        """The bytes in flight of each replicator, without replicators that have no bytes in flight."""
        self._waiting: dict[BudgetTaker, None] = {}
        self._planned = False

    def admits(self, taker: BudgetTaker) -> bool:
        """Whether ``taker`` may send now; if not, its ``go_on`` is called when there is room."""
        if self.used < self._limit():
            self._waiting.pop(taker, None)
            return True
        self._waiting[taker] = None
        return False

    @property
    def used_up(self) -> bool:
        """Whether the limit is reached; unlike :meth:`admits`, this registers no waiting replicator."""
        return self.used >= self._limit()

    def leave(self, taker: BudgetTaker) -> None:
        """Removes a waiting replicator."""
        self._waiting.pop(taker, None)

    def take(self, replicator: BaseReplicator, size: int) -> None:
        self._of[replicator] = self._of.get(replicator, 0) + size
        self.used += size

    def release(self, replicator: BaseReplicator, size: int) -> None:
        left = self._of.pop(replicator, 0) - size
        if left > 0:
            self._of[replicator] = left
        self.used -= size
        if left < 0:
            # Counted again, so that the other replicators go on.
            self.used = sum(self._of.values())
            what = f"bytes in flight of {replicator.topic.full_name} to {replicator.where}"
            violated(replicator.topic.fail, what, "at least 0", left)
        if self._waiting and not self._planned:
            self._planned = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._planned = False
        waiting, self._waiting = self._waiting, {}
        for taker in waiting:
            taker.go_on()

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the total differs from the bytes of all replicators
        """
        sizes = self._of.values()
        must(self.used == sum(sizes), self.used, "bytes are in flight, and replicators have sent", sum(sizes))
        must(all(size > 0 for size in sizes), "a replicator without bytes in flight is kept")


@dataclass(frozen=True, slots=True)
class Common:
    """The arguments with which all replicators are created."""

    io: Io
    clusters: Callable[[], RemoteClusters]
    """Returns the registry of clusters, which contains the other clusters and the broker's own cluster."""
    schemas: SchemaRegistry
    partitions: Callable[[TopicName], Awaitable[int]]
    """Returns the number of a topic's partitions in this cluster; 0 if it is not partitioned."""
    settings: Callable[[], ReplicationSettings]
    """Returns the current settings."""
    in_flight: InFlightBytes
