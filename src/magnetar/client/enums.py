"""Enumerations with the names and numbers of the official Python client."""

from __future__ import annotations

from enum import IntEnum


class OfficialEnum(IntEnum):
    """Numbers whose text is that of official clients, such as ``ConsumerType.Shared``."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, form: str) -> str:
        return int.__format__(self, form) if form else str(self)


class ConsumerType(OfficialEnum):
    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(OfficialEnum):
    """Where a new subscription starts."""

    Latest = 0
    Earliest = 1


class ProducerAccessMode(OfficialEnum):
    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class CompressionType(OfficialEnum):
    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class BatchingType(OfficialEnum):
    """Which messages go into the same batch."""

    Default = 0
    """All, in the order of sending. A broker sends a batch to the consumer of its first message's key, which
    is wrong for other keys on Key_Shared subscriptions."""
    KeyBased = 1
    """Those with the same key; the batches of several keys are sent after one another."""


class RegexSubscriptionMode(OfficialEnum):
    """Which topics a pattern matches."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class HashingScheme(OfficialEnum):
    """How keys are assigned to partitions."""

    Murmur3_32Hash = 0
    BoostHash = 1
    """The default of official C++ and Python clients; ordering keys have no effect."""
    JavaStringHash = 2


class PartitionsRoutingMode(OfficialEnum):
    """How a partition is chosen for a message without a key."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class ProxyProtocol(OfficialEnum):
    """How a proxy learns which broker a connection is for."""

    SNI = 0
    """From the name of the server in the TLS handshake."""


class CryptoFailureAction(OfficialEnum):
    """What to do with a message that the consumer cannot decrypt."""

    FAIL = 0
    """The message is not delivered, and stays unacknowledged."""
    DISCARD = 1
    """The message is acknowledged and not delivered."""
    CONSUME = 2
    """The message is delivered encrypted; a batch as one message."""
