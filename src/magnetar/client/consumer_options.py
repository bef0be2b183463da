"""What a consumer may be told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.enums import ConsumerType, CryptoFailureAction, InitialPosition
from magnetar.client.exceptions import InvalidConfiguration
from magnetar.client.message_id import MessageId

if TYPE_CHECKING:
    from magnetar.client.encryption.key_readers import KeyReader
    from magnetar.client.unpacking import Unpacking


@dataclass(frozen=True)
class ConsumerOptions:
    """Names and defaults of the official client where it has them."""

    consumer_type: ConsumerType = ConsumerType.Exclusive
    receiver_queue_size: int = 1000
    """Messages asked for ahead; 0 asks for one at a time."""
    consumer_name: str | None = None
    negative_ack_redelivery_delay_ms: int = 60000
    properties: Mapping[str, str] = field(default_factory=dict)
    initial_position: InitialPosition = InitialPosition.Latest
    start_message_id: MessageId | None = None
    """Where to begin without a durable subscription."""
    start_message_id_inclusive: bool = False
    """Whether the message that a start id or a seek names is delivered itself."""
    batch_index_ack_enabled: bool = False
    is_read_compacted: bool = False
    replicate_subscription_state_enabled: bool = False
    key_shared_ranges: Sequence[tuple[int, int]] = ()
    """Sticky ranges of hashes for KeyShared; none: the broker splits them."""
    durable: bool = True
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    priority_level: int = 0
    ack_group_time_ms: float = 100
    """How long acknowledgements gather; 0: not at all."""
    ack_group_size: int = 1000
    ack_receipt_enabled: bool = False
    """Whether acknowledging waits for the broker's answer."""
    unacked_messages_timeout_ms: float = 0
    """Asks again for what is not acknowledged in that time; 0: never."""
    dead_letter_policy: DeadLetterPolicy | None = None
    """Counts on Shared and KeyShared subscriptions."""
    check_dead_letter_topic: Callable[[str], Awaitable[None]] | None = None
    """Awaited with the topic's name before its producer for dead letters is opened; raises PulsarException
    where dead letters must not go there. None: only the broker checks."""
    unpacking: Unpacking | None = None
    """Opens large compressed contents beside the loop; None: all are opened when they are taken."""
    crypto_failure_action: CryptoFailureAction = CryptoFailureAction.FAIL
    """Of what no key decrypts."""
    crypto_key_reader: KeyReader | None = None
    """Where private keys come from; None: nothing is decrypted."""
    max_pending_chunked_message: int = 10
    """Messages of which some chunks have come and some not; more, and the oldest is given up."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """Whether its chunks are acknowledged then."""
    expire_time_of_incomplete_chunked_message_ms: float = 60_000
    """From the first chunk of a message to its last; later it is given up, and acknowledged. 0: never."""

    @property
    def is_shared(self) -> bool:
        """Whether the subscription delivers in no order, to several consumers at a time."""
        return self.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared)

    def with_queue(self, receiver_queue_size: int) -> ConsumerOptions:
        """The same, with another size of the receiver queue."""
        return replace(self, receiver_queue_size=receiver_queue_size)

    def named(self, consumer_name: str) -> ConsumerOptions:
        """The same, with that name."""
        return replace(self, consumer_name=consumer_name)

    def check(self) -> None:
        """:raises InvalidConfiguration: an option is out of range"""
        if self.receiver_queue_size < 0 or self.ack_group_size < 1:
            raise InvalidConfiguration("receiver_queue_size must be 0 or more, ack_group_size above 0")
        if self.max_pending_chunked_message < 1:
            raise InvalidConfiguration("max_pending_chunked_message must be above 0")
        if self.expire_time_of_incomplete_chunked_message_ms < 0:
            raise InvalidConfiguration("expire_time_of_incomplete_chunked_message_ms must be 0 or more")
        if self.unacked_messages_timeout_ms < 0:
            raise InvalidConfiguration("unacked_messages_timeout_ms must be 0 or more")
        if self.dead_letter_policy is not None:
            self.dead_letter_policy.check()
