"""Whether a declared schema is valid on its own, before it is compared with others."""

from __future__ import annotations

from magnetar.broker.schemas import avro_rules, key_value
from magnetar.broker.schemas.data import AVRO_DEFINED, SchemaData, SchemaType
from magnetar.errors import InvalidSchemaData

MAX_DEFINITION = 1024 * 1024
"""The largest definition in bytes; the versions of topics in use are kept in memory."""


def validate(schema: SchemaData) -> None:
    """:raises InvalidSchemaData: the schema is not valid for its type"""
    if len(schema.data) > MAX_DEFINITION:
        raise InvalidSchemaData(
            f"The schema definition has {len(schema.data)} bytes; at most {MAX_DEFINITION} are allowed"
        )
    kind = schema.type
    if kind in AVRO_DEFINED:
        if avro_rules.parse(schema).type == "union":
            raise InvalidSchemaData("Avro schema typed [UNION] is not supported")
    elif kind is SchemaType.PROTOBUF_NATIVE:
        # Imported here because few schemas are of this type.
        from magnetar.broker.schemas import protobuf_rules

        protobuf_rules.root_message(schema)
    elif kind is SchemaType.KEY_VALUE:
        for part in key_value.parts(schema):
            validate(part)
    elif kind is SchemaType.AUTO_CONSUME:
        raise InvalidSchemaData(f"Schema {kind.name} is a client-side schema type")
    elif kind is SchemaType.STRING:
        # The Python client declares the text null.
        if schema.data not in (b"", b"null"):
            text = schema.data[:100].decode(errors="replace")
            raise InvalidSchemaData(f"Invalid schema definition data for string schema : '{text}'")
    elif schema.data and kind is not SchemaType.NONE:
        raise InvalidSchemaData(
            "Invalid schema definition data for primitive schemas :length of schema data should be zero, "
            f"but {len(schema.data)} bytes is found"
        )
