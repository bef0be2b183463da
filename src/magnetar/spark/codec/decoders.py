"""Decodes the payload of a message to a value, for each schema type."""

from __future__ import annotations

import base64
import decimal
import io
import json
import math
from collections.abc import Callable
from typing import Any

import fastavro

from magnetar.client.schema import BAD_VALUES, PRIMITIVES, Decoder
from magnetar.spark.codec.avro_types import plain, with_members, without_null
from magnetar.spark.codec.protobuf_types import protobuf_decoder
from magnetar.spark.codec.schemas import PROTOBUF, Definition

__all__ = [
    "BAD_VALUES",
    "Decoder",
    "decoder_of",
    "float_of",
    "writer",
]
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def float_of(value: object) -> object:
    """Converts a parsed number to a floating-point number; other values remain unchanged."""
    return _WORDS.get(value, value) if isinstance(value, str) else value


def writer(
    default: Callable[[object], object] | None = None, *, ensure_ascii: bool = True
) -> Callable[[object], str]:
    """Returns a function that converts a value to JSON text.

    :param default: converts values that JSON cannot represent
    :param ensure_ascii: whether characters outside ASCII are escaped
    """
    write = json.JSONEncoder(
        default=default, separators=(",", ":"), ensure_ascii=ensure_ascii, allow_nan=False
    ).encode

    def text_of(value: object) -> str:
        try:
            return write(value)
        except ValueError:
            # Searched only after a failure, because hardly any row has such a number.
            return write(_with_words(value))

    return text_of


def _with_words(value: object) -> object:
    if isinstance(value, dict):
        return {name: _with_words(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_words(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return next(word for word, number in _WORDS.items() if repr(number) == repr(value))
    return value


def decoder_of(written: Definition, wanted: Definition) -> Decoder:
    """Returns a function that decodes payloads to values.

    :param written: the schema with which the messages were written
    :param wanted: the schema of the columns
    """
    if wanted.kind == "AVRO":
        return _avro(written if written.kind == "AVRO" else wanted, wanted)
    if wanted.kind == "JSON":
        return _json(json.loads(wanted.text))
    if wanted.kind in PROTOBUF:
        if not wanted.text:
            return bytes
        return protobuf_decoder(_protobuf_text(written, wanted), wanted.text)
    return PRIMITIVES[wanted.kind]


def _protobuf_text(written: Definition, wanted: Definition) -> str:
    """Returns the protobuf definition with which payloads must be parsed."""
    if written.kind == wanted.kind and written.text:
        return written.text
    return wanted.newest or wanted.text


def _avro(written: Definition, wanted: Definition) -> Decoder:
    same = written.text == wanted.text
    writer, reader = (
        fastavro.parse_schema(with_members(plain(json.loads(each.text)), are_named=same or each is wanted))
        for each in (written, wanted)
    )
    read = fastavro.schemaless_reader

    def decode(data: bytes) -> object:
        stream = io.BytesIO(data)
        value = read(stream, writer, None if same else reader)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} extra bytes follow the record")
        return value

    return decode


def _json(definition: object) -> Decoder:
    convert = _from_json(definition, {})

    def decode(data: bytes) -> object:
        try:
            value = json.loads(data)
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        return value if convert is None else convert(value)

    return decode


_Convert = Callable[[Any], object]


def _from_json(definition: Any, names: dict[str, _Convert | None]) -> _Convert | None:
    """Returns the function that converts a value parsed from JSON; None: no conversion is needed, because
    Arrow checks the value.
    """
    if isinstance(definition, list):
        inner = _from_json(without_null(definition, "value"), names)
        return None if inner is None else lambda value: None if value is None else inner(value)
    if isinstance(definition, str):
        return _OF_PRIMITIVES.get(definition) or names.get(definition)
    kind, logical = definition["type"], definition.get("logicalType")
    if logical == "decimal":
        return lambda value: decimal.Decimal(str(value))
    if logical in ("timestamp-millis", "local-timestamp-millis"):
        return lambda value: int(value) * 1000
    if kind == "array":
        each = _from_json(definition["items"], names)
        return None if each is None else lambda value: [each(item) for item in _a(list, value)]
    if kind == "map":
        content = _from_json(definition["values"], names)
        if content is None:
            return None
        return lambda value: {key: content(item) for key, item in _a(dict, value).items()}
    if kind == "record":
        found: _Convert | None = _record(definition, names)
    elif kind in ("enum", "fixed"):
        found = _check_text if kind == "enum" else _bytes
    else:
        return _from_json(kind, names)
    names[definition["name"]] = found
    return found


def _record(definition: Any, names: dict[str, _Convert | None]) -> _Convert:
    parts = {each["name"]: _from_json(each["type"], names) for each in definition["fields"]}

    def convert(value: object) -> object:
        found = {}
        fields = _a(dict, value)
        for name, part in parts.items():
            content = fields.get(name)
            found[name] = content if part is None or content is None else part(content)
        return found

    return convert


def _a(kind: type[object], value: object) -> Any:
    """Checks the type of a value, and returns the value.

    :raises ValueError: the value has another type
    """
    if not isinstance(value, kind):
        raise ValueError(f"the value is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _check_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_check_text(value), validate=True)


_OF_PRIMITIVES: dict[str, _Convert] = {
    "string": _check_text,
    "bytes": _bytes,
    "float": float_of,
    "double": float_of,
}
"""By primitive type: the conversion or check that Arrow does not make."""
