"""Enumerations; with the names and numbers of the official Python client where it has them."""

from __future__ import annotations

from enum import Enum, IntEnum


class OfficialEnum(IntEnum):
    """Numbers whose text is that of official clients, such as ``ConsumerType.Shared``."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, form: str) -> str:
        return int.__format__(self, form) if form else str(self)


class ConsumerType(OfficialEnum):
    """How the consumers of a subscription share its messages."""

    Exclusive = 0
    """The subscription has one consumer, which gets all messages in order."""
    Shared = 1
    """Each message goes to one of the consumers, in no order."""
    Failover = 2
    """One consumer gets all messages in order; another takes over when it is gone."""
    KeyShared = 3
    """All messages of a key go to the same consumer, in order."""


class InitialPosition(OfficialEnum):
    """Where a new subscription starts."""

    Latest = 0
    """Behind the last message of the topic."""
    Earliest = 1
    """With the first message of the topic."""


class ProducerAccessMode(OfficialEnum):
    """Whether a producer shares its topic with others."""

    Shared = 0
    """Other producers may publish, too."""
    Exclusive = 1
    """The only producer; it is refused while the topic has another one."""
    WaitForExclusive = 2
    """The only producer; it waits until the others are gone."""
    ExclusiveWithFencing = 3
    """The only producer; it ends the others."""


class CompressionType(OfficialEnum):
    """The compression of contents."""

    NONE = 0
    """No compression."""
    LZ4 = 1
    """Fast; needs the extra ``compression``."""
    ZLib = 2
    """In the standard library."""
    ZSTD = 3
    """Zstandard; needs the extra ``compression``."""
    SNAPPY = 4
    """Fast; needs the extra ``compression``."""


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
    """Persistent topics."""
    NonPersistentOnly = 1
    """Non-persistent topics."""
    AllTopics = 2
    """Both."""


class HashingScheme(OfficialEnum):
    """How keys are assigned to partitions."""

    Murmur3_32Hash = 0
    """Murmur3 of the key in UTF-8."""
    BoostHash = 1
    """The default of official C++ and Python clients; ordering keys have no effect."""
    JavaStringHash = 2
    """The default of official Java clients, and of this one."""


class PartitionsRoutingMode(OfficialEnum):
    """How a partition is chosen for a message without a key."""

    UseSinglePartition = 0
    """One partition, chosen at random when the producer is created."""
    RoundRobinDistribution = 1
    """Each partition in turn; with batching, one for the time of a batch."""
    CustomPartition = 2
    """The partition that ``message_router`` returns."""


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


class TransactionState(Enum):
    """The states of a transaction, named as in Java's client, but for NEW."""

    NEW = "NEW"
    """It has not begun."""
    OPEN = "OPEN"
    """Messages and acknowledgements can be added."""
    COMMITTING = "COMMITTING"
    """The coordinator has not answered yet that it is committed, or the outcome is unknown."""
    ABORTING = "ABORTING"
    """The coordinator has not answered yet that it is aborted."""
    COMMITTED = "COMMITTED"
    """All its messages and acknowledgements take effect."""
    ABORTED = "ABORTED"
    """None of its messages and acknowledgements takes effect."""
    ERROR = "ERROR"
    """The coordinator refused to end it, or the client has left the cluster; it is not committed."""
    TIME_OUT = "TIME_OUT"
    """It was open for longer than its time-out, and the coordinator aborts it."""
