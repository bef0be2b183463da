"""Formats a message as a line, its content decoded with the schemas of its topic."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from magnetar.cli.printable import printable
from magnetar.client import Client, InvalidMessage, PulsarException, TopicNotFound
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.schema import BAD_VALUES, PRIMITIVES, Decoder, TopicSchema
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.key_values import SIDES, split

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
Print = Callable[[Message], None]
DecodeMessage = Callable[[Message], object]
"""Raises one of ``_UNREADABLE`` if the message does not match its schema."""
_UNREADABLE = (*BAD_VALUES, RecursionError, InvalidMessage)
_BYTES = ("NONE", "BYTES")
_DAY_ZERO = datetime(1970, 1, 1)


def printer(form: str, contents: SchemaDecoders) -> Print:
    """Returns a function that writes a message, unbuffered; ``form`` is ``text`` or ``json``."""
    line = json_line if form == "json" else text_line

    def write(message: Message) -> None:
        sys.stdout.write(line(message, contents) + "\n")
        sys.stdout.flush()

    return write


def json_line(message: Message, contents: SchemaDecoders) -> str:
    """Returns the whole message: ``content`` is text, ``hex`` other content, ``value`` the decoded content.

    ``key`` is as stored: bytes are in Base64, which ``base64EncodedKey`` indicates; a key may also be null.
    """
    found: dict[str, object] = {
        "id": id_text(message.message_id()),
        "topic": message.topic_name(),
        "publishTime": message.publish_timestamp(),
    }
    if message.event_timestamp():
        found["eventTime"] = message.event_timestamp()
    if message.has_null_partition_key():
        found["key"] = None
    elif message.has_partition_key():
        found["key"] = message.partition_key()
        if message.has_base64_encoded_key():
            found["base64EncodedKey"] = True
    if message.ordering_key():
        found["orderingKey"] = message.ordering_key()
    found["properties"] = message.properties()
    if message.encryption() is not None:
        found["encrypted"] = True
    decoded = contents.decoded(message)
    if decoded is not None:
        found["schema"], found["value"] = decoded
    if message.has_null_value():
        found["content"] = None
    else:
        text = _text(message.data())
        found.update({"hex": message.data().hex()} if text is None else {"content": text})
    return json.dumps(found)


def text_line(message: Message, contents: SchemaDecoders) -> str:
    """Returns time, key, properties and content; ``-`` for a missing one."""
    key = message.partition_key() if message.has_partition_key() else "-"
    properties = ",".join(f"{name}={value}" for name, value in message.properties().items()) or "-"
    parts = (time_text(message.publish_timestamp()), key, properties, _content(message, contents))
    return "  ".join(printable(part) for part in parts)


def _content(message: Message, contents: SchemaDecoders) -> str:
    if message.has_null_value():
        return "null"
    decoded = contents.decoded(message)
    if decoded is not None:
        value = decoded[1]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    data = message.data()
    text = _text(data) if message.encryption() is None else None
    return f"0x{data.hex()}" if text is None else text


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def time_text(milliseconds: int) -> str:
    """Returns the time in UTC, or the number if it is beyond the calendar."""
    try:
        at = _1970 + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def id_text(message_id: MessageId) -> str:
    """Returns ``ledger:entry:partition``, with ``:batch index`` in a batch; Pulsar's form."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"


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
        return lambda data: (_DAY_ZERO + timedelta(days=PRIMITIVES[kind](data))).date()
    if kind in ("TIMESTAMP", "INSTANT"):
        return lambda data: (_DAY_ZERO + timedelta(microseconds=PRIMITIVES[kind](data))).replace(tzinfo=UTC)
    if kind == "LOCAL_DATE_TIME":
        return lambda data: _DAY_ZERO + timedelta(microseconds=PRIMITIVES[kind](data))
    return None if kind in _BYTES else PRIMITIVES.get(kind)


def _avro(definition: Any) -> Decoder:
    import fastavro

    schema = fastavro.parse_schema(definition)

    def decode(data: bytes) -> object:
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
