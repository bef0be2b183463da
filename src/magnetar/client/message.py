"""The objects that programs receive: messages, or whole entries as stored."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from magnetar.client.exceptions import InvalidMessage
from magnetar.client.hot_messages import PlainEntry, PlainMessage, messages_of
from magnetar.client.message_id import MessageId
from magnetar.protocol.errors import EntryError, ProtocolError
from magnetar.protocol.frames import signed
from magnetar.protocol.hot_client_decode import plain_payload, split_places
from magnetar.protocol.metadata import Entry, parse_entry, parse_message
from magnetar.protocol.pulsar_api_pb2 import CommandMessage, MessageMetadata, SingleMessageMetadata

_SHOWN_BYTES = 64
"""Maximum number of bytes of the payload that ``repr()`` shows."""
Value = Any
"""The decoded value of a message; its type depends on the schema."""


class RawEntry(PlainEntry):
    """One entry as stored: a single message, or a whole batch."""

    __slots__ = ()

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        partition: int,
        redeliveries: int,
        batch_size: int,
        data: bytes,
        ack_set: tuple[int, ...] = (),
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.partition = partition
        self.redeliveries = redeliveries
        self.batch_size = batch_size
        self.data = data
        self.ack_set = ack_set
        self._parsed: Entry | None = None

    @property
    def num_messages(self) -> int:
        """Number of messages to deliver, which is also the number of permits that the entry uses."""
        if self.ack_set:
            return sum((word % 2**64).bit_count() for word in self.ack_set)
        return self.batch_size or 1

    def message_id(self) -> MessageId:
        """The id of the entry as a whole."""
        return MessageId(self.partition, self.ledger_id, self.entry_id, -1, self.batch_size)

    @property
    def entry(self) -> Entry:
        """The metadata and the payload, which the first access parses.

        :raises InvalidMessage: the fields of the entry contradict each other
        """
        if self._parsed is None:
            try:
                self._parsed = parse_entry(self.data, verify_checksum=False)
            except EntryError as error:
                raise InvalidMessage(f"{self.message_id()}: {error}") from error
        return self._parsed

    def with_entry(self, entry: Entry) -> RawEntry:
        """Returns a copy of this entry with other metadata and another payload, which was decrypted or
        assembled from chunks.
        """
        made = RawEntry(
            self.ledger_id,
            self.entry_id,
            self.partition,
            self.redeliveries,
            self.batch_size,
            b"",
            self.ack_set,
        )
        made._parsed = entry
        return made

    @property
    def metadata(self) -> MessageMetadata:
        """The metadata of the entry; for a batch, the metadata that all its messages share.

        :raises InvalidMessage: the fields of the entry contradict each other
        """
        return self.entry.metadata

    @property
    def sealed(self) -> MessageMetadata | None:
        """The metadata as it was before the client decrypted the payload; None if the client has not
        decrypted it.
        """
        return self.entry.sealed

    @property
    def payload(self) -> bytes:
        """The payload as the producer compressed and possibly encrypted it.

        :raises InvalidMessage: the fields of the entry contradict each other
        """
        return self.entry.payload

    @property
    def is_encrypted(self) -> bool:
        """Returns whether the payload is encrypted.

        :raises InvalidMessage: the fields of the entry contradict each other
        """
        return bool(self.metadata.encryption_keys)

    def whole(self, topic: str) -> Message:
        """Returns the entry as one message, neither decompressed nor split."""
        message_id = MessageId(self.partition, self.ledger_id, self.entry_id)
        return Message(topic, message_id, self.entry, b"", self.payload, self.redeliveries)

    def plain_message(self, topic: str) -> Message | None:
        """Returns the message of an entry whose payload needs no conversion, without parsing the metadata;
        None: the metadata must be parsed, or the entry is damaged.
        """
        if self._parsed is not None:
            return None
        start = plain_payload(self.data)
        if start < 0:
            return None
        message_id = MessageId(self.partition, self.ledger_id, self.entry_id)
        return Message(topic, message_id, self, b"", self.data[start:], self.redeliveries)

    def is_delivered(self, batch_index: int) -> bool:
        """Whether the message with this index in the batch must be delivered."""
        if not self.ack_set:
            return True
        word = batch_index >> 6
        return word < len(self.ack_set) and bool(self.ack_set[word] >> (batch_index & 63) & 1)

    def messages(self, topic: str) -> list[Message]:
        """Returns the messages of the entry, except messages that are already acknowledged.

        :raises InvalidMessage: the entry cannot be decompressed or split
        """
        entry = self.entry
        try:
            payload = entry.uncompressed_payload()
        except ProtocolError as error:
            raise InvalidMessage(f"{self.message_id()}: {error}") from error
        if self.batch_size == 0:
            message_id = MessageId(self.partition, self.ledger_id, self.entry_id)
            return [Message(topic, message_id, entry, b"", payload, self.redeliveries)]
        places = split_places(payload, self.batch_size)
        if places is None:
            raise InvalidMessage(
                f"{self.message_id()}: the batch holds fewer than {self.batch_size} messages"
            )
        ids = (self.partition, self.ledger_id, self.entry_id)
        return messages_of(Message, topic, entry, payload, places, ids, self.redeliveries, self.ack_set)


def id_of(command: CommandMessage, partition: int) -> MessageId:
    """Returns the id of the entry that a MESSAGE command announces."""
    return MessageId(partition, signed(command.message_id.ledgerId), signed(command.message_id.entryId))


def entry_of(command: CommandMessage, entry: bytes, partition: int) -> RawEntry:
    """Returns the entry of one MESSAGE frame.

    :raises EntryError: the fields of the entry contradict each other
    """
    size = parse_entry(entry, verify_checksum=False).batch_size or 0
    ledger_id, entry_id = id_of(command, partition).position
    return RawEntry(
        ledger_id,
        entry_id,
        partition,
        command.redelivery_count,
        size,
        entry,
        tuple(command.ack_set),
    )


class MessageReference:
    """Identifies a message without its content, so that any consumer can acknowledge it."""

    __slots__ = ("_id", "_topic")

    def __init__(self, topic: str, message_id: MessageId) -> None:
        self._topic = topic
        self._id = message_id

    def message_id(self) -> MessageId:
        return self._id

    def topic_name(self) -> str:
        return self._topic


class Message(PlainMessage):
    """A message, with the official client's method names. The metadata of a message in a batch is parsed at
    the first access: methods that use it raise :class:`InvalidMessage` if it cannot be parsed.
    """

    __slots__ = ()

    _id: MessageId | None

    def __init__(
        self,
        topic: str,
        message_id: MessageId,
        entry: Entry | RawEntry,
        single: bytes,
        content: bytes,
        redeliveries: int,
    ) -> None:
        """:param entry: the entry that contains the message; the metadata of a :class:`RawEntry` is parsed at
            the first access

        :param single: serialized ``SingleMessageMetadata``; empty outside a batch
        """
        self._topic = topic
        self._partition = message_id.partition()
        self._ledger_id, self._entry_id = message_id.position
        self._batch_index = message_id.batch_index()
        self._batch_size = message_id.batch_size()
        self._id = message_id
        self._entry = entry
        self._single_raw = single
        self._own_metadata = None
        self._content = content
        self._redeliveries = redeliveries

    def __repr__(self) -> str:
        data = self.data()
        shown = repr(data) if len(data) <= _SHOWN_BYTES else f"{data[:_SHOWN_BYTES]!r}..., {len(data)} bytes"
        return f"Message({self.message_id()}, {self.topic_name()}, {shown})"

    def value(self) -> Value:
        """The payload; if the consumer has a schema of ``magnetar.client.schemas``, the decoded value, which
        is None for a null value.

        :raises InvalidMessage: the payload does not match the schema
        :raises PulsarException: the schema with which the message was written could not be looked up
        """
        return self._content

    def message_id(self) -> MessageId:
        """The id of the message: ledger, entry, index in the batch and partition."""
        found = self._id
        if found is None:
            found = self._id = MessageId(
                self._partition, self._ledger_id, self._entry_id, self._batch_index, self._batch_size
            )
        return found

    def publish_timestamp(self) -> int:
        """The publish time, in milliseconds since 1970."""
        return self._entry.metadata.publish_time

    def producer_name(self) -> str:
        """The name of the producer."""
        return self._entry.metadata.producer_name

    def sequence_id(self) -> int:
        """The sequence id that the producer gave the message."""
        single = self._own()
        if isinstance(single, SingleMessageMetadata) and not single.HasField("sequence_id"):
            return self._entry.metadata.sequence_id + max(0, self._batch_index)
        return single.sequence_id

    def properties(self) -> dict[str, str]:
        """The properties of the message."""
        return {pair.key: pair.value for pair in self._own().properties}

    def partition_key(self) -> str:
        """The key of the message; empty if the message has no key."""
        return self._own().partition_key

    def has_partition_key(self) -> bool:
        """Whether the message has a key; the key can be empty."""
        return self._own().HasField("partition_key")

    def has_base64_encoded_key(self) -> bool:
        """Whether :meth:`partition_key` is in Base64, because the key is bytes."""
        return self._own().partition_key_b64_encoded

    def has_null_partition_key(self) -> bool:
        """Whether the message has a null key, which key-value schemas permit."""
        return self._own().null_partition_key

    def partition_key_bytes(self) -> bytes | None:
        """Returns the key as bytes, as the producer set it; None: the message has no key.

        :raises InvalidMessage: the key is marked as Base64, but is not valid Base64
        """
        own = self._own()
        if own.null_partition_key or not own.HasField("partition_key"):
            return None
        if not own.partition_key_b64_encoded:
            return own.partition_key.encode()
        try:
            return b64decode(own.partition_key, validate=True)
        except ValueError as error:
            raise InvalidMessage(
                f"{self.message_id()}: the key is marked as Base64, but is not valid Base64"
            ) from error

    def replicated_from(self) -> str:
        """The cluster from which the message was replicated; empty: it was published in the consumer's
        cluster.
        """
        return self._entry.metadata.replicated_from

    def encryption(self) -> MessageMetadata | None:
        """The encryption metadata of a message that is still encrypted; None: the message is not
        encrypted.
        """
        metadata = self._entry.metadata
        return metadata if metadata.encryption_keys else None

    def decrypted_from(self) -> MessageMetadata | None:
        """The encryption metadata of a message that the consumer has decrypted; None: the consumer has not
        decrypted it.
        """
        return self._entry.sealed

    def schema_version(self) -> bytes:
        """The version of the producer's schema; empty without a schema."""
        return self._entry.metadata.schema_version

    def ordering_key(self) -> str:
        """The ordering key of the message; empty if the message has no ordering key."""
        return self._own().ordering_key.decode(errors="replace")

    def event_timestamp(self) -> int:
        """The event time, in milliseconds since 1970; 0: not set."""
        return self._own().event_time

    def has_null_value(self) -> bool:
        """Whether the message has a null value, which is not the same as an empty payload."""
        return self._own().null_value

    def _own(self) -> MessageMetadata | SingleMessageMetadata:
        """Returns the message's own metadata; for a message of a batch, without the metadata that the batch
        shares.

        :raises InvalidMessage: the metadata cannot be parsed
        """
        own = self._own_metadata
        if own is None:
            if self._batch_index < 0:
                own = self._entry.metadata
            else:
                try:
                    own = parse_message(SingleMessageMetadata(), self._single_raw, "message's metadata")
                except EntryError as error:
                    raise InvalidMessage(f"{self.message_id()}: {error}") from error
            self._own_metadata = own
        return own


Acknowledged = Message | MessageReference | RawEntry | MessageId
"""What a program can acknowledge: a message, an entry, or the id of a message or an entry."""


SeekTarget = MessageId | int | Callable[[str], MessageId | int]
"""The target of a seek: a message id, ``MessageId.earliest`` or ``MessageId.latest``; a publish time in
milliseconds since 1970; or a function that returns one of these for the name of each topic or partition.
"""


def meant_by(said: Acknowledged) -> MessageId:
    """Returns the message id of what a program wants to acknowledge."""
    return said if isinstance(said, MessageId) else said.message_id()


def redeliveries_of(said: Acknowledged) -> int:
    """Returns the number of redeliveries of a message or an entry; always 0 for an id."""
    if isinstance(said, Message):
        return said.redelivery_count()
    return said.redeliveries if isinstance(said, RawEntry) else 0
