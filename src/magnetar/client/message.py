"""What a consumer gets: messages, or whole entries as they are stored."""

from __future__ import annotations

from base64 import b64decode

from magnetar.client.exceptions import InvalidMessage
from magnetar.client.message_id import MessageId
from magnetar.protocol.errors import EntryError, ProtocolError
from magnetar.protocol.hot_client_decode import MessageRun, split_places
from magnetar.protocol.metadata import Entry, parse_entry, parse_message
from magnetar.protocol.pulsar_api_pb2 import CommandMessage, MessageMetadata, SingleMessageMetadata
from magnetar.protocol.wire_ids import signed

_SHOWN_BYTES = 64
"""Of a message's data in its printed form."""


class RawEntry:
    """One entry, not taken apart: a message, or a batch of ``num_messages``."""

    __slots__ = (
        "_parsed",
        "ack_set",
        "batch_size",
        "data",
        "entry_id",
        "ledger_id",
        "partition",
        "redeliveries",
    )

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
        """0: no batch."""
        self.data = data
        """As stored: magic, checksum, metadata size, metadata, payload."""
        self.ack_set = ack_set
        """64-bit words, a bit set for each message of the batch still to be delivered; empty: all."""
        self._parsed: Entry | None = None

    @property
    def num_messages(self) -> int:
        """Messages in it that are delivered, which is what it costs in permits."""
        if self.ack_set:
            return sum((word % 2**64).bit_count() for word in self.ack_set)
        return self.batch_size or 1

    def message_id(self) -> MessageId:
        """Of the entry as a whole."""
        return MessageId(self.partition, self.ledger_id, self.entry_id, -1, self.batch_size)

    @property
    def entry(self) -> Entry:
        """Metadata and payload, parsed when first asked for.

        :raises InvalidMessage: the entry contradicts itself
        """
        if self._parsed is None:
            try:
                self._parsed = parse_entry(self.data, verify_checksum=False)
            except EntryError as error:
                raise InvalidMessage(f"{self.message_id()}: {error}") from error
        return self._parsed

    def with_entry(self, entry: Entry) -> RawEntry:
        """The same place, with what was made of what is stored there: decrypted, or put together."""
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
        return self.entry.metadata

    @property
    def payload(self) -> bytes:
        """As compressed by the producer."""
        return self.entry.payload

    @property
    def is_encrypted(self) -> bool:
        """:raises InvalidMessage: the entry contradicts itself"""
        return bool(self.metadata.encryption_keys)

    def whole(self, topic: str) -> Message:
        """The entry as one message, as it is."""
        message_id = MessageId(self.partition, self.ledger_id, self.entry_id)
        return Message(topic, message_id, self.entry, b"", self.payload, self.redeliveries)

    def is_delivered(self, batch_index: int) -> bool:
        """Whether the broker wants this message of the batch delivered."""
        if not self.ack_set:
            return True
        word = batch_index >> 6
        return word < len(self.ack_set) and bool(self.ack_set[word] >> (batch_index & 63) & 1)

    def messages(self, topic: str) -> list[Message]:
        """Its messages, each as it was sent; without those that are acknowledged.

        :raises InvalidMessage: it cannot be decompressed or taken apart
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
        return [
            Message(
                topic,
                MessageId(*ids, index, self.batch_size),
                entry,
                payload[start:middle],
                payload[middle:end],
                self.redeliveries,
            )
            for index, (start, middle, end) in enumerate(places)
            if self.is_delivered(index)
        ]


def entries_of(buffer: bytes, run: MessageRun, partition: int) -> list[RawEntry]:
    """Those that came in one go."""
    return [
        RawEntry(
            run.ledger_ids[index],
            run.entry_ids[index],
            partition,
            run.redeliveries[index],
            run.batch_sizes[index],
            buffer[run.starts[index] : run.ends[index]],
        )
        for index in range(run.count)
    ]


def id_of(command: CommandMessage, partition: int) -> MessageId:
    """Of the entry that a command brings."""
    return MessageId(partition, signed(command.message_id.ledgerId), signed(command.message_id.entryId))


def entry_of(command: CommandMessage, entry: bytes, partition: int) -> RawEntry:
    """One that came alone.

    :raises EntryError: it contradicts itself
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
    """A message without its content: enough to acknowledge it on any consumer."""

    __slots__ = ("_id", "_topic")

    def __init__(self, topic: str, message_id: MessageId) -> None:
        self._topic = topic
        self._id = message_id

    def message_id(self) -> MessageId:
        return self._id

    def topic_name(self) -> str:
        return self._topic


class Message:
    """One message; names are those of the official client."""

    __slots__ = ("_content", "_entry", "_id", "_own_metadata", "_redeliveries", "_single_raw", "_topic")

    def __init__(
        self,
        topic: str,
        message_id: MessageId,
        entry: Entry,
        single: bytes,
        content: bytes,
        redeliveries: int,
    ) -> None:
        """:param single: serialized ``SingleMessageMetadata``; empty outside a batch"""
        self._topic = topic
        self._id = message_id
        self._entry = entry
        self._single_raw = single
        self._own_metadata: MessageMetadata | SingleMessageMetadata | None = None
        if message_id.batch_index() < 0:
            self._own_metadata = entry.metadata
        self._content = content
        self._redeliveries = redeliveries

    def __repr__(self) -> str:
        data = self.data()
        shown = repr(data) if len(data) <= _SHOWN_BYTES else f"{data[:_SHOWN_BYTES]!r}..., {len(data)} bytes"
        return f"Message({self.message_id()}, {self.topic_name()}, {shown})"

    def data(self) -> bytes:
        return self._content

    def value(self) -> bytes:
        """The content; without a schema it is bytes."""
        return self._content

    def message_id(self) -> MessageId:
        return self._id

    def topic_name(self) -> str:
        return self._topic

    def redelivery_count(self) -> int:
        """How often it was delivered before, where the broker counts."""
        return self._redeliveries

    def publish_timestamp(self) -> int:
        """ms since 1970."""
        return self._entry.metadata.publish_time

    def producer_name(self) -> str:
        return self._entry.metadata.producer_name

    def sequence_id(self) -> int:
        single = self._own()
        if isinstance(single, SingleMessageMetadata) and not single.HasField("sequence_id"):
            return self._entry.metadata.sequence_id + max(0, self._id.batch_index())
        return single.sequence_id

    def properties(self) -> dict[str, str]:
        return {pair.key: pair.value for pair in self._own().properties}

    def partition_key(self) -> str:
        """Empty when it has none."""
        return self._own().partition_key

    def has_partition_key(self) -> bool:
        return self._own().HasField("partition_key")

    def has_base64_encoded_key(self) -> bool:
        """Whether :meth:`partition_key` is in Base64: the producer gave bytes."""
        return self._own().partition_key_b64_encoded

    def has_null_partition_key(self) -> bool:
        """Whether it has a key, which is null, as messages of keys and values may have it."""
        return self._own().null_partition_key

    def partition_key_bytes(self) -> bytes | None:
        """The key as the producer gave it, which need not be text; None: there is none.

        :raises InvalidMessage: it is said to be in Base64, and is not
        """
        own = self._own()
        if own.null_partition_key or not own.HasField("partition_key"):
            return None
        if not own.partition_key_b64_encoded:
            return own.partition_key.encode()
        try:
            return b64decode(own.partition_key, validate=True)
        except ValueError as error:
            raise InvalidMessage(f"{self._id}: its key is not Base64") from error

    def replicated_from(self) -> str:
        """The cluster where it was published; empty: this one."""
        return self._entry.metadata.replicated_from

    def encryption(self) -> MessageMetadata | None:
        """What it was encrypted with; None: it is not encrypted."""
        metadata = self._entry.metadata
        return metadata if metadata.encryption_keys else None

    def schema_version(self) -> bytes:
        """Of the schema it was written with, as the broker told the producer; empty when it has none."""
        return self._entry.metadata.schema_version

    def ordering_key(self) -> str:
        """Empty when it has none."""
        return self._own().ordering_key.decode(errors="replace")

    def event_timestamp(self) -> int:
        """ms since 1970; 0 when none was given."""
        return self._own().event_time

    def has_null_value(self) -> bool:
        return self._own().null_value

    def _own(self) -> MessageMetadata | SingleMessageMetadata:
        """The metadata that is this message's own.

        :raises InvalidMessage: it cannot be parsed
        """
        own = self._own_metadata
        if own is None:
            try:
                own = parse_message(SingleMessageMetadata(), self._single_raw, "message's metadata")
            except EntryError as error:
                raise InvalidMessage(f"{self._id}: {error}") from error
            self._own_metadata = own
        return own


Acknowledged = Message | MessageReference | RawEntry | MessageId
"""What says which message, or which whole entry, is meant."""


def meant_by(said: Acknowledged) -> MessageId:
    """The id of the message, or of the entry, that is meant."""
    return said if isinstance(said, MessageId) else said.message_id()
