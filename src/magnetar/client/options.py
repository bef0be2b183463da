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
    from magnetar.client.interceptors import ConsumerInterceptor, ProducerInterceptor
    from magnetar.client.listening import MessageListener
    from magnetar.client.unpacking import Unpacking


@dataclass(frozen=True)
class ProducerOptions:
    """Options of a producer, with the official client's names and defaults; batching is on, as in its asyncio
    client.
    """

    producer_name: str | None = None
    """A name that is unique among the producers of the topic. None: the broker chooses a name."""
    initial_sequence_id: int | None = None
    """The sequence id before the first message's sequence id. None: the last sequence id that the topic has
    stored for this producer name, or -1.
    """
    send_timeout_millis: int = 30000
    """Maximum time to wait for a receipt before a message fails, in milliseconds; 0: no limit."""
    compression_type: CompressionType = CompressionType.NONE
    """The compression of contents; batches are compressed as a whole."""
    max_pending_messages: int = 1000
    """Maximum number of messages without a receipt, per partition."""
    block_if_queue_full: bool = False
    """Whether sending waits at the limit of pending messages or at the client's memory limit; otherwise it
    raises ProducerQueueIsFull or MemoryBufferIsFull.
    """
    batching_enabled: bool = True
    """Whether messages are sent in batches."""
    batching_max_messages: int = 1000
    """Maximum number of messages in a batch."""
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    """The size at which a batch is sent, in bytes."""
    batching_max_publish_delay_ms: float = 10
    """Maximum time that a batch waits for more messages, in milliseconds."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the producer, which the topic's statistics show."""
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    """Whether other producers may publish to the topic at the same time."""
    schema: ProducerSchema | ValueSchema | None = None
    """The schema that the producer declares: contents are sent unchanged; or a schema of
    ``magnetar.client.schemas``, which encodes values. None: no schema.
    """
    chunking_enabled: bool = False
    """Whether messages that are larger than an entry are sent in chunks; excludes batching."""
    encryption_key: str | None = None
    """The name of the encryption key; None: no encryption."""
    crypto_key_reader: KeyReader | None = None
    """The source of the encryption key."""
    batching_type: BatchingType | None = None
    """The rule by which messages are put into batches. None: a batch contains messages of one key only; a
    producer with explicit sequence ids (``initial_sequence_id``, or ``sequence_id`` of a message) sends
    its batch when the key changes, which keeps the order; any other producer fills a batch for each key,
    so that messages of different keys can be reordered.
    """
    initial_subscription_name: str | None = None
    """A subscription that the broker creates with the topic, used for dead letter topics. None: no
    subscription.
    """
    interceptors: Sequence[ProducerInterceptor] = ()
    """Called for each message before it is sent, and with its outcome."""

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
    """Which of persistent and non-persistent topics are consumed."""


@dataclass(frozen=True)
class ConsumerOptions:
    """Options of a consumer, with the official client's names and defaults where the client has them."""

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
    """Start position of a non-durable subscription: a message id, or the maximum age of the first message, in
    whole seconds.
    """
    start_message_id_inclusive: bool = False
    """Whether the message at the start position or at the target of a seek is delivered, too."""
    batch_index_ack_enabled: bool = False
    """Whether the messages of a batch are acknowledged individually at the broker."""
    is_read_compacted: bool = False
    """Whether the consumer gets only the newest message of each key in the compacted part of the topic."""
    replicate_subscription_state_enabled: bool = False
    """Whether the state of the subscription is replicated to other clusters."""
    key_shared_ranges: Sequence[tuple[int, int]] = ()
    """Sticky hash ranges of a KeyShared consumer; empty: the broker assigns ranges. For a non-durable
    Exclusive subscription: the hash ranges whose messages are delivered; empty: all messages.
    """
    durable: bool = True
    """Whether the subscription persists without consumers."""
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the subscription, set when it is created."""
    priority_level: int = 0
    """The broker delivers to consumers with a lower number first; 0 or more."""
    ack_group_time_ms: float = 100
    """Time during which acknowledgements are collected before they are sent, in milliseconds; 0: no
    collecting.
    """
    ack_group_size: int = 1000
    """Number of collected acknowledgements at which they are sent at once."""
    ack_receipt_enabled: bool = False
    """Whether acknowledging waits for the broker's answer."""
    unacked_messages_timeout_ms: float = 0
    """Time after which redelivery of unacknowledged messages is requested, in milliseconds; 0: never."""
    dead_letter_policy: DeadLetterPolicy | None = None
    """Rules for dead letters; effective on Shared and KeyShared subscriptions, and with ``retry_enabled``."""
    check_dead_letter_topic: Callable[[str], Awaitable[None]] | None = None
    """Awaited with the name of the dead letter topic before its producer is opened; raises PulsarException if
    the consumer must not publish to this topic. None: only the broker checks.
    """
    unpacking: Unpacking | None = None
    """Decompresses large contents in threads; None: all contents are decompressed on the event loop."""
    crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL
    """What the consumer does with messages that cannot be decrypted."""
    crypto_key_reader: KeyReader | None = None
    """The source of private keys for decryption; None: no decryption."""
    max_pending_chunked_message: int = 10
    """Maximum number of incomplete chunked messages; above it, the oldest is discarded."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """Whether the chunks of a message discarded at this limit are acknowledged."""
    expire_time_of_incomplete_chunked_message_ms: float = 60_000
    """Maximum time from the first to the last chunk of a message, in milliseconds; afterwards, the message is
    discarded and acknowledged. 0: no limit.
    """
    schema: ProducerSchema | ValueSchema | None = None
    """A schema that must be compatible with the topic's; with a schema of ``magnetar.client.schemas``,
    ``value()`` of a message returns the decoded value. None: no requirement.
    """
    key_shared_allow_out_of_order: bool = False
    """Whether a KeyShared subscription can deliver messages of a key out of order when its consumers
    change.
    """
    retry_enabled: bool = False
    """Whether the consumer also consumes its retry topic, to which ``reconsume_later`` publishes."""
    auto_scaled_receiver_queue: bool = False
    """Whether the receiver queue starts at one message and doubles, up to ``receiver_queue_size``, whenever
    the program has received all its messages. The queue is halved when the client's memory limit is nearly
    reached.
    """
    interceptors: Sequence[ConsumerInterceptor] = ()
    """Called for each message before the program receives it, and when it is acknowledged."""
    message_listener: MessageListener | None = None
    """Called with the consumer and each message, instead of ``receive``: in order, one call at a time. A
    coroutine is awaited; the blocking interface uses a thread of the consumer. An exception is logged, and
    the message is negatively acknowledged. Closing waits for the call in progress.
    """
    listener_concurrency: int = 1
    """Maximum number of concurrent calls of the listener; above 1, only messages of the same key are in
    order.
    """
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    """Delays before a negatively acknowledged message is redelivered, which grow with each redelivery; None:
    ``negative_ack_redelivery_delay_ms``.
    """
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None
    """Delays in milliseconds, added to ``unacked_messages_timeout_ms``, which grow with each redelivery;
    None: no added delay."""

    @property
    def is_shared(self) -> bool:
        """Whether the subscription delivers to several consumers at a time, without order."""
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
    """Options of a reader's consumer, which acknowledges every message that is read."""
