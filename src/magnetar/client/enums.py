"""Enumerations; those that the official Python client also has use its names and numbers."""

from __future__ import annotations

from enum import Enum, IntEnum


class OfficialEnum(IntEnum):
    """Base class of integer enumerations whose ``str()`` is as in the official client, such as
    ``ConsumerType.Shared``.
    """

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, form: str) -> str:
        return int.__format__(self, form) if form else str(self)


class ConsumerType(OfficialEnum):
    """How the consumers of a subscription divide its messages."""

    Exclusive = 0
    """The subscription has one consumer, which gets all messages in order."""
    Shared = 1
    """Each message goes to one of the consumers; the order is not guaranteed."""
    Failover = 2
    """One consumer gets all messages in order; another consumer takes over after a disconnection."""
    KeyShared = 3
    """All messages of a key go to the same consumer, in order."""


class InitialPosition(OfficialEnum):
    """The start position of a new subscription."""

    Latest = 0
    """After the last message of the topic."""
    Earliest = 1
    """Before the first message of the topic."""


class ProducerAccessMode(OfficialEnum):
    """Whether a producer permits other producers on its topic."""

    Shared = 0
    """Other producers can publish, too."""
    Exclusive = 1
    """The only producer; the broker refuses it while the topic has another producer."""
    WaitForExclusive = 2
    """The only producer; it waits until the other producers are disconnected."""
    ExclusiveWithFencing = 3
    """The only producer; the broker disconnects the others."""


class CompressionType(OfficialEnum):
    """The compression of payloads."""

    NONE = 0
    """No compression."""
    LZ4 = 1
    """Fast; requires the extra ``compression``."""
    ZLib = 2
    """Zlib; requires no extra, because it is in Python's standard library."""
    ZSTD = 3
    """Zstandard; requires the extra ``compression``."""
    SNAPPY = 4
    """Fast; requires the extra ``compression``."""


class BatchingType(OfficialEnum):
    """The rule by which messages are put into the same batch."""

    Default = 0
    """All messages, in the order of sending. The broker dispatches a batch by the key of its first message,
    so messages with other keys can reach the wrong consumer of a Key_Shared subscription.
    """
    KeyBased = 1
    """Messages with the same key; the batches of different keys are sent one after another."""


class RegexSubscriptionMode(OfficialEnum):
    """The types of topics that a pattern matches."""

    PersistentOnly = 0
    """Only persistent topics."""
    NonPersistentOnly = 1
    """Only non-persistent topics."""
    AllTopics = 2
    """Persistent and non-persistent topics."""


class HashingScheme(OfficialEnum):
    """The hash function that assigns keys to partitions."""

    Murmur3_32Hash = 0
    """Murmur3 of the key in UTF-8."""
    BoostHash = 1
    """The default of the official C++ and Python clients; ordering keys have no effect."""
    JavaStringHash = 2
    """The default of the official Java client, and of this client."""


class PartitionsRoutingMode(OfficialEnum):
    """How the partition of a message without a key is chosen."""

    UseSinglePartition = 0
    """One partition, chosen at random when the producer is created."""
    RoundRobinDistribution = 1
    """Each partition in turn; with batching, the same partition during a batch."""
    CustomPartition = 2
    """The partition that ``message_router`` returns."""


class ProxyProtocol(OfficialEnum):
    """The protocol by which a proxy learns to which broker it must connect."""

    SNI = 0
    """The server name in the TLS handshake."""


class CryptoFailureAction(OfficialEnum):
    """What a consumer does with a message that it cannot decrypt."""

    FAIL = 0
    """The message is not delivered and stays unacknowledged."""
    DISCARD = 1
    """The message is acknowledged and not delivered."""
    CONSUME = 2
    """The message is delivered encrypted; a batch is delivered as one message."""


class TransactionState(Enum):
    """The states of a transaction, with the Java client's names except for NEW."""

    NEW = "NEW"
    """The transaction has not begun."""
    OPEN = "OPEN"
    """Messages and acknowledgements can be added."""
    COMMITTING = "COMMITTING"
    """The coordinator has not confirmed the commit yet, or the outcome is unknown."""
    ABORTING = "ABORTING"
    """The coordinator has not confirmed the abort yet."""
    COMMITTED = "COMMITTED"
    """All messages and acknowledgements of the transaction are effective."""
    ABORTED = "ABORTED"
    """The messages and acknowledgements of the transaction have no effect."""
    ERROR = "ERROR"
    """The coordinator refused the commit or abort, or the client changed to another cluster; the transaction
    is not committed.
    """
    TIME_OUT = "TIME_OUT"
    """The transaction was open for longer than its time-out, and the coordinator aborts it."""
