"""The broker: its start and stop, lookups, and the objects that its connections share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.flow.connection import KeepAliveSettings
from magnetar.broker.flow.limits import ConnectionCounts, PartialFrames, PublishBuffer, Readable
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.outgoing import UnsentBytes
from magnetar.broker.flow.rate_limits import publish_limiter
from magnetar.broker.flow.rates import SchemaOperations
from magnetar.broker.load.settings import LoadDesk
from magnetar.broker.namespaces.lists import ListedNames, NameListings, TopicLists
from magnetar.broker.namespaces.registry import Namespaces
from magnetar.broker.namespaces.serving_clusters import ServingClusters
from magnetar.broker.ownership.bundles import NamespaceBundles
from magnetar.broker.ownership.contract import MakeOwnership, OnlyBroker, Owner, Ownership
from magnetar.broker.ownership.peers import Beside
from magnetar.broker.packages import PackageStorage
from magnetar.broker.policies.dynamic import Changeable, DynamicSettings
from magnetar.broker.policies.grants import StoredGrants
from magnetar.broker.policies.records import ResourceGroupRecords
from magnetar.broker.policies.store import PolicyStore
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import ProducerNames, RequestTurns
from magnetar.broker.replication.topics import Replication
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.broker.serving.lookups import Lookups
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.serving.unloading import HandingOver
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.system_topics.topic_policies import SystemTopicPolicies
from magnetar.broker.system_topics.transactions_off import TransactionsOff
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.upkeep.housekeeping import Upkeep
from magnetar.broker.upkeep.revocation import Revocation
from magnetar.errors import (
    EncryptionRequired,
    InvalidTopicName,
)
from magnetar.io.interfaces import Io, Listener, ListeningNetwork, StreamProtocol
from magnetar.io.slices import each
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import SharedRuns
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.frames import max_frame_size
from magnetar.protocol.hot_codec import AckRun, SendRun
from magnetar.security.authentication import BROKER, Authenticator, NobodyIsAsked, Principal
from magnetar.security.authorization import Authorizer, EverybodyMay
from magnetar.security.rules import Grants

if TYPE_CHECKING:
    from magnetar.broker.coordination.coordinators import Coordinators
    from magnetar.broker.replication.clusters import Reach
    from magnetar.broker.system_topics.topic_policies_of_cluster import ClusterTopicPolicies
    from magnetar.broker.system_topics.transaction_snapshots import TransactionSnapshots
    from magnetar.broker.transactions import TransactionSettings

_INSTANCES = "/counters/producer-name/-"
"""The path prefix of the sequential nodes that number the starts of brokers: generated producer names contain
the number, because clients may reconnect with names that an earlier broker generated."""


@dataclass(frozen=True)
class Dynamic:
    """Settings that can be changed while a broker runs."""

    settings: Mapping[str, Changeable]
    """The settings by name."""
    refused: Mapping[str, str]
    """Settings that Pulsar's brokers can change while they run and this broker cannot, each with the
    reason."""
    changed: Callable[[], Awaitable[None]]
    """Awaited after a change; applies the settings now in effect (:meth:`BrokerService.use`)."""


class ConnectionLimits:
    """The limits that all connections of a broker share: on publishes in progress, on frames that wait to be
    sent, and on frames that are not completely received.
    """

    def __init__(self, io: Io, settings: BrokerSettings) -> None:
        self._clock = io.clock
        self.max_message_size = settings.max_message_size
        self.max_frame = max_frame_size(settings.max_message_size)
        self.max_pending_publishes = settings.max_pending_publishes
        self.keep_alive = KeepAliveSettings(settings.keep_alive_seconds, settings.liveness_seconds)
        self.publish_buffer = PublishBuffer(settings.max_publish_buffer)
        self.unsent = UnsentBytes(io.clock)
        self.publish_limiter = publish_limiter(*_publish_rates(settings), io.clock.monotonic())
        self.readable = Readable(io.loop)
        self.partial_frames = PartialFrames(settings.max_partial_frames)

    def use(self, settings: BrokerSettings, former: BrokerSettings) -> None:
        """Applies the settings that can be changed while a broker runs."""
        if settings.max_publish_buffer != former.max_publish_buffer:
            self.publish_buffer.use(settings.max_publish_buffer)
        if _publish_rates(settings) != _publish_rates(former):
            self.publish_limiter = publish_limiter(*_publish_rates(settings), self._clock.monotonic())


class BrokerService:
    """The parts of a broker, and the objects that its clients share. All methods run on the event loop."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        metadata: MetadataStore,
        managed_ledgers: ManagedLedgerFactory,
        settings: BrokerSettings,
        authenticator: Authenticator | None = None,
        ownership: MakeOwnership | None = None,
        authorizer: Callable[[Grants], Authorizer] | None = None,
        dynamic: Dynamic | None = None,
        beside: Beside | None = None,
        load: LoadDesk | None = None,
        reach: Reach | None = None,
    ) -> None:
        """:param authenticator: authenticates clients; None: clients are not authenticated

        :param authorizer: makes the authorizer from the stored permissions; None: all operations are
            permitted
        :param dynamic: settings that can be changed while the broker runs; None: no setting can be changed
        :param beside: the other brokers of the cluster; None: the broker is standalone
        :param reach: makes clients of other clusters; None: no topic is replicated to them
        :param ownership: makes the ownership, given a function that returns, for a generation, the
            :class:`Owner` that describes this broker; None: this broker owns all bundles
        """
        self.io = io
        self.wheel = wheel
        self.metadata = metadata
        self.managed_ledgers = managed_ledgers
        self.beside = beside
        self.settings = settings
        self.namespaces = Namespaces(io, metadata)
        self.policies = PolicyStore(io, metadata, settings.cluster, settings.policies)
        managed_ledgers.storage_of = self.policies.storage_of
        self.serving_clusters = ServingClusters(self.policies, settings.cluster)
        quorums = managed_ledgers.settings.quorums
        storage = SchemaStorage(io.loop, managed_ledgers.store, metadata, quorums, managed_ledgers.deletions)
        self.schema_operations = SchemaOperations(io.clock)
        self.schemas = SchemaRegistry(io, storage, metadata, self.schema_operations)
        copies = settings.package_copies
        self.packages = PackageStorage(
            io.loop,
            managed_ledgers.store,
            metadata,
            Quorums(copies, copies, copies),
            managed_ledgers.deletions,
        )
        self.replication = (
            Replication(
                io,
                metadata,
                self.policies,
                managed_ledgers,
                self.schemas,
                self.namespaces.partitions,
                lambda: self.settings.replication,
                lambda: self.settings.replication_buffer,
                reach,
                lambda: self.settings.addresses.as_record(),
            )
            if reach is not None
            else None
        )
        self.bundles = NamespaceBundles(
            metadata, self.policies.namespaces.get, self.policies.namespaces.local
        )
        self.ownership: Ownership = (
            ownership(self._as_owner) if ownership is not None else OnlyBroker(metadata, self._as_owner)
        )
        self.budget = LoopBudget(io.loop, io.clock)
        self.topics = ServedTopics(
            io,
            wheel,
            metadata,
            managed_ledgers,
            lambda: self.settings,
            namespaces=self.namespaces,
            policies=self.policies,
            serving_clusters=self.serving_clusters,
            schemas=self.schemas,
            bundles=self.bundles,
            ownership=self.ownership,
            replication=self.replication,
            budget=self.budget,
        )
        self.lookups = Lookups(
            io.clock,
            lambda: self.settings,
            lambda: self.topics.stopping,
            self.namespaces,
            self.serving_clusters,
            self.bundles,
            self.ownership,
        )
        self.clearings = SharedRuns(io.loop)
        """Requests in progress that clear backlogs, by bundle and subscription name."""
        self.load = load
        """The load management; None in a standalone broker."""
        if beside is not None:
            self.topics.unloads.handing_over = HandingOver(io.loop, beside, lambda: self.settings)
        self.authenticator: Authenticator = authenticator or NobodyIsAsked()
        grants = StoredGrants(metadata, self.policies.tenants, self.policies.namespaces)
        self.policies.listen(grants.namespace_changed)
        self.authorizer: Authorizer = authorizer(grants) if authorizer is not None else EverybodyMay()
        self.serving_clusters.by_names = self.authorizer.asks
        self.producer_names = ProducerNames(settings.cluster)
        self.request_turns = RequestTurns()
        if settings.topic_policies:
            self.policies.topics = self._topic_policies(beside)
        self.topic_lists = TopicLists(
            io,
            wheel,
            self.namespaces,
            metadata,
            max_pattern_length=settings.max_pattern_length,
            enabled=settings.match_patterns,
        )
        self.client_tasks = TaskScope(io.loop, "requests of clients", owner_goes_on)
        """The tasks that clients' commands have started; they may continue after the client has left."""
        self.connections = ConnectionCounts(settings.max_connections, settings.max_connections_per_address)
        self.limits = ConnectionLimits(io, settings)
        self.send_run = SendRun()
        self.ack_run = AckRun()
        self._listeners: list[Listener] = []
        self.upkeep = Upkeep(self.topics, beside)
        self.revocation = Revocation(
            io, wheel, lambda: self.connections.all, self.authenticator, self.authorizer
        )
        self._dynamic = dynamic or Dynamic({}, {}, _nothing)
        self.dynamic = DynamicSettings(
            io, metadata, self._dynamic.settings, self._settings_changed, self._dynamic.refused
        )
        self.resource_groups = ResourceGroupRecords(io, metadata, self.topics.shared_limits.groups.define)
        self.started_ms = io.clock.wall_ms()
        self._listings = NameListings(io.loop, self._list_names)
        self._snapshots: TransactionSnapshots | None = None
        self.coordinators: Coordinators | None = None
        """The transaction coordinators; None: transactions are disabled."""
        self.transactions_off: TransactionsOff | None = None
        """Finds topics with data of earlier transactions; None: transactions are enabled."""
        if settings.topic.transactions is None:
            reading = partial(self._transaction_snapshots, beside, None)
            self.transactions_off = TransactionsOff(self.topics, metadata, reading)
            self.topics.without_transactions = self.transactions_off.look
        else:
            self.topics.snapshots = self._transaction_snapshots(beside, settings.topic.transactions)
            self.coordinators = self._transaction_coordinators(beside)

    def _transaction_coordinators(self, beside: Beside | None) -> Coordinators | None:
        settings = self.settings.topic.transactions
        if settings is None:
            return None
        from magnetar.broker.coordination.coordinators import Coordinators

        return Coordinators(self.topics, self.metadata, settings, beside)

    def _transaction_snapshots(
        self, beside: Beside | None, enabled: TransactionSettings | None
    ) -> TransactionSnapshots:
        """Returns the transaction buffer snapshots.

        :param enabled: the settings of transactions; None: transactions are disabled, and snapshots are only
            read
        """
        from magnetar.broker.system_topics.transaction_snapshots import TransactionSnapshots
        from magnetar.broker.transactions import TransactionSettings

        settings = self.settings
        self._snapshots = TransactionSnapshots(
            self.topics,
            self.metadata,
            enabled or TransactionSettings(),
            self.producer_names.next,
            None if beside is None else lambda: beside.client(self.settings.addresses),
            settings.max_message_size,
        )
        return self._snapshots

    def _topic_policies(self, beside: Beside | None) -> SystemTopicPolicies | ClusterTopicPolicies:
        cluster, tell = self.settings.cluster, self.policies.tell
        if beside is None:
            return SystemTopicPolicies(self.topics, cluster, tell, self.metadata, self.producer_names)
        # Imported here to save a standalone broker the memory of a client that it does not need.
        from magnetar.broker.system_topics.topic_policies_of_cluster import ClusterTopicPolicies

        return ClusterTopicPolicies(
            self.topics, cluster, tell, self.metadata, lambda: beside.client(self.settings.addresses)
        )

    # Settings that change

    async def _settings_changed(self, who_may: bool) -> None:
        if who_may:
            self.revocation.roles_changed()
        await self._dynamic.changed()

    async def use(self, settings: BrokerSettings) -> None:
        """Applies changed settings, also to loaded topics; they are in effect when this returns.

        :param settings: the new settings; they may differ from the former settings only in settings that can
            be changed while a broker runs
        """
        former = self.settings
        self.settings = settings
        await self.topics.settings_changed()
        await self.policies.use(settings.policies)
        self.limits.use(settings, former)
        self.upkeep.housekeeping.settings_changed(former)

    # Start and stop

    async def start(
        self,
        host: str,
        port: int,
        accept: Callable[[], StreamProtocol],
        network: ListeningNetwork | None = None,
    ) -> Listener:
        """Listens on one more address; the first call also starts the broker's coordinators and periodic
        work.

        :param network: the network to listen on; None: plain TCP
        :raises OSError: the address cannot be used
        :raises MetadataError: no number can be taken for this start of the broker
        """
        if not self._listeners:
            counter = await self.metadata.put(_INSTANCES, b"", ephemeral=True, sequential=True)
            await self.resource_groups.take()
            self.producer_names.life = int(counter.path[len(_INSTANCES) :])
        through: ListeningNetwork = network or self.io.network
        if not self._listeners and self.coordinators is not None:
            await self.coordinators.start()
        listener = await through.listen(host, port, accept)
        if not self._listeners:
            self.upkeep.housekeeping.start()
        self._listeners.append(listener)
        return listener

    @property
    def ready(self) -> bool:
        return bool(self._listeners) and not self.topics.stopping

    async def stop(self) -> None:
        """Closes the listeners, the topics (their acknowledgements are durable afterwards) and the
        connections.
        """
        self.topics.stopping = True
        for listener in self._listeners:
            listener.close()
        self.upkeep.stop()
        self.revocation.stop()
        self.dynamic.stop()
        self.resource_groups.stop()
        if self.coordinators is not None:
            await self.coordinators.close()
        if self.policies.topics is not None:
            await self.policies.topics.close()
        if self._snapshots is not None:
            await self._snapshots.close()
        await self.topics.close_all()
        if self.replication is not None:
            await self.replication.close()
        for connection in list(self.connections.all):
            connection.close()
        self.schemas.close()
        self.topics.compactor.close()

    # Ownership

    def _as_owner(self, generation: int) -> Owner:
        own = self.settings
        return Owner(own.broker_id, own.addresses, True, generation, own.listeners)

    # Names

    def parse_topic(self, text: str) -> TopicName:
        """Returns the name of a topic.

        :raises InvalidTopicName: the text is not the name of a topic
        """
        try:
            return TopicName.parse(text)
        except InvalidName as error:
            raise InvalidTopicName(str(error)) from error

    def parse_namespace(self, text: str) -> NamespaceName:
        """Returns the name of a namespace.

        :raises InvalidTopicName: the text is not the name of a namespace
        """
        try:
            return NamespaceName.parse(text)
        except InvalidName as error:
            raise InvalidTopicName(str(error)) from error

    async def check_producer(self, topic: AnyTopic, *, encrypts: bool) -> None:
        """Checks the conditions that apply to every producer, before the topic checks its own conditions.

        :param encrypts: whether the producer declares that it encrypts its messages, or need not declare it
        :raises EncryptionRequired: the topic requires encryption and the producer does not encrypt
        :raises QuotaExceeded: a backlog quota is exceeded, or the disk is full
        :raises QuotaExceededHold: a backlog quota is exceeded, and its policy lets producers wait
        """
        if topic.policies.encryption_required and not encrypts:
            text = f"Encryption is required in {topic.full_name}"
            topic.hindered(Hindrance.ENCRYPTION_REQUIRED, text)
            raise EncryptionRequired(text)
        await self.upkeep.check_producer(topic)

    async def topic_names(
        self,
        namespace: str,
        *,
        mode: str = "PERSISTENT",
        system: bool = False,
        principal: Principal = BROKER,
    ) -> Sequence[str]:
        """Returns the sorted full names of the namespace's topics. Callers share the list and must not change
        it.

        :param mode: ``PERSISTENT``, ``NON_PERSISTENT`` or ``ALL``
        :param system: whether to include system topics
        :param principal: the principal of the client that lists the topics
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
            names += sorted(str(name) for name in self.topics.creation.non_persistent(parsed))
        if mode != "NON_PERSISTENT":
            names += await self.namespaces.persistent_topics(parsed)
        await each(self.io, "listing", names, take)
        return found


def _publish_rates(settings: BrokerSettings) -> tuple[float, float]:
    return settings.max_publish_messages, settings.max_publish_bytes


async def _nothing() -> None:
    """The default of :attr:`Dynamic.changed`; does nothing."""
