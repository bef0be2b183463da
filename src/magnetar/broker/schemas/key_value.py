"""Schemas of keys and values: two definitions in one, and what each of them is in the properties."""

from __future__ import annotations

import json

from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.errors import InvalidSchemaData
from magnetar.protocol import key_values

_NAME = "{}.schema.name"
_TYPE = "{}.schema.type"
_PROPERTIES = "{}.schema.properties"
_ENCODING = "kv.encoding.type"
_SEPARATED = "SEPARATED"


def _invalid(what: str) -> InvalidSchemaData:
    return InvalidSchemaData(f"Invalid schema definition data for KEY_VALUE schema: {what}")


def split(data: bytes) -> tuple[bytes, bytes]:
    """The definitions of key and value.

    :raises InvalidSchemaData: the lengths do not fit
    """
    try:
        key, value = key_values.split(data)
    except ValueError as error:
        raise _invalid(str(error)) from error
    return key or b"", value or b""


def parts(schema: SchemaData) -> tuple[SchemaData, SchemaData]:
    """The schemas of key and value.

    :raises InvalidSchemaData: it is not both of them
    """
    key, value = split(schema.data)
    return _part(schema, "key", key), _part(schema, "value", value)


def separated(key: SchemaData, value: SchemaData) -> SchemaData:
    """The schema of messages whose own key is the key, and whose content is the value."""
    properties = {_ENCODING: _SEPARATED}
    for side, part in (("key", key), ("value", value)):
        properties[_NAME.format(side)] = part.type.name
        properties[_TYPE.format(side)] = part.type.name
        properties[_PROPERTIES.format(side)] = json.dumps(dict(part.properties), separators=(",", ":"))
    return SchemaData(SchemaType.KEY_VALUE, key_values.join(key.data, value.data), properties, key.user)


def is_separated(schema: SchemaData) -> bool:
    """Whether keys are those of messages; else, as where nothing says it, they are in front of the value."""
    return schema.properties.get(_ENCODING) == _SEPARATED


def _part(schema: SchemaData, side: str, data: bytes) -> SchemaData:
    name = schema.properties.get(_TYPE.format(side))
    try:
        kind = SchemaType[name] if name and name != "BYTES" else SchemaType.NONE
    except KeyError as error:
        raise _invalid(f"{name!r} is no type") from error
    if kind in (SchemaType.KEY_VALUE, SchemaType.AUTO_CONSUME):
        raise _invalid(f"a {side} cannot be {kind.name}")
    return SchemaData(kind, data, _properties(schema, side))


def _properties(schema: SchemaData, side: str) -> dict[str, str]:
    text = schema.properties.get(_PROPERTIES.format(side))
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the properties of the {side} are no JSON") from error
    if not isinstance(found, dict):
        raise _invalid(f"the properties of the {side} are no object")
    return {str(name): str(value) for name, value in found.items()}


def to_text(data: bytes) -> str:
    """Both definitions as the HTTP interface shows them: an object with ``key`` and ``value``.

    :raises InvalidSchemaData: the data is not both of them
    """
    return json.dumps({side: _shown(part) for side, part in zip(("key", "value"), split(data), strict=True)})


def _shown(part: bytes) -> object:
    text = part.decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # That of a primitive type is empty.
        return text


def from_text(text: str) -> bytes:
    """The inverse of :func:`to_text`.

    :raises InvalidSchemaData: it is no object with ``key`` and ``value``
    """
    try:
        found = json.loads(text)
        key, value = found["key"], found["value"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _invalid("an object with key and value is wanted") from error
    return key_values.join(_definition(key), _definition(value))


def _definition(part: object) -> bytes:
    return part.encode() if isinstance(part, str) else json.dumps(part, separators=(",", ":")).encode()
