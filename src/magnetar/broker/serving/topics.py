"""The topics that this broker serves: loaded on demand, closed, deleted, or lost to another broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker import events
from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy
from magnetar.broker.flow.limits import UnackedLimit
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.resource_groups import ResourceGroups, SharedLimits
from magnetar.broker.namespaces.creation import TopicCounts, TopicCreation
from magnetar.broker.namespaces.registry import Namespaces
from magnetar.broker.namespaces.serving_clusters import ServingClusters
from magnetar.broker.ownership.bundles import NamespaceBundles
from magnetar.broker.ownership.contract import Asked, Bundle, Ownership
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import CHANGE_EVENTS, PolicyStore
from magnetar.broker.replication.topics import Replication
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.serving.policy_changes import apply_changed, leave
from magnetar.broker.serving.recoveries import Failures, Recoveries
from magnetar.broker.serving.unloading import Unloads
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.any_topic import AnyBaseTopic, AnyTopic, persistent
from magnetar.broker.topics.applied_policies import retention_settings
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.shadow import ShadowTopic, topic_class
from magnetar.errors import (
    BrokerError,
    NamespaceNotFound,
    NotAllowed,
    ServedElsewhere,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
)
from magnetar.io.interfaces import Io, Task
from magnetar.io.slices import each
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import finished, nobody_waits, outcome
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced, ManagedLedgerNotFound
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.measures import Timings
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import BROKER, Principal

if TYPE_CHECKING:
    from magnetar.broker.transactions.buffer import SnapshotStore
    from magnetar.broker.transactions.figures import BatchFigures

log = logging.getLogger(__name__)

_UNLOADS = 64
"""The number of topics that are closed at the same time when the broker stops."""


class ServedTopics:
    """The topics of this broker. All methods run on the loop."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        metadata: MetadataStore,
        managed_ledgers: ManagedLedgerFactory,
        settings: Callable[[], BrokerSettings],
        *,
        namespaces: Namespaces,
        policies: PolicyStore,
        serving_clusters: ServingClusters,
        schemas: SchemaRegistry,
        bundles: NamespaceBundles,
        ownership: Ownership,
        replication: Replication | None,
        budget: LoopBudget,
    ) -> None:
        """:param settings: returns the current settings

        :param replication: the replicators of topics; None: nothing is replicated to other clusters
        """
        self.io = io
        self.wheel = wheel
        self.managed_ledgers = managed_ledgers
        self._settings = settings
        self.namespaces = namespaces
        self.policies = policies
        self.serving_clusters = serving_clusters
        self.schemas = schemas
        self.bundles = bundles
        self.ownership = ownership
        self.replication = replication
        self._budget = budget
        started = settings()
        self.policies.listen(partial(apply_changed, self))
        self.compactor = Compactor(
            io,
            managed_ledgers.store,
            managed_ledgers.settings.quorums,
            managed_ledgers.deletions,
            started.compaction,
            lambda: self.publish_latency.count,
        )
        self.loaded: dict[str, AnyTopic] = {}
        """The loaded topics, by full name."""
        self.busy: dict[AnyBaseTopic, None] = {}
        """Topics whose rates are not all 0."""
        self.creation = TopicCreation(
            namespaces, policies, managed_ledgers, self.loaded, TopicCounts(metadata), settings
        )
        self.ownership.listen(self._lost)
        self.unloads = Unloads(io.loop, io.clock, self)
        self.unacked_limit = (
            UnackedLimit(started.max_unacked, started.unacked_share_when_blocked)
            if started.max_unacked
            else None
        )
        self.shared_limits = SharedLimits(
            DispatchLimiter(wheel, io.clock, LimitedBy.BROKER, started.dispatch_rate),
            ResourceGroups(wheel, io.clock),
        )
        self.publish_latency = Timings()
        self.topic_loads = Timings()
        self.recoveries = Recoveries(io.loop)
        self._failures = Failures(io.loop, io.clock, self)
        self.snapshots: SnapshotStore | None = None
        """The transaction buffer snapshots, set by the service; None: transactions are disabled."""
        self.pending_ack_batches: BatchFigures | None = None
        """The statistics of batches in pending-ack logs; None: no topic that may have such a log was
        loaded."""
        self.without_transactions: Callable[[Topic], None] | None = None
        """If transactions are disabled, called with each topic that is loaded; otherwise None."""
        self.stopping = False
        """Whether the broker is stopping, and loads no topics."""
        self.deletions = 0
        """The number of topics that this broker has deleted; when it grows, lists of names are stale."""
        self._tasks = TaskScope(io.loop, "the topics of the broker", owner_goes_on)
        self._loading: dict[str, Task[AnyTopic]] = {}
        self._tenures: dict[str, Tenure] = {}
        """The :class:`Tenure` of each topic that is being loaded, or deleted without being loaded."""
        self._unloading: dict[str, Task[None]] = {}

    @property
    def settings(self) -> BrokerSettings:
        """Returns the current settings of the broker."""
        return self._settings()

    async def settings_changed(self) -> None:
        """Applies changed settings to loaded topics; policies are applied separately."""
        settings = self.settings
        self.shared_limits.dispatch.use(settings.dispatch_rate)

        def take(live: AnyTopic) -> None:
            live.settings = settings.topic

        await each(self.io, "policies", list(self.loaded.values()), take)

    # Ownership

    def _lost(self, bundle: Bundle | None) -> None:
        """Closes the topics of a lost bundle without writing, because another broker may own them."""
        lost = [topic for topic in self.loaded.values() if bundle is None or topic.name in bundle]
        log.warning("ownership of topics lost", extra={"bundle": bundle or "all", "topics": len(lost)})
        for topic in lost:
            topic.disown()
        for tenure in self._tenures_within(bundle):
            tenure.end()
        for _ in range(min(_UNLOADS, len(lost))):
            self._tasks.start(self._unload_each(lost), "closing lost topics")

    # Loading

    @property
    def loading_count(self) -> int:
        return len(self._loading)

    async def load(
        self, name: TopicName, *, create: bool, principal: Principal = BROKER, awaited: bool = False
    ) -> AnyTopic:
        """Returns the topic, after loading it if necessary. A missing topic is created if ``create`` is true
        and policies permit it.
        :param principal: the principal that requests the topic; topics that clients request are recovered
            before topics that only this broker needs
        :param awaited: whether a client waits for the topic, although the broker makes the request
        :raises TopicNotFound: the topic does not exist
        :raises ServiceNotReady: the topic is being closed, or the broker is stopping
        """
        return await self._loaded(
            name, create=create, unasked=True, awaited=awaited or principal is not BROKER
        )

    async def create_topic(self, name: TopicName, properties: Mapping[str, str] | None = None) -> AnyTopic:
        """Creates a topic, whatever the settings of automatic creation are.

        :param properties: the properties of a persistent topic, from its creation on
        :raises NamespaceNotFound: the namespace does not exist
        :raises ServiceNotReady: a topic of that name is being closed, or the broker is stopping
        """
        return await self._loaded(name, create=True, unasked=False, properties=properties)

    async def persistent_topic(self, name: TopicName) -> Topic:
        """Returns the persistent topic of that name, loaded if necessary.

        :raises TopicNotFound: the topic does not exist
        :raises PersistentTopicRequired: the name denotes a non-persistent topic
        """
        return persistent(await self.load(name, create=False))

    async def _loaded(
        self,
        name: TopicName,
        *,
        create: bool,
        unasked: bool,
        awaited: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> AnyTopic:
        full_name = str(name)
        while True:
            found = self.loaded.get(full_name)
            if found is not None and found.fenced and not found.closing:
                await self.unload_topic(found)
                continue
            if found is not None and not found.closing:
                return found
            if self.stopping:
                raise ServiceNotReady("The broker is stopping")
            self.ownership.check_serving()
            if full_name in self._unloading:
                raise ServiceNotReady("Topic is temporarily unavailable")
            loading = self._loading.get(full_name)
            began = loading is None
            if loading is None:
                self._failures.check(full_name)
                loading = self._start_loading(
                    full_name, self._load(name, properties, create=create, unasked=unasked)
                )
            if awaited or name.local == CHANGE_EVENTS:
                # No topic of a namespace opens before the policies of its topics are known.
                self.recoveries.hurry(full_name)
            try:
                return await self._await_loading(loading)
            except TopicNotFound:
                # The request that began this load did not want the topic to be created.
                if began or not create:
                    raise

    async def _await_loading(self, loading: Task[AnyTopic]) -> AnyTopic:
        limit = partial(self.wheel.schedule, self.settings.topic_load_timeout_seconds)
        if not await finished(self.io.loop, loading, limit):
            raise ServiceNotReady("Failed to load topic within timeout")
        return loading.result()

    def _start_loading(self, full_name: str, load: Coroutine[object, None, AnyTopic]) -> Task[AnyTopic]:
        if len(self._loading) >= self.settings.max_topic_loads:
            load.close()
            raise TooManyRequests("Too many topics are being loaded")
        loading = self._tasks.answer(load)
        self._loading[full_name] = loading
        loading.add_done_callback(nobody_waits)
        loading.add_done_callback(lambda _done: self._load_ended(full_name))
        return loading

    def _load_ended(self, full_name: str) -> None:
        self._loading.pop(full_name, None)
        self._tenures.pop(full_name, None)
        self.recoveries.over(full_name)

    async def _load(
        self, name: TopicName, properties: Mapping[str, str] | None, *, create: bool, unasked: bool
    ) -> AnyTopic:
        started = self.io.clock.monotonic()
        self.settings.check_served(name)
        if name.is_transaction_log:
            raise NotAllowed(f"Can not create transaction system topic {name}")
        await self.namespaces.check(name.namespace_name)
        await self.serving_clusters.check(name.namespace_name)
        bundle = await self.bundles.of_topic(name)
        owner = await self.ownership.owner_of(bundle, Asked.LOOK)
        if not owner.here:
            told = owner.addresses
            raise ServedElsewhere(f"{bundle} is served by {owner.broker_id}", told.http, told.http_tls)
        tenure = self._tenures[str(name)] = Tenure(self.io.loop)
        if not self.ownership.is_current(bundle, owner):
            raise _not_served(bundle)
        if name.partition_index < 0 and await self.namespaces.partitions(name):
            raise NotAllowed(
                f"{name} is a partitioned topic: producers and consumers must connect to its partitions"
            )
        policies = await self.policies.of_topic(name)
        missing = create and not await self.creation.exists(name)
        if missing:
            await self.creation.check_not_deleted(name)
            properties = properties or await self.creation.inherited(name)
            if unasked:
                create = await self.creation.may_create(name, policies)
        if name.persistent:
            async with self.recoveries.turn(str(name)):
                topic: AnyTopic = await self._open_stored(name, policies, tenure, properties, create=create)
        elif create or await self.creation.is_partition(name):
            if unasked and not missing:
                await self.creation.check_use(name)
            topic = self._make_non_persistent(name, policies)
            await topic.prepare()
        else:
            raise TopicNotFound(f"Topic {name} not found")
        self._failures.watch(topic)
        if tenure.ended or topic.fenced or not self.ownership.is_current(bundle, owner):
            # The topic was opened under an ownership that has ended, or has failed.
            topic.disown()
            await topic.close()
            raise _not_served(bundle)
        self.loaded[topic.full_name] = topic
        self.creation.loaded(topic.name)
        # The settings may have changed since the topic was made; then the policies have changed as well.
        topic.settings = self.settings.topic
        if name.local == CHANGE_EVENTS and self.policies.topics is not None:
            self.policies.topics.appeared(name.namespace_name)
        try:
            latest = await self.policies.of_topic(name)
        except NamespaceNotFound:
            # The deletion of the namespace waits for this load, and finds the topic.
            latest = policies
        if latest is not policies:
            topic.apply_policies(latest)
            await topic.prepare()
        if not await self.serving_clusters.still_include(name.namespace_name):
            await leave(self, topic)
            raise _not_served(bundle)
        if self.replication is not None:
            await self.replication.begin(topic)
        milliseconds = (self.io.clock.monotonic() - started) * 1000
        self.topic_loads.add(milliseconds)
        events.topic_opened(topic.full_name, made=missing, milliseconds=milliseconds)
        return topic

    async def _open_stored(
        self,
        name: TopicName,
        policies: EffectivePolicies,
        tenure: Tenure,
        properties: Mapping[str, str] | None,
        *,
        create: bool,
    ) -> Topic:
        try:
            ledger = await self.managed_ledgers.open(
                name.path,
                create=create,
                retention=retention_settings(policies.retention),
                quorums=policies.quorums,
                trims=False,
                tenure=tenure,
                properties=properties,
            )
        except ManagedLedgerNotFound as error:
            raise TopicNotFound(f"Topic {name} not found") from error
        except ManagedLedgerFenced as error:
            if not tenure.ended:
                raise
            raise ServiceNotReady(f"{name} is no longer served by this broker") from error
        topic = topic_class(ledger)(
            name,
            ledger,
            self.managed_ledgers,
            self.io,
            self.wheel,
            self.settings.topic,
            self._budget,
            policies,
            self.mark_busy,
            self.publish_latency.add,
            self.compactor,
            self.shared_limits,
        )
        topic.unacked_limit = self.unacked_limit
        ledger.reader.prefers_local = True
        try:
            await topic.subscriptions.load(self.io)
            await self._prepare_transactions(topic)
            await topic.prepare()
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError):
            await self.managed_ledgers.close(ledger)
            raise
        ledger.reader.prefers_local = False
        if isinstance(topic, ShadowTopic):
            topic.follow_source()
        else:
            # The next index may depend on the last message, so trimming starts only now.
            ledger.trimmer.begin()
        return topic

    async def _prepare_transactions(self, topic: Topic) -> None:
        """Hides the messages of open transactions before any entry is dispatched.

        :raises BrokerError: the state of transactions cannot be read now
        :raises LedgerError: the state of transactions, or an entry after it, cannot be read
        """
        snapshots, settings = self.snapshots, self.settings.topic.transactions
        if snapshots is None or settings is None or not topic.name.has_transactions:
            if self.without_transactions is not None and topic.name.has_transactions:
                self.without_transactions(topic)
            return
        from magnetar.broker.topics.transactions import prepare_transactions
        from magnetar.broker.transactions.figures import BatchFigures

        if self.pending_ack_batches is None:
            self.pending_ack_batches = BatchFigures()
        await prepare_transactions(
            topic, self.io, self.managed_ledgers, snapshots, settings, self.pending_ack_batches
        )

    def _make_non_persistent(self, name: TopicName, policies: EffectivePolicies) -> NonPersistentTopic:
        return NonPersistentTopic(
            name,
            self.io,
            self.wheel,
            self.settings.topic,
            self._budget,
            policies,
            self.mark_busy,
            self.shared_limits,
        )

    def mark_busy(self, topic: AnyBaseTopic) -> None:
        """Registers a topic whose rates are updated until they are 0."""
        self.busy[topic] = None

    def replicate(self, topic: AnyTopic) -> None:
        """Starts and stops the topic's replicators according to its current policies."""
        if self.replication is not None and not topic.closing:
            self.replication.apply(topic)

    # Ending

    async def close_all(self) -> None:
        """Stops loading and closes all topics, after which acknowledgements are durable."""
        self.stopping = True
        for loading in list(self._loading.values()):
            await finished(self.io.loop, loading)
        await self.unload_topics(list(self.loaded.values()))

    async def _unload_each(self, topics: list[AnyTopic]) -> None:
        """Unloads topics until the list is empty. Several calls with the same list run concurrently, so that
        the ledger store can write the changes of several topics in one commit."""
        while topics:
            topic = topics.pop()
            try:
                await self.unload_topic(topic)
            except (LedgerError, ManagedLedgerError, MetadataError) as error:
                # Acknowledged messages are durable nevertheless: the next start recovers the topic.
                self.unloads.unrecorded += self.stopping and isinstance(error, MetadataError)
                log.error("cannot close the topic", extra={"topic": topic.full_name, "error": str(error)})

    async def unload_topic(self, topic: AnyTopic) -> None:
        """Closes a topic; the next request loads it again. Waits if the topic is being closed already."""
        going = self._unloading.get(topic.full_name)
        if going is not None:
            await outcome(self.io.loop, going)
            return
        await outcome(self.io.loop, self._start_removing(topic, self._close(topic)))

    async def _close(self, topic: AnyTopic) -> None:
        if self.replication is not None:
            await self.replication.stop(topic)
        await topic.close()
        events.topic_closed(topic.full_name)

    async def delete_topic(self, topic: AnyTopic) -> None:
        """Deletes a topic with all its data and its schema.

        :raises ServiceNotReady: the topic is being closed
        """
        if topic.closing or topic.full_name in self._unloading:
            raise ServiceNotReady("Topic is temporarily unavailable")
        # From here on the topic accepts no clients: the next request creates it again.
        topic.closing = True
        await outcome(self.io.loop, self._start_removing(topic, self._delete(topic)))

    async def _delete(self, topic: AnyTopic) -> None:
        if self.replication is not None:
            await self.replication.stop(topic)
        await topic.delete()
        await self._delete_snapshot(topic.name)
        self.deletions += 1
        events.topic_deleted(topic.full_name)
        # Before the topic can be created again: otherwise the new schema would be deleted.
        await self.delete_schema(topic.name)

    async def delete_stored_topic(self, name: TopicName) -> None:
        """Deletes a topic with all its data, whether it is loaded or not."""
        full_name = str(name)
        while True:
            live, going = self.loaded.get(full_name), self._unloading.get(full_name)
            if going is not None:
                await outcome(self.io.loop, going)
            elif live is not None and not live.closing:
                await self.delete_topic(live)
                return
            elif (loading := self._loading.get(full_name)) is not None:
                await finished(self.io.loop, loading)
            else:
                break
        # From here on the topic is not loaded: the next request creates it again.
        removing = self._unloading[full_name] = self._tasks.answer(self._delete_stored(name))
        removing.add_done_callback(lambda _done: self._unloading.pop(full_name))
        removing.add_done_callback(lambda _done: self._tenures.pop(full_name, None))
        await outcome(self.io.loop, removing)

    async def _delete_stored(self, name: TopicName) -> None:
        tenure = self._tenures[str(name)] = Tenure(self.io.loop)
        try:
            ledger = await self.managed_ledgers.open(name.path, create=False, tenure=tenure)
        except ManagedLedgerNotFound:
            return
        await self.managed_ledgers.delete(ledger)
        await self._delete_snapshot(name)
        self.deletions += 1
        await self.delete_schema(name)

    async def _delete_snapshot(self, name: TopicName) -> None:
        if self.snapshots is not None and name.persistent and name.has_transactions:
            await self.snapshots.delete(name)

    async def delete_schema(self, name: TopicName) -> None:
        """Deletes the schema of a deleted topic; does nothing for a partition, which has no schema of its
        own."""
        if name.partition_index < 0:
            await self.schemas.delete(name.schema_path)

    def loading_in(self, namespace: NamespaceName) -> list[Task[AnyTopic]]:
        """Returns the loads in progress of a namespace's topics."""
        return self.loads_within(lambda name: name.namespace_name == namespace)

    def loads_within(self, wanted: Callable[[TopicName], bool]) -> list[Task[AnyTopic]]:
        """Returns the loads in progress of the topics that ``wanted`` accepts."""
        return [loading for name, loading in self._loading.items() if wanted(TopicName.parse(name))]

    def loaded_within(self, bundle: Bundle) -> list[AnyTopic]:
        namespace, hashes = bundle.namespace, bundle.range
        return [
            topic
            for topic in self.loaded.values()
            if topic.bundle_hash in hashes and topic.name.namespace_name == namespace
        ]

    def _tenures_within(self, bundle: Bundle | None) -> list[Tenure]:
        """Returns the tenures of topics that are not loaded yet, in one bundle (None: in all bundles)."""
        return [
            tenure
            for name, tenure in self._tenures.items()
            if bundle is None or TopicName.parse(name) in bundle
        ]

    async def end_tenures(self, bundle: Bundle) -> None:
        """Ends the tenures of a bundle's topics; no record of these topics is written after this returns."""
        tenures = self._tenures_within(bundle)
        for topic in self.loaded_within(bundle):
            if isinstance(topic, Topic):
                tenures += topic.tenures()
        for tenure in tenures:
            tenure.end()
        for tenure in tenures:
            await tenure.over()

    async def unload_topics(self, topics: list[AnyTopic]) -> None:
        """Closes topics, several at a time; failures are logged."""
        workers = min(_UNLOADS, len(topics))
        work = [self._tasks.start(self._unload_each(topics), "closing topics") for _ in range(workers)]
        for worker in work:
            await finished(self.io.loop, worker)

    def _start_removing(self, topic: AnyTopic, work: Coroutine[object, None, None]) -> Task[None]:
        removing = self._tasks.answer(self._remove(topic, work))
        self._unloading[topic.full_name] = removing
        return removing

    async def _remove(self, topic: AnyTopic, work: Coroutine[object, None, None]) -> None:
        try:
            await work
        finally:
            del self._unloading[topic.full_name]
            if self.loaded.get(topic.full_name) is topic:
                del self.loaded[topic.full_name]
                self.creation.unloaded(topic.name)
            self.busy.pop(topic, None)


def _not_served(bundle: Bundle) -> ServiceNotReady:
    return ServiceNotReady(f"{bundle} is no longer served by this broker")
