"""Batches: messages that are sent together as one entry, or as one entry for each key."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from magnetar.client.outgoing_message import Done, MessageOptions, compressed
from magnetar.protocol.hot_client_encode import BatchBuffer
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

if TYPE_CHECKING:
    from magnetar.client.transactions import OpenTransaction


class Batch:
    """Messages that wait to be sent together as one entry."""

    __slots__ = ("_options", "buffer", "done", "first_sequence_id", "last_sequence_id")

    def __init__(self) -> None:
        self.buffer = BatchBuffer()
        self._options: MessageOptions | None = None
        self.done: list[Done] = []
        self.first_sequence_id = -1
        self.last_sequence_id = -1

    def add(self, sequence_id: int, content: bytes, options: MessageOptions | None, done: Done) -> None:
        if not self.done:
            self.first_sequence_id = sequence_id
            self._options = options
        self.last_sequence_id = sequence_id
        self.buffer.add(options.single() if options is not None else b"", sequence_id, content)
        self.done.append(done)

    @property
    def transaction(self) -> OpenTransaction | None:
        """The transaction of all messages; None: no transaction."""
        return self._options.transaction if self._options is not None else None

    def take(self, codec: int, *, numbered_by_last: bool) -> tuple[bytes, bytes]:
        """Empties the batch; returns its serialized metadata (without sequence id and publish time) and its
        payload.

        :param codec: number of the compression codec
        :param numbered_by_last: whether the entry gets only the sequence id of its last message, instead of
            the sequence ids of its first and last message
        :raises CompressionError: the codec's library is not installed
        """
        done, self.done = self.done, []
        metadata = MessageMetadata(num_messages_in_batch=len(done))
        if self._options is not None:
            # Brokers dispatch a batch by the keys in its metadata; they are those of the first message.
            self._options.fill_keys(metadata)
            self._options.fill_transaction(metadata)
        if len(done) > 1 and not numbered_by_last:
            metadata.highest_sequence_id = self.last_sequence_id
        payload = compressed(metadata, self.buffer.take(), codec)
        return metadata.SerializePartialToString(), payload


class Batches:
    """The open batches of a producer: one for all messages, or one for each key."""

    __slots__ = ("_by_key", "_spare", "born", "count", "size", "transaction")

    def __init__(self) -> None:
        self._by_key: dict[str | None, Batch] = {}
        self._spare: Batch | None = None
        self.born = 0.0
        """Time when the first waiting message was added, on the loop's clock, in seconds."""
        self.count = 0
        """Number of waiting messages."""
        self.size = 0
        """Total uncompressed size of all batches, in bytes."""
        self.transaction: OpenTransaction | None = None
        """The transaction of all messages; None: no transaction."""

    def has_other_key_than(self, key: str | None) -> bool:
        """Whether messages wait and none of them has this key; None, the key of messages without a key,
        counts as a key, too.
        """
        return bool(self._by_key) and key not in self._by_key

    def add(
        self,
        key: str | None,
        sequence_id: int,
        content: bytes,
        options: MessageOptions | None,
        done: Done,
        now: float,
    ) -> None:
        """Adds a message to the batch of its key.

        :param key: the key of the batch; None: the batch for all messages
        :param now: the present time on the loop's clock, in seconds; :attr:`born` gets this time if no
            message waits
        """
        if not self.count:
            self.born = now
            self.transaction = options.transaction if options is not None else None
        batch = self._by_key.get(key)
        if batch is None:
            batch = self._by_key[key] = self._spare or Batch()
            self._spare = None
        buffer = batch.buffer
        before = buffer.size
        batch.add(sequence_id, content, options, done)
        self.size += buffer.size - before
        self.count += 1

    def take(self) -> list[Batch]:
        """Returns the batches ordered by their last sequence ids, and removes them."""
        batches = [batch for batch in self._by_key.values() if batch.done]
        self._by_key.clear()
        self.count = self.size = 0
        batches.sort(key=attrgetter("last_sequence_id"))
        return batches

    def reuse(self, batch: Batch) -> None:
        """Keeps a batch after it was sent, to use it for later messages; its buffer already has the usual
        size.
        """
        self._spare = batch
