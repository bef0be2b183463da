"""The clusters to which each loaded topic is replicated, and topics whose clients migrate to another cluster.

Replicators start and stop with a topic's list of clusters.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from magnetar.broker.flow.connection import Assigned
from magnetar.broker.policies.records import CLUSTERS, policies_path
from magnetar.broker.policies.store import CHANGE_EVENTS, PolicyStore
from magnetar.broker.policies.values import texts
from magnetar.broker.replication.clusters import (
    Ask,
    Common,
    InFlightBytes,
    Reach,
    ReplicationSettings,
    SnapshotFigures,
)
from magnetar.broker.replication.shadows import ShadowReplication
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.subscriptions.cursor_kinds import SUBSCRIPTION
from magnetar.broker.topics.any_topic import MIGRATED, AnyTopic, move
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.shadow import ShadowTopic
from magnetar.errors import BrokerError, NotAllowed, NotFound, ServiceNotReady
from magnetar.io.interfaces import Future, Io, Loop, Task
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import finished, outcome, settle, sleep
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.position import EARLIEST, LATEST
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import heartbeat_of
from magnetar.naming.replicators import cluster_of_cursor, cursor_name
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.replication.clusters import Record, RemoteClusters
    from magnetar.broker.replication.passing_on import PassingReplicator
    from magnetar.broker.replication.replicator import Replicator
    from magnetar.broker.replication.subscriptions.topic import ReplicatedSubscriptions
    from magnetar.managed_ledger.cursor import Cursor

log = logging.getLogger(__name__)
_RETRY_SECONDS = 60.0
"""The delay in seconds before starting or stopping replicators is retried, as in Pulsar."""
_SYSTEM = "pulsar/system"
_EARLIEST = {"ledgerId": -1, "entryId": -1}


class Replication:
    """The replicators of all loaded topics."""

    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        policies: PolicyStore,
        managed_ledgers: ManagedLedgerFactory,
        schemas: SchemaRegistry,
        partitions: Callable[[TopicName], Awaitable[int]],
        settings: Callable[[], ReplicationSettings],
        buffer_bytes: Callable[[], int],
        reach: Reach,
        own: Callable[[], Record],
    ) -> None:
        """:param partitions: returns the number of a topic's partitions; 0: the topic is not partitioned

        :param settings: returns the current settings
        :param buffer_bytes: returns the limit of bytes in flight, over all replicators
        :param reach: makes the clients of other clusters
        :param own: returns a record with this broker's addresses, for shadow topics
        """
        self._io = io
        self._metadata = metadata
        self._clusters = policies.clusters
        self._managed_ledgers = managed_ledgers
        self._settings = settings
        self._reach = reach
        self._own = own
        in_flight = InFlightBytes(io.loop, buffer_bytes)
        self._common = Common(io, self._others, schemas, partitions, settings, in_flight)
        properties = managed_ledgers.properties
        self.migration = Migration(io.loop, metadata, policies, partitions, settings, reach, properties)
        self._remote: RemoteClusters | None = None
        self._shadows = ShadowReplication(self._common, managed_ledgers)
        self._running: dict[tuple[AnyTopic, str], Replicator | PassingReplicator] = {}
        tasks = TaskScope(io.loop, "replication", owner_goes_on)
        self._applying: KeyedTasks[AnyTopic, None] = KeyedTasks(tasks)
        self._again: set[AnyTopic] = set()
        self._subscriptions: dict[Topic, ReplicatedSubscriptions] = {}
        self.snapshots = SnapshotFigures()
        """The statistics of the snapshots of replicated subscriptions."""
        self._asking: KeyedTasks[tuple[str, TopicName], int] = KeyedTasks(tasks)
        """Requests for the number of a topic's partitions in another cluster."""

    def wanted(self, topic: AnyTopic) -> tuple[str, ...]:
        """Returns the other clusters to which a topic is replicated."""
        name = topic.name
        if isinstance(topic, ShadowTopic):
            # Its messages are replicated by its source topic.
            return ()
        if (name.reserved and name.local != CHANGE_EVENTS) or heartbeat_of(name.namespace_name) is not None:
            return ()
        local = self._settings().cluster
        return tuple(each for each in topic.policies.replication_clusters if each != local)

    async def begin(self, topic: AnyTopic) -> None:
        """Starts the replicators of a topic that has just been loaded; a failure is retried later."""
        tried = self._io.loop.create_future()
        if self.apply(topic, tried):
            await tried
        await self.migration.check(topic)

    def apply(self, topic: AnyTopic, tried: Future[None] | None = None) -> bool:
        """Starts and stops replicators of a topic after a possible change of its policies.

        :param tried: a future that is completed after the first attempt; None: nobody waits
        :return: whether this call has started a task that starts or stops replicators; False also if such a
            task is running already; the task is then repeated
        """
        if topic in self._applying:
            self._again.add(topic)
            return False
        wanted = set(self.wanted(topic))
        if wanted == topic.replicators.keys() and (
            not isinstance(topic, Topic)
            or (wanted == {cluster for cluster, _ in _cursors(topic)} and self._shadows.is_settled(topic))
        ):
            return False
        task = self._applying.answer(topic, lambda: self._apply(topic, tried))
        task.add_done_callback(lambda done: self._applied(topic, done))
        return True

    def _applied(self, topic: AnyTopic, task: Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            log.error(
                "cannot start replicators",
                extra={"topic": topic.full_name, "error": repr(error)},
                exc_info=error,
            )
        if topic in self._again:
            self._again.discard(topic)
            self.apply(topic)

    async def _apply(self, topic: AnyTopic, tried: Future[None] | None) -> None:
        while not (topic.closing or topic.fenced):
            try:
                await self._go_by_policies(topic)
                return
            except ManagedLedgerFenced:
                # Another broker owns the topic and replicates it.
                return
            except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
                log.warning(
                    "cannot start replicators; trying again",
                    extra={"topic": topic.full_name, "error": str(error), "seconds": _RETRY_SECONDS},
                )
            finally:
                if tried is not None:
                    settle(tried)
            await sleep(self._io.loop, _RETRY_SECONDS)

    async def _go_by_policies(self, topic: AnyTopic) -> None:
        wanted = self.wanted(topic)
        for cluster in list(topic.replicators):
            if cluster not in wanted:
                self._end(topic, cluster)
        if isinstance(topic, Topic):
            await self._delete_cursors(topic, wanted)
            self._replicate_subscriptions(topic, in_others=bool(wanted))
            await self._shadows.go_by_policies(topic)
        for cluster in wanted:
            if cluster not in topic.replicators and not topic.closing:
                if isinstance(topic, Topic):
                    await self._begin(topic, cluster)
                else:
                    self._begin_passing_on(topic, cluster)

    async def _delete_cursors(self, topic: Topic, wanted: Sequence[str]) -> None:
        """Deletes the cursors of clusters to which the topic is no longer replicated."""
        for gone, cursor in _cursors(topic):
            if gone not in wanted:
                log.info(
                    "replication ended; unsent messages are not replicated",
                    extra={"topic": topic.full_name, "cluster": gone, "backlog": cursor.backlog()},
                )
                await topic.managed_ledger.cursors.delete(cursor.name)

    def _replicate_subscriptions(self, topic: Topic, *, in_others: bool) -> None:
        if not in_others:
            known = self._subscriptions.pop(topic, None)
            if known is not None:
                known.end()
        elif topic not in self._subscriptions and not topic.closing:
            from magnetar.broker.replication.subscriptions.topic import ReplicatedSubscriptions

            settings = self._settings()
            self._subscriptions[topic] = ReplicatedSubscriptions(
                self._io,
                topic,
                settings.cluster,
                lambda: self.wanted(topic),
                settings.subscriptions,
                self.snapshots,
            )

    def _end(self, topic: AnyTopic, cluster: str) -> None:
        topic.replicators.pop(cluster, None)
        replicator = self._running.pop((topic, cluster), None)
        if replicator is not None:
            replicator.stop()

    def _others(self) -> RemoteClusters:
        # A broker without other clusters needs no client, and does not load its modules.
        from magnetar.broker.replication.clusters import RemoteClusters

        if self._remote is None:
            local = self._settings().cluster
            self._remote = RemoteClusters(
                self._io.loop, self._metadata, self._clusters, local, self._reach, self._own
            )
            self._remote.changed = self._cluster_changed
        return self._remote

    async def _begin(self, topic: Topic, cluster: str) -> None:
        from magnetar.broker.replication.replicator import Replicator

        name = cursor_name(topic.settings.replicator_prefix, cluster)
        start = EARLIEST if self._settings().start_at_earliest else LATEST
        cursor = await self._managed_ledgers.open_cursor(topic.managed_ledger, name, start, {})
        if topic.closing:
            return
        replicator = Replicator(self._common, topic, cluster, cursor)
        self._running[topic, cluster] = topic.replicators[cluster] = replicator

    def _begin_passing_on(self, topic: NonPersistentTopic, cluster: str) -> None:
        from magnetar.broker.replication.passing_on import PassingReplicator

        replicator = PassingReplicator(self._common, topic, cluster)
        self._running[topic, cluster] = topic.replicators[cluster] = replicator

    async def partitions_in(self, cluster: str, topic: TopicName) -> int:
        """Returns the number of a topic's partitions in another cluster; 0 if it is not partitioned or does
        not exist.

        Requests for the same topic share one query. Otherwise two clusters whose records redirect clients to
        each other would query each other forever.

        :raises BrokerError: the cluster cannot be queried, or does not answer
        """
        asking = self._asking.answer((cluster, topic), lambda: self._partitions_in(cluster, topic))
        return await outcome(self._io.loop, asking)

    async def _partitions_in(self, cluster: str, topic: TopicName) -> int:
        from magnetar.client.exceptions import PulsarException, TopicNotFound

        reached = await self._others().get(cluster)
        try:
            return await reached.client.services.lookup.partitions(str(topic), makes_topic=False)
        except TopicNotFound:
            return 0
        except PulsarException as error:
            raise ServiceNotReady(
                f"Cluster {cluster} does not return the number of partitions of {topic}: {error}"
            ) from error

    def _cluster_changed(self, name: str) -> None:
        reason = f"the record of cluster {name} has changed"
        if name == self._settings().cluster:
            self._shadows.reconnect(reason)
        for (_topic, cluster), replicator in list(self._running.items()):
            if cluster == name:
                replicator.reconnect(reason)

    async def stop(self, topic: AnyTopic) -> None:
        """Stops the replicators of a topic that is about to be closed or deleted; no replicator sends after
        this returns.
        """
        applying = self._applying.get(topic)
        if applying is not None:
            self._again.discard(topic)
            applying.cancel()
            await finished(self._io.loop, applying)
        if isinstance(topic, Topic):
            self._replicate_subscriptions(topic, in_others=False)
            self._shadows.stop(topic)
        for cluster in list(topic.replicators):
            self._end(topic, cluster)

    async def close(self) -> None:
        """Closes the clients of other clusters."""
        if self._remote is not None:
            await self._remote.close()


def _cursors(topic: Topic) -> Iterator[tuple[str, Cursor]]:
    """Returns the replicator cursors of a topic, with their clusters."""
    prefix = topic.settings.replicator_prefix
    for cursor in list(topic.managed_ledger.cursors.values()):
        cluster = cluster_of_cursor(prefix, cursor.name)
        if cluster is not None:
            yield cluster, cursor


class Migration:
    """Redirects the clients of topics to the cluster in the local cluster's ``ClusterPolicies`` (PIP-188).

    It decides when a topic migrates and to which cluster, and creates there what the clients need.
    """

    def __init__(
        self,
        loop: Loop,
        metadata: MetadataStore,
        policies: PolicyStore,
        partitions: Callable[[TopicName], Awaitable[int]],
        settings: Callable[[], ReplicationSettings],
        reach: Reach,
        properties: Callable[[str], Awaitable[Mapping[str, str] | None]],
    ) -> None:
        """:param partitions: returns the number of a topic's partitions; 0: the topic is not partitioned

        :param properties: returns the properties of a managed ledger; None if it does not exist
        """
        self._loop = loop
        self._properties = properties
        self._policies = policies
        self._partitions = partitions
        self._settings = settings
        self._reach = reach
        self._known = MetadataCache(metadata, CLUSTERS, self._read, most=1)
        self._moving: set[AnyTopic] = set()

    async def check(self, topic: AnyTopic) -> None:
        """Migrates a topic if its policies require it; a failure is retried at the next check or load."""
        if topic.closing or topic.fenced or topic in self._moving:
            return
        self._moving.add(topic)
        try:
            await self._check(topic)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            log.warning(
                "cannot migrate the topic to the other cluster",
                extra={"topic": topic.full_name, "error": str(error) or type(error).__name__},
            )
        finally:
            self._moving.discard(topic)

    async def check_not_migrated(self, topics: Iterable[str]) -> None:
        """Checks topics by their names before a transaction publishes to them. After a migration of a topic,
        the transaction's messages would stay hidden in the other cluster, although the commit succeeds.

        :raises NotAllowed: a topic has migrated
        :raises MetadataError: the migration cannot be determined now
        """
        for each in topics:
            try:
                name = TopicName.parse(each)
            except InvalidName:
                continue
            url = await self._url_of(name)
            properties = None if url is None else await self._properties(name.path)
            if url is not None and properties is not None and properties.get(MIGRATED) == "true":
                there = url.get("brokerServiceUrl") or url.get("brokerServiceUrlTls")
                raise NotAllowed(
                    f"{name} has migrated to {there}, and transactions of cluster {self._settings().cluster} "
                    "cannot publish there: begin transactions in the other cluster"
                )

    async def _check(self, topic: AnyTopic) -> None:
        url = await self._url_of(topic.name)
        if url is None:
            return
        there = Assigned(str(url.get("brokerServiceUrl") or ""), str(url.get("brokerServiceUrlTls") or ""))
        if topic.moved is not None:
            # The topic is terminated here for good: only the address may change.
            topic.moved = there
            return
        if self._settings().makes_resources_of_moved:
            await self._make_there(topic, url)
        await move(topic, there)
        log.info("topic migrated to another cluster", extra={"topic": topic.full_name, "url": any_of(there)})

    async def _url_of(self, name: TopicName) -> Mapping[str, object] | None:
        """Returns the ``ClusterUrl`` to which clients must go; None if they stay."""
        namespace = name.namespace_name
        if name.reserved or str(namespace) == _SYSTEM or heartbeat_of(namespace) is not None:
            return None
        policies = await self._known.get(policies_path(self._settings().cluster))
        url = policies.get("migratedClusterUrl")
        if not isinstance(url, dict) or not (url.get("brokerServiceUrl") or url.get("brokerServiceUrlTls")):
            return None
        if policies.get("migrated") or (await self._policies.namespaces.local(namespace)).get("migrated"):
            return url
        return None

    async def _read(self, _path: str) -> Mapping[str, object]:
        try:
            return await self._policies.clusters.policies(self._settings().cluster)
        except NotFound:
            return {}

    # Resources in the other cluster

    async def _make_there(self, topic: AnyTopic, url: Mapping[str, object]) -> None:
        """Creates, in the other cluster, the tenant, the namespace, the topic and its subscriptions; the
        subscriptions start at the first message.

        :raises BrokerError: the other cluster does not answer, or refuses a request
        """
        way = self._reach(f"{self._settings().cluster} (migratedClusterUrl)", url)
        try:
            name = topic.name
            await self._make_namespace(way.ask, name)
            count = await self._partitions(name.base) if name.partition_index >= 0 else 0
            if count:
                path, query = f"{name.base.admin_path}/partitions", {"createLocalTopicOnly": "true"}
                await _make(way.ask, path, count, query)
            elif name.persistent:
                await _make(way.ask, name.admin_path)
            for subscription in list(topic.subscriptions.values()) if name.persistent else ():
                if subscription.kind is SUBSCRIPTION and subscription.durable:
                    path = f"{name.admin_path}/subscription/{quote(subscription.name, '')}"
                    await _make(way.ask, path, _EARLIEST)
        finally:
            await way.client.close()

    async def _make_namespace(self, ask: Ask, name: TopicName) -> None:
        namespace = name.namespace_name
        tenant = await self._policies.tenants.get(namespace.tenant)
        # The clusters that a tenant may use have other names there.
        found: Any = await ask("GET", "/admin/v2/clusters", {}, b"")
        try:
            clusters = found.json()
        except ValueError as error:
            raise BrokerError(f"the other cluster did not answer with a list of clusters: {error}") from error
        own = {"adminRoles": list(texts(tenant.get("adminRoles") or [])), "allowedClusters": clusters}
        await _make(ask, f"/admin/v2/tenants/{quote(namespace.tenant, '')}", own)
        bundles = (await self._policies.namespaces.get(namespace)).get("bundles") or {}
        wanted = {"bundles": {"numBundles": bundles["numBundles"]}} if bundles.get("numBundles") else {}
        await _make(ask, f"/admin/v2/namespaces/{namespace}", wanted)


def any_of(there: Assigned) -> str:
    """Returns the URL without TLS or, without such a URL, the URL with TLS; for log entries and answers."""
    return there.url or there.url_tls


async def _make(ask: Ask, path: str, body: object = None, query: Mapping[str, str] | None = None) -> None:
    """Sends the request that creates a resource; does nothing if the resource exists."""
    try:
        await ask("PUT", path, query or {}, b"" if body is None else json.dumps(body).encode())
    except BrokerError as error:
        if error.http_status != HTTPStatus.CONFLICT:
            raise
