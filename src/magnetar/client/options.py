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
    """Names and defaults are those of the official client; batching is on, as in its asyncio client."""

    producer_name: str | None = None
    """A name that no other producer of the topic has. None: the broker chooses one."""
    initial_sequence_id: int | None = None
    """The sequence id before that of the first message. None: the last one of this name that the topic has
    stored, or -1."""
    send_timeout_millis: int = 30000
    """Time until a message without a receipt fails, in milliseconds; 0: no time-out."""
    compression_type: CompressionType = CompressionType.NONE
    """The compression of contents; batches are compressed as a whole."""
    max_pending_messages: int = 1000
    """The most messages without a receipt, on each partition."""
    block_if_queue_full: bool = False
    """Whether sending waits while the most messages are pending, or the client's memory limit is reached;
    otherwise it raises ProducerQueueIsFull or MemoryBufferIsFull."""
    batching_enabled: bool = True
    """Whether messages are sent in batches."""
    batching_max_messages: int = 1000
    """The most messages of a batch."""
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    """The size at which a batch is sent, in bytes."""
    batching_max_publish_delay_ms: float = 10
    """The longest time that a batch waits for more messages, in milliseconds."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the producer, which its statistics show."""
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    """Whether other producers may publish to the topic at the same time."""
    schema: ProducerSchema | ValueSchema | None = None
    """The declared schema: contents are sent unchanged; or one of ``magnetar.client.schemas``, whose values
    are sent. None: no schema."""
    chunking_enabled: bool = False
    """Sends messages that are larger than an entry in chunks; not with batching."""
    encryption_key: str | None = None
    """The name of the key for encryption; None: without encryption."""
    crypto_key_reader: KeyReader | None = None
    """The source of that key."""
    batching_type: BatchingType | None = None
    """None: a batch never has two keys. A producer that numbers its messages (``initial_sequence_id``, or
    ``sequence_id`` of a message) sends its batch when the key changes, which keeps the order; any other
    producer fills a batch for each key, so that messages of different keys may change places."""
    initial_subscription_name: str | None = None
    """A subscription that the broker creates with the topic; for dead letter topics. None: none."""
    interceptors: Sequence[ProducerInterceptor] = ()
    """Called for each message before it is sent, and with its outcome."""

    def check(self) -> None:
        """Checks the options of a producer.

        :raises InvalidConfiguration: a limit is not above 0, or two options exclude each other
        """
        if self.chunking_enabled and self.batching_enabled:
            raise InvalidConfiguration("chunking_enabled and batching_enabled cannot be used together")
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
    """Options of a consumer of all topics that match a pattern, in addition to those of every consumer."""

    discovery_seconds: float = 60
    """Time between two checks for created or deleted topics; 0: no checks."""
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    """Whether non-persistent topics are consumed, too."""


@dataclass(frozen=True)
class ConsumerOptions:
    """Options; names and defaults are those of the official client where it has them."""

    consumer_type: ConsumerType = ConsumerType.Exclusive
    """How the consumers of the subscription share its messages."""
    receiver_queue_size: int = 1000
    """Messages requested ahead; 0 requests one at a time."""
    consumer_name: str | None = None
    """The name that statistics show; None: the broker chooses one."""
    negative_ack_redelivery_delay_ms: int = 60000
    """The delay before a negatively acknowledged message is redelivered, in milliseconds."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the consumer, which its statistics show."""
    initial_position: InitialPosition = InitialPosition.Latest
    """Where a new subscription begins."""
    start_message_id: MessageId | timedelta | None = None
    """Start position of a non-durable subscription: a message, or how long ago the first messages were
    published, in whole seconds."""
    start_message_id_inclusive: bool = False
    """Whether the message of a start id or a seek is itself delivered."""
    batch_index_ack_enabled: bool = False
    """Whether the messages of a batch are acknowledged at the broker one by one."""
    is_read_compacted: bool = False
    """Whether to read the newest message of each key where the topic is compacted."""
    replicate_subscription_state_enabled: bool = False
    """Whether the position of the subscription is replicated to other clusters."""
    key_shared_ranges: Sequence[tuple[int, int]] = ()
    """Sticky hash ranges for KeyShared; empty: the broker assigns ranges. Of a non-durable Exclusive
    subscription: the ranges whose messages are delivered; empty: all."""
    durable: bool = True
    """Whether the subscription outlives its consumers."""
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the subscription, set when it is created."""
    priority_level: int = 0
    """Consumers with a lower number are served first; 0 or more."""
    ack_group_time_ms: float = 100
    """How long acknowledgements are collected before they are sent; 0: they are sent immediately."""
    ack_group_size: int = 1000
    """The number of collected acknowledgements that are sent without waiting."""
    ack_receipt_enabled: bool = False
    """Whether acknowledging waits for the broker's answer."""
    unacked_messages_timeout_ms: float = 0
    """Time after which redelivery of unacknowledged messages is requested; 0: never."""
    dead_letter_policy: DeadLetterPolicy | None = None
    """Has an effect on Shared and KeyShared subscriptions, and with ``retry_enabled``."""
    check_dead_letter_topic: Callable[[str], Awaitable[None]] | None = None
    """Awaited with the name of the dead letter topic before its producer is opened; raises PulsarException if
    the consumer must not publish there. None: only the broker checks."""
    unpacking: Unpacking | None = None
    """Uncompresses large contents in threads; None: all are uncompressed when they are received."""
    crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL
    """What happens to messages that cannot be decrypted."""
    crypto_key_reader: KeyReader | None = None
    """Source of private keys; None: without decryption."""
    max_pending_chunked_message: int = 10
    """Limit of incomplete chunked messages; above it the oldest is discarded."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """Whether the chunks of that message are acknowledged."""
    expire_time_of_incomplete_chunked_message_ms: float = 60_000
    """Time from the first chunk of a message to its last; after it the message is discarded and acknowledged.
    0: never."""
    schema: ProducerSchema | ValueSchema | None = None
    """A schema that must be compatible with the topic's; with one of ``magnetar.client.schemas``, ``value()``
    of a message returns the value. None: any."""
    key_shared_allow_out_of_order: bool = False
    """Whether a KeyShared subscription may deliver messages of a key out of order when consumers change."""
    retry_enabled: bool = False
    """Whether the consumer consumes its retry topic too, to which ``reconsume_later`` publishes."""
    auto_scaled_receiver_queue: bool = False
    """Whether the receiver queue begins with one message and doubles, up to ``receiver_queue_size``, whenever
    the program has received all of it; it is halved when the client's memory limit is nearly reached."""
    interceptors: Sequence[ConsumerInterceptor] = ()
    """Called for each message before the program receives it, and when it is acknowledged."""
    message_listener: MessageListener | None = None
    """Called with the consumer and each message, instead of ``receive``: in order, the next message when the
    call has ended. A coroutine is awaited; the blocking interface calls it in a thread of the consumer. If it
    raises, that is logged and the message is negatively acknowledged. Closing waits for the call."""
    listener_concurrency: int = 1
    """Calls of the listener at the same time; above 1, only messages of the same key are in order."""
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    """The delay before a negatively acknowledged message is redelivered, longer each time; None:
    ``negative_ack_redelivery_delay_ms``."""
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None
    """Additional milliseconds to ``unacked_messages_timeout_ms``, more each time that a message was
    redelivered; None: no more."""

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
            raise InvalidConfiguration(f"the start position must be 1 s ago or earlier, not {start}")
        if self.unacked_messages_timeout_ms < 0:
            raise InvalidConfiguration(
                f"unacked_messages_timeout_ms must be 0 or more, not {self.unacked_messages_timeout_ms}"
            )
        if self.ack_timeout_redelivery_backoff is not None and not self.unacked_messages_timeout_ms:
            raise InvalidConfiguration("ack_timeout_redelivery_backoff requires unacked_messages_timeout_ms")
        for backoff in (self.negative_ack_redelivery_backoff, self.ack_timeout_redelivery_backoff):
            if backoff is not None:
                backoff.check()
        if self.dead_letter_policy is not None:
            self.dead_letter_policy.check()


class ReaderOptions(ConsumerOptions):
    """Options of a reader's consumer, which acknowledges everything that is read."""
