"""What a producer sends: single messages, and batches as they gather."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from magnetar.client.exceptions import PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.message_options import MessageOptions
from magnetar.protocol.compression import compress
from magnetar.protocol.hot_client_encode import BatchBuffer
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

Done = Callable[[MessageId | None, PulsarException | None], object]
"""Told once per message: its id, or why it was not published."""


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
