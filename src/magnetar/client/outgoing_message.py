"""What a producer sends: the optional parts of a message's metadata, and batches as they gather."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from magnetar.client.exceptions import InvalidMessage, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.protocol.compression import compress
from magnetar.protocol.hot_client_encode import BatchBuffer
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

Done = Callable[[MessageId | None, PulsarException | None], object]
"""Told once per message: its id, or why it was not published."""


class MessageOptions:
    """What a message may carry besides its content, as official clients name it."""

    __slots__ = (
        "deliver_at",
        "disable_replication",
        "event_timestamp",
        "key_is_bytes",
        "ordering_key",
        "partition_key",
        "properties",
        "replication_clusters",
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
        now_ms: int = 0,
    ) -> None:
        """:param event_timestamp: ms since 1970

        :param partition_key_bytes: a key that need not be text, in place of ``partition_key``; consumers get
            it in Base64

        :param deliver_at: ms since 1970, before which it is not delivered (Shared and Key_Shared)
        :param deliver_after: the same, from ``now_ms`` on
        :raises InvalidMessage: two were given of which each says the same thing
        """
        if partition_key_bytes is not None:
            if partition_key is not None:
                raise InvalidMessage("partition_key and partition_key_bytes exclude each other")
            partition_key = b64encode(partition_key_bytes).decode()
        if deliver_after is not None:
            if deliver_at is not None:
                raise InvalidMessage("deliver_at and deliver_after exclude each other")
            deliver_at = now_ms + int(deliver_after.total_seconds() * 1000)
        self.properties = properties
        self.partition_key = partition_key
        self.key_is_bytes = partition_key_bytes is not None
        self.ordering_key = ordering_key
        self.replication_clusters = replication_clusters
        self.disable_replication = disable_replication
        self.event_timestamp = event_timestamp
        self.deliver_at = deliver_at

    @property
    def must_be_alone(self) -> bool:
        """Whether it says something that only an entry of its own can say."""
        return (
            self.deliver_at is not None or self.disable_replication or self.replication_clusters is not None
        )

    def fill(self, metadata: MessageMetadata) -> None:
        """Writes all of it to an entry's metadata."""
        self._fill_own(metadata)
        if self.deliver_at is not None:
            metadata.deliver_at_time = self.deliver_at
        if self.disable_replication:
            metadata.replicate_to.append("__local__")
        elif self.replication_clusters:
            metadata.replicate_to.extend(self.replication_clusters)

    def single(self) -> bytes:
        """The part of it that a message inside a batch carries, serialized without required fields."""
        metadata = SingleMessageMetadata()
        self._fill_own(metadata)
        return metadata.SerializePartialToString()

    def _fill_own(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        """What a message has in a batch as well as alone."""
        if self.properties:
            for key, value in self.properties.items():
                metadata.properties.add(key=key, value=value)
        self.fill_keys(metadata)
        if self.event_timestamp is not None:
            metadata.event_time = self.event_timestamp

    def fill_keys(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        """Writes the keys alone."""
        if self.partition_key is not None:
            metadata.partition_key = self.partition_key
            if self.key_is_bytes:
                metadata.partition_key_b64_encoded = True
        if self.ordering_key is not None:
            metadata.ordering_key = self.ordering_key.encode()


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """An entry whose boundaries are fixed: it is published as it is, by whoever made it."""

    sequence_id: int
    highest_sequence_id: int
    """Of its last message; as ``sequence_id`` where it has one message."""
    count: int
    """Messages in it."""
    metadata: bytes
    """Serialized, without producer name, sequence id and publish time."""
    payload: bytes
    """As ``metadata`` says: batched, compressed."""


class Pending:
    """One SEND until its receipt."""

    __slots__ = ("batched", "born", "done", "frame", "highest", "sequence_id")

    def __init__(
        self,
        sequence_id: int,
        highest: int,
        frame: bytes | bytearray,
        done: list[Done],
        batched: bool,
        born: float,
    ) -> None:
        self.sequence_id = sequence_id
        self.highest = highest
        self.frame = frame
        self.done = done
        self.batched = batched
        self.born = born

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


class Batch:
    """Messages that wait to be sent as one entry."""

    __slots__ = ("_buffer", "_options", "born", "done", "first_sequence_id", "last_sequence_id")

    def __init__(self) -> None:
        self._buffer = BatchBuffer()
        self._options: MessageOptions | None = None
        self.done: list[Done] = []
        self.first_sequence_id = -1
        self.last_sequence_id = -1
        self.born = 0.0

    @property
    def size(self) -> int:
        """Bytes so far, uncompressed."""
        return self._buffer.size

    def add(
        self, sequence_id: int, content: bytes, options: MessageOptions | None, done: Done, now: float
    ) -> None:
        if not self.done:
            self.first_sequence_id = sequence_id
            self._options = options
            self.born = now
        self.last_sequence_id = sequence_id
        self._buffer.add(options.single() if options is not None else b"", sequence_id, content)
        self.done.append(done)

    def take(self, codec: int) -> tuple[bytes, bytes, list[Done]]:
        """(metadata behind sequence id and publish time, payload, whom to tell); empty afterwards.

        :raises CompressionError: the codec's library is not installed
        """
        done, self.done = self.done, []
        metadata = MessageMetadata(num_messages_in_batch=len(done))
        options, self._options = self._options, None
        if options is not None:
            # As in official clients, the first message's keys stand for the batch.
            options.fill_keys(metadata)
        if len(done) > 1:
            metadata.highest_sequence_id = self.last_sequence_id
        payload = compressed(metadata, self._buffer.take(), codec)
        return metadata.SerializePartialToString(), payload, done


def compressed(metadata: MessageMetadata, payload: bytes, codec: int) -> bytes:
    """The payload as it is sent; the metadata says how it was compressed.

    :raises CompressionError: the codec's library is not installed
    """
    if codec == CompressionType.NONE:
        return payload
    metadata.compression = codec  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return compress(codec, payload)
