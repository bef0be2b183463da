"""What producers declare about the contents of their messages, and what a topic's contents are."""

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
    """The broker adds it to the topic's versions, or refuses the producer; see docs/schemas.md."""

    kind: str
    """As the admin interface calls it, like ``AVRO`` or ``INT64``."""
    definition: str = ""
    """An Avro definition for AVRO and JSON; empty for others."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    parts: tuple[ProducerSchema, ProducerSchema] | None = None
    """Those of key and value; see :func:`key_value_schema`."""

    @property
    def data(self) -> bytes:
        """As it is stored."""
        if self.parts is None:
            return self.definition.encode()
        return key_values.join(*(part.data for part in self.parts))

    def fill(self, schema: Schema) -> None:
        """Writes it into a command.

        :raises KeyError: there is no such kind here
        """
        schema.type = _TYPES[self.kind]
        schema.name = ""
        schema.schema_data = self.data
        for key, value in self.properties.items():
            schema.properties.add(key=key, value=value)


def key_value_schema(key: ProducerSchema, value: ProducerSchema, *, separated: bool) -> ProducerSchema:
    """That of messages whose contents are a key and a value.

    :param separated: the key is the message's (``partition_key_bytes``), and the content the value; else the
        content is both (:func:`magnetar.protocol.key_values.join`)
    """
    sides = (key_values.Declared(part.kind, part.properties) for part in (key, value))
    properties = key_values.described(*sides, separated=separated)
    return ProducerSchema("KEY_VALUE", "", properties, (key, value))


@dataclass(frozen=True)
class TopicSchema:
    """One version of a topic's schema."""

    kind: str
    """As the admin interface calls it; empty: one that is not known here."""
    data: bytes
    """An Avro definition for AVRO and JSON; both for KEY_VALUE, see ``magnetar.protocol.key_values``."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_separated(self) -> bool:
        """Whether the key of a KEY_VALUE is the message's, and not in front of its content."""
        return key_values.is_separated(self.properties)

    def kind_of(self, side: str) -> str:
        """The kind of the ``key`` or the ``value`` of a KEY_VALUE."""
        return key_values.kind_of(self.properties, side)


def topic_schema(schema: Schema) -> TopicSchema:
    """As a broker tells it."""
    properties = {pair.key: pair.value for pair in schema.properties}
    return TopicSchema(_NAMES.get(schema.type, ""), schema.schema_data, properties)
