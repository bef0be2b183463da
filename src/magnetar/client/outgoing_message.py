"""Outgoing messages: single ones, and batches."""

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
"""Called once per message, with its id or the error."""


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """An entry that the caller has prepared and that is published as it is."""

    sequence_id: int
    highest_sequence_id: int
    """Sequence id of its last message; equals ``sequence_id`` for one message."""
    count: int
    """Number of messages."""
    metadata: bytes
    """Serialized, without producer name, sequence id and publish time."""
    payload: bytes
    """Batched and compressed according to ``metadata``."""


class Pending:
    """A SEND without a receipt."""

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
        """Uncompressed size in bytes."""
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
        """Returns (metadata after sequence id and publish time, payload, callbacks), and empties the batch.

        :raises CompressionError: the codec's library is not installed
        """
        done, self.done = self.done, []
        metadata = MessageMetadata(num_messages_in_batch=len(done))
        options, self._options = self._options, None
        if options is not None:
            # As in official clients, the batch has the keys of its first message.
            options.fill_keys(metadata)
        if len(done) > 1:
            metadata.highest_sequence_id = self.last_sequence_id
        payload = compressed(metadata, self._buffer.take(), codec)
        return metadata.SerializePartialToString(), payload, done


def compressed(metadata: MessageMetadata, payload: bytes, codec: int) -> bytes:
    """Returns the compressed payload, and sets the compression in the metadata.

    :raises CompressionError: the codec's library is not installed
    """
    if codec == CompressionType.NONE:
        return payload
    metadata.compression = codec  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return compress(codec, payload)
