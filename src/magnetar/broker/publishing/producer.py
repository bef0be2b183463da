"""A connected producer; names for producers that do not state a name; and partitions for messages without a
key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.flow.connection import Assigned, Departure
from magnetar.broker.flow.rate_limits import PublishLimiter
from magnetar.broker.flow.rates import Rate
from magnetar.broker.flow.resource_groups import ResourceGroup
from magnetar.broker.publishing.admission import Admission
from magnetar.broker.publishing.deduplication import Deduplication
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.tasks import TaskScope
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.position import Position
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import BROKER, Principal

if TYPE_CHECKING:
    from magnetar.broker.publishing.exclusive_access import ExclusiveAccess
    from magnetar.broker.publishing.producers import Producers
    from magnetar.broker.transactions import TxnId

MOST_TOPICS = 1000
"""The maximum number of topics in :class:`RequestTurns`; a topic that was dropped from it starts at its first
partition again."""


class AccessMode(IntEnum):
    """The access modes of producers: ``ProducerAccessMode`` (PIP-68)."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class PublishOutcomes(ABC):
    """Receives the outcomes of the entries that the producers of a connection publish."""

    __slots__ = ()

    @abstractmethod
    def on_durable(
        self,
        producer: Producer,
        publish: Publish,
        ledger_id: int,
        first_entry_id: int,
        first: int,
        count: int,
        size: int,
    ) -> None:
        """Reports that entries [first, first + count) of a publish are stored, from ``first_entry_id`` on."""

    @abstractmethod
    def on_passed(self, producer: Producer, publish: Publish, taken: int, size: int) -> None:
        """Reports that the first ``taken`` entries were passed to consumers and the rest dropped; none is
        stored.

        :param size: bytes of all entries
        """

    @abstractmethod
    def on_failed(
        self, producer: Producer, publish: Publish, first: int, count: int, size: int, error: BrokerError
    ) -> None:
        """Reports that entries [first, first + count) will never be stored. The client gets the error, and
        sends the entries again if its producer was closed."""


class ProducerConnection(Protocol):
    """The methods of a connection that its producers call."""

    non_persistent_pending: int
    """Entries that non-persistent topics have passed to consumers, and whose receipts are outstanding."""

    @property
    def address(self) -> str: ...
    @property
    def client_version(self) -> str: ...
    @property
    def supports_partial_producer(self) -> bool: ...
    @property
    def held_back(self) -> bool:
        """Whether the connection is not read because too many of its bytes are pending."""
        ...

    @property
    def publishing(self) -> PublishOutcomes: ...

    async def is_alive(self) -> bool:
        """Checks whether the client responds; if not, closes the connection and returns False."""
        ...

    def fail(self, error: BaseException) -> None:
        """Closes the connection after an internal error."""
        ...

    def stop_producer(self, producer: Producer) -> None:
        """Accepts no more messages from the producer; receipts of earlier messages are still sent."""
        ...

    def close_producer(self, producer: Producer, assigned: Assigned | None = None) -> None:
        """Tells the client that the broker closed its producer; the client reconnects.

        :param assigned: where the client finds the topic; None: the client looks it up
        """
        ...


class ProducerTopic(Protocol):
    """The methods of a topic that its producers call; a higher layer implements both kinds of topics."""

    full_name: str
    loop: Loop
    clock: Clock
    tasks: TaskScope
    producers: Producers
    access: ExclusiveAccess
    last_active: float
    """The time when the topic was last known to be in use; seconds of the monotonic clock."""
    departure: Departure | None
    """Tells clients which broker will serve the topic next; None: clients look it up."""
    closing: bool
    """Whether the topic is being unloaded or deleted, so that it accepts neither producers nor messages."""
    fenced: bool
    """Whether the topic was lost to another broker."""

    @property
    def name(self) -> TopicName: ...
    @property
    def terminated(self) -> bool: ...

    @property
    def admission(self) -> Admission | None:
        """The checks of each entry; None: there are no checks."""
        ...

    @property
    def group(self) -> ResourceGroup | None: ...
    @property
    def publish_limiter(self) -> PublishLimiter | None:
        """The limit of the publish rate of the topic."""
        ...

    def publish(
        self, publish: Publish, buffer: bytes, starts: array[int], ends: array[int], size: int
    ) -> None:
        """Publishes entries of a producer to the topic.

        :raises TopicTerminated: the topic is terminated
        :raises ServiceNotReady: the topic is closing, or was lost to another broker
        """
        ...

    def hindered(self, kind: Hindrance, text: str) -> None:
        """Records that a producer or a message was refused, with the reason."""
        ...

    def check_open(self) -> None:
        """Checks that the topic accepts requests.

        :raises ServiceNotReady: the topic is closing or lost; the client looks it up again
        """
        ...

    def takes_announcements_of(self, producer: Producer) -> bool:
        """Whether a producer only announces entries that another topic has stored; such a producer is
        admitted even if this topic is terminated."""
        ...

    def producer_came(self, producer: Producer) -> None:
        """Called when a producer was admitted."""
        ...

    def producer_left(self, producer: Producer) -> None:
        """Called when a connected producer has left."""
        ...

    def stored_epoch(self) -> int | None: ...
    async def store_epoch(self, epoch: int) -> None: ...

    def last_sequence_id(self, name: str) -> int:
        """Returns the highest durable sequence id of a producer; -1 if unknown."""
        ...


class Publish:
    """The entries of the SENDs that one read of a connection received from a producer, until they are
    durable.
    """

    __slots__ = (
        "completes",
        "highest_sequence_ids",
        "left",
        "messages",
        "producer",
        "sequence_ids",
        "started",
        "transaction",
    )

    def __init__(
        self,
        producer: Producer,
        sequence_ids: array[int],
        highest_sequence_ids: array[int],
        messages: int,
        started: float,
        transaction: TxnId | None = None,
    ) -> None:
        """:param transaction: the transaction of all entries; None: no transaction"""
        self.transaction = transaction
        self.producer = producer
        self.sequence_ids = sequence_ids
        self.highest_sequence_ids = highest_sequence_ids
        self.messages = messages
        self.left = len(sequence_ids)
        self.started = started
        self.completes = True
        """Whether the entries complete messages; False for markers, and for chunks that are not the last one
        of their message."""

    @property
    def sent_ids(self) -> array[int]:
        """The sequence ids of the SENDs; an error to the client names the sequence id of the refused SEND."""
        return self.sequence_ids

    # Reports to deduplication

    def note_stored(self, known: Deduplication, first: int, count: int) -> None:
        """Records in ``known`` that entries [first, first + count) are durable."""
        if self.completes:
            last = first + count - 1
            name = self.producer.name
            known.stored(name, self.sequence_ids[last], self.highest_sequence_ids[last], count)
        else:
            known.counted(count)

    def note_failed(self, known: Deduplication, first: int, count: int) -> None:
        """Records in ``known`` that entries [first, first + count) will not become durable."""

    def sequence_marks(self, first: int, count: int) -> Sequence[tuple[str, int]]:
        """Returns the producer's name with the highest sequence id of entries [first, first + count)."""
        if not self.completes:
            return ()
        last = first + count - 1
        mark = max(self.sequence_ids[last], self.highest_sequence_ids[last])
        return ((self.producer.name, mark),)

    def source_marks(self, first: int, count: int) -> Sequence[tuple[str, Position]]:
        """Returns the names of replicators, each with the highest source position of its messages in entries
        [first, first + count)."""
        return ()


class TransactionEnd(Publish):
    """The marker that ends a transaction; it is not a message."""

    __slots__ = ("commit",)

    def __init__(self, producer: Producer, started: float, transaction: TxnId, *, commit: bool) -> None:
        ids = array("q", (-1,))
        super().__init__(producer, ids, ids, 0, started, transaction)
        self.completes = False
        self.commit = commit


def sequence_marks(appends: Iterable[Append]) -> Iterator[tuple[str, int]]:
    """Yields, for appends that are not durable yet, names of producers, each with a highest sequence id."""
    for append in appends:
        if append.context is not None:
            yield from append.context.sequence_marks(append.first, append.count)


def source_marks(appends: Iterable[Append]) -> Iterator[tuple[str, Position]]:
    """Yields, for appends that are not durable yet, names of replicators, each with a source position."""
    for append in appends:
        if append.context is not None:
            yield from append.context.source_marks(append.first, append.count)


class Producer:
    """A producer, identified by its connection and by the id that the client chose for it."""

    __slots__ = (
        "access_mode",
        "address",
        "apart",
        "by_position",
        "chunks",
        "client_version",
        "closed",
        "connected_ms",
        "connection",
        "drops",
        "epoch",
        "fenced",
        "guarded",
        "held_receipts",
        "metadata",
        "name",
        "partial_producer",
        "pending",
        "principal",
        "producer_id",
        "rate_in",
        "remote_cluster",
        "replicates",
        "schema_version",
        "submitted",
        "topic",
        "topic_epoch",
        "user_provided_name",
    )

    def __init__(
        self,
        topic: ProducerTopic,
        connection: ProducerConnection,
        producer_id: int,
        name: str,
        *,
        user_provided_name: bool,
        epoch: int,
        access_mode: AccessMode,
        topic_epoch: int | None,
        metadata: Mapping[str, str],
        connected_ms: int,
        schema_version: bytes = b"",
        principal: Principal = BROKER,
        remote_cluster: str | None = None,
        by_position: bool = False,
    ) -> None:
        """:param principal: the principal for which the producer publishes
        :param remote_cluster: the cluster of the replicator that uses the producer; None: a client uses it
        :param by_position: whether its replicator wants receipts with source positions
        """
        self.topic = topic
        self.connection = connection
        self.producer_id = producer_id
        self.name = name
        self.user_provided_name = user_provided_name
        self.epoch = epoch
        self.access_mode = access_mode
        self.topic_epoch = topic_epoch
        self.metadata = dict(metadata)
        self.connected_ms = connected_ms
        self.schema_version = schema_version
        self.principal = principal
        self.remote_cluster = remote_cluster
        self.address = connection.address
        self.client_version = connection.client_version
        self.partial_producer = connection.supports_partial_producer
        self.rate_in = Rate()
        self.chunks = Rate()
        self.drops = Rate()
        """The rate of messages that a non-persistent topic dropped."""
        self.pending = 0
        """Entries that are not durable yet."""
        self.submitted = 0
        """The number of entries that were passed to the topic so far."""
        self.held_receipts: deque[tuple[int, bytes]] | None = None
        """Receipts of duplicates that wait for the receipts of earlier entries, each with the number of
        entries submitted before it. None if no receipt waits, because an empty queue takes 760 bytes."""
        self.closed = False
        self.fenced = False
        self.by_position = by_position
        self.guarded = ""
        """The reason why the producer may not send messages that are reserved for brokers, so that each entry
        is checked; empty: the producer may send such messages.
        """
        self.replicates = remote_cluster is not None and topic.name.persistent
        """Whether the topic handles the producer's entries like those of a replicator."""
        self.apart = self.replicates
        """Whether entries take the slower path, because the producer replicates, is guarded or is closed."""

    def guard(self, why: str) -> None:
        """Starts or stops checking the producer's entries before they are stored.

        :param why: the reason for the checks; empty: no checks
        """
        self.guarded = why
        self.apart = bool(why) or self.replicates or self.closed

    def replaces(self, other: Producer) -> bool:
        """Whether this producer replaces ``other``: the client has opened ``other`` again on the same
        connection, with a higher epoch.
        """
        return (
            self.connection is other.connection
            and self.producer_id == other.producer_id
            and self.epoch > other.epoch
            and self.user_provided_name == other.user_provided_name
        )


class OpeningProducer:
    """A PRODUCER request in progress, until its last answer."""

    __slots__ = ("producer",)

    def __init__(self) -> None:
        self.producer: Producer | None = None
        """The producer; None until the topic is loaded."""


class ProducerNames:
    """Makes names, unique in the cluster, for producers that do not state a name: ``CLUSTER-LIFE-N``."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._given = 0
        self.life = 0
        """A number that no other start of a broker in the cluster has; names contain it, because clients may
        reconnect with names from earlier starts."""

    def next(self) -> str:
        number = self._given
        self._given += 1
        return f"{self._cluster}-{self.life}-{number}"


class RequestTurns:
    """Chooses partitions in turn for messages without a key that are published over HTTP.

    A counter is kept for each of the topics that were published to most recently.
    """

    def __init__(self) -> None:
        self._next: dict[TopicName, int] = {}

    def take(self, topic: TopicName, count: int) -> int:
        """Returns the number of the first of ``count`` messages; a message's number modulo the number of
        partitions is the index of its partition."""
        if not count:
            return 0
        turn = self._next.pop(topic, 0)
        self._next[topic] = turn + count
        if len(self._next) > MOST_TOPICS:
            del self._next[next(iter(self._next))]
        return turn
