"""Formats a message as a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from magnetar.cli.messages.contents import SchemaDecoders
from magnetar.cli.printable import printable
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
Print = Callable[[Message], None]


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
