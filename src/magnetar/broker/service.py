"""The broker: which topics it serves, and everything its connections share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from magnetar.broker import events
from magnetar.broker.flow.keep_alive import KeepAliveSettings
from magnetar.broker.flow.limits import ConnectionCounts, PartialFrames, PublishBuffer
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.outgoing import UnsentBytes
from magnetar.broker.flow.publish_rates import publish_limiter
from magnetar.broker.flow.rates import Timings
from magnetar.broker.flow.readable import Readable
from magnetar.broker.flow.unacked_limit import UnackedLimit
from magnetar.broker.namespaces.counts import TopicCounts
from magnetar.broker.namespaces.creation import TopicCreation
from magnetar.broker.namespaces.listings import ListedNames, NameListings
from magnetar.broker.namespaces.lists import TopicLists
from magnetar.broker.namespaces.registry import Namespaces
from magnetar.broker.ownership.bundles import NamespaceBundles
from magnetar.broker.ownership.contract import Addresses, Bundle, Owner, Ownership
from magnetar.broker.ownership.only_broker import OnlyBroker
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.store import PolicyStore
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.system_topics.topic_policies import CHANGE_EVENTS, SystemTopicPolicies
from magnetar.broker.topics.any_topic import AnyTopic, persistent
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic, retention_settings
from magnetar.broker.translation import to_broker_error
from magnetar.broker.upkeep.backlog_quotas import BacklogQuotas
from magnetar.broker.upkeep.expiry import ExpiryCheck
from magnetar.broker.upkeep.housekeeping import Housekeeping
from magnetar.broker.upkeep.inactive_topics import InactiveTopicsCheck
from magnetar.broker.upkeep.storage_gate import StorageGate
from magnetar.errors import (
    BrokerError,
    InvalidTopicName,
    NamespaceNotFound,
    NotAllowed,
    ServedElsewhere,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
)
from magnetar.io.interfaces import Io, Listener, StreamProtocol
from magnetar.io.slices import Slice, each, let_others
from magnetar.io.waiting import finished
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerNotFound
from magnetar.managed_ledger.opening import ManagedLedgers
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.errors import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.frames import max_frame_size
from magnetar.protocol.hot_codec import AckRun, SendRun
from magnetar.security.authentication import Authenticator, NobodyIsAsked
from magnetar.security.principal import ANONYMOUS, Principal

log = logging.getLogger(__name__)

_UNLOADS = 64
"""Topics closed at the same time when the broker stops."""

_INSTANCES = "/counters/producer-name/-"
"""Numbers the lives of brokers: clients come back to a new one with names that an earlier one gave."""


class BrokerService:
    """Everything here runs in the loop."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        metadata: MetadataStore,
        managed_ledgers: ManagedLedgers,
        settings: BrokerSettings,
        authenticator: Authenticator | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        """:param authenticator: asked who the clients of the binary door are; None: nobody is

        :param ownership: knows which broker serves what; None: this one serves everything
        """
        self.io = io
        self.wheel = wheel
        self.settings = settings
        self.authenticator: Authenticator = authenticator or NobodyIsAsked()
        self.managed_ledgers = managed_ledgers
        self.namespaces = Namespaces(io, metadata)
        self.policies = PolicyStore(io, metadata, settings.cluster, settings.policies)
        self.policies.listen(self._policies_changed)
        self.schemas = SchemaRegistry(
            io,
            SchemaStorage(
                io.loop,
                managed_ledgers.store,
                metadata,
                managed_ledgers.settings.quorums,
                managed_ledgers.deletions,
            ),
            metadata,
        )
        self.topics: dict[str, AnyTopic] = {}
        self.topic_lists = TopicLists(
            io,
            wheel,
            self.namespaces,
            metadata,
            max_pattern_length=settings.max_pattern_length,
            enabled=settings.match_patterns,
        )
        self.creation = TopicCreation(
            self.namespaces, self.policies, managed_ledgers, self.topics, TopicCounts(metadata)
        )
        if settings.topic_policies:
            self.policies.topics = SystemTopicPolicies(self, settings.cluster, self.policies.tell, metadata)
        self.max_message_size = settings.max_message_size
        self.max_frame = max_frame_size(settings.max_message_size)
        self.max_pending_publishes = settings.max_pending_publishes
        self.keep_alive = KeepAliveSettings(settings.keep_alive_seconds, settings.liveness_seconds)
        self.key_shared_enabled = settings.key_shared_enabled
        self.connections = ConnectionCounts(settings.max_connections, settings.max_connections_per_address)
        self.publish_buffer = PublishBuffer(settings.max_publish_buffer)
        self.unsent = UnsentBytes(io.clock)
        self.publish_limiter = publish_limiter(
            settings.max_publish_messages, settings.max_publish_bytes, io.clock.monotonic()
        )
        self.budget = LoopBudget(io.loop, io.clock)
        self.readable = Readable(io.loop)
        self.unacked_limit = (
            UnackedLimit(settings.max_unacked, settings.unacked_share_when_blocked)
            if settings.max_unacked
            else None
        )
        self.partial_frames = PartialFrames(settings.max_partial_frames)
        self.send_run = SendRun()
        self.ack_run = AckRun()
        self._loading: dict[str, Any] = {}
        self._unloading: dict[str, Any] = {}
        self.metadata = metadata
        self.bundles = NamespaceBundles(metadata, self.policies.namespaces.get)
        self.ownership: Ownership = ownership or OnlyBroker(metadata, self._as_owner)
        self.ownership.listen(self._lost)
        self._instance = 0
        self._producer_names = 0
        self._stopping = False
        self._listener: Listener | None = None
        self.quotas = BacklogQuotas(self)
        self.storage_gate = StorageGate(self)
        self.housekeeping = Housekeeping(self, InactiveTopicsCheck(self), ExpiryCheck(self), self.quotas)
        self.started_ms = io.clock.wall_ms()
        self.lookups = Timings()
        self.lookup_failures = 0
        self.lookups_pending = 0
        self._listings = NameListings(io.loop, self._list_names)
        self.publish_latency = Timings()
        self.topic_loads = Timings()

    # Start and stop

    async def start(self, host: str, port: int, accept: Callable[[], StreamProtocol]) -> Listener:
        """Serves clients from now on.

        :raises OSError: the address cannot be used
        :raises MetadataError: the number of this broker's life cannot be taken
        """
        counter = await self.metadata.put(_INSTANCES, b"", ephemeral=True, sequential=True)
        self._instance = int(counter.path[len(_INSTANCES) :])
        self._listener = await self.io.network.listen(host, port, accept)
        self.housekeeping.start()
        return self._listener

    @property
    def ready(self) -> bool:
        return self._listener is not None and not self._stopping

    async def stop(self) -> None:
        """Takes no new clients, closes topics (what was acknowledged is durable then) and connections."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        self.housekeeping.stop()
        self.storage_gate.stop()
        for loading in list(self._loading.values()):
            await finished(self.io.loop, loading)
        closing = list(self.topics.values())
        workers = [
            self.io.loop.create_task(self._unload_each(closing)) for _ in range(min(_UNLOADS, len(closing)))
        ]
        for worker in workers:
            await finished(self.io.loop, worker)
        for connection in list(self.connections.all):
            connection.close()
        self.schemas.close()

    async def _unload_each(self, topics: list[AnyTopic]) -> None:
        """Takes one topic after another; several of these share the commits of their closing."""
        while topics:
            topic = topics.pop()
            try:
                await self.unload_topic(topic)
            except (LedgerError, ManagedLedgerError, MetadataError) as error:
                # What was acknowledged is durable all the same: the next start recovers the topic.
                log.error("topic did not close", extra={"topic": topic.full_name, "error": str(error)})

    # What the broker owns

    def _as_owner(self, generation: int) -> Owner:
        own = self.settings
        return Owner(own.broker_id, Addresses(own.service_url, http=own.http_url), True, generation)

    async def owner_of(self, name: TopicName) -> Owner:
        """The broker that serves a topic, which need not exist.

        :raises NamespaceNotFound: no such namespace
        :raises ServiceNotReady: it is not known now
        """
        return await self.ownership.owner_of(await self.bundles.of_topic(name))

    def _lost(self, bundle: Bundle | None) -> None:
        """Somebody else may own the topics by now: they are closed, and nothing of them is written."""
        lost = [topic for topic in self.topics.values() if bundle is None or topic.name in bundle]
        log.warning("topics are not owned any more", extra={"bundle": bundle or "all", "topics": len(lost)})
        for topic in lost:
            topic.disown()
        for _ in range(min(_UNLOADS, len(lost))):
            self.io.loop.create_task(self._unload_each(lost))

    @property
    def loading_count(self) -> int:
        return len(self._loading)

    def told(self, error: Exception) -> BrokerError:
        """What a client is told of any error."""
        told = to_broker_error(error)
        if told is not error:
            log.warning("request failed", extra={"error": str(error)})
        return told

    # Names

    def parse_topic(self, text: str) -> TopicName:
        """:raises InvalidTopicName: it is no topic's name"""
        try:
            return TopicName.parse(text)
        except InvalidName as error:
            raise InvalidTopicName(str(error)) from error

    def parse_namespace(self, text: str) -> NamespaceName:
        """:raises InvalidTopicName: it is no namespace's name"""
        try:
            return NamespaceName.parse(text)
        except InvalidName as error:
            raise InvalidTopicName(str(error)) from error

    def next_producer_name(self) -> str:
        """Unique in the cluster: ``CLUSTER-INSTANCE-N``."""
        number = self._producer_names
        self._producer_names += 1
        return f"{self.settings.cluster}-{self._instance}-{number}"

    def check_served(self, name: TopicName) -> None:
        """:raises NotAllowed: topics of that kind are not served here"""
        if name.persistent and not self.settings.persistent_topics and name.local != CHANGE_EVENTS:
            raise NotAllowed("Broker is unable to load persistent topic")
        if not name.persistent and not self.settings.non_persistent_topics:
            raise NotAllowed("Broker is unable to load non-persistent topic")

    @contextmanager
    def lookup_in_progress(self) -> Iterator[None]:
        """Around what counts as a lookup: where topics are, their partitions, which there are.

        :raises TooManyRequests: too many are in progress
        """
        if self.lookups_pending >= self.settings.max_lookups:
            raise TooManyRequests("Too many lookups in progress")
        self.lookups_pending += 1
        try:
            yield
        finally:
            self.lookups_pending -= 1

    async def look_up(self, name: TopicName, principal: Principal = ANONYMOUS) -> Owner:
        """The broker that serves a topic, which need not exist.

        :param principal: who asks
        :raises NamespaceNotFound: no such namespace

        :raises NotAllowed: topics of that kind are not served here
        :raises TooManyRequests: too many lookups are in progress
        """
        started = self.io.clock.monotonic()
        try:
            with self.lookup_in_progress():
                if self._stopping:
                    raise ServiceNotReady("The broker is stopping")
                self.ownership.check_serving()
                self.check_served(name)
                await self.namespaces.check(name.namespace_name)
                owner = await self.owner_of(name)
        except BrokerError:
            self.lookup_failures += 1
            raise
        self.lookups.add((self.io.clock.monotonic() - started) * 1000)
        return owner

    async def topic_names(
        self,
        namespace: str,
        *,
        mode: str = "PERSISTENT",
        system: bool = False,
        principal: Principal = ANONYMOUS,
    ) -> Sequence[str]:
        """Full names of the namespace's topics, sorted; the list is shared by all who ask for it.

        :param mode: ``PERSISTENT``, ``NON_PERSISTENT`` or ``ALL``
        :param system: the system's own ones too
        :param principal: who asks
        """
        parsed = self.parse_namespace(namespace)
        await self.namespaces.check(parsed)
        return await self._listings.names(ListedNames(parsed, mode, system))

    async def _list_names(self, listed: ListedNames) -> Sequence[str]:
        parsed, mode, system = listed
        found: list[str] = []

        def take(name: str) -> None:
            if system or not TopicName.parse(name).reserved:
                found.append(name)

        names: list[str] = []
        if mode != "PERSISTENT":
            names += sorted(str(name) for name in self.creation.non_persistent(parsed))
        if mode != "NON_PERSISTENT":
            names += await self.namespaces.persistent_topics(parsed)
        await each(self.io, "listing", names, take)
        return found

    # Topics

    async def topic(self, name: TopicName, *, create: bool, principal: Principal = ANONYMOUS) -> AnyTopic:
        """The topic, loaded if need be; made if missing, wanted, and allowed.

        :param principal: who asks; others who want it at the same time share the load, not the permission
        :raises TopicNotFound: it is missing
        :raises ServiceNotReady: it is just being closed, or the broker is stopping
        """
        return await self._loaded(name, create=create, unasked=True)

    async def create_topic(self, name: TopicName) -> AnyTopic:
        """Makes a topic, whatever the settings say of making them on use.

        :raises NamespaceNotFound: no such namespace
        :raises ServiceNotReady: one of that name is just being closed, or the broker is stopping
        """
        return await self._loaded(name, create=True, unasked=False)

    async def persistent_topic(self, name: TopicName) -> Topic:
        """The persistent topic of that name, loaded if need be.

        :raises TopicNotFound: it is missing
        :raises PersistentTopicRequired: the name is that of a non-persistent one
        """
        return persistent(await self.topic(name, create=False))

    async def _loaded(self, name: TopicName, *, create: bool, unasked: bool) -> AnyTopic:
        full_name = str(name)
        while True:
            found = self.topics.get(full_name)
            if found is not None and found.fenced and not found.closing:
                await self.unload_topic(found)
                continue
            if found is not None and not found.closing:
                return found
            if self._stopping:
                raise ServiceNotReady("The broker is stopping")
            self.ownership.check_serving()
            if full_name in self._unloading:
                raise ServiceNotReady("Topic is temporarily unavailable")
            loading = self._loading.get(full_name)
            if loading is None:
                loading = self._start_loading(name, full_name, create=create, unasked=unasked)
                return await self._await_loading(loading)
            try:
                return await self._await_loading(loading)
            except TopicNotFound:
                # Whoever began that load did not want the topic made.
                if not create:
                    raise

    async def _await_loading(self, loading: Any) -> AnyTopic:
        waiter = self.io.loop.create_future()

        def pass_on(done: Any) -> None:
            if waiter.done():
                return
            if done.exception() is not None:
                waiter.set_exception(done.exception())
            else:
                waiter.set_result(done.result())

        def give_up() -> None:
            if not waiter.done():
                waiter.set_exception(ServiceNotReady("Failed to load topic within timeout"))

        loading.add_done_callback(pass_on)
        timer = self.wheel.schedule(self.settings.topic_load_timeout_seconds, give_up)
        try:
            topic: AnyTopic = await waiter
        finally:
            timer.cancel()
        return topic

    def _start_loading(self, name: TopicName, full_name: str, *, create: bool, unasked: bool) -> Any:
        if len(self._loading) >= self.settings.max_topic_loads:
            raise TooManyRequests("Too many topics are being loaded")
        loading = self.io.loop.create_task(self._load(name, create=create, unasked=unasked))
        self._loading[full_name] = loading
        loading.add_done_callback(lambda _done: self._loading.pop(full_name, None))
        return loading

    async def _load(self, name: TopicName, *, create: bool, unasked: bool) -> AnyTopic:
        started = self.io.clock.monotonic()
        self.check_served(name)
        await self.namespaces.check(name.namespace_name)
        bundle = await self.bundles.of_topic(name)
        owner = await self.ownership.owner_of(bundle)
        if not owner.here:
            raise ServedElsewhere(f"{bundle} is served by {owner.broker_id}", owner.addresses.http)
        if name.partition_index < 0 and await self.namespaces.partitions(name):
            raise NotAllowed(f"{name} is a partitioned topic: its partitions take producers and consumers")
        policies = await self.policies.of_topic(name)
        missing = create and not await self.creation.exists(name)
        if missing:
            await self.creation.check_not_deleted(name)
            if unasked:
                create = await self.creation.may_create(name, policies)
        if name.persistent:
            topic: AnyTopic = await self._open_stored(name, policies, create=create)
        elif create or await self.creation.is_partition(name):
            topic = self._make_non_persistent(name, policies)
            await topic.prepare()
        else:
            raise TopicNotFound(f"Topic {name} not found")
        if not self.ownership.is_current(bundle, owner):
            # It was opened by a right that has ended.
            topic.disown()
            await topic.close()
            raise ServiceNotReady(f"{bundle} is not served by this broker any more")
        self.topics[topic.full_name] = topic
        if name.local == CHANGE_EVENTS and self.policies.topics is not None:
            self.policies.topics.appeared(name.namespace_name)
        try:
            latest = await self.policies.of_topic(name)
        except NamespaceNotFound:
            # Whoever deletes it waits for this load, and finds the topic.
            latest = policies
        if latest is not policies:
            topic.apply_policies(latest)
            await topic.prepare()
        milliseconds = (self.io.clock.monotonic() - started) * 1000
        self.topic_loads.add(milliseconds)
        events.topic_opened(topic.full_name, made=missing, milliseconds=milliseconds)
        return topic

    async def _open_stored(self, name: TopicName, policies: EffectivePolicies, *, create: bool) -> Topic:
        try:
            ledger = await self.managed_ledgers.open(
                name.path, create=create, retention=retention_settings(policies.retention)
            )
        except ManagedLedgerNotFound as error:
            raise TopicNotFound(f"Topic {name} not found") from error
        topic = Topic(
            name,
            ledger,
            self.managed_ledgers,
            self.io,
            self.wheel,
            self.settings.topic,
            self.budget,
            policies,
            self.housekeeping.mark_busy,
            self.publish_latency.add,
        )
        topic.unacked_limit = self.unacked_limit
        try:
            await topic.prepare()
        except (LedgerError, ManagedLedgerError, MetadataError):
            await self.managed_ledgers.close(ledger)
            raise
        return topic

    def _make_non_persistent(self, name: TopicName, policies: EffectivePolicies) -> NonPersistentTopic:
        return NonPersistentTopic(
            name, self.io, self.wheel, self.settings.topic, self.budget, policies, self.housekeeping.mark_busy
        )

    async def _policies_changed(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        """Live topics go by what counts now."""
        affected: list[AnyTopic] = []

        def take(live: AnyTopic) -> None:
            name = live.name
            if namespace in (None, name.namespace_name) and topic in (None, name.base):
                affected.append(live)

        await each(self.io, "policies", list(self.topics.values()), take)
        running = Slice(self.io, "policies")
        for live in affected:
            if live.closing:
                continue
            try:
                live.apply_policies(await self.policies.of_topic(live.name))
                await live.prepare()
            except NamespaceNotFound:
                # It is being deleted, and its topics with it.
                continue
            if running.is_over():
                running.end()
                await let_others(self.io.loop)
                running.begin()

    async def unload_topic(self, topic: AnyTopic) -> None:
        """Closes a topic; whoever comes next loads it again. Waits when it is being closed already."""
        going = self._unloading.get(topic.full_name)
        if going is not None:
            await going
            return
        await self._start_removing(topic, topic.close(), events.topic_closed)

    async def delete_topic(self, topic: AnyTopic) -> None:
        """Removes a topic with everything it stored.

        :raises ServiceNotReady: it is just being closed
        """
        if topic.closing or topic.full_name in self._unloading:
            raise ServiceNotReady("Topic is temporarily unavailable")
        # From here on nobody is let in: who comes has the topic made anew.
        topic.closing = True
        removing = self._start_removing(topic, topic.delete(), events.topic_deleted)
        await finished(self.io.loop, removing)
        removing.result()
        await self.delete_schema(topic.name)

    async def delete_stored_topic(self, name: TopicName) -> None:
        """Removes a topic with everything it stored, whether it is loaded or not."""
        live = self.topics.get(str(name))
        going = self._unloading.get(str(name))
        if live is not None and not live.closing and going is None:
            await self.delete_topic(live)
            return
        if going is not None:
            await going
        try:
            ledger = await self.managed_ledgers.open(name.path, create=False)
        except ManagedLedgerNotFound:
            return
        await self.managed_ledgers.delete(ledger)
        await self.delete_schema(name)

    async def delete_schema(self, name: TopicName) -> None:
        """Removes the schema of a topic that was deleted; partitions share that of their topic."""
        if name.partition_index < 0:
            await self.schemas.delete(name.schema_path)

    def loading_in(self, namespace: NamespaceName) -> list[Any]:
        """Loads in progress of topics of a namespace."""
        return [
            loading
            for name, loading in self._loading.items()
            if TopicName.parse(name).namespace_name == namespace
        ]

    async def forget_policies(self, name: TopicName) -> None:
        """Removes the own policies of a topic that was deleted."""
        if self.policies.topics is not None:
            await self.policies.topics.delete(name)

    def _start_removing(self, topic: AnyTopic, work: Any, tell: Callable[[str], None]) -> Any:
        removing = self.io.loop.create_task(self._remove(topic, work, tell))
        self._unloading[topic.full_name] = removing
        return removing

    async def _remove(self, topic: AnyTopic, work: Any, tell: Callable[[str], None]) -> None:
        try:
            await work
            tell(topic.full_name)
        finally:
            del self._unloading[topic.full_name]
            if self.topics.get(topic.full_name) is topic:
                del self.topics[topic.full_name]
            self.housekeeping.forget(topic)
