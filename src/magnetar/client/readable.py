"""Converts messages to a readable form and to JSON, with payloads decoded by the schema of their topic."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from datetime import date, time

from magnetar.client.exceptions import InvalidMessage
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.schema import BAD_VALUES, PRIMITIVES, Decoder, TopicSchema
from magnetar.client.times import decoder
from magnetar.protocol.key_values import SIDES, split

DecodeMessage = Callable[[Message], object]
"""Decodes a message; raises an exception of :data:`UNREADABLE` if the message does not match the schema."""
UNREADABLE = (*BAD_VALUES, RecursionError, InvalidMessage)
_BYTES = ("NONE", "BYTES")


def described(message: Message, decoded: tuple[str, object] | None) -> dict[str, object]:
    """Returns the whole message as a JSON object. The payload is in ``content`` if it is valid UTF-8,
    otherwise in ``hex``; the decoded value is in ``value``.

    ``key`` is the stored key: null for a null key; for a binary key, it is in Base64, and
    ``base64EncodedKey`` is true.

    :param decoded: schema type and decoded value; None: the payload was not decoded
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
    if decoded is not None:
        found["schema"], found["value"] = decoded
    if message.has_null_value():
        found["content"] = None
    else:
        text = text_of(message.data())
        found.update({"hex": message.data().hex()} if text is None else {"content": text})
    return found


def value_of(message: Message, decoder: tuple[str, DecodeMessage] | None) -> tuple[str, object] | None:
    """Returns the schema type and the decoded value; None: there is no schema, or the payload does not match
    the schema.

    :param decoder: the schema type and the function that decodes; None: there is no schema
    """
    if decoder is None:
        return None
    kind, decode = decoder
    try:
        return kind, plain(decode(message))
    except UNREADABLE:
        return None


def text_of(data: bytes) -> str | None:
    """Returns the data as a string; None: the data is not valid UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def id_text(message_id: MessageId) -> str:
    """Returns ``ledger:entry:partition``, followed by ``:index`` in a batch, which is Pulsar's form."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"


def decode_message(schema: TopicSchema) -> DecodeMessage | None:
    """Returns a function that decodes messages of a schema; None: payloads with this schema type are not
    decoded.

    :raises Exception: one of :data:`UNREADABLE`: the schema definition is malformed
    """
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
    if kind in _BYTES:
        return None
    return decoder(kind) or PRIMITIVES.get(kind)


def _avro(definition: dict[str, object] | list[object] | str) -> Decoder:
    import fastavro

    schema = fastavro.parse_schema(definition)

    def decode(data: bytes) -> object:
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} extra bytes follow the record")
        return value

    return decode


def plain(value: object) -> object:
    """Converts a decoded value to types that JSON has: bytes to hexadecimal, times to ISO 8601, and unknown
    types to ``str()``.
    """
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
