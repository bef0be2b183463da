"""The client on a given event loop, which both the asyncio and the blocking interface use."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, Unpack

from magnetar.client.attachment import PARTITIONS_SECONDS, Services, close_all
from magnetar.client.connection import KEEP_ALIVE_SECONDS
from magnetar.client.consumer import Consumer
from magnetar.client.dead_letters import retry_policy
from magnetar.client.enums import ProxyProtocol
from magnetar.client.exceptions import (
    AlreadyClosed,
    AuthenticationError,
    ConnectError,
    InvalidConfiguration,
    InvalidTopicName,
    PulsarException,
)
from magnetar.client.failover import ClusterAddress, ClusterFailover, FailoverProbes
from magnetar.client.gathered import Find, TopicsConsumer
from magnetar.client.interceptors import consumer_chain, producer_chain
from magnetar.client.listening import During, listen
from magnetar.client.lookup import Lookup
from magnetar.client.memory_limit import MemoryLimit
from magnetar.client.message_id import MessageId
from magnetar.client.opening import Opening
from magnetar.client.options import ConsumerOptions, PatternOptions, ProducerOptions
from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer
from magnetar.client.pool import ConnectionPool
from magnetar.client.producer import Producer
from magnetar.client.reader import Reader
from magnetar.client.schema import TopicSchema, ValueSchema, topic_schema
from magnetar.client.security import (
    Address,
    ServiceAccess,
    TlsOptions,
    access_to,
    is_secured,
    parse_proxy_url,
    parse_service_url,
)
from magnetar.client.table_view import TableView
from magnetar.client.timing import INITIAL_SECONDS, MAX_SECONDS, Looking
from magnetar.client.watched_consumer import new_consumer
from magnetar.client.watched_producer import new_producer
from magnetar.io.interfaces import ClientIo
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.tls import TlsFiles
from magnetar.io.waiting import outcome
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName, compile_pattern
from magnetar.security.client_authentication.authentication import Authentication

if TYPE_CHECKING:
    from magnetar.client.controlled_failover import ControlledClusterFailover, ControlledService
    from magnetar.client.open_telemetry import OpenTelemetry
    from magnetar.client.opening import (
        ReaderArguments,
        TableViewArguments,
        TopicsArguments,
        TopicsReaderArguments,
    )
    from magnetar.client.transactions import Transaction

log = logging.getLogger(__name__)
STATS_SECONDS = 60.0
"""Interval of log lines with statistics, in seconds, as in Java clients."""
IDLE_SECONDS = 60.0
"""Time before an unused connection is closed, in seconds, like ``connectionMaxIdleSeconds`` of Java
clients.
"""
MIN_IDLE_SECONDS = 15
TRANSACTION_SECONDS = 60.0
"""Time before an open transaction is aborted, in seconds, like ``withTransactionTimeout`` of Java clients."""

_ROUTING = (
    "message_routing_mode",
    "message_router",
    "max_pending_messages_across_partitions",
    "hashing_scheme",
    "lazy_start_partitioned_producers",
)
FORKED = "the client was made before this process was forked; make a new client in the child process"
_TOTALS = ("max_total_receiver_queue_size_across_partitions",)


class Client(Opening):
    """Producers, consumers and readers of one cluster.

    All methods must be called on the event loop of ``io``.
    """

    def __init__(
        self,
        service_url: str | ClusterFailover | ControlledClusterFailover,
        *,
        io: ClientIo | None = None,
        operation_timeout_seconds: float = 30,
        connection_timeout_ms: float = 10000,
        connections_per_broker: int = 1,
        keep_alive_interval_seconds: float = KEEP_ALIVE_SECONDS,
        listener_name: str | None = None,
        initial_backoff_interval_ms: float = INITIAL_SECONDS * 1000,
        max_backoff_interval_ms: float = MAX_SECONDS * 1000,
        partitions_update_interval_seconds: float = PARTITIONS_SECONDS,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = True,
        tls_files: TlsFiles | None = None,
        memory_limit_bytes: int = 0,
        stats_interval_seconds: float = STATS_SECONDS,
        proxy_service_url: str | None = None,
        proxy_protocol: ProxyProtocol = ProxyProtocol.SNI,
        open_telemetry: OpenTelemetry | None = None,
        connection_max_idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """:param service_url: ``pulsar://host[:port][,host[:port]...]``, or ``pulsar+ssl://`` for TLS, with
            hosts that are used in turn; or ``http://`` or ``https://`` URLs of brokers' web services,
            which look up brokers; or several clusters, one of which is used at a time

        :param io: the event loop, network, clock and randomness; ``magnetar.client.aio`` uses those of
            the running event loop by default
        :param operation_timeout_seconds: time-out of a request, such as opening a producer, in seconds
        :param connection_timeout_ms: time-out of connecting to a broker, in milliseconds
        :param connections_per_broker: number of connections to each broker, which producers and consumers
            share
        :param keep_alive_interval_seconds: time without data from a broker after which the client sends a
            PING, in seconds
        :param listener_name: the advertised listener whose addresses brokers return; None: the default
            listener
        :param initial_backoff_interval_ms: delay before the first retry, in milliseconds; each retry doubles
            it
        :param max_backoff_interval_ms: the maximum delay between two attempts, in milliseconds
        :param partitions_update_interval_seconds: interval of checks for new partitions of topics in use, in
            seconds; 0: no checks
        :param authentication: the credentials of this client
        :param tls_trust_certs_file_path: PEM file with the CA certificates that sign brokers' certificates;
            None: the system's CA certificates
        :param tls_certificate_file_path: PEM file with the client's certificate, if brokers require one
        :param tls_private_key_file_path: PEM file with the private key of the client's certificate
        :param tls_allow_insecure_connection: whether to skip the verification of brokers' certificates
        :param tls_validate_hostname: whether a broker's certificate must match its host name; on by default,
            unlike in other clients
        :param tls_files: PKCS12 key stores, instead of the three PEM files
        :param memory_limit_bytes: maximum total size of the messages without a receipt of all producers, in
            bytes; at the limit, sending waits or raises MemoryBufferIsFull, depending on
            ``block_if_queue_full``. 0: no limit
        :param stats_interval_seconds: interval of log lines with the statistics of each active producer and
            consumer, in seconds; 0: no log lines
        :param proxy_service_url: a proxy for all connections, ``pulsar+ssl://host:port``; requires TLS in the
            service URL. None: no proxy
        :param proxy_protocol: protocol by which the proxy learns to which broker it must connect
        :param open_telemetry: records metrics and traces for OpenTelemetry, see
            ``magnetar.client.open_telemetry``; None: no metrics and traces
        :param connection_max_idle_seconds: time after which a connection without producers, consumers and
            requests is closed, in seconds, at least 15; 0: never
        :raises InvalidUrl: the service URL is malformed
        :raises InvalidConfiguration: an option is out of range, or contradicts others
        """
        if connections_per_broker < 1:
            raise InvalidConfiguration(
                f"connections_per_broker must be above 0, not {connections_per_broker}"
            )
        if not 0 < initial_backoff_interval_ms <= max_backoff_interval_ms:
            raise InvalidConfiguration(
                "0 < initial_backoff_interval_ms <= max_backoff_interval_ms is required, but they are "
                f"{initial_backoff_interval_ms} and {max_backoff_interval_ms} ms"
            )
        if not 0 <= partitions_update_interval_seconds < float("inf"):
            raise InvalidConfiguration(
                "partitions_update_interval_seconds must be 0 or more, not "
                f"{partitions_update_interval_seconds}"
            )
        if not 0 <= stats_interval_seconds < float("inf"):
            raise InvalidConfiguration(
                f"stats_interval_seconds must be 0 or more, not {stats_interval_seconds}"
            )
        if connection_max_idle_seconds and not MIN_IDLE_SECONDS <= connection_max_idle_seconds < float("inf"):
            raise InvalidConfiguration(
                f"connection_max_idle_seconds must be 0, or {MIN_IDLE_SECONDS} or more, not "
                f"{connection_max_idle_seconds}"
            )
        self._io = io = io or self._default_io()
        clusters: ClusterFailover | None = None
        controlled: ControlledClusterFailover | None = None
        if isinstance(service_url, str):
            self._service = ClusterAddress(
                service_url, authentication, None if tls_files is not None else tls_trust_certs_file_path
            )
        else:
            service_url.check()
            if authentication is not None or tls_trust_certs_file_path is not None:
                raise InvalidConfiguration(
                    f"with {type(service_url).__name__}, set authentication and "
                    "tls_trust_certs_file_path in each ClusterAddress, not in the client"
                )
            if isinstance(service_url, ClusterFailover):
                clusters = service_url
                self._service = clusters.primary
                for each in (clusters.primary, *clusters.secondary):
                    parse_service_url(each.service_url)
            else:
                controlled = service_url
                self._service = controlled.default
        named = (tls_certificate_file_path, tls_private_key_file_path)
        self._tls = TlsOptions(
            tls_files or TlsFiles(*(name or "" for name in named)),
            allow_insecure=tls_allow_insecure_connection,
            validate_hostname=tls_validate_hostname,
            proxy=_proxy(proxy_service_url, proxy_protocol),
        )
        self._connection_timeout = connection_timeout_ms / 1000
        self._timeout, self._listener_name = operation_timeout_seconds, listener_name or ""
        access = self._access_to(self._service)
        services = access.addresses
        self._open_telemetry = open_telemetry
        observer = open_telemetry.observer if open_telemetry is not None else None
        pool = ConnectionPool(
            io,
            per_broker=connections_per_broker,
            connection_timeout=self._connection_timeout,
            keep_alive=keep_alive_interval_seconds,
            network=access.network,
            get_auth_data=access.get_auth_data,
            max_idle=connection_max_idle_seconds,
            observer=observer,
        )
        lookup = Lookup(
            pool,
            services,
            timeout=operation_timeout_seconds,
            secured=is_secured(self._service.service_url),
            listener_name=self._listener_name,
            find=access.find,
            observed=(observer, io.loop) if observer is not None else None,
            first=io.randomness.below(len(services)) if len(services) > 1 else 0,
        )
        delays = (initial_backoff_interval_ms / 1000, max_backoff_interval_ms / 1000)
        self.services = Services(
            io,
            pool,
            lookup,
            operation_timeout_seconds,
            self.create_producer,
            delays,
            partitions_update_interval_seconds,
            observer=observer,
            memory=MemoryLimit(io.loop, memory_limit_bytes) if memory_limit_bytes != 0 else None,
        )
        self._closed = False
        self._closing: KeyedTasks[str, None] = KeyedTasks(TaskScope(io.loop, "client"))
        self._is_forked = False
        io.in_children(self._forked)
        self._statistics = Looking(io.loop, "statistics", stats_interval_seconds, self._end_intervals)
        self._statistics.begin()
        self._failover: FailoverProbes | ControlledService | None = None
        if clusters is not None:
            self._failover = FailoverProbes(clusters, io.loop, self._answers, self.use_service)
        elif controlled is not None:
            from magnetar.client.controlled_failover import ControlledService

            self._failover = ControlledService(controlled, io, lambda: self._service, self.use_service)
        if self._failover is not None:
            self._failover.begin()

    def _forked(self) -> None:
        """Called in a forked child process; connections and loop belong to the parent process."""
        self._is_forked = True
        for each in self.services.attachments.values():
            each.forked(AlreadyClosed(FORKED))

    def _check_open(self) -> None:
        """Checks that the client can be used.

        :raises AlreadyClosed: the client is closed, or belongs to the parent process
        """
        if self._is_forked:
            raise AlreadyClosed(FORKED)
        if self._closed:
            raise AlreadyClosed("the client is closed")

    async def _end_intervals(self) -> None:
        for each in tuple(self.services.attachments.values()):
            each.end_interval()

    @property
    def service(self) -> ClusterAddress:
        """The cluster that the client currently uses."""
        return self._service

    def use_service(self, service: ClusterAddress) -> None:
        """Uses another cluster, or other credentials, from now on.

        All connections are closed. Producers and consumers reconnect to the new cluster, and producers send
        all messages again for which they have no receipt.

        :param service: the address of the cluster, with its credentials
        :raises InvalidUrl: the service URL is malformed
        :raises InvalidConfiguration: the credentials cannot be used with the service URL
        """
        self._check_open()
        access = self._access_to(service)
        self._service = service
        secured = is_secured(service.service_url)
        self.services.lookup.change(access.addresses, secured=secured, find=access.find)
        if self.services.coordinators is not None:
            left, self.services.coordinators = self.services.coordinators, None
            left.leave(ConnectError("the client uses another cluster now; begin a new transaction"))
        for each in self.services.attachments.values():
            each.cluster_changed()
        self.services.pool.change(access.network, access.get_auth_data)

    def _access_to(self, service: ClusterAddress) -> ServiceAccess:
        return access_to(
            self._io, service, self._tls, timeout=self._timeout, listener_name=self._listener_name
        )

    async def _answers(self, service: ClusterAddress) -> bool:
        """Returns whether a cluster answers CONNECT; refusing the credentials counts as an answer."""
        pool: ConnectionPool | None = None
        try:
            access = self._access_to(service)
            pool = ConnectionPool(
                self._io,
                per_broker=1,
                connection_timeout=self._connection_timeout,
                network=access.network,
                get_auth_data=access.get_auth_data,
            )
            return await _any_answers(pool, access.addresses)
        except InvalidConfiguration as error:
            log.warning("%s cannot be used: %s", service.service_url, error)
            return False
        finally:
            if pool is not None:
                await pool.close()

    def _default_io(self) -> ClientIo:
        raise TypeError("the argument io is missing; use magnetar.client.aio on the running event loop")

    async def _create_producer(self, topic: str, **options: Any) -> Producer | PartitionedProducer:
        name = self._name_of(topic)
        routing = {key: options.pop(key) for key in _ROUTING if key in options}
        wanted = ProducerOptions(**options)
        if self._open_telemetry is not None:
            traced = self._open_telemetry.producer_interceptor(self._io.loop)
            wanted = replace(wanted, interceptors=[*wanted.interceptors, traced])
        if wanted.interceptors:
            wanted = replace(wanted, interceptors=[producer_chain(wanted.interceptors)])
        partitions = await self.partitions(topic)
        made = (
            PartitionedProducer(self.services, name, partitions, wanted, **routing)
            if partitions
            else new_producer(self.services, name, wanted)
        )
        await made.open()
        return made

    async def _subscribe(
        self, topic: str, subscription_name: str, **options: Any
    ) -> Consumer | PartitionedConsumer | TopicsConsumer:
        name = self._name_of(topic)
        total = {key: options.pop(key) for key in _TOTALS if key in options}
        if options.get("retry_enabled"):
            return await self._subscribe_to_topics([name], subscription_name, **options)
        wanted, during = self._consumer_options(options)
        partitions = await self.partitions(topic)
        made = (
            PartitionedConsumer(self.services, name, subscription_name, partitions, wanted, **total)
            if partitions
            else new_consumer(self.services, name, subscription_name, wanted)
        )
        await made.open()
        listen(self._io.loop, made, wanted, self.services.listenings, during)
        return made

    def _consumer_options(self, options: dict[str, Any]) -> tuple[ConsumerOptions, During | None]:
        """Returns the options with all interceptors, and, if tracing is on, the context of listener calls."""
        wanted = ConsumerOptions(**options)
        during: During | None = None
        if self._open_telemetry is not None:
            traced = self._open_telemetry.consumer_interceptor()
            during = traced.processing
            wanted = replace(wanted, interceptors=[traced, *wanted.interceptors])
        if wanted.interceptors:
            wanted = replace(wanted, interceptors=[consumer_chain(wanted.interceptors)])
        return wanted, during

    async def _subscribe_to_topics(
        self, topics: Sequence[str], subscription_name: str, **options: Unpack[TopicsArguments]
    ) -> TopicsConsumer:
        names = [self._name_of(topic) for topic in topics]
        if options.get("retry_enabled"):
            policy = retry_policy(options.get("dead_letter_policy"), names[0], subscription_name)
            names.append(self._name_of(policy.retry_letter_topic or ""))
            options["dead_letter_policy"] = policy
        find, seconds = self._finding(names), self.services.partitions_seconds
        return await self._subscribed(find, subscription_name, seconds, **options)

    def _finding(self, names: Sequence[str]) -> Find:
        """Returns a function that looks up the partitions of the named topics."""
        counts: dict[str, int] = {}

        async def find(makes_topics: bool) -> set[str]:
            for name in names:
                if makes_topics or counts[name]:
                    counts[name] = await self.services.lookup.partitions(name, makes_topic=makes_topics)
            return {each for name, count in counts.items() for each in _parts(name, count)}

        return find

    async def _subscribe_to_pattern(
        self,
        pattern: str,
        subscription_name: str,
        **options: Any,
    ) -> TopicsConsumer:
        if options.get("retry_enabled"):
            raise InvalidConfiguration("retry_enabled requires topic names, not a pattern")
        checks = PatternOptions(options.pop("discovery_seconds"), options.pop("regex_subscription_mode"))
        matches = compile_pattern(pattern)
        if matches is None:
            raise InvalidConfiguration(
                f"{pattern} is not a regular expression that re2 can match in linear time; use no "
                "look-around and no back-references"
            )
        tenant, _, rest = pattern.split("://", 1)[-1].partition("/")
        namespace, slash, _ = rest.partition("/")
        if not slash:
            raise InvalidTopicName(f"{pattern} must have the form [persistent://]tenant/namespace/expression")

        async def find(_makes_topics: bool) -> set[str]:
            names, filtered = await self.services.lookup.topics(
                f"{tenant}/{namespace}", pattern, checks.regex_subscription_mode
            )
            return {name for name in names if filtered or matches(name)}

        seconds = checks.discovery_seconds
        made = await self._subscribed(find, subscription_name, seconds, pattern, **options)
        if seconds > 0:
            made.watch(f"{tenant}/{namespace}", pattern)
        return made

    async def _subscribed(
        self, find: Find, subscription: str, discovery_seconds: float, pattern: str = "", **options: Any
    ) -> TopicsConsumer:
        self._check_open()
        wanted, during = self._consumer_options(options)
        made = TopicsConsumer(self.services, find, subscription, wanted, discovery_seconds, pattern)
        await made.open()
        listen(self._io.loop, made, wanted, self.services.listenings, during)
        return made

    async def _create_reader(
        self, topic: str, start_message_id: MessageId | timedelta, **options: Unpack[ReaderArguments]
    ) -> Reader:
        name = self._name_of(topic)
        count = 0 if TopicName.parse(name).partition_index >= 0 else await self.partitions(name)
        reader = Reader(self.services, name, start_message_id, **options, partitions=count)
        await reader.open()
        return reader

    async def _create_reader_of_topics(
        self,
        topics: Sequence[str],
        start_message_id: MessageId | timedelta,
        **options: Unpack[TopicsReaderArguments],
    ) -> Reader:
        find = self._finding([self._name_of(topic) for topic in topics])
        reader = Reader(self.services, "several topics", start_message_id, **options, find=find)
        await reader.open()
        return reader

    async def _create_table_view(self, topic: str, **options: Unpack[TableViewArguments]) -> TableView:
        reader = await self._create_reader(topic, MessageId.earliest, is_read_compacted=True, **options)
        has_values = isinstance(options.get("schema"), ValueSchema)
        view = TableView(self.services, topic, reader, has_values=has_values)
        await self.services.opened(view.open(), view.close)
        return view

    async def get_topic_partitions(self, topic: str, *, create: bool = True) -> list[str]:
        """Returns the full names of a topic's partitions; for a topic without partitions, the name of the
        topic.

        :param topic: the name of the topic
        :param create: whether to create the topic if it does not exist, and if the broker permits this
        :raises TopicNotFound: the topic does not exist, and ``create`` is False
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return _parts(self._name_of(topic), await self.partitions(topic, create=create))

    async def partitions(self, topic: str, *, create: bool = True) -> int:
        """Returns the number of a topic's partitions; 0: the topic is not partitioned.

        :param create: as for :meth:`get_topic_partitions`
        """
        name = self._name_of(topic)
        return await self.services.retrying(lambda: self.services.lookup.partitions(name, makes_topic=create))

    def transaction(self, timeout: float = TRANSACTION_SECONDS) -> Transaction:
        """Returns a transaction, which begins with ``async with`` or ``begin()``.

        The end of the block commits the transaction; an exception in the block aborts it. The brokers require
        ``transactionCoordinatorEnabled=true``.

        :param timeout: time after which an open transaction is aborted, in seconds; at least 0.001
        :raises InvalidConfiguration: the time-out is out of range
        """
        # Imported late: most clients use no transactions.
        from magnetar.client.transactions import Transaction

        self._check_open()
        return Transaction(self._io.loop, self.services.transaction_coordinators(), timeout)

    async def schema(self, topic: str, version: bytes = b"") -> TopicSchema:
        """Returns the newest schema of a topic, or the schema with a given version.

        :param topic: the name of the topic
        :param version: the version of the schema, such as ``schema_version`` of a message; empty: the newest
            version
        :raises TopicNotFound: the topic has no schema
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        name = self._name_of(topic)
        found = await self.services.retrying(lambda: self.services.lookup.schema(name, version))
        return topic_schema(found)

    def _name_of(self, topic: str) -> str:
        self._check_open()
        try:
            return str(TopicName.parse(topic))
        except InvalidName as error:
            raise InvalidTopicName(str(error)) from error

    def __repr__(self) -> str:
        return f"Client({self.service.service_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all producers, consumers and readers of the client, then its connections. If the caller is
        cancelled, closing continues; a second call waits until the first has closed everything.

        :raises PulsarException: one of them could not be closed; all others are closed
        """
        if self._is_forked or (self._closed and not self._closing):
            return
        self._closed = True
        await outcome(self._io.loop, self._closing.answer("close", self._close))

    async def _close(self) -> None:
        self._statistics.end()
        if self._failover is not None:
            self._failover.end()
        try:
            for listening in tuple(self.services.listenings):
                await listening.end()
            await close_all(self.services.attachments.values())
            await self.services.closing.ended()
        finally:
            await self.services.pool.close()


def _proxy(url: str | None, protocol: ProxyProtocol) -> Address | None:
    if url is None:
        return None
    if protocol is not ProxyProtocol.SNI:
        raise InvalidConfiguration(f"proxy_protocol must be ProxyProtocol.SNI, not {protocol!r}")
    return parse_proxy_url(url)


def _parts(name: str, partitions: int) -> list[str]:
    """Returns the names of the topics to consume: the partitions; without partitions, the topic itself."""
    return [f"{name}-partition-{index}" for index in range(partitions)] or [name]


async def _any_answers(pool: ConnectionPool, addresses: Sequence[Address]) -> bool:
    for address in addresses:
        try:
            await pool.get(address, address)
        except AuthenticationError:
            return True
        except PulsarException as error:
            log.debug("%s: %s", address, error)
        else:
            return True
    return False
