"""Key-value schemas: the definitions of key and value as one definition; properties state their types."""

from __future__ import annotations

import json

from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.errors import InvalidSchemaData
from magnetar.protocol import key_values


def _invalid(what: str) -> InvalidSchemaData:
    return InvalidSchemaData(f"Invalid schema definition data for KEY_VALUE schema: {what}")


def split(data: bytes) -> tuple[bytes, bytes]:
    """Returns the definitions of key and value.

    :raises InvalidSchemaData: the lengths do not match the data
    """
    try:
        key, value = key_values.split(data)
    except ValueError as error:
        raise _invalid(str(error)) from error
    return key or b"", value or b""


def parts(schema: SchemaData) -> tuple[SchemaData, SchemaData]:
    """Returns the schemas of key and value.

    :raises InvalidSchemaData: the data does not contain both schemas
    """
    key, value = split(schema.data)
    return _part(schema, "key", key), _part(schema, "value", value)


def separated(key: SchemaData, value: SchemaData) -> SchemaData:
    """Returns the key-value schema of messages that carry the key as message key, and only the value in the
    payload."""
    sides = (key_values.Declared(part.type.name, part.properties, part.type.name) for part in (key, value))
    properties = key_values.described(*sides, separated=True)
    return SchemaData(SchemaType.KEY_VALUE, key_values.join(key.data, value.data), properties, key.user)


def is_separated(schema: SchemaData) -> bool:
    """Whether messages carry the key as message key, not in the payload; see
    :func:`magnetar.protocol.key_values.is_separated`."""
    return key_values.is_separated(schema.properties)


def _part(schema: SchemaData, side: str, data: bytes) -> SchemaData:
    try:
        said = key_values.declared(schema.properties, side)
    except ValueError as error:
        raise _invalid(str(error)) from error
    try:
        kind = SchemaType[said.kind] if said.kind != "BYTES" else SchemaType.NONE
    except KeyError as error:
        raise _invalid(f"{said.kind!r} is not a schema type") from error
    if kind in (SchemaType.KEY_VALUE, SchemaType.AUTO_CONSUME):
        raise _invalid(f"the {side} cannot have schema type {kind.name}")
    return SchemaData(kind, data, said.properties)


def to_text(data: bytes) -> str:
    """Returns both definitions in the form of the HTTP interface: an object with ``key`` and ``value``.

    :raises InvalidSchemaData: the data does not contain both definitions
    """
    return json.dumps({side: _shown(part) for side, part in zip(key_values.SIDES, split(data), strict=True)})


def _shown(part: bytes) -> object:
    text = part.decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # The definition of a primitive type is empty.
        return text


def from_text(text: str) -> bytes:
    """Returns the data of a key-value schema from the text that :func:`to_text` returns.

    :raises InvalidSchemaData: the text is not an object with ``key`` and ``value``
    """
    try:
        found = json.loads(text)
        key, value = found["key"], found["value"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _invalid("must be an object with key and value") from error
    return key_values.join(_definition(key), _definition(value))


def _definition(part: object) -> bytes:
    return part.encode() if isinstance(part, str) else json.dumps(part, separators=(",", ":")).encode()
