"""Whether a declared schema is one at all, before anybody compares it."""

from __future__ import annotations

from magnetar.broker.schemas import avro_rules, key_value
from magnetar.broker.schemas.data import AVRO_DEFINED, SchemaData, SchemaType
from magnetar.errors import InvalidSchemaData

MAX_DEFINITION = 1024 * 1024
"""Bytes of a definition; a topic's versions are kept in memory while it is used."""


def validate(schema: SchemaData) -> None:
    """:raises InvalidSchemaData: it is not what its type asks for"""
    if len(schema.data) > MAX_DEFINITION:
        raise InvalidSchemaData(
            f"The schema definition has {len(schema.data)} bytes; at most {MAX_DEFINITION} are allowed"
        )
    kind = schema.type
    if kind in AVRO_DEFINED:
        if avro_rules.parse(schema).type == "union":
            raise InvalidSchemaData("Avro schema typed [UNION] is not supported")
    elif kind is SchemaType.PROTOBUF_NATIVE:
        # Few schemas are of this type.
        from magnetar.broker.schemas import protobuf_rules

        protobuf_rules.root_message(schema)
    elif kind is SchemaType.KEY_VALUE:
        for part in key_value.parts(schema):
            validate(part)
    elif kind is SchemaType.AUTO_CONSUME:
        raise InvalidSchemaData(f"Schema {kind.name} is a client-side schema type")
    elif kind is SchemaType.STRING:
        # The Python client's is the text null.
        if schema.data not in (b"", b"null"):
            text = schema.data[:100].decode(errors="replace")
            raise InvalidSchemaData(f"Invalid schema definition data for string schema : '{text}'")
    elif schema.data and kind is not SchemaType.NONE:
        raise InvalidSchemaData(
            "Invalid schema definition data for primitive schemas :length of schema data should be zero, "
            f"but {len(schema.data)} bytes is found"
        )
