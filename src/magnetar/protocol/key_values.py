"""Inline KEY_VALUE messages, with key and value in the payload; and KEY_VALUE schemas.

The schema definitions of key and value are joined like keys and values. The names, types and properties of
both are in the properties of the schema, under the names that Pulsar's clients use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from magnetar.lazy_dataclass import dataclass

__all__ = ["SIDES", "Declared", "declared", "described", "is_separated", "join", "kind_of", "split"]

SIDES = ("key", "value")

_NONE = -1
_ENCODING = "kv.encoding.type"
_NAME = "{}.schema.name"
_KIND = "{}.schema.type"
_PROPERTIES = "{}.schema.properties"
_INLINE = "INLINE"
_SEPARATED = "SEPARATED"


@dataclass(frozen=True, slots=True)
class Declared:
    """The name, type and properties of a key's or value's schema, as the KEY_VALUE schema's properties state
    them.
    """

    kind: str
    """The type's name in the admin interface, such as ``AVRO``."""
    properties: Mapping[str, str]
    name: str = ""


def described(key: Declared, value: Declared, *, separated: bool) -> dict[str, str]:
    """Returns the properties of a KEY_VALUE schema.

    :param separated: whether the key is the message key; otherwise it precedes the value in the payload
    """
    found = {_ENCODING: _SEPARATED if separated else _INLINE}
    for side, part in zip(SIDES, (key, value), strict=True):
        found[_NAME.format(side)] = part.name
        found[_KIND.format(side)] = part.kind
        found[_PROPERTIES.format(side)] = json.dumps(dict(part.properties), separators=(",", ":"))
    return found


def is_separated(properties: Mapping[str, str]) -> bool:
    """Whether the key is the message key; otherwise, and by default, it precedes the value in the payload."""
    return properties.get(_ENCODING) == _SEPARATED


def kind_of(properties: Mapping[str, str], side: str) -> str:
    """Returns the type of the key or value (``side``, one of :data:`SIDES`), as the admin interface names it;
    ``BYTES`` if no type is stated.
    """
    return properties.get(_KIND.format(side)) or "BYTES"


def declared(properties: Mapping[str, str], side: str) -> Declared:
    """Returns the name, type and properties of the schema of one of :data:`SIDES`.

    :raises ValueError: the properties of the key or value are not JSON, or not an object
    """
    text = properties.get(_PROPERTIES.format(side))
    try:
        own = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the properties of the {side} are not JSON") from error
    if not isinstance(own, dict):
        raise ValueError(f"the properties of the {side} are not a JSON object")
    return Declared(
        kind_of(properties, side),
        {str(name): str(value) for name, value in own.items()},
        properties.get(_NAME.format(side), ""),
    )


def join(key: bytes | None, value: bytes | None) -> bytes:
    """Joins key and value, each after its length in four bytes; None has the length -1."""
    return b"".join(
        (_NONE if each is None else len(each)).to_bytes(4, "big", signed=True) + (each or b"")
        for each in (key, value)
    )


def split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Splits data that :func:`join` joined; bytes after the value are ignored.

    :raises ValueError: the lengths do not match the data
    """
    parts: list[bytes | None] = []
    position = 0
    for _ in range(2):
        if position + 4 > len(data):
            raise ValueError("the key and value are truncated: one of their lengths is missing")
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size == _NONE:
            parts.append(None)
            continue
        if size < 0 or position + size > len(data):
            raise ValueError(
                f"the key or value should have {size} bytes, but only {len(data) - position} remain"
            )
        parts.append(data[position : position + size])
        position += size
    return parts[0], parts[1]
