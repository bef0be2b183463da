"""The options of producers and consumers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    CryptoFailureAction,
    InitialPosition,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar.client.exceptions import InvalidConfiguration
from magnetar.client.message_id import MessageId
from magnetar.client.schema import ProducerSchema, ValueSchema
from magnetar.client.timing import RedeliveryBackoff

if TYPE_CHECKING:
    from magnetar.client.encryption.key_readers import KeyReader
    from magnetar.client.interceptors import (
        ConsumerEventListener,
        ConsumerInterceptor,
        ProducerInterceptor,
    )
    from magnetar.client.listening import MessageListener
    from magnetar.client.unpacking import Unpacking


@dataclass(frozen=True)
class ProducerOptions:
    """Options of a producer, with the official client's names and defaults; batching is on by default, as in
    the official client's asyncio interface.
    """

    producer_name: str | None = None
    """A name that is unique among the producers of the topic. None: the broker chooses a name."""
    initial_sequence_id: int | None = None
    """The first message gets this number plus 1 as its sequence id. None: the sequence ids continue after
    the last one that the broker has stored for this producer name; without one, they begin at 0.
    """
    send_timeout_millis: int = 30000
    """Maximum time to wait for a receipt before a message fails, in milliseconds; 0: no limit."""
    compression_type: CompressionType = CompressionType.NONE
    """The compression of payloads; a batch is compressed as a whole."""
    max_pending_messages: int = 1000
    """Maximum number of messages without a receipt, per partition."""
    block_if_queue_full: bool = False
    """Whether sending waits when the limit of pending messages or the client's memory limit is reached;
    otherwise it raises ProducerQueueIsFull or MemoryBufferIsFull.
    """
    batching_enabled: bool = True
    """Whether messages are sent in batches."""
    batching_max_messages: int = 1000
    """Maximum number of messages in a batch."""
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    """The uncompressed size at which a batch is sent, in bytes."""
    batching_max_publish_delay_ms: float = 10
    """Maximum time that a batch waits for more messages, in milliseconds."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the producer, which the topic's statistics show."""
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    """Whether other producers may publish to the topic at the same time."""
    schema: ProducerSchema | ValueSchema | None = None
    """A schema of ``magnetar.client.schemas``, which encodes values; or a :class:`ProducerSchema`, which is
    only declared to the broker, while payloads are sent unchanged. None: no schema.
    """
    chunking_enabled: bool = False
    """Whether messages that are larger than the maximum size of an entry are sent in chunks; cannot be
    combined with batching.
    """
    encryption_key: str | None = None
    """The name of the public key for end-to-end encryption; None: no encryption."""
    crypto_key_reader: KeyReader | None = None
    """The object that returns the public key for encryption."""
    batching_type: BatchingType | None = None
    """The rule by which messages are put into batches. None: each batch contains messages of one key only. If
    the program sets sequence ids (``initial_sequence_id``, or ``sequence_id`` of a message), the producer
    sends its batch whenever the key changes, which keeps the order; otherwise it fills a batch for each key,
    so that messages of different keys can be reordered.
    """
    initial_subscription_name: str | None = None
    """A subscription that the broker creates together with the topic, so that no message is lost; used for
    dead letter topics. None: no subscription.
    """
    interceptors: Sequence[ProducerInterceptor] = ()
    """Interceptors, called for each message before it is sent, and with its outcome."""

    def check(self) -> None:
        """Checks the options of a producer.

        :raises InvalidConfiguration: a limit is not above 0, or two options cannot be combined
        """
        if self.chunking_enabled and self.batching_enabled:
            raise InvalidConfiguration(
                "chunking_enabled and batching_enabled cannot be used together; disable one of them"
            )
        if self.encryption_key is not None and self.crypto_key_reader is None:
            raise InvalidConfiguration("encryption_key requires a crypto_key_reader")
        for name in (
            "max_pending_messages",
            "batching_max_messages",
            "batching_max_allowed_size_in_bytes",
            "batching_max_publish_delay_ms",
        ):
            if getattr(self, name) <= 0:
                raise InvalidConfiguration(f"{name} must be above 0, not {getattr(self, name)}")


@dataclass(frozen=True)
class PatternOptions:
    """Options of a consumer of all topics that match a pattern, in addition to the options of every
    consumer.
    """

    discovery_seconds: float = 60
    """Interval of checks for created or deleted topics, in seconds; 0: no checks."""
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    """Whether to consume persistent topics, non-persistent topics or both."""


@dataclass(frozen=True)
class ConsumerOptions:
    """Options of a consumer, with the official client's names and defaults for the options that both have."""

    consumer_type: ConsumerType = ConsumerType.Exclusive
    """How the consumers of the subscription divide its messages."""
    receiver_queue_size: int = 1000
    """Number of messages requested ahead; 0: messages are requested one at a time."""
    consumer_name: str | None = None
    """The name that the topic's statistics show; None: a random name."""
    negative_ack_redelivery_delay_ms: int = 60000
    """The delay before a negatively acknowledged message is redelivered, in milliseconds."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the consumer, which the topic's statistics show."""
    initial_position: InitialPosition = InitialPosition.Latest
    """Start position of a new subscription."""
    start_message_id: MessageId | timedelta | None = None
    """Start position of a non-durable subscription: a message id, or the maximum age of the first message (a
    timedelta in whole seconds).
    """
    start_message_id_inclusive: bool = False
    """Whether the message whose id is the start position, or the target of a seek, is itself delivered."""
    batch_index_ack_enabled: bool = False
    """Whether each message of a batch is acknowledged at the broker; otherwise the batch is acknowledged as a
    whole, once the program has acknowledged all its messages.
    """
    is_read_compacted: bool = False
    """Whether to read the compacted topic: of the messages before the last compaction, the consumer gets only
    the newest of each key.
    """
    replicate_subscription_state_enabled: bool = False
    """Whether the position of the subscription is replicated to other clusters (replicated subscription)."""
    key_shared_ranges: Sequence[tuple[int, int]] = ()
    """Hash ranges (first and last, 0 to 65535). A KeyShared consumer gets the messages whose keys have hashes
    in these ranges (sticky ranges); if there are none, the broker assigns ranges. A consumer of a non-durable
    Exclusive subscription gets only the messages in these ranges; if there are none, all messages.
    """
    durable: bool = True
    """Whether the subscription remains when it has no consumer."""
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the subscription, set when it is created."""
    priority_level: int = 0
    """Priority of the consumer, 0 or more: the broker delivers first to consumers with the lowest number."""
    ack_group_time_ms: float = 100
    """Time during which acknowledgements are collected before they are sent, in milliseconds; 0: no
    collecting.
    """
    ack_group_size: int = 1000
    """Number of collected acknowledgements that are sent without waiting for ``ack_group_time_ms``."""
    ack_receipt_enabled: bool = False
    """Whether acknowledging waits for the broker's answer."""
    unacked_messages_timeout_ms: float = 0
    """Acknowledgement time-out: time after which redelivery of an unacknowledged message is requested, in
    milliseconds; 0: never.
    """
    dead_letter_policy: DeadLetterPolicy | None = None
    """Rules for dead letters; they apply to Shared and KeyShared subscriptions, and to any subscription with
    ``retry_enabled``.
    """
    check_dead_letter_topic: Callable[[str], Awaitable[None]] | None = None
    """Called and awaited with the name of the dead letter topic, before its producer is opened; it raises
    PulsarException if the consumer must not publish to this topic. None: only the broker checks.
    """
    unpacking: Unpacking | None = None
    """Decompresses large payloads in threads; None: all payloads are decompressed on the event loop."""
    crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL
    """What the consumer does with messages that cannot be decrypted."""
    crypto_key_reader: KeyReader | None = None
    """The object that returns the private keys for decryption; None: no decryption."""
    max_pending_chunked_message: int = 10
    """Maximum number of incomplete chunked messages; when there are more, the oldest is discarded."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """Whether the chunks of a message that is discarded because of ``max_pending_chunked_message`` are
    acknowledged.
    """
    expire_time_of_incomplete_chunked_message_ms: float = 60_000
    """Maximum time from the first to the last chunk of a message, in milliseconds; after this time, an
    incomplete message is discarded and acknowledged. 0: no limit.
    """
    schema: ProducerSchema | ValueSchema | None = None
    """A schema that the broker compares with the topic's schema: if they are incompatible, the consumer is
    refused. With a schema of ``magnetar.client.schemas``, ``value()`` of a message returns the decoded value.
    None: no schema.
    """
    key_shared_allow_out_of_order: bool = False
    """Whether a KeyShared subscription can deliver messages of a key out of order when its consumers
    change.
    """
    retry_enabled: bool = False
    """Whether the consumer also consumes its retry topic, to which ``reconsume_later`` publishes."""
    auto_scaled_receiver_queue: bool = False
    """Whether the size of the receiver queue adapts: it starts at one message, doubles when a full queue was
    emptied by the program, up to ``receiver_queue_size``, and is halved when the client's memory limit is
    nearly reached.
    """
    interceptors: Sequence[ConsumerInterceptor] = ()
    """Interceptors, called for each message before the program receives it, and when it is acknowledged."""
    consumer_event_listener: ConsumerEventListener | None = None
    """A listener that is called when the broker makes the consumer of a Failover subscription active or
    inactive, and when the consumer has reached the end of a terminated topic.
    """
    message_listener: MessageListener | None = None
    """A function that the client calls with the consumer and each message, in order and one call at a time;
    the program then does not call ``receive``. In the asyncio interface, it may be a coroutine function; the
    blocking interface calls it in a thread. An exception is logged, and the message is negatively
    acknowledged. Closing waits for the call in progress.
    """
    listener_concurrency: int = 1
    """Maximum number of concurrent calls of the listener; if it is above 1, only messages with the same key
    are processed in order.
    """
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    """Computes the delay before a negatively acknowledged message is redelivered, which grows with each
    redelivery; None: the delay is always ``negative_ack_redelivery_delay_ms``.
    """
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None
    """Computes a delay in milliseconds that is added to ``unacked_messages_timeout_ms`` and grows with each
    redelivery; None: no added delay."""

    @property
    def is_shared(self) -> bool:
        """Whether the subscription type is Shared or KeyShared: several consumers get messages at the same
        time.
        """
        return self.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared)

    def with_queue(self, receiver_queue_size: int) -> ConsumerOptions:
        """Returns the options with another size of the receiver queue."""
        return replace(self, receiver_queue_size=receiver_queue_size)

    def named(self, consumer_name: str) -> ConsumerOptions:
        """Returns the options with another consumer name."""
        return replace(self, consumer_name=consumer_name)

    def check(self) -> None:
        """Checks the options of a consumer.

        :raises InvalidConfiguration: an option is out of range
        """
        if self.receiver_queue_size < 0 or self.ack_group_size < 1:
            raise InvalidConfiguration(
                "receiver_queue_size must be 0 or more, and ack_group_size above 0, not "
                f"{self.receiver_queue_size} and {self.ack_group_size}"
            )
        if self.listener_concurrency < 1:
            raise InvalidConfiguration(
                f"listener_concurrency must be above 0, not {self.listener_concurrency}"
            )
        if self.max_pending_chunked_message < 1:
            raise InvalidConfiguration(
                f"max_pending_chunked_message must be above 0, not {self.max_pending_chunked_message}"
            )
        if self.expire_time_of_incomplete_chunked_message_ms < 0:
            raise InvalidConfiguration(
                "expire_time_of_incomplete_chunked_message_ms must be 0 or more, not "
                f"{self.expire_time_of_incomplete_chunked_message_ms}"
            )
        start = self.start_message_id
        if isinstance(start, timedelta) and start < timedelta(seconds=1):
            raise InvalidConfiguration(f"the start position must be at least 1 s in the past, not {start}")
        if self.unacked_messages_timeout_ms < 0:
            raise InvalidConfiguration(
                f"unacked_messages_timeout_ms must be 0 or more, not {self.unacked_messages_timeout_ms}"
            )
        if self.ack_timeout_redelivery_backoff is not None and not self.unacked_messages_timeout_ms:
            raise InvalidConfiguration(
                "ack_timeout_redelivery_backoff requires unacked_messages_timeout_ms above 0"
            )
        for backoff in (self.negative_ack_redelivery_backoff, self.ack_timeout_redelivery_backoff):
            if backoff is not None:
                backoff.check()
        if self.dead_letter_policy is not None:
            self.dead_letter_policy.check()


class ReaderOptions(ConsumerOptions):
    """Options of the consumer that a reader uses."""
