"""Decodes contents of messages to JSON values, with the schemas of their topic."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from magnetar.client import Client, InvalidMessage, PulsarException, TopicNotFound
from magnetar.client.message import Message
from magnetar.client.primitive_contents import BAD_VALUES, PRIMITIVES, Decoder
from magnetar.client.schema import TopicSchema
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.key_values import SIDES, split

DecodeMessage = Callable[[Message], Any]
"""Raises one of ``_UNREADABLE`` if the message does not match its schema."""
_UNREADABLE = (*BAD_VALUES, RecursionError, InvalidMessage)
_BYTES = ("NONE", "BYTES")
_1970 = datetime(1970, 1, 1)


class SchemaDecoders:
    """Decoders; fetches each version of a schema once."""

    def __init__(self, client: Client, warn: Callable[[str], None]) -> None:
        """:param warn: called with the reason if a schema cannot be fetched or used"""
        self._client = client
        self._warn = warn
        self._known: dict[tuple[str, bytes], tuple[str, DecodeMessage] | None] = {}

    def decoded(self, message: Message) -> tuple[str, object] | None:
        """Returns schema type and value; None: no schema, or the content does not match it."""
        if message.has_null_value() or message.encryption() is not None:
            return None
        version = message.schema_version()
        wanted = message.topic_name(), version if len(version) == 8 else b""
        if wanted not in self._known:
            self._known[wanted] = self._decoder(*wanted)
        found = self._known[wanted]
        if found is None:
            return None
        kind, decode = found
        try:
            return kind, plain(decode(message))
        except _UNREADABLE:
            return None

    def _decoder(self, topic: str, version: bytes) -> tuple[str, DecodeMessage] | None:
        try:
            schema = self._client.schema(str(TopicName.parse(topic).base), version)
        except TopicNotFound:
            return None
        except PulsarException as error:
            said = f"{type(error).__name__}: {error}"
            self._warn(f"contents are not decoded, because the schema is not available: {said}")
            return None
        try:
            made = _of_messages(schema)
        except _UNREADABLE as error:
            which = (
                f"version {int.from_bytes(version, 'big', signed=True)}" if version else "the newest version"
            )
            self._warn(f"contents of {which} of the schema are not decoded: {error}")
            return None
        return None if made is None else (schema.kind, made)


def _of_messages(schema: TopicSchema) -> DecodeMessage | None:
    if schema.kind == "KEY_VALUE":
        return _of_pairs(schema)
    decode = _decoder(schema.kind, schema.data)
    return None if decode is None else lambda message: decode(message.data())


def _of_pairs(schema: TopicSchema) -> DecodeMessage | None:
    decoders: list[Decoder] = []
    for side, definition in zip(SIDES, split(schema.data), strict=True):
        kind = schema.kind_of(side)
        decode = _text_or_bytes if kind in _BYTES else _decoder(kind, definition or b"")
        if decode is None:
            return None
        decoders.append(decode)

    def decode_pair(message: Message) -> object:
        content = message.data()
        parts = (message.partition_key_bytes(), content) if schema.is_separated else split(content)
        return {
            side: None if part is None else decode(part)
            for side, part, decode in zip(SIDES, parts, decoders, strict=True)
        }

    return decode_pair


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _decoder(kind: str, definition: bytes) -> Decoder | None:
    if kind == "JSON":
        return json.loads
    if kind == "AVRO":
        return _avro(json.loads(definition))
    if kind in ("DATE", "LOCAL_DATE"):
        return lambda data: (_1970 + timedelta(days=PRIMITIVES[kind](data))).date()
    if kind in ("TIMESTAMP", "INSTANT"):
        return lambda data: (_1970 + timedelta(microseconds=PRIMITIVES[kind](data))).replace(tzinfo=UTC)
    if kind == "LOCAL_DATE_TIME":
        return lambda data: _1970 + timedelta(microseconds=PRIMITIVES[kind](data))
    return None if kind in _BYTES else PRIMITIVES.get(kind)


def _avro(definition: Any) -> Decoder:
    import fastavro

    schema = fastavro.parse_schema(definition)

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} more bytes than the record has")
        return value

    return decode


def plain(value: object) -> object:
    """Returns a value for JSON: bytes in hexadecimal, times in ISO 8601, others as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (date, time)):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def warn(words: str) -> None:
    """Writes a warning to standard error."""
    sys.stderr.write(f"magnetar: {words}\n")
