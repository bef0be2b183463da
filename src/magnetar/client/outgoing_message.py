"""Outgoing messages, with the optional fields of their metadata."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from magnetar.client.exceptions import InvalidMessage, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.protocol.compression import compress
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

if TYPE_CHECKING:
    from magnetar.client.transactions import AnyTransaction, OpenTransaction

Done = Callable[[MessageId | None, PulsarException | None], object]
"""Called once per message, with the message id or the error; the other argument is None."""
_I64, _U64 = 1 << 63, 1 << 64


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """An entry that the caller has built, and that is published unchanged."""

    sequence_id: int
    highest_sequence_id: int
    """Sequence id of the last message; equal to ``sequence_id`` for a single message."""
    count: int
    """Number of messages."""
    metadata: bytes
    """The serialized metadata, without producer name, sequence id and publish time."""
    payload: bytes
    """The payload, in the batch format and compression that ``metadata`` states."""
    transaction: OpenTransaction | None = None
    """The open transaction of the messages; its id is also in ``metadata``, and the topic is registered at
    its coordinator. None: no transaction.
    """


class Pending:
    """An entry that was sent and has no receipt yet."""

    __slots__ = ("batched", "born", "done", "frame", "highest", "sequence_id", "transaction")

    def __init__(
        self,
        sequence_id: int,
        highest: int,
        frame: bytes | bytearray,
        done: list[Done],
        batched: bool,
        born: float,
        transaction: OpenTransaction | None = None,
    ) -> None:
        self.sequence_id = sequence_id
        self.highest = highest
        self.frame = frame
        self.done = done
        self.batched = batched
        self.born = born
        self.transaction = transaction

    def succeed(self, partition: int, ledger_id: int, entry_id: int) -> None:
        done = self.done
        if not self.batched:
            done[0](MessageId(partition, ledger_id, entry_id), None)
            return
        for index, each in enumerate(done):
            each(MessageId(partition, ledger_id, entry_id, index, len(done)), None)

    def fail(self, error: PulsarException) -> None:
        for each in self.done:
            each(None, error)


def compressed(metadata: MessageMetadata, payload: bytes, codec: int) -> bytes:
    """Compresses a payload, and returns it; sets the compression in the metadata.

    :param codec: number of the compression codec
    :raises CompressionError: the codec's library is not installed
    """
    if codec == CompressionType.NONE:
        return payload
    metadata.compression = codec  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return compress(codec, payload)


class MessageOptions:
    """The options of a message, which are the keyword arguments of ``send``, with the official client's
    names.
    """

    __slots__ = (
        "deliver_at",
        "disable_replication",
        "event_timestamp",
        "key_is_bytes",
        "key_is_null",
        "null_value",
        "ordering_key",
        "partition_key",
        "properties",
        "replication_clusters",
        "transaction",
    )

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        partition_key_bytes: bytes | None = None,
        null_partition_key: bool = False,
        null_value: bool = False,
        transaction: AnyTransaction | None = None,
        now_ms: int = 0,
    ) -> None:
        """:param properties: the properties of the message

        :param partition_key: the key: it determines the partition, the consumer of a KeyShared subscription,
            and which messages compaction replaces
        :param ordering_key: a key that is used instead of ``partition_key`` to choose the partition and the
            consumer of a KeyShared subscription
        :param replication_clusters: the clusters that the message is replicated to; None: all clusters of the
            namespace
        :param disable_replication: whether the message is not replicated to other clusters
        :param event_timestamp: the event time, in milliseconds since 1970
        :param partition_key_bytes: a binary key, instead of ``partition_key``; consumers get it in Base64
        :param null_partition_key: whether the key is null, which key-value schemas permit
        :param null_value: whether the message has a null value, which deletes its key in a compacted topic
        :param deliver_at: a time in milliseconds since 1970, before which Shared and KeyShared subscriptions
            do not deliver the message
        :param deliver_after: the delay before delivery, a timedelta from ``now_ms``; an alternative to
            ``deliver_at``
        :param transaction: the transaction of the message; consumers get the message once the transaction is
            committed
        :param now_ms: the present time in milliseconds since 1970, which the client sets
        :raises InvalidMessage: two options cannot be combined, or a time does not fit into 64 bits
        :raises InvalidTxnStatusError: the transaction is not open
        """
        if partition_key_bytes is not None:
            if partition_key is not None:
                raise InvalidMessage("partition_key and partition_key_bytes cannot be used together")
            partition_key = b64encode(partition_key_bytes).decode()
        if null_partition_key and partition_key is not None:
            raise InvalidMessage("a key and null_partition_key cannot be used together")
        if deliver_after is not None:
            if deliver_at is not None:
                raise InvalidMessage("deliver_at and deliver_after cannot be used together")
            deliver_at = now_ms + int(deliver_after.total_seconds() * 1000)
        if deliver_at is not None and not _is_within(deliver_at, -_I64, _I64):
            raise InvalidMessage(f"a delivery time must fit into 64 bits, not {deliver_at!r}")
        if event_timestamp is not None and not _is_within(event_timestamp, 0, _U64):
            raise InvalidMessage(
                f"an event time must be 0 or more and fit into 64 bits, not {event_timestamp!r}"
            )
        self.properties = properties
        self.partition_key = partition_key
        self.key_is_bytes = partition_key_bytes is not None
        self.key_is_null = null_partition_key
        self.null_value = null_value
        self.ordering_key = ordering_key
        self.replication_clusters = replication_clusters
        self.disable_replication = disable_replication
        self.event_timestamp = event_timestamp
        self.deliver_at = deliver_at
        self.transaction: OpenTransaction | None = None
        if transaction is not None:
            self.transaction = transaction.begun()
            self.transaction.check_open()

    @property
    def must_be_alone(self) -> bool:
        """Whether an option requires that the message is not sent in a batch."""
        return (
            self.deliver_at is not None or self.disable_replication or self.replication_clusters is not None
        )

    @property
    def dispatch_key(self) -> str | None:
        """The key by which Key_Shared subscriptions choose the consumer; None: the message has no key."""
        return self.ordering_key if self.ordering_key is not None else self.partition_key

    def fill(self, metadata: MessageMetadata) -> None:
        """Writes all options to an entry's metadata."""
        self._fill_own(metadata)
        if self.deliver_at is not None:
            metadata.deliver_at_time = self.deliver_at
        if self.disable_replication:
            metadata.replicate_to.append("__local__")
        elif self.replication_clusters:
            metadata.replicate_to.extend(self.replication_clusters)
        self.fill_transaction(metadata)

    def fill_transaction(self, metadata: MessageMetadata) -> None:
        """Writes the id of the transaction, the only option that all messages of a batch share, to an entry's
        metadata.
        """
        if self.transaction is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = self.transaction.id

    def single(self) -> bytes:
        """Returns the options of a message in a batch, as serialized ``SingleMessageMetadata`` without its
        required fields.
        """
        metadata = SingleMessageMetadata()
        self._fill_own(metadata)
        return metadata.SerializePartialToString()

    def _fill_own(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        """Writes the options that have a field in both kinds of metadata: an entry's, and a batched
        message's.
        """
        if self.properties:
            for key, value in self.properties.items():
                metadata.properties.add(key=key, value=value)
        self.fill_keys(metadata)
        if self.null_value:
            metadata.null_value = True
        if self.event_timestamp is not None:
            metadata.event_time = self.event_timestamp

    def fill_keys(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        """Writes only the partition key and the ordering key."""
        if self.partition_key is not None:
            metadata.partition_key = self.partition_key
            if self.key_is_bytes:
                metadata.partition_key_b64_encoded = True
        elif self.key_is_null:
            metadata.null_partition_key = True
        if self.ordering_key is not None:
            metadata.ordering_key = self.ordering_key.encode()


def _is_within(value: object, lowest: int, end: int) -> bool:
    """Whether the value is a number in [lowest, end); callers can pass values of any type."""
    return isinstance(value, int) and lowest <= value < end
