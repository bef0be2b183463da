"""The official client's enumerations, and small classes that the official client takes from its C++ part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from magnetar.client.batch_receiving import BatchReceivePolicy as Limits
from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.enums import OfficialEnum

__all__ = [
    "BatchLimits",
    "DeadLetterPolicyBuilder",
    "DeadLetterSettings",
    "KeySharing",
    "KeySharingPolicy",
    "LoggerLevel",
    "SchemaKind",
]


class KeySharing(OfficialEnum):
    """The modes in which a Key_Shared subscription assigns keys to consumers."""

    AutoSplit = 0
    Sticky = 1


class LoggerLevel(OfficialEnum):
    Debug = 0
    Info = 1
    Warn = 2
    Error = 3


class SchemaKind(OfficialEnum):
    """Schema types, with their numbers in the protocol."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    KEY_VALUE = 15
    PROTOBUF_NATIVE = 20
    BYTES = -1
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4


class BatchLimits:
    """The limits at which ``batch_receive`` returns; a value of 0 or less means no limit."""

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        """:param max_num_message: maximum number of messages
        :param max_num_bytes: maximum size of the messages, in bytes
        :param timeout_ms: maximum time to wait, in milliseconds
        :raises ValueError: there is no limit
        """
        if max(max_num_message, max_num_bytes, timeout_ms) <= 0:
            raise ValueError(
                "At least one of max_num_message, max_num_bytes and timeout_ms must be above 0, not "
                f"{max_num_message}, {max_num_bytes} and {timeout_ms}"
            )
        self.limits = Limits(max_num_message, max_num_bytes, timeout_ms)

    def getMaxNumMessages(self) -> int:
        return self.limits.max_num_message

    def getMaxNumBytes(self) -> int:
        return self.limits.max_num_bytes

    def getTimeoutMs(self) -> int:
        return self.limits.timeout_ms


class KeySharingPolicy:
    """The mode and the hash ranges by which a Key_Shared subscription assigns keys to consumers."""

    def __init__(self) -> None:
        self._mode = KeySharing.AutoSplit
        self._out_of_order = False
        self._ranges: list[tuple[int, int]] = []

    def set_key_shared_mode(self, mode: KeySharing) -> KeySharingPolicy:
        self._mode = mode
        return self

    def get_key_shared_mode(self) -> KeySharing:
        return self._mode

    def set_allow_out_of_order_delivery(self, allowed: bool) -> KeySharingPolicy:
        self._out_of_order = allowed
        return self

    def is_allow_out_of_order_delivery(self) -> bool:
        return self._out_of_order

    def set_sticky_ranges(self, ranges: Sequence[tuple[int, int]]) -> KeySharingPolicy:
        """Sets the hash ranges of a consumer: pairs of first and last hash, from 0 to 65535; returns this
        object.

        :raises ValueError: there is no range, a range is not within 0 to 65535, or ranges overlap
        """
        if not ranges:
            raise ValueError("Ranges for KeyShared policy must not be empty.")
        for first, last in ranges:
            if not 0 <= first <= last <= 65535:
                raise ValueError(f"KeySharingPolicy Exception: Invalid Range: {first}-{last}")
        for (_, last), (first, _) in pairwise(sorted(ranges)):
            if first <= last:
                raise ValueError(
                    f"Ranges for KeyShared policy with overlap: one ends at {last}, another begins at {first}"
                )
        self._ranges = [(first, last) for first, last in ranges]
        return self

    def get_sticky_ranges(self) -> list[tuple[int, int]]:
        return list(self._ranges)


class DeadLetterSettings:
    """The settings of a dead letter policy."""

    def __init__(self, policy: DeadLetterPolicy) -> None:
        self.policy = policy

    def getDeadLetterTopic(self) -> str:
        return self.policy.dead_letter_topic or ""

    def getMaxRedeliverCount(self) -> int:
        return self.policy.max_redeliver_count

    def getInitialSubscriptionName(self) -> str:
        return self.policy.initial_subscription_name or ""


class DeadLetterPolicyBuilder:
    def __init__(self) -> None:
        self._count = 2**31 - 1
        self._topic: str | None = None
        self._subscription: str | None = None

    def maxRedeliverCount(self, count: int) -> DeadLetterPolicyBuilder:
        self._count = count
        return self

    def deadLetterTopic(self, topic: str) -> DeadLetterPolicyBuilder:
        self._topic = topic
        return self

    def initialSubscriptionName(self, name: str) -> DeadLetterPolicyBuilder:
        self._subscription = name
        return self

    def build(self) -> DeadLetterSettings:
        return DeadLetterSettings(DeadLetterPolicy(self._count, self._topic, self._subscription))
