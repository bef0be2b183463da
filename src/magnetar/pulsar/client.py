"""The official client's class ``Client``."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from magnetar.client import client as core
from magnetar.client import failover
from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    CryptoFailureAction,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar.client.exceptions import AlreadyClosed, InvalidUrl
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import MessageOptions
from magnetar.client.partitioned import Router
from magnetar.pulsar.authentication import PulsarAuthentication
from magnetar.pulsar.boundary import (
    Calls,
    check_type,
    check_type_or_none,
    checked,
    official,
    without_effect,
)
from magnetar.pulsar.enums import (
    KeySharing,
    SchemaKind,
)
from magnetar.pulsar.faces import AnyConsumer, Consumer, Producer, Reader
from magnetar.pulsar.listening import ListenerFeed, ListenerThreads
from magnetar.pulsar.loggers import Logging
from magnetar.pulsar.message import MessageRouter, PulsarMessage, outgoing
from magnetar.pulsar.policies import (
    AutoClusterFailover,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    PemKeyReader,
    ServiceInfo,
    ServiceInfoProvider,
    clusters_of,
    used_info,
)
from magnetar.pulsar.schema.schema import BytesSchema, Schema, SchemaDetails, SchemaSource
from magnetar.pulsar.tableview import KeyTable

MessageListener = Callable[[Consumer, PulsarMessage], object]
ReaderListener = Callable[[Reader, PulsarMessage], object]
_UNUSED_LIMITS = {
    "io_threads": "one thread does all input and output",
    "concurrent_lookup_requests": "lookups are not limited",
}
_SMALLEST_UNACKED_MS = 10_000


class _Versions(SchemaSource):
    """Looks up schema versions of topics for a client."""

    def __init__(self, calls: Calls, client: core.Client) -> None:
        self._calls = calls
        self._client = client

    def get_schema_info(self, topic: str, version: int) -> SchemaDetails:
        stored = version.to_bytes(8, "big", signed=True) if version >= 0 else b""
        found = self._calls.run(self._client.schema(topic, stored))
        kind = SchemaKind.__members__.get(found.kind, SchemaKind.NONE)
        return SchemaDetails(kind, topic, found.data.decode(errors="replace"))


def producer_options(schema: Schema, given: dict[str, object]) -> dict[str, object]:
    """Converts the official client's producer options to options of ``magnetar.client``.

    :raises ValueError: batching and chunking are both enabled
    :raises TypeError: ``message_routing_mode`` is not a PartitionsRoutingMode
    """
    check_type(PartitionsRoutingMode, given["message_routing_mode"], "message_routing_mode", TypeError)
    if given["batching_enabled"] and given["chunking_enabled"]:
        raise ValueError("Batching and chunking of messages can't be enabled together.")
    options = {**given, "schema": schema.schema_info().declared(), "hashing_scheme": HashingScheme.BoostHash}
    options["properties"] = given["properties"] or {}
    for name in ("producer_name", "initial_sequence_id", "encryption_key"):
        options[name] = given[name] or None
    router = options.pop("message_router")
    if callable(router):
        options["message_router"] = _router(router)
    return options


def _router(route: MessageRouter) -> Router:
    def choose(content: bytes, options: MessageOptions | None, count: int) -> int:
        return int(route(outgoing(content, options), count))

    return choose


def consumer_options(schema: Schema, given: dict[str, object]) -> dict[str, object]:
    """Converts the official client's consumer options to options of ``magnetar.client``.

    :raises ValueError: ``unacked_messages_timeout_ms`` is above 0 and below 10000
    """
    options = dict(given)
    unacked = check_type_or_none(
        int, options.pop("unacked_messages_timeout_ms"), "unacked_messages_timeout_ms"
    )
    if unacked and unacked < _SMALLEST_UNACKED_MS:
        raise ValueError(
            "Consumer Config Exception: Unacknowledged message timeout should be greater than 10 seconds."
        )
    cache_ms = options.pop("broker_consumer_stats_cache_time_ms")
    if cache_ms != 30000:
        without_effect("broker_consumer_stats_cache_time_ms", "the client requests no such statistics")
    options["unacked_messages_timeout_ms"] = unacked or 0
    options.update(consumer_name=given["consumer_name"] or None, properties=given["properties"] or {})
    options["schema"] = schema.schema_info().declared()
    if not given["max_pending_chunked_message"]:
        options["max_pending_chunked_message"] = sys.maxsize
    letters = options.pop("dead_letter_policy")
    if isinstance(letters, ConsumerDeadLetterPolicy):
        options["dead_letter_policy"] = letters.policy().policy
    sharing = options.pop("key_shared_policy")
    if isinstance(sharing, ConsumerKeySharedPolicy):
        options["key_shared_allow_out_of_order"] = sharing.allow_out_of_order_delivery
        if sharing.key_shared_mode == KeySharing.Sticky:
            options["key_shared_ranges"] = sharing.sticky_ranges
    return options


class Subscribing:
    """Subscribes to one topic, a list of topics or a pattern."""

    def __init__(self, client: core.Client, subscription_name: str, options: dict[str, object]) -> None:
        self._client = client
        self._name = subscription_name
        self._options = options

    async def to_topic(self, topic: str) -> AnyConsumer:
        return await checked(self._client.subscribe)(topic, self._name, **self._options)

    async def to_topics(self, topics: Sequence[str]) -> AnyConsumer:
        options = self._shared_queue(len(topics))
        return await checked(self._client.subscribe_to_topics)(topics, self._name, **options)

    async def to_pattern(self, pattern: str, mode: RegexSubscriptionMode, seconds: float) -> AnyConsumer:
        return await checked(self._client.subscribe_to_pattern)(
            pattern,
            self._name,
            discovery_seconds=seconds,
            regex_subscription_mode=mode,
            **self._shared_queue(1),
        )

    def _shared_queue(self, topics: int) -> dict[str, object]:
        """Returns the options, with a receiver queue so small that the queues of all topics stay within the
        common limit."""
        options = dict(self._options)
        total, size = (
            options.pop("max_total_receiver_queue_size_across_partitions"),
            options["receiver_queue_size"],
        )
        if isinstance(total, int) and isinstance(size, int) and size:
            options["receiver_queue_size"] = max(min(size, total // max(topics, 1)), 1)
        return options


async def _made(make: Callable[[], core.Client]) -> core.Client:
    return make()


class Client:
    """Producers, consumers and readers of one cluster."""

    def __init__(
        self,
        service_url: str | AutoClusterFailover | ServiceInfoProvider,
        authentication: PulsarAuthentication | None = None,
        operation_timeout_seconds: int = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: object = None,
        connection_timeout_ms: int = 10000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
    ) -> None:
        """:param service_url: ``pulsar://host[:port][,host[:port]...]``; with TLS ``pulsar+ssl://``; or
            several clusters

        :param stats_interval_in_seconds: interval of log lines with the statistics of each active producer
            and consumer, in seconds; 0: no log lines
        :param log_conf_file_path: no effect, as in the official client
        :param use_tls: no effect, as in the official client: the service URL decides
        :param tls_trust_certs_file_path: PEM file with the trusted CA certificates; None: the system's CAs
        :param tls_validate_hostname: whether a broker's certificate must match the broker's host name
        :param logger: a ``logging.Logger``, ConsoleLogger or FileLogger; None: the loggers below
            ``magnetar.client``, as the program configures them
        :raises ValueError: an argument has the wrong type, or the URL is malformed
        """
        self._provider = service_url if isinstance(service_url, ServiceInfoProvider) else None
        clusters, credentials, trusted = clusters_of(service_url, authentication, tls_trust_certs_file_path)
        check_type_or_none(PulsarAuthentication, authentication, "authentication")
        check_type(int, operation_timeout_seconds, "operation_timeout_seconds")
        check_type(int, stats_interval_in_seconds, "stats_interval_in_seconds")
        check_type(int, connection_timeout_ms, "connection_timeout_ms")
        check_type(int, message_listener_threads, "message_listener_threads")
        check_type_or_none(str, log_conf_file_path, "log_conf_file_path")
        check_type(bool, use_tls, "use_tls")
        check_type_or_none(str, tls_trust_certs_file_path, "tls_trust_certs_file_path")
        check_type(bool, tls_allow_insecure_connection, "tls_allow_insecure_connection")
        check_type(bool, tls_validate_hostname, "tls_validate_hostname")
        check_type_or_none(str, listener_name, "listener_name")
        check_type_or_none(str, tls_private_key_file_path, "tls_private_key_file_path")
        check_type_or_none(str, tls_certificate_file_path, "tls_certificate_file_path")
        self._logging = Logging(logger)
        for name, value, default in (
            ("io_threads", io_threads, 1),
            ("concurrent_lookup_requests", concurrent_lookup_requests, 50000),
        ):
            if check_type(int, value, name) not in (default, 0):
                without_effect(name, _UNUSED_LIMITS[name])
        self.calls = Calls()
        make = partial(
            core.Client,
            clusters,
            io=self.calls.thread.io,
            operation_timeout_seconds=operation_timeout_seconds,
            connection_timeout_ms=connection_timeout_ms,
            stats_interval_seconds=stats_interval_in_seconds,
            connection_max_idle_seconds=0,
            listener_name=listener_name,
            authentication=credentials,
            tls_trust_certs_file_path=trusted,
            tls_certificate_file_path=tls_certificate_file_path,
            tls_private_key_file_path=tls_private_key_file_path,
            tls_allow_insecure_connection=tls_allow_insecure_connection,
            tls_validate_hostname=tls_validate_hostname,
        )
        try:
            self.core = self.calls.run(_made(make))
        except InvalidUrl as error:
            self._end()
            raise ValueError(str(error.__cause__ or error)) from error
        except BaseException:
            self._end()
            raise
        self.versions = _Versions(self.calls, self.core)
        self._threads = ListenerThreads(message_listener_threads)
        self._consumers: list[object] = []
        if self._provider is not None:
            try:
                self._provider.initialize(self._use)
            except BaseException:
                self.close()
                raise

    def _use(self, info: ServiceInfo) -> None:
        self.calls.run(self._change(used_info(info)))

    async def _change(self, service: failover.ClusterAddress) -> None:
        self.core.use_service(service)

    @classmethod
    def of_options(cls, service_url: str, options: Mapping[str, object]) -> Client:
        """Returns a client with ``options``, a mapping of option names to values.

        :raises TypeError: an option is unknown
        """
        make: Callable[..., Client] = cls
        return make(service_url, **options)

    def _end(self) -> None:
        if self._provider is not None:
            self._provider.close()
        self.calls.close()
        self._logging.end()

    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema = BytesSchema(),  # noqa: B008 - schemas do not change
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: PemKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: MessageRouter | None = None,
    ) -> Producer:
        """Creates a producer. Keys are assigned to the same partitions as in the official client.

        :raises ValueError: an argument has the wrong type
        :raises PulsarException: the broker refused the request, or did not answer in time
        """
        check_type(Schema, schema, "schema")
        options = producer_options(
            schema,
            {
                "producer_name": check_type_or_none(str, producer_name, "producer_name"),
                "initial_sequence_id": check_type_or_none(int, initial_sequence_id, "initial_sequence_id"),
                "send_timeout_millis": check_type(int, send_timeout_millis, "send_timeout_millis"),
                "compression_type": check_type(CompressionType, compression_type, "compression_type"),
                "max_pending_messages": check_type(int, max_pending_messages, "max_pending_messages"),
                "max_pending_messages_across_partitions": check_type(
                    int, max_pending_messages_across_partitions, "max_pending_messages_across_partitions"
                ),
                "block_if_queue_full": check_type(bool, block_if_queue_full, "block_if_queue_full"),
                "batching_enabled": check_type(bool, batching_enabled, "batching_enabled"),
                "batching_max_messages": check_type(int, batching_max_messages, "batching_max_messages"),
                "batching_max_allowed_size_in_bytes": check_type(
                    int, batching_max_allowed_size_in_bytes, "batching_max_allowed_size_in_bytes"
                ),
                "batching_max_publish_delay_ms": check_type(
                    int, batching_max_publish_delay_ms, "batching_max_publish_delay_ms"
                ),
                "chunking_enabled": check_type(bool, chunking_enabled, "chunking_enabled"),
                "message_routing_mode": message_routing_mode,
                "lazy_start_partitioned_producers": check_type(
                    bool, lazy_start_partitioned_producers, "lazy_start_partitioned_producers"
                ),
                "properties": check_type_or_none(dict, properties, "properties"),
                "batching_type": check_type(BatchingType, batching_type, "batching_type"),
                "encryption_key": check_type_or_none(str, encryption_key, "encryption_key"),
                "crypto_key_reader": check_type_or_none(PemKeyReader, crypto_key_reader, "crypto_key_reader"),
                "access_mode": check_type(ProducerAccessMode, access_mode, "access_mode"),
                "message_router": message_router,
            },
        )
        waits = block_if_queue_full and max_pending_messages > 0
        pending = min(max_pending_messages, max_pending_messages_across_partitions)
        slots = self.calls.thread.new_slots(pending) if waits else None
        made = self.calls.run(checked(self.core.create_producer)(check_type(str, topic, "topic"), **options))
        return Producer(self.calls, made, schema, slots)

    def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema = BytesSchema(),  # noqa: B008 - schemas do not change
        message_listener: MessageListener | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: PemKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
    ) -> Consumer:
        """Subscribes to a topic, a list of topics, or all topics that match a compiled expression.

        :param message_listener: called with the consumer and each message, in a thread of the client
        :param unacked_messages_timeout_ms: acknowledgement time-out, at least 10000; None or 0: no time-out
        :param pattern_auto_discovery_period: interval of checks for topics that match, in seconds
        :raises ValueError: an argument has the wrong type
        :raises PulsarException: the broker refused the request, or did not answer in time
        """
        check_type(str, subscription_name, "subscription_name")
        check_type(Schema, schema, "schema")
        check_type_or_none(ConsumerBatchReceivePolicy, batch_receive_policy, "batch_receive_policy")
        check_type(RegexSubscriptionMode, regex_subscription_mode, "regex_subscription_mode")
        check_type(int, pattern_auto_discovery_period, "pattern_auto_discovery_period")
        check_type(int, broker_consumer_stats_cache_time_ms, "broker_consumer_stats_cache_time_ms")
        total = check_type(
            int,
            max_total_receiver_queue_size_across_partitions,
            "max_total_receiver_queue_size_across_partitions",
        )
        options = consumer_options(
            schema,
            {
                "consumer_type": check_type(ConsumerType, consumer_type, "consumer_type"),
                "receiver_queue_size": check_type(int, receiver_queue_size, "receiver_queue_size"),
                "max_total_receiver_queue_size_across_partitions": total,
                "consumer_name": check_type_or_none(str, consumer_name, "consumer_name"),
                "unacked_messages_timeout_ms": unacked_messages_timeout_ms,
                "broker_consumer_stats_cache_time_ms": broker_consumer_stats_cache_time_ms,
                "negative_ack_redelivery_delay_ms": check_type(
                    int, negative_ack_redelivery_delay_ms, "negative_ack_redelivery_delay_ms"
                ),
                "is_read_compacted": check_type(bool, is_read_compacted, "is_read_compacted"),
                "properties": check_type_or_none(dict, properties, "properties"),
                "initial_position": check_type(InitialPosition, initial_position, "initial_position"),
                "crypto_key_reader": check_type_or_none(PemKeyReader, crypto_key_reader, "crypto_key_reader"),
                "replicate_subscription_state_enabled": replicate_subscription_state_enabled,
                "max_pending_chunked_message": check_type(
                    int, max_pending_chunked_message, "max_pending_chunked_message"
                ),
                "auto_ack_oldest_chunked_message_on_queue_full": check_type(
                    bool,
                    auto_ack_oldest_chunked_message_on_queue_full,
                    "auto_ack_oldest_chunked_message_on_queue_full",
                ),
                "start_message_id_inclusive": check_type(
                    bool, start_message_id_inclusive, "start_message_id_inclusive"
                ),
                "batch_index_ack_enabled": check_type(
                    bool, batch_index_ack_enabled, "batch_index_ack_enabled"
                ),
                "crypto_failure_action": check_type(
                    CryptoFailureAction, crypto_failure_action, "crypto_failure_action"
                ),
                "dead_letter_policy": check_type_or_none(
                    ConsumerDeadLetterPolicy, dead_letter_policy, "dead_letter_policy"
                ),
                "key_shared_policy": check_type_or_none(
                    ConsumerKeySharedPolicy, key_shared_policy, "key_shared_policy"
                ),
            },
        )
        work = Subscribing(self.core, subscription_name, options)
        if isinstance(topic, str):
            subscribed = work.to_topic(topic)
        elif isinstance(topic, list):
            subscribed = work.to_topics(topic)
        elif isinstance(topic, re.Pattern):
            period = pattern_auto_discovery_period
            subscribed = work.to_pattern(topic.pattern, regex_subscription_mode, period)
        else:
            raise ValueError("Argument 'topic' is expected to be of a type between (str, list, re.pattern)")
        made = self.calls.run(subscribed)
        limits = batch_receive_policy.policy() if batch_receive_policy is not None else None
        consumer = Consumer(self.calls, made, schema, consumer_type, limits, self._forget)
        schema.attach_client(self.versions)
        self._consumers.append(consumer)
        if message_listener is not None:
            feed = self._feed(
                made,
                lambda message: message_listener(consumer, PulsarMessage._wrap(message, schema)),
                receiver_queue_size,
            )
            consumer._listening = self.calls.run(feed)
            self.calls.thread.post(consumer._listening.begin)
        return consumer

    async def _feed(
        self, consumer: AnyConsumer, listener: Callable[[Message], object], queue_size: int
    ) -> ListenerFeed:
        """Returns a feed for ``listener``; ``begin()`` must be called once the program has the consumer."""
        return ListenerFeed(
            self.calls.thread.loop, consumer, self._threads.next(), listener, one_at_a_time=queue_size == 0
        )

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema = BytesSchema(),  # noqa: B008 - schemas do not change
        reader_listener: ReaderListener | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: PemKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
    ) -> Reader:
        """Creates a reader.

        :param reader_listener: called with the reader and each message, in a thread of the client
        :raises ValueError: an argument has the wrong type
        :raises PulsarException: the broker refused the request, or did not answer in time
        """
        check_type(Schema, schema, "schema")
        options: dict[str, object] = {
            "receiver_queue_size": check_type(int, receiver_queue_size, "receiver_queue_size"),
            "reader_name": check_type_or_none(str, reader_name, "reader_name"),
            "subscription_role_prefix": check_type_or_none(
                str, subscription_role_prefix, "subscription_role_prefix"
            ),
            "is_read_compacted": check_type(bool, is_read_compacted, "is_read_compacted"),
            "crypto_key_reader": check_type_or_none(PemKeyReader, crypto_key_reader, "crypto_key_reader"),
            "start_message_id_inclusive": check_type(
                bool, start_message_id_inclusive, "start_message_id_inclusive"
            ),
            "crypto_failure_action": check_type(
                CryptoFailureAction, crypto_failure_action, "crypto_failure_action"
            ),
            "schema": schema.schema_info().declared(),
        }
        start = check_type(MessageId, start_message_id, "start_message_id")
        made = self.calls.run(
            checked(self.core.create_reader)(check_type(str, topic, "topic"), start, **options)
        )
        reader = Reader(self.calls, made, schema, self._forget)
        schema.attach_client(self.versions)
        self._consumers.append(reader)
        if reader_listener is not None:
            feed = self._feed(
                made.consumer,
                lambda message: reader_listener(reader, PulsarMessage._wrap(message, schema)),
                receiver_queue_size,
            )
            reader._listening = self.calls.run(feed)
            self.calls.thread.post(reader._listening.begin)
        return reader

    def create_table_view(
        self,
        topic: str,
        subscription_name: str | None = None,
        schema: Schema = BytesSchema(),  # noqa: B008 - schemas do not change
    ) -> KeyTable:
        """Creates a table view: the latest value of each key of a topic.

        :raises ValueError: an argument has the wrong type
        :raises PulsarException: the broker refused the request, or did not answer in time
        """
        check_type(str, topic, "topic")
        check_type_or_none(str, subscription_name, "subscription_name")
        declared = check_type(Schema, schema, "schema").schema_info().declared()
        view = self.calls.run(
            self.core.create_table_view(topic, subscription_name=subscription_name, schema=declared)
        )
        return KeyTable(self.calls, view, self._threads.next(), topic, subscription_name, schema)

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Returns the full names of a topic's partitions; without partitions, the name of the topic."""
        return self.calls.run(self.core.get_topic_partitions(check_type(str, topic, "topic")))

    def get_service_info(self) -> ServiceInfo:
        return ServiceInfo.of(self.core.service)

    def _forget(self, consumer: object) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def shutdown(self) -> None:
        """Drops producers, consumers and readers at once, without closing them at the broker. Idempotent."""
        if self.calls.closed:
            return
        try:
            self.calls.run(self._drop())
        finally:
            self._threads.end()
            self._end()

    async def _drop(self) -> None:
        await self.core.services.pool.close()
        # Producers and consumers learn in the next turn of the loop that there is no connection.
        await asyncio.sleep(0)
        await self.core.close()

    def close(self) -> None:
        """Closes all producers, consumers and readers of the client.

        :raises AlreadyClosed: the client is already closed
        """
        if self.calls.closed:
            raise official(AlreadyClosed("the client is closed"))
        try:
            self.calls.run(self.core.close())
        finally:
            self._threads.end()
            self._end()
