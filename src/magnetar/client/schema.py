"""Schemas of producers and of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.protocol import key_values
from magnetar.protocol.pulsar_api_pb2 import Schema

__all__ = ["ProducerSchema", "TopicSchema", "key_value_schema", "topic_schema"]

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


@dataclass(frozen=True)
class ProducerSchema:
    """The schema of a producer. The broker adds it to the topic's versions, or refuses the producer; see
    docs/schemas.md."""

    kind: str
    """The type, with the name of the admin interface, such as ``AVRO`` or ``INT64``."""
    definition: str = ""
    """An Avro definition for AVRO and JSON; empty for others."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    parts: tuple[ProducerSchema, ProducerSchema] | None = None
    """The schemas of key and value; see :func:`key_value_schema`."""

    @property
    def data(self) -> bytes:
        """The schema in its stored form."""
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


def key_value_schema(key: ProducerSchema, value: ProducerSchema, *, separated: bool) -> ProducerSchema:
    """Returns the schema of messages with a key and a value.

    :param separated: the key is that of the message (``partition_key_bytes``), and the content is the value;
        else the content has both (:func:`magnetar.protocol.key_values.join`)
    """
    sides = (key_values.Declared(part.kind, part.properties) for part in (key, value))
    properties = key_values.described(*sides, separated=separated)
    return ProducerSchema("KEY_VALUE", "", properties, (key, value))


@dataclass(frozen=True)
class TopicSchema:
    """One version of a topic's schema."""

    kind: str
    """The type, with the name of the admin interface; empty: unknown."""
    data: bytes
    """An Avro definition for AVRO and JSON; both for KEY_VALUE, see ``magnetar.protocol.key_values``."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_separated(self) -> bool:
        """Whether the key of a KEY_VALUE is that of the message, and not part of the content."""
        return key_values.is_separated(self.properties)

    def kind_of(self, side: str) -> str:
        """Returns the type of the ``key`` or the ``value`` of a KEY_VALUE."""
        return key_values.kind_of(self.properties, side)


def topic_schema(schema: Schema) -> TopicSchema:
    """Converts the schema of a broker's answer."""
    properties = {pair.key: pair.value for pair in schema.properties}
    return TopicSchema(_NAMES.get(schema.type, ""), schema.schema_data, properties)
