"""The official client's messages and message ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from magnetar.client.enums import CompressionType
from magnetar.client.exceptions import InvalidMessage
from magnetar.client.message import Acknowledged, Message, MessageReference
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import MessageOptions
from magnetar.protocol.hot_client_decode import split_places
from magnetar.protocol.metadata import Entry
from magnetar.protocol.pulsar_api_pb2 import EncryptionKeys, MessageMetadata
from magnetar.pulsar.schema.schema import BytesSchema, Schema

MessageRouter = Callable[["PulsarMessage", int], int]
"""Returns the index of the partition for a message, given the message and the number of partitions."""


class TopicMessageId(MessageId):
    """The id of a message, which can contain the topic."""

    __slots__ = ("_topic",)

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __init__(
        self, partition: int = -1, ledger_id: int = -1, entry_id: int = -1, batch_index: int = -1
    ) -> None:
        super().__init__(partition, ledger_id, entry_id, batch_index)
        self._topic = ""

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[object, ...]:
        numbers = self._partition, self._ledger_id, self._entry_id, self._batch_index, self._batch_size
        return known, (MessageId(*numbers), self._topic)

    def of_topic(self) -> str:
        """Returns the topic of the message, which consumers of several topics need; empty: unknown."""
        return self._topic

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> TopicMessageId:
        """Returns the id from the bytes that :meth:`serialize` returned.

        :param topic: the topic, which is required to acknowledge the message on a consumer of several topics
        :raises ValueError: the bytes are not a serialized message id
        """
        try:
            found = MessageId.deserialize(message_id_bytes)
        except InvalidMessage as error:
            raise ValueError("Failed to parse serialized message id") from error
        return known(found, topic or "")

    @classmethod
    def wrap(cls, msg_id: MessageId) -> TopicMessageId:
        """Returns an equal id; exists for programs that wrap ids of the official client's C++ part."""
        return known(msg_id, msg_id.of_topic() if isinstance(msg_id, TopicMessageId) else "")


def known(message_id: MessageId, topic: str) -> TopicMessageId:
    """Returns an equal id that contains its topic.

    :param topic: the full name of the topic; empty: unknown
    """
    # Each message that is sent or received gets an id: this takes a third of the time of a constructor.
    made = TopicMessageId.__new__(TopicMessageId)
    made._partition = message_id._partition
    made._ledger_id = message_id._ledger_id
    made._entry_id = message_id._entry_id
    made._batch_index = message_id._batch_index
    made._batch_size = message_id._batch_size
    made._topic = topic
    return made


TopicMessageId.earliest = known(MessageId.earliest, "")
TopicMessageId.latest = known(MessageId.latest, "")


class EncryptionKey:
    """An encrypted data key of a message, with the name of the key that encrypted it."""

    def __init__(self, key: EncryptionKeys) -> None:
        self._key = key

    @property
    def key(self) -> str:
        """The name of the encryption key."""
        return self._key.key

    @property
    def value(self) -> bytes:
        """The encrypted data key."""
        return self._key.value

    @property
    def metadata(self) -> dict[str, str]:
        return {pair.key: pair.value for pair in self._key.metadata}

    def __str__(self) -> str:
        return f"EncryptionKey(key={self.key}, value_len={len(self.value)}, metadata={self.metadata})"

    __repr__ = __str__


class EncryptionContext:
    """The encryption and compression of a message: keys, algorithm, parameters and sizes."""

    def __init__(self, metadata: MessageMetadata, size: int, is_failed: bool) -> None:
        self._metadata = metadata
        self._batch_size = size
        self._is_failed = is_failed

    def keys(self) -> list[EncryptionKey]:
        return [EncryptionKey(key) for key in self._metadata.encryption_keys]

    def param(self) -> bytes:
        return self._metadata.encryption_param

    def algorithm(self) -> str:
        return self._metadata.encryption_algo

    def compression_type(self) -> CompressionType:
        return CompressionType(self._metadata.compression)

    def uncompressed_message_size(self) -> int:
        """Returns the size of the message before compression, in bytes; 0: the message is not compressed."""
        return self._metadata.uncompressed_size

    def batch_size(self) -> int:
        """Returns the number of messages in the batch; -1: the message is not in a batch."""
        return self._batch_size

    def is_decryption_failed(self) -> bool:
        return self._is_failed

    def __str__(self) -> str:
        return (
            f"EncryptionContext(algorithm={self.algorithm()}, "
            f"compression_type={self.compression_type().name}, "
            f"uncompressed_message_size={self.uncompressed_message_size()}, "
            f"is_decryption_failed={self.is_decryption_failed()}, "
            f"keys=[{', '.join(str(key) for key in self.keys())}])"
        )

    __repr__ = __str__


class PulsarMessage:
    """A message that a consumer or reader received."""

    _message: Message
    _schema: Schema

    def data(self) -> bytes:
        return self._message.data()

    def value(self) -> object:
        """Returns the value of the message: the payload, decoded by the consumer's schema."""
        return self._schema.decode_message(self)

    def properties(self) -> dict[str, str]:
        return self._message.properties()

    def partition_key(self) -> str:
        return self._message.partition_key()

    def ordering_key(self) -> str:
        return self._message.ordering_key()

    def publish_timestamp(self) -> int:
        """Returns the publish time, in milliseconds since 1970."""
        return self._message.publish_timestamp()

    def event_timestamp(self) -> int:
        """Returns the event time, in milliseconds since 1970; 0: not set."""
        return self._message.event_timestamp()

    def message_id(self) -> TopicMessageId:
        return known(self._message.message_id(), self._message.topic_name())

    def topic_name(self) -> str:
        return self._message.topic_name()

    def redelivery_count(self) -> int:
        return self._message.redelivery_count()

    def schema_version(self) -> str:
        """Returns the version of the producer's schema as a string, with one character for each byte of the
        version; empty without a schema.
        """
        return self._message.schema_version().decode("latin-1")

    def int_schema_version(self) -> int:
        """Returns the version of the producer's schema as a number; -1 without a schema."""
        version = self._message.schema_version()
        return int.from_bytes(version, "big", signed=True) if version else -1

    def producer_name(self) -> str:
        return self._message.producer_name()

    def has_null_value(self) -> bool:
        return self._message.has_null_value()

    def encryption_context(self) -> EncryptionContext | None:
        """Returns the keys, algorithm and parameters of the encryption; None: no encryption."""
        opened = self._message.decrypted_from()
        sealed = opened or self._message.encryption()
        if sealed is None:
            return None
        size = self._message.message_id().batch_size() or -1
        return EncryptionContext(sealed, size, opened is None)

    @staticmethod
    def _wrap(_message: Message, schema: Schema | None = None) -> PulsarMessage:
        made = PulsarMessage()
        made._message = _message
        made._schema = schema if schema is not None else BytesSchema()
        return made


def outgoing(content: bytes, options: MessageOptions | None) -> PulsarMessage:
    """Returns a message that is about to be sent, in the form that a message router gets."""
    metadata = MessageMetadata()
    if options is not None:
        options.fill(metadata)
    return PulsarMessage._wrap(Message("", MessageId(), Entry(None, metadata, content), b"", content, 0))


def acknowledged(said: object, *, by_topic: bool) -> Acknowledged:
    """Converts what a program acknowledges to the form of ``magnetar.client``.

    :param by_topic: whether the consumer has several topics, so that an id must contain the topic
    :raises TypeError: the argument is neither a message nor a message id
    """
    if isinstance(said, PulsarMessage):
        return said._message
    if isinstance(said, TopicMessageId) and by_topic and said.of_topic():
        return MessageReference(said.of_topic(), said)
    if isinstance(said, MessageId | Message):
        return said
    raise TypeError(f"a Message or a MessageId is expected, not {type(said).__name__}")


class MessageBatch:
    """Splits the payload of a batch into messages, for programs that did not get the entry from a
    consumer.
    """

    def __init__(self) -> None:
        self._id = MessageId()

    def with_message_id(self, msg_id: object) -> MessageBatch:
        """Sets the id of the entry, from which the ids of its messages are made; returns this object.

        :raises TypeError: the argument is not a message id
        """
        if not isinstance(msg_id, MessageId):
            raise TypeError("unknown message id type")
        self._id = msg_id
        return self

    def parse_from(self, data: bytes, size: int) -> list[PulsarMessage]:
        """Returns the messages in a decompressed payload.

        :param size: number of messages
        :raises InvalidMessage: the payload contains fewer messages
        """
        places = split_places(data, size)
        if places is None:
            raise InvalidMessage(f"the batch holds fewer than {size} messages")
        entry = Entry(None, MessageMetadata(), data)
        ids = (self._id.partition(), self._id.ledger_id(), self._id.entry_id())
        return [
            PulsarMessage._wrap(
                Message("", MessageId(*ids, index, size), entry, data[start:middle], data[middle:end], 0)
            )
            for index, (start, middle, end) in enumerate(places)
        ]
