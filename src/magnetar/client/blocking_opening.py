"""Opening producers, consumers and readers: the blocking interface, with all options.

``python tools/generate_client.py`` writes this module from the declarations of the options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    CryptoFailureAction,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProxyProtocol,
    RegexSubscriptionMode,
)

if TYPE_CHECKING:
    from magnetar.client.blocking import Consumer, Producer, Reader, TableView
    from magnetar.client.controlled_failover import ControlledClusterFailover
    from magnetar.client.dead_letters import DeadLetterPolicy
    from magnetar.client.encryption.key_readers import KeyReader
    from magnetar.client.failover import ClusterFailover
    from magnetar.client.interceptors import (
        ConsumerEventListener,
        ConsumerInterceptor,
        ProducerInterceptor,
        ReaderInterceptor,
    )
    from magnetar.client.listening import MessageListener
    from magnetar.client.message_id import MessageId
    from magnetar.client.open_telemetry import OpenTelemetry
    from magnetar.client.opening import (
        ClientArguments,
        ConsumerArguments,
        PatternArguments,
        ProducerArguments,
        ReaderArguments,
        TableViewArguments,
        TopicsArguments,
        TopicsReaderArguments,
    )
    from magnetar.client.partitioned import Router
    from magnetar.client.schema import ProducerSchema, ValueSchema
    from magnetar.client.timing import RedeliveryBackoff
    from magnetar.client.unpacking import Unpacking
    from magnetar.io.tls import TlsFiles
    from magnetar.security.client_authentication.authentication import Authentication


class BlockingOpening(ABC):
    """The methods of the blocking client that take options."""

    def __init__(
        self,
        service_url: str | ClusterFailover | ControlledClusterFailover,
        *,
        operation_timeout_seconds: float = 30,
        connection_timeout_ms: float = 10000,
        connections_per_broker: int = 1,
        keep_alive_interval_seconds: float = 30.0,
        listener_name: str | None = None,
        initial_backoff_interval_ms: float = 100.0,
        max_backoff_interval_ms: float = 60000.0,
        partitions_update_interval_seconds: float = 60.0,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = True,
        tls_files: TlsFiles | None = None,
        memory_limit_bytes: int = 0,
        stats_interval_seconds: float = 60.0,
        proxy_service_url: str | None = None,
        proxy_protocol: ProxyProtocol = ProxyProtocol.SNI,
        open_telemetry: OpenTelemetry | None = None,
        connection_max_idle_seconds: float = 60.0,
    ) -> None:
        """Starts the client's loop.

        :param service_url: ``pulsar://host[:port][,host[:port]...]``, or ``pulsar+ssl://`` for TLS, with
            hosts that are used in turn; or ``http://`` or ``https://`` URLs of brokers' web services, which
            look up brokers; or several clusters, one of which is used at a time
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
        self._start(
            service_url,
            operation_timeout_seconds=operation_timeout_seconds,
            connection_timeout_ms=connection_timeout_ms,
            connections_per_broker=connections_per_broker,
            keep_alive_interval_seconds=keep_alive_interval_seconds,
            listener_name=listener_name,
            initial_backoff_interval_ms=initial_backoff_interval_ms,
            max_backoff_interval_ms=max_backoff_interval_ms,
            partitions_update_interval_seconds=partitions_update_interval_seconds,
            authentication=authentication,
            tls_trust_certs_file_path=tls_trust_certs_file_path,
            tls_certificate_file_path=tls_certificate_file_path,
            tls_private_key_file_path=tls_private_key_file_path,
            tls_allow_insecure_connection=tls_allow_insecure_connection,
            tls_validate_hostname=tls_validate_hostname,
            tls_files=tls_files,
            memory_limit_bytes=memory_limit_bytes,
            stats_interval_seconds=stats_interval_seconds,
            proxy_service_url=proxy_service_url,
            proxy_protocol=proxy_protocol,
            open_telemetry=open_telemetry,
            connection_max_idle_seconds=connection_max_idle_seconds,
        )

    @abstractmethod
    def _start(
        self,
        service_url: str | ClusterFailover | ControlledClusterFailover,
        **options: Unpack[ClientArguments],
    ) -> None: ...

    def create_producer(
        self,
        topic: str,
        *,
        producer_name: str | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: float = 10,
        properties: Mapping[str, str] | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        schema: ProducerSchema | ValueSchema | None = None,
        chunking_enabled: bool = False,
        encryption_key: str | None = None,
        crypto_key_reader: KeyReader | None = None,
        batching_type: BatchingType | None = None,
        initial_subscription_name: str | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        message_router: Router | None = None,
        max_pending_messages_across_partitions: int = 50000,
        hashing_scheme: HashingScheme = HashingScheme.JavaStringHash,
        lazy_start_partitioned_producers: bool = False,
    ) -> Producer:
        """Creates a producer. Batching is off by default, as in the official client.

        :param topic: the name of a topic; a short name is in the namespace ``public/default``
        :param producer_name: a name that is unique among the producers of the topic. None: the broker chooses
            a name
        :param initial_sequence_id: the first message gets this number plus 1 as its sequence id. None: the
            sequence ids continue after the last one that the broker has stored for this producer name;
            without one, they begin at 0
        :param send_timeout_millis: maximum time to wait for a receipt before a message fails, in
            milliseconds; 0: no limit
        :param compression_type: the compression of payloads; a batch is compressed as a whole
        :param max_pending_messages: maximum number of messages without a receipt, per partition
        :param block_if_queue_full: whether sending waits when the limit of pending messages or the client's
            memory limit is reached; otherwise it raises ProducerQueueIsFull or MemoryBufferIsFull
        :param batching_enabled: whether messages are sent in batches
        :param batching_max_messages: maximum number of messages in a batch
        :param batching_max_allowed_size_in_bytes: the uncompressed size at which a batch is sent, in bytes
        :param batching_max_publish_delay_ms: maximum time that a batch waits for more messages, in
            milliseconds
        :param properties: properties of the producer, which the topic's statistics show
        :param access_mode: whether other producers may publish to the topic at the same time
        :param schema: a schema of ``magnetar.client.schemas``, which encodes values; or a
            :class:`ProducerSchema`, which is only declared to the broker, while payloads are sent unchanged.
            None: no schema
        :param chunking_enabled: whether messages that are larger than the maximum size of an entry are sent
            in chunks; cannot be combined with batching
        :param encryption_key: the name of the public key for end-to-end encryption; None: no encryption
        :param crypto_key_reader: the object that returns the public key for encryption
        :param batching_type: the rule by which messages are put into batches. None: each batch contains
            messages of one key only. If the program sets sequence ids (``initial_sequence_id``, or
            ``sequence_id`` of a message), the producer sends its batch whenever the key changes, which keeps
            the order; otherwise it fills a batch for each key, so that messages of different keys can be
            reordered
        :param initial_subscription_name: a subscription that the broker creates together with the topic, so
            that no message is lost; used for dead letter topics. None: no subscription
        :param interceptors: interceptors, called for each message before it is sent, and with its outcome
        :param message_routing_mode: how the partition of a message without a key is chosen
        :param message_router: function that chooses the partition of each message, if
            ``message_routing_mode`` is CustomPartition
        :param max_pending_messages_across_partitions: maximum number of messages without a receipt on all
            partitions together, divided evenly among them
        :param hashing_scheme: the hash function that assigns keys to partitions; all producers of a topic
            must use the same function
        :param lazy_start_partitioned_producers: whether the producers of partitions are only opened when they
            get their first message; one of them is always opened at once
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._create_producer(
            topic,
            producer_name=producer_name,
            initial_sequence_id=initial_sequence_id,
            send_timeout_millis=send_timeout_millis,
            compression_type=compression_type,
            max_pending_messages=max_pending_messages,
            block_if_queue_full=block_if_queue_full,
            batching_enabled=batching_enabled,
            batching_max_messages=batching_max_messages,
            batching_max_allowed_size_in_bytes=batching_max_allowed_size_in_bytes,
            batching_max_publish_delay_ms=batching_max_publish_delay_ms,
            properties={} if properties is None else properties,
            access_mode=access_mode,
            schema=schema,
            chunking_enabled=chunking_enabled,
            encryption_key=encryption_key,
            crypto_key_reader=crypto_key_reader,
            batching_type=batching_type,
            initial_subscription_name=initial_subscription_name,
            interceptors=interceptors,
            message_routing_mode=message_routing_mode,
            message_router=message_router,
            max_pending_messages_across_partitions=max_pending_messages_across_partitions,
            hashing_scheme=hashing_scheme,
            lazy_start_partitioned_producers=lazy_start_partitioned_producers,
        )

    @abstractmethod
    def _create_producer(self, topic: str, **options: Unpack[ProducerArguments]) -> Producer: ...

    def subscribe(
        self,
        topic: str,
        subscription_name: str,
        *,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        receiver_queue_size: int = 1000,
        consumer_name: str | None = None,
        negative_ack_redelivery_delay_ms: int = 60000,
        properties: Mapping[str, str] | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        start_message_id: MessageId | timedelta | None = None,
        start_message_id_inclusive: bool = False,
        batch_index_ack_enabled: bool = False,
        is_read_compacted: bool = False,
        replicate_subscription_state_enabled: bool = False,
        key_shared_ranges: Sequence[tuple[int, int]] = (),
        durable: bool = True,
        subscription_properties: Mapping[str, str] | None = None,
        priority_level: int = 0,
        ack_group_time_ms: float = 100,
        ack_group_size: int = 1000,
        ack_receipt_enabled: bool = False,
        unacked_messages_timeout_ms: float = 0,
        dead_letter_policy: DeadLetterPolicy | None = None,
        check_dead_letter_topic: Callable[[str], Awaitable[None]] | None = None,
        unpacking: Unpacking | None = None,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        crypto_key_reader: KeyReader | None = None,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: float = 60000,
        schema: ProducerSchema | ValueSchema | None = None,
        key_shared_allow_out_of_order: bool = False,
        retry_enabled: bool = False,
        auto_scaled_receiver_queue: bool = False,
        interceptors: Sequence[ConsumerInterceptor] = (),
        consumer_event_listener: ConsumerEventListener | None = None,
        message_listener: MessageListener | None = None,
        listener_concurrency: int = 1,
        negative_ack_redelivery_backoff: RedeliveryBackoff | None = None,
        ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None,
        max_total_receiver_queue_size_across_partitions: int = 50000,
    ) -> Consumer:
        """Creates a consumer of a topic.

        :param topic: the name of a topic; a short name is in the namespace ``public/default``
        :param subscription_name: the name of the subscription
        :param consumer_type: how the consumers of the subscription divide its messages
        :param receiver_queue_size: number of messages requested ahead; 0: messages are requested one at a
            time
        :param consumer_name: the name that the topic's statistics show; None: a random name
        :param negative_ack_redelivery_delay_ms: the delay before a negatively acknowledged message is
            redelivered, in milliseconds
        :param properties: properties of the consumer, which the topic's statistics show
        :param initial_position: start position of a new subscription
        :param start_message_id: start position of a non-durable subscription: a message id, or the maximum
            age of the first message (a timedelta in whole seconds)
        :param start_message_id_inclusive: whether the message whose id is the start position, or the target
            of a seek, is itself delivered
        :param batch_index_ack_enabled: whether each message of a batch is acknowledged at the broker;
            otherwise the batch is acknowledged as a whole, once the program has acknowledged all its messages
        :param is_read_compacted: whether to read the compacted topic: of the messages before the last
            compaction, the consumer gets only the newest of each key
        :param replicate_subscription_state_enabled: whether the position of the subscription is replicated to
            other clusters (replicated subscription)
        :param key_shared_ranges: hash ranges (first and last, 0 to 65535). A KeyShared consumer gets the
            messages whose keys have hashes in these ranges (sticky ranges); if there are none, the broker
            assigns ranges. A consumer of a non-durable Exclusive subscription gets only the messages in these
            ranges; if there are none, all messages
        :param durable: whether the subscription remains when it has no consumer
        :param subscription_properties: properties of the subscription, set when it is created
        :param priority_level: priority of the consumer, 0 or more: the broker delivers first to consumers
            with the lowest number
        :param ack_group_time_ms: time during which acknowledgements are collected before they are sent, in
            milliseconds; 0: no collecting
        :param ack_group_size: number of collected acknowledgements that are sent without waiting for
            ``ack_group_time_ms``
        :param ack_receipt_enabled: whether acknowledging waits for the broker's answer
        :param unacked_messages_timeout_ms: acknowledgement time-out: time after which redelivery of an
            unacknowledged message is requested, in milliseconds; 0: never
        :param dead_letter_policy: rules for dead letters; they apply to Shared and KeyShared subscriptions,
            and to any subscription with ``retry_enabled``
        :param check_dead_letter_topic: called and awaited with the name of the dead letter topic, before its
            producer is opened; it raises PulsarException if the consumer must not publish to this topic.
            None: only the broker checks
        :param unpacking: decompresses large payloads in threads; None: all payloads are decompressed on the
            event loop
        :param crypto_failure_action: what the consumer does with messages that cannot be decrypted
        :param crypto_key_reader: the object that returns the private keys for decryption; None: no decryption
        :param max_pending_chunked_message: maximum number of incomplete chunked messages; when there are
            more, the oldest is discarded
        :param auto_ack_oldest_chunked_message_on_queue_full: whether the chunks of a message that is
            discarded because of ``max_pending_chunked_message`` are acknowledged
        :param expire_time_of_incomplete_chunked_message_ms: maximum time from the first to the last chunk of
            a message, in milliseconds; after this time, an incomplete message is discarded and acknowledged.
            0: no limit
        :param schema: a schema that the broker compares with the topic's schema: if they are incompatible,
            the consumer is refused. With a schema of ``magnetar.client.schemas``, ``value()`` of a message
            returns the decoded value. None: no schema
        :param key_shared_allow_out_of_order: whether a KeyShared subscription can deliver messages of a key
            out of order when its consumers change
        :param retry_enabled: whether the consumer also consumes its retry topic, to which ``reconsume_later``
            publishes
        :param auto_scaled_receiver_queue: whether the size of the receiver queue adapts: it starts at one
            message, doubles when a full queue was emptied by the program, up to ``receiver_queue_size``, and
            is halved when the client's memory limit is nearly reached
        :param interceptors: interceptors, called for each message before the program receives it, and when it
            is acknowledged
        :param consumer_event_listener: a listener that is called when the broker makes the consumer of a
            Failover subscription active or inactive, and when the consumer has reached the end of a
            terminated topic
        :param message_listener: a function that the client calls with the consumer and each message, in order
            and one call at a time; the program then does not call ``receive``. In the asyncio interface, it
            may be a coroutine function; the blocking interface calls it in a thread. An exception is logged,
            and the message is negatively acknowledged. Closing waits for the call in progress
        :param listener_concurrency: maximum number of concurrent calls of the listener; if it is above 1,
            only messages with the same key are processed in order
        :param negative_ack_redelivery_backoff: computes the delay before a negatively acknowledged message is
            redelivered, which grows with each redelivery; None: the delay is always
            ``negative_ack_redelivery_delay_ms``
        :param ack_timeout_redelivery_backoff: computes a delay in milliseconds that is added to
            ``unacked_messages_timeout_ms`` and grows with each redelivery; None: no added delay
        :param max_total_receiver_queue_size_across_partitions: maximum number of messages requested ahead on
            all partitions together
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._subscribe(
            topic,
            subscription_name,
            consumer_type=consumer_type,
            receiver_queue_size=receiver_queue_size,
            consumer_name=consumer_name,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            properties={} if properties is None else properties,
            initial_position=initial_position,
            start_message_id=start_message_id,
            start_message_id_inclusive=start_message_id_inclusive,
            batch_index_ack_enabled=batch_index_ack_enabled,
            is_read_compacted=is_read_compacted,
            replicate_subscription_state_enabled=replicate_subscription_state_enabled,
            key_shared_ranges=key_shared_ranges,
            durable=durable,
            subscription_properties={} if subscription_properties is None else subscription_properties,
            priority_level=priority_level,
            ack_group_time_ms=ack_group_time_ms,
            ack_group_size=ack_group_size,
            ack_receipt_enabled=ack_receipt_enabled,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            dead_letter_policy=dead_letter_policy,
            check_dead_letter_topic=check_dead_letter_topic,
            unpacking=unpacking,
            crypto_failure_action=crypto_failure_action,
            crypto_key_reader=crypto_key_reader,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            schema=schema,
            key_shared_allow_out_of_order=key_shared_allow_out_of_order,
            retry_enabled=retry_enabled,
            auto_scaled_receiver_queue=auto_scaled_receiver_queue,
            interceptors=interceptors,
            consumer_event_listener=consumer_event_listener,
            message_listener=message_listener,
            listener_concurrency=listener_concurrency,
            negative_ack_redelivery_backoff=negative_ack_redelivery_backoff,
            ack_timeout_redelivery_backoff=ack_timeout_redelivery_backoff,
            max_total_receiver_queue_size_across_partitions=max_total_receiver_queue_size_across_partitions,
        )

    @abstractmethod
    def _subscribe(
        self, topic: str, subscription_name: str, **options: Unpack[ConsumerArguments]
    ) -> Consumer: ...

    def subscribe_to_topics(
        self,
        topics: Sequence[str],
        subscription_name: str,
        *,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        receiver_queue_size: int = 1000,
        consumer_name: str | None = None,
        negative_ack_redelivery_delay_ms: int = 60000,
        properties: Mapping[str, str] | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        start_message_id: MessageId | timedelta | None = None,
        start_message_id_inclusive: bool = False,
        batch_index_ack_enabled: bool = False,
        is_read_compacted: bool = False,
        replicate_subscription_state_enabled: bool = False,
        key_shared_ranges: Sequence[tuple[int, int]] = (),
        durable: bool = True,
        subscription_properties: Mapping[str, str] | None = None,
        priority_level: int = 0,
        ack_group_time_ms: float = 100,
        ack_group_size: int = 1000,
        ack_receipt_enabled: bool = False,
        unacked_messages_timeout_ms: float = 0,
        dead_letter_policy: DeadLetterPolicy | None = None,
        check_dead_letter_topic: Callable[[str], Awaitable[None]] | None = None,
        unpacking: Unpacking | None = None,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        crypto_key_reader: KeyReader | None = None,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: float = 60000,
        schema: ProducerSchema | ValueSchema | None = None,
        key_shared_allow_out_of_order: bool = False,
        retry_enabled: bool = False,
        auto_scaled_receiver_queue: bool = False,
        interceptors: Sequence[ConsumerInterceptor] = (),
        consumer_event_listener: ConsumerEventListener | None = None,
        message_listener: MessageListener | None = None,
        listener_concurrency: int = 1,
        negative_ack_redelivery_backoff: RedeliveryBackoff | None = None,
        ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None,
    ) -> Consumer:
        """Creates a consumer of several topics.

        :param topics: the names of the topics
        :param subscription_name: the name of the subscription
        :param consumer_type: how the consumers of the subscription divide its messages
        :param receiver_queue_size: number of messages requested ahead; 0: messages are requested one at a
            time
        :param consumer_name: the name that the topic's statistics show; None: a random name
        :param negative_ack_redelivery_delay_ms: the delay before a negatively acknowledged message is
            redelivered, in milliseconds
        :param properties: properties of the consumer, which the topic's statistics show
        :param initial_position: start position of a new subscription
        :param start_message_id: start position of a non-durable subscription: a message id, or the maximum
            age of the first message (a timedelta in whole seconds)
        :param start_message_id_inclusive: whether the message whose id is the start position, or the target
            of a seek, is itself delivered
        :param batch_index_ack_enabled: whether each message of a batch is acknowledged at the broker;
            otherwise the batch is acknowledged as a whole, once the program has acknowledged all its messages
        :param is_read_compacted: whether to read the compacted topic: of the messages before the last
            compaction, the consumer gets only the newest of each key
        :param replicate_subscription_state_enabled: whether the position of the subscription is replicated to
            other clusters (replicated subscription)
        :param key_shared_ranges: hash ranges (first and last, 0 to 65535). A KeyShared consumer gets the
            messages whose keys have hashes in these ranges (sticky ranges); if there are none, the broker
            assigns ranges. A consumer of a non-durable Exclusive subscription gets only the messages in these
            ranges; if there are none, all messages
        :param durable: whether the subscription remains when it has no consumer
        :param subscription_properties: properties of the subscription, set when it is created
        :param priority_level: priority of the consumer, 0 or more: the broker delivers first to consumers
            with the lowest number
        :param ack_group_time_ms: time during which acknowledgements are collected before they are sent, in
            milliseconds; 0: no collecting
        :param ack_group_size: number of collected acknowledgements that are sent without waiting for
            ``ack_group_time_ms``
        :param ack_receipt_enabled: whether acknowledging waits for the broker's answer
        :param unacked_messages_timeout_ms: acknowledgement time-out: time after which redelivery of an
            unacknowledged message is requested, in milliseconds; 0: never
        :param dead_letter_policy: rules for dead letters; they apply to Shared and KeyShared subscriptions,
            and to any subscription with ``retry_enabled``
        :param check_dead_letter_topic: called and awaited with the name of the dead letter topic, before its
            producer is opened; it raises PulsarException if the consumer must not publish to this topic.
            None: only the broker checks
        :param unpacking: decompresses large payloads in threads; None: all payloads are decompressed on the
            event loop
        :param crypto_failure_action: what the consumer does with messages that cannot be decrypted
        :param crypto_key_reader: the object that returns the private keys for decryption; None: no decryption
        :param max_pending_chunked_message: maximum number of incomplete chunked messages; when there are
            more, the oldest is discarded
        :param auto_ack_oldest_chunked_message_on_queue_full: whether the chunks of a message that is
            discarded because of ``max_pending_chunked_message`` are acknowledged
        :param expire_time_of_incomplete_chunked_message_ms: maximum time from the first to the last chunk of
            a message, in milliseconds; after this time, an incomplete message is discarded and acknowledged.
            0: no limit
        :param schema: a schema that the broker compares with the topic's schema: if they are incompatible,
            the consumer is refused. With a schema of ``magnetar.client.schemas``, ``value()`` of a message
            returns the decoded value. None: no schema
        :param key_shared_allow_out_of_order: whether a KeyShared subscription can deliver messages of a key
            out of order when its consumers change
        :param retry_enabled: whether the consumer also consumes its retry topic, to which ``reconsume_later``
            publishes
        :param auto_scaled_receiver_queue: whether the size of the receiver queue adapts: it starts at one
            message, doubles when a full queue was emptied by the program, up to ``receiver_queue_size``, and
            is halved when the client's memory limit is nearly reached
        :param interceptors: interceptors, called for each message before the program receives it, and when it
            is acknowledged
        :param consumer_event_listener: a listener that is called when the broker makes the consumer of a
            Failover subscription active or inactive, and when the consumer has reached the end of a
            terminated topic
        :param message_listener: a function that the client calls with the consumer and each message, in order
            and one call at a time; the program then does not call ``receive``. In the asyncio interface, it
            may be a coroutine function; the blocking interface calls it in a thread. An exception is logged,
            and the message is negatively acknowledged. Closing waits for the call in progress
        :param listener_concurrency: maximum number of concurrent calls of the listener; if it is above 1,
            only messages with the same key are processed in order
        :param negative_ack_redelivery_backoff: computes the delay before a negatively acknowledged message is
            redelivered, which grows with each redelivery; None: the delay is always
            ``negative_ack_redelivery_delay_ms``
        :param ack_timeout_redelivery_backoff: computes a delay in milliseconds that is added to
            ``unacked_messages_timeout_ms`` and grows with each redelivery; None: no added delay
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._subscribe_to_topics(
            topics,
            subscription_name,
            consumer_type=consumer_type,
            receiver_queue_size=receiver_queue_size,
            consumer_name=consumer_name,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            properties={} if properties is None else properties,
            initial_position=initial_position,
            start_message_id=start_message_id,
            start_message_id_inclusive=start_message_id_inclusive,
            batch_index_ack_enabled=batch_index_ack_enabled,
            is_read_compacted=is_read_compacted,
            replicate_subscription_state_enabled=replicate_subscription_state_enabled,
            key_shared_ranges=key_shared_ranges,
            durable=durable,
            subscription_properties={} if subscription_properties is None else subscription_properties,
            priority_level=priority_level,
            ack_group_time_ms=ack_group_time_ms,
            ack_group_size=ack_group_size,
            ack_receipt_enabled=ack_receipt_enabled,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            dead_letter_policy=dead_letter_policy,
            check_dead_letter_topic=check_dead_letter_topic,
            unpacking=unpacking,
            crypto_failure_action=crypto_failure_action,
            crypto_key_reader=crypto_key_reader,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            schema=schema,
            key_shared_allow_out_of_order=key_shared_allow_out_of_order,
            retry_enabled=retry_enabled,
            auto_scaled_receiver_queue=auto_scaled_receiver_queue,
            interceptors=interceptors,
            consumer_event_listener=consumer_event_listener,
            message_listener=message_listener,
            listener_concurrency=listener_concurrency,
            negative_ack_redelivery_backoff=negative_ack_redelivery_backoff,
            ack_timeout_redelivery_backoff=ack_timeout_redelivery_backoff,
        )

    @abstractmethod
    def _subscribe_to_topics(
        self, topics: Sequence[str], subscription_name: str, **options: Unpack[TopicsArguments]
    ) -> Consumer: ...

    def subscribe_to_pattern(
        self,
        pattern: str,
        subscription_name: str,
        *,
        discovery_seconds: float = 60,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        receiver_queue_size: int = 1000,
        consumer_name: str | None = None,
        negative_ack_redelivery_delay_ms: int = 60000,
        properties: Mapping[str, str] | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        start_message_id: MessageId | timedelta | None = None,
        start_message_id_inclusive: bool = False,
        batch_index_ack_enabled: bool = False,
        is_read_compacted: bool = False,
        replicate_subscription_state_enabled: bool = False,
        key_shared_ranges: Sequence[tuple[int, int]] = (),
        durable: bool = True,
        subscription_properties: Mapping[str, str] | None = None,
        priority_level: int = 0,
        ack_group_time_ms: float = 100,
        ack_group_size: int = 1000,
        ack_receipt_enabled: bool = False,
        unacked_messages_timeout_ms: float = 0,
        dead_letter_policy: DeadLetterPolicy | None = None,
        check_dead_letter_topic: Callable[[str], Awaitable[None]] | None = None,
        unpacking: Unpacking | None = None,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        crypto_key_reader: KeyReader | None = None,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: float = 60000,
        schema: ProducerSchema | ValueSchema | None = None,
        key_shared_allow_out_of_order: bool = False,
        retry_enabled: bool = False,
        auto_scaled_receiver_queue: bool = False,
        interceptors: Sequence[ConsumerInterceptor] = (),
        consumer_event_listener: ConsumerEventListener | None = None,
        message_listener: MessageListener | None = None,
        listener_concurrency: int = 1,
        negative_ack_redelivery_backoff: RedeliveryBackoff | None = None,
        ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None,
    ) -> Consumer:
        """Creates a consumer of all matching topics of a namespace, including topics that are created later.

        :param pattern: ``[persistent://]tenant/namespace/expression``, a regular expression (RE2 syntax) for
            whole topic names
        :param subscription_name: the name of the subscription
        :param discovery_seconds: interval of checks for created or deleted topics, in seconds; 0: no checks
        :param regex_subscription_mode: whether to consume persistent topics, non-persistent topics or both
        :param consumer_type: how the consumers of the subscription divide its messages
        :param receiver_queue_size: number of messages requested ahead; 0: messages are requested one at a
            time
        :param consumer_name: the name that the topic's statistics show; None: a random name
        :param negative_ack_redelivery_delay_ms: the delay before a negatively acknowledged message is
            redelivered, in milliseconds
        :param properties: properties of the consumer, which the topic's statistics show
        :param initial_position: start position of a new subscription
        :param start_message_id: start position of a non-durable subscription: a message id, or the maximum
            age of the first message (a timedelta in whole seconds)
        :param start_message_id_inclusive: whether the message whose id is the start position, or the target
            of a seek, is itself delivered
        :param batch_index_ack_enabled: whether each message of a batch is acknowledged at the broker;
            otherwise the batch is acknowledged as a whole, once the program has acknowledged all its messages
        :param is_read_compacted: whether to read the compacted topic: of the messages before the last
            compaction, the consumer gets only the newest of each key
        :param replicate_subscription_state_enabled: whether the position of the subscription is replicated to
            other clusters (replicated subscription)
        :param key_shared_ranges: hash ranges (first and last, 0 to 65535). A KeyShared consumer gets the
            messages whose keys have hashes in these ranges (sticky ranges); if there are none, the broker
            assigns ranges. A consumer of a non-durable Exclusive subscription gets only the messages in these
            ranges; if there are none, all messages
        :param durable: whether the subscription remains when it has no consumer
        :param subscription_properties: properties of the subscription, set when it is created
        :param priority_level: priority of the consumer, 0 or more: the broker delivers first to consumers
            with the lowest number
        :param ack_group_time_ms: time during which acknowledgements are collected before they are sent, in
            milliseconds; 0: no collecting
        :param ack_group_size: number of collected acknowledgements that are sent without waiting for
            ``ack_group_time_ms``
        :param ack_receipt_enabled: whether acknowledging waits for the broker's answer
        :param unacked_messages_timeout_ms: acknowledgement time-out: time after which redelivery of an
            unacknowledged message is requested, in milliseconds; 0: never
        :param dead_letter_policy: rules for dead letters; they apply to Shared and KeyShared subscriptions,
            and to any subscription with ``retry_enabled``
        :param check_dead_letter_topic: called and awaited with the name of the dead letter topic, before its
            producer is opened; it raises PulsarException if the consumer must not publish to this topic.
            None: only the broker checks
        :param unpacking: decompresses large payloads in threads; None: all payloads are decompressed on the
            event loop
        :param crypto_failure_action: what the consumer does with messages that cannot be decrypted
        :param crypto_key_reader: the object that returns the private keys for decryption; None: no decryption
        :param max_pending_chunked_message: maximum number of incomplete chunked messages; when there are
            more, the oldest is discarded
        :param auto_ack_oldest_chunked_message_on_queue_full: whether the chunks of a message that is
            discarded because of ``max_pending_chunked_message`` are acknowledged
        :param expire_time_of_incomplete_chunked_message_ms: maximum time from the first to the last chunk of
            a message, in milliseconds; after this time, an incomplete message is discarded and acknowledged.
            0: no limit
        :param schema: a schema that the broker compares with the topic's schema: if they are incompatible,
            the consumer is refused. With a schema of ``magnetar.client.schemas``, ``value()`` of a message
            returns the decoded value. None: no schema
        :param key_shared_allow_out_of_order: whether a KeyShared subscription can deliver messages of a key
            out of order when its consumers change
        :param retry_enabled: whether the consumer also consumes its retry topic, to which ``reconsume_later``
            publishes
        :param auto_scaled_receiver_queue: whether the size of the receiver queue adapts: it starts at one
            message, doubles when a full queue was emptied by the program, up to ``receiver_queue_size``, and
            is halved when the client's memory limit is nearly reached
        :param interceptors: interceptors, called for each message before the program receives it, and when it
            is acknowledged
        :param consumer_event_listener: a listener that is called when the broker makes the consumer of a
            Failover subscription active or inactive, and when the consumer has reached the end of a
            terminated topic
        :param message_listener: a function that the client calls with the consumer and each message, in order
            and one call at a time; the program then does not call ``receive``. In the asyncio interface, it
            may be a coroutine function; the blocking interface calls it in a thread. An exception is logged,
            and the message is negatively acknowledged. Closing waits for the call in progress
        :param listener_concurrency: maximum number of concurrent calls of the listener; if it is above 1,
            only messages with the same key are processed in order
        :param negative_ack_redelivery_backoff: computes the delay before a negatively acknowledged message is
            redelivered, which grows with each redelivery; None: the delay is always
            ``negative_ack_redelivery_delay_ms``
        :param ack_timeout_redelivery_backoff: computes a delay in milliseconds that is added to
            ``unacked_messages_timeout_ms`` and grows with each redelivery; None: no added delay
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        :raises InvalidConfiguration: the expression is not supported
        """
        return self._subscribe_to_pattern(
            pattern,
            subscription_name,
            discovery_seconds=discovery_seconds,
            regex_subscription_mode=regex_subscription_mode,
            consumer_type=consumer_type,
            receiver_queue_size=receiver_queue_size,
            consumer_name=consumer_name,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            properties={} if properties is None else properties,
            initial_position=initial_position,
            start_message_id=start_message_id,
            start_message_id_inclusive=start_message_id_inclusive,
            batch_index_ack_enabled=batch_index_ack_enabled,
            is_read_compacted=is_read_compacted,
            replicate_subscription_state_enabled=replicate_subscription_state_enabled,
            key_shared_ranges=key_shared_ranges,
            durable=durable,
            subscription_properties={} if subscription_properties is None else subscription_properties,
            priority_level=priority_level,
            ack_group_time_ms=ack_group_time_ms,
            ack_group_size=ack_group_size,
            ack_receipt_enabled=ack_receipt_enabled,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            dead_letter_policy=dead_letter_policy,
            check_dead_letter_topic=check_dead_letter_topic,
            unpacking=unpacking,
            crypto_failure_action=crypto_failure_action,
            crypto_key_reader=crypto_key_reader,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            schema=schema,
            key_shared_allow_out_of_order=key_shared_allow_out_of_order,
            retry_enabled=retry_enabled,
            auto_scaled_receiver_queue=auto_scaled_receiver_queue,
            interceptors=interceptors,
            consumer_event_listener=consumer_event_listener,
            message_listener=message_listener,
            listener_concurrency=listener_concurrency,
            negative_ack_redelivery_backoff=negative_ack_redelivery_backoff,
            ack_timeout_redelivery_backoff=ack_timeout_redelivery_backoff,
        )

    @abstractmethod
    def _subscribe_to_pattern(
        self, pattern: str, subscription_name: str, **options: Unpack[PatternArguments]
    ) -> Consumer: ...

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId | timedelta,
        *,
        start_message_id_inclusive: bool = False,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        crypto_key_reader: KeyReader | None = None,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: float = 60000,
        subscription_name: str | None = None,
        schema: ProducerSchema | ValueSchema | None = None,
        message_listener: MessageListener | None = None,
        interceptors: Sequence[ReaderInterceptor] = (),
        key_hash_ranges: Sequence[tuple[int, int]] = (),
    ) -> Reader:
        """Creates a reader on a topic, on all its partitions, or on one partition.

        :param topic: the name of a topic; a short name is in the namespace ``public/default``
        :param start_message_id: the start position: ``MessageId.earliest`` or ``MessageId.latest``; or the id
            of a message, after which reading starts (with ``start_message_id_inclusive``, this message is
            also read); or the maximum age of the first message, a timedelta in whole seconds
        :param start_message_id_inclusive: whether the reader also reads the start message
        :param receiver_queue_size: number of messages requested ahead; 0: messages are requested one at a
            time
        :param reader_name: the name that the topic's statistics show; None: a random name
        :param subscription_role_prefix: prefix of the subscription name if it is random
        :param is_read_compacted: whether to read the compacted topic: of the messages before the last
            compaction, the consumer gets only the newest of each key
        :param crypto_failure_action: what the consumer does with messages that cannot be decrypted
        :param crypto_key_reader: the object that returns the private keys for decryption; None: no decryption
        :param max_pending_chunked_message: maximum number of incomplete chunked messages; when there are
            more, the oldest is discarded
        :param auto_ack_oldest_chunked_message_on_queue_full: whether the chunks of a message that is
            discarded because of ``max_pending_chunked_message`` are acknowledged
        :param expire_time_of_incomplete_chunked_message_ms: maximum time from the first to the last chunk of
            a message, in milliseconds; after this time, an incomplete message is discarded and acknowledged.
            0: no limit
        :param subscription_name: the name of the reader's non-durable subscription; None: a random name
        :param schema: a schema that the broker compares with the topic's schema: if they are incompatible,
            the consumer is refused. With a schema of ``magnetar.client.schemas``, ``value()`` of a message
            returns the decoded value. None: no schema
        :param message_listener: a function that the client calls with the reader and each message, in order
            and one call at a time; the program then does not call ``read_next``. In the asyncio interface, it
            may be a coroutine function; the blocking interface calls it in a thread. Exceptions are logged.
            Closing waits for the call in progress
        :param interceptors: interceptors, called for each message before the program reads it
        :param key_hash_ranges: hash ranges (first and last, 0 to 65535): only messages whose keys have hashes
            in these ranges are read; for a batch, the key of its first message counts. Empty: all messages
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._create_reader(
            topic,
            start_message_id,
            start_message_id_inclusive=start_message_id_inclusive,
            receiver_queue_size=receiver_queue_size,
            reader_name=reader_name,
            subscription_role_prefix=subscription_role_prefix,
            is_read_compacted=is_read_compacted,
            crypto_failure_action=crypto_failure_action,
            crypto_key_reader=crypto_key_reader,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            subscription_name=subscription_name,
            schema=schema,
            message_listener=message_listener,
            interceptors=interceptors,
            key_hash_ranges=key_hash_ranges,
        )

    @abstractmethod
    def _create_reader(
        self, topic: str, start_message_id: MessageId | timedelta, **options: Unpack[ReaderArguments]
    ) -> Reader: ...

    def create_reader_of_topics(
        self,
        topics: Sequence[str],
        start_message_id: MessageId | timedelta,
        *,
        start_message_id_inclusive: bool = False,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        crypto_key_reader: KeyReader | None = None,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: float = 60000,
        subscription_name: str | None = None,
        schema: ProducerSchema | ValueSchema | None = None,
        message_listener: MessageListener | None = None,
        interceptors: Sequence[ReaderInterceptor] = (),
        key_hash_ranges: Sequence[tuple[int, int]] = (),
    ) -> Reader:
        """Creates a reader of several topics.

        :param topics: the names of the topics
        :param start_message_id: the start position: ``MessageId.earliest`` or ``MessageId.latest``; or the id
            of a message, after which reading starts (with ``start_message_id_inclusive``, this message is
            also read); or the maximum age of the first message, a timedelta in whole seconds
        :param start_message_id_inclusive: whether the reader also reads the start message
        :param receiver_queue_size: number of messages requested ahead; 0: messages are requested one at a
            time
        :param reader_name: the name that the topic's statistics show; None: a random name
        :param subscription_role_prefix: prefix of the subscription name if it is random
        :param is_read_compacted: whether to read the compacted topic: of the messages before the last
            compaction, the consumer gets only the newest of each key
        :param crypto_failure_action: what the consumer does with messages that cannot be decrypted
        :param crypto_key_reader: the object that returns the private keys for decryption; None: no decryption
        :param max_pending_chunked_message: maximum number of incomplete chunked messages; when there are
            more, the oldest is discarded
        :param auto_ack_oldest_chunked_message_on_queue_full: whether the chunks of a message that is
            discarded because of ``max_pending_chunked_message`` are acknowledged
        :param expire_time_of_incomplete_chunked_message_ms: maximum time from the first to the last chunk of
            a message, in milliseconds; after this time, an incomplete message is discarded and acknowledged.
            0: no limit
        :param subscription_name: the name of the reader's non-durable subscription; None: a random name
        :param schema: a schema that the broker compares with the topic's schema: if they are incompatible,
            the consumer is refused. With a schema of ``magnetar.client.schemas``, ``value()`` of a message
            returns the decoded value. None: no schema
        :param message_listener: a function that the client calls with the reader and each message, in order
            and one call at a time; the program then does not call ``read_next``. In the asyncio interface, it
            may be a coroutine function; the blocking interface calls it in a thread. Exceptions are logged.
            Closing waits for the call in progress
        :param interceptors: interceptors, called for each message before the program reads it
        :param key_hash_ranges: hash ranges (first and last, 0 to 65535): only messages whose keys have hashes
            in these ranges are read; for a batch, the key of its first message counts. Empty: all messages
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._create_reader_of_topics(
            topics,
            start_message_id,
            start_message_id_inclusive=start_message_id_inclusive,
            receiver_queue_size=receiver_queue_size,
            reader_name=reader_name,
            subscription_role_prefix=subscription_role_prefix,
            is_read_compacted=is_read_compacted,
            crypto_failure_action=crypto_failure_action,
            crypto_key_reader=crypto_key_reader,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            subscription_name=subscription_name,
            schema=schema,
            message_listener=message_listener,
            interceptors=interceptors,
            key_hash_ranges=key_hash_ranges,
        )

    @abstractmethod
    def _create_reader_of_topics(
        self,
        topics: Sequence[str],
        start_message_id: MessageId | timedelta,
        **options: Unpack[TopicsReaderArguments],
    ) -> Reader: ...

    def create_table_view(
        self,
        topic: str,
        *,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL,
        crypto_key_reader: KeyReader | None = None,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: float = 60000,
        subscription_name: str | None = None,
        schema: ProducerSchema | ValueSchema | None = None,
    ) -> TableView:
        """Creates a table view: maps each key to its newest payload or value. Reads all present messages.

        :param topic: the name of a topic; a short name is in the namespace ``public/default``
        :param receiver_queue_size: number of messages requested ahead; 0: messages are requested one at a
            time
        :param reader_name: the name that the topic's statistics show; None: a random name
        :param subscription_role_prefix: prefix of the subscription name if it is random
        :param crypto_failure_action: what the consumer does with messages that cannot be decrypted
        :param crypto_key_reader: the object that returns the private keys for decryption; None: no decryption
        :param max_pending_chunked_message: maximum number of incomplete chunked messages; when there are
            more, the oldest is discarded
        :param auto_ack_oldest_chunked_message_on_queue_full: whether the chunks of a message that is
            discarded because of ``max_pending_chunked_message`` are acknowledged
        :param expire_time_of_incomplete_chunked_message_ms: maximum time from the first to the last chunk of
            a message, in milliseconds; after this time, an incomplete message is discarded and acknowledged.
            0: no limit
        :param subscription_name: the name of the reader's non-durable subscription; None: a random name
        :param schema: a schema that the broker compares with the topic's schema: if they are incompatible,
            the consumer is refused. With a schema of ``magnetar.client.schemas``, ``value()`` of a message
            returns the decoded value. None: no schema
        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        return self._create_table_view(
            topic,
            receiver_queue_size=receiver_queue_size,
            reader_name=reader_name,
            subscription_role_prefix=subscription_role_prefix,
            crypto_failure_action=crypto_failure_action,
            crypto_key_reader=crypto_key_reader,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            subscription_name=subscription_name,
            schema=schema,
        )

    @abstractmethod
    def _create_table_view(self, topic: str, **options: Unpack[TableViewArguments]) -> TableView: ...
