"""Schemas of producers and topics, and decoders of primitive values."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from magnetar.client.exceptions import InvalidMessage
from magnetar.protocol import key_values
from magnetar.protocol.pulsar_api_pb2 import Schema

if TYPE_CHECKING:
    from magnetar.client.message import Message

__all__ = ["ProducerSchema", "TopicSchema", "ValueSchema", "key_value_schema", "topic_schema"]
_TYPES: dict[str, Schema.Type] = {
    "BYTES": Schema.NoSchema,
    "STRING": Schema.String,
    "JSON": Schema.Json,
    "PROTOBUF": Schema.Protobuf,
    "AVRO": Schema.Avro,
    "BOOLEAN": Schema.Bool,
    "INT8": Schema.Int8,
    "INT16": Schema.Int16,
    "INT32": Schema.Int32,
    "INT64": Schema.Int64,
    "FLOAT": Schema.Float,
    "DOUBLE": Schema.Double,
    "DATE": Schema.Date,
    "TIME": Schema.Time,
    "TIMESTAMP": Schema.Timestamp,
    "KEY_VALUE": Schema.KeyValueSchema,
    "INSTANT": Schema.Instant,
    "LOCAL_DATE": Schema.LocalDate,
    "LOCAL_TIME": Schema.LocalTime,
    "LOCAL_DATE_TIME": Schema.LocalDateTime,
    "PROTOBUF_NATIVE": Schema.ProtobufNative,
}
_NAMES = {number: name for name, number in _TYPES.items()}
Decoder = Callable[[bytes], Any]
"""Decodes a payload; raises one of the exceptions in ``BAD_VALUES`` if the payload does not match the
schema.
"""
BAD_VALUES = (ValueError, TypeError, LookupError, EOFError, struct.error, ArithmeticError)
_EPOCH_DAY_MS = 86_400_000


@dataclass(frozen=True)
class ProducerSchema:
    """A schema that a producer declares. The broker adds it to the topic's schema versions, or refuses the
    producer; see docs/schemas.md.
    """

    kind: str
    """The schema type as in Pulsar's admin interface, such as ``AVRO`` or ``INT64``."""
    definition: str = ""
    """An Avro definition for AVRO and JSON; empty for other types."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Properties of the schema, which are stored with the topic's schema version."""
    parts: tuple[ProducerSchema, ProducerSchema] | None = None
    """The schemas of key and value of a KEY_VALUE schema; see :func:`key_value_schema`. None: the schema has
    another type.
    """

    @property
    def data(self) -> bytes:
        """The schema definition in its stored form."""
        if self.parts is None:
            return self.definition.encode()
        return key_values.join(*(part.data for part in self.parts))

    def fill(self, schema: Schema) -> None:
        """Writes the schema to a command.

        :raises KeyError: the type is unknown
        """
        schema.type = _TYPES[self.kind]
        schema.name = ""
        schema.schema_data = self.data
        for key, value in self.properties.items():
            schema.properties.add(key=key, value=value)


class ValueSchema(ABC):
    """Base class of schemas that encode values as payloads and decode payloads; ``magnetar.client.schemas``
    has subclasses, and programs can define further ones.
    """

    needs_writer: bool = False
    """Whether decoding a payload requires the schema with which it was written."""

    def __init__(self, declared: ProducerSchema) -> None:
        """:param declared: the schema that producers and consumers declare to the broker"""
        self.declared = declared

    @abstractmethod
    def encode(self, value: object) -> bytes:
        """Encodes a value as a payload.

        :param value: the value that a program sends
        :raises TypeError: the value has the wrong type
        :raises ValueError: the value is out of range
        """

    @abstractmethod
    def decode(self, data: bytes, writer: object = None) -> object:
        """Decodes the value in a payload.

        :param data: the payload of a message
        :param writer: the schema with which the message was written, as :meth:`writer` returns it; None: this
            schema
        :raises ValueError: the payload does not match the schema
        """

    def add_options(self, value: object, options: dict[str, object]) -> None:  # noqa: B027 - most add none
        """Adds message options that depend on the value, such as the key; the base class adds nothing.

        :param value: the value that a program sends
        :param options: options of :class:`MessageOptions` that the program has set
        :raises TypeError: the value has the wrong type
        :raises ValueError: an option contradicts the value
        """

    def value_of(self, message: Message, writer: object = None) -> object:
        """Returns the value of a message; None for a null value.

        :param message: a received message
        :param writer: as for :meth:`decode`
        :raises ValueError: the message does not match the schema
        """
        content = message.data()
        if not content and message.has_null_value():
            return None
        return self.decode(content, writer)

    def writer(self, found: TopicSchema) -> object:
        """Converts a version of the topic's schema to the argument ``writer`` of :meth:`decode`.

        :param found: the schema version with which the messages were written
        :raises ValueError: the version cannot be used
        """
        return found

    def fill(self, schema: Schema) -> None:
        """Writes the declared schema to a command."""
        self.declared.fill(schema)


def content_of(
    value: object, schema: ProducerSchema | ValueSchema | None, options: dict[str, object]
) -> bytes:
    """Encodes the value that a program sends, and returns the payload; without a schema of
    ``magnetar.client.schemas``, the value must be bytes.

    :param schema: the schema of the producer; None: no schema
    :param options: the options of the message, to which the schema can add options such as the key
    :raises InvalidMessage: the value does not match the schema, or is not bytes although the schema does not
        encode values
    """
    if isinstance(schema, ValueSchema):
        if value is None and options.get("null_value"):
            return b""
        try:
            schema.add_options(value, options)
            return schema.encode(value)
        except BAD_VALUES as error:
            raise InvalidMessage(f"the value does not match the producer's schema: {error}") from error
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidMessage(
        f"the content must be bytes, not {type(value).__name__}; give the producer a schema of "
        "magnetar.client.schemas to send values"
    )


def key_value_schema(key: ProducerSchema, value: ProducerSchema, *, separated: bool) -> ProducerSchema:
    """Returns a KEY_VALUE schema, for messages with a key and a value.

    :param key: the schema of the key
    :param value: the schema of the value
    :param separated: True (SEPARATED): the key is the message's key (``partition_key_bytes``), and the
        payload is the value; False (INLINE): the payload contains both
        (:func:`magnetar.protocol.key_values.join`)
    """
    sides = (key_values.Declared(part.kind, part.properties) for part in (key, value))
    properties = key_values.described(*sides, separated=separated)
    return ProducerSchema("KEY_VALUE", "", properties, (key, value))


@dataclass(frozen=True)
class TopicSchema:
    """One version of a topic's schema."""

    kind: str
    """The schema type as in Pulsar's admin interface; empty: unknown."""
    data: bytes
    """The schema definition: an Avro definition for AVRO and JSON; for KEY_VALUE, the definitions of key and
    value, see ``magnetar.protocol.key_values``.
    """
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Properties of the schema."""

    @property
    def is_separated(self) -> bool:
        """Whether a KEY_VALUE schema is SEPARATED: the key is the message's key, and not a part of the
        payload.
        """
        return key_values.is_separated(self.properties)

    def kind_of(self, side: str) -> str:
        """Returns the schema type of the key or of the value of a KEY_VALUE schema.

        :param side: ``key`` or ``value``
        """
        return key_values.kind_of(self.properties, side)


def topic_schema(schema: Schema) -> TopicSchema:
    """Converts the schema in a broker's answer to a :class:`TopicSchema`."""
    properties = {pair.key: pair.value for pair in schema.properties}
    return TopicSchema(_NAMES.get(schema.type, ""), schema.schema_data, properties)


def _number(form: str) -> Decoder:
    unpack = struct.Struct(form).unpack

    def decode(data: bytes) -> Any:
        return unpack(data)[0]

    return decode


_long = _number(">q")


def _boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"a BOOLEAN must be the byte 0 or 1, not {data[:16]!r}")
    return data == b"\1"


def _instant(data: bytes) -> int:
    seconds, nanos = struct.unpack(">qi", data)
    return int(seconds * 1_000_000 + nanos // 1000)


def _date_time(data: bytes) -> int:
    day, nanos = struct.unpack(">qq", data)
    return int(day * _EPOCH_DAY_MS * 1000 + nanos // 1000)


def _time(data: bytes) -> int:
    # Java's java.sql.Time counts from 1970 in UTC, so its times of other zones may be on the day before.
    return int(_long(data) % _EPOCH_DAY_MS * 1000)


def _local_time(data: bytes) -> int:
    nanos = _long(data)
    if not 0 <= nanos < _EPOCH_DAY_MS * 1_000_000:
        raise ValueError(f"a LOCAL_TIME must be nanoseconds of a day, not {nanos}")
    return int(nanos // 1000)


PRIMITIVES: dict[str, Decoder] = {
    "NONE": bytes,
    "BYTES": bytes,
    "STRING": lambda data: data.decode(),
    "BOOLEAN": _boolean,
    "INT8": _number(">b"),
    "INT16": _number(">h"),
    "INT32": _number(">i"),
    "INT64": _long,
    "FLOAT": _number(">f"),
    "DOUBLE": _number(">d"),
    "DATE": lambda data: _long(data) // _EPOCH_DAY_MS,
    "TIME": _time,
    "TIMESTAMP": lambda data: _long(data) * 1000,
    "INSTANT": _instant,
    "LOCAL_DATE": _long,
    "LOCAL_TIME": _local_time,
    "LOCAL_DATE_TIME": _date_time,
}
"""Decoders by schema type. Decoded dates are days since 1970, timestamps are microseconds since 1970, and
times of day are microseconds since midnight.
"""
