"""Formats messages as lines, with payloads decoded by the topic's schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from magnetar.cli.printable import printable
from magnetar.client import Client, PulsarException, TopicNotFound
from magnetar.client.message import Message
from magnetar.client.readable import (
    UNREADABLE,
    DecodeMessage,
    decode_message,
    described,
    text_of,
    value_of,
)
from magnetar.naming.topic_name import TopicName

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
Print = Callable[[Message], None]


def printer(form: str, contents: SchemaDecoders) -> Print:
    """Returns a function that prints a message at once, without buffering.

    :param form: ``text`` or ``json``
    """
    line = json_line if form == "json" else text_line

    def write(message: Message) -> None:
        sys.stdout.write(line(message, contents) + "\n")
        sys.stdout.flush()

    return write


def json_line(message: Message, contents: SchemaDecoders) -> str:
    """Formats all fields of a message as one line of JSON; see :func:`magnetar.client.readable.described`."""
    return json.dumps(described(message, contents.decoded(message)))


def text_line(message: Message, contents: SchemaDecoders) -> str:
    """Formats publish time, key, properties and content of a message in one line; ``-`` stands for an empty
    field.
    """
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
    text = text_of(data) if message.encryption() is None else None
    return f"0x{data.hex()}" if text is None else text


def time_text(milliseconds: int) -> str:
    """Formats a time, given in milliseconds since 1970, in UTC; returns the number if ``datetime`` cannot
    represent the time.
    """
    try:
        at = _1970 + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class SchemaDecoders:
    """Decodes the payloads of messages; fetches each schema version only once."""

    def __init__(self, client: Client, warn: Callable[[str], None]) -> None:
        """:param warn: called with a warning if a schema cannot be fetched or used"""
        self._client = client
        self._warn = warn
        self._known: dict[tuple[str, bytes], tuple[str, DecodeMessage] | None] = {}

    def decoded(self, message: Message) -> tuple[str, object] | None:
        """Returns the schema type and the decoded value of a message; None: there is no schema, or the
        payload does not match it.
        """
        if message.has_null_value() or message.encryption() is not None:
            return None
        version = message.schema_version()
        wanted = message.topic_name(), version if len(version) == 8 else b""
        if wanted not in self._known:
            self._known[wanted] = self._decoder(*wanted)
        return value_of(message, self._known[wanted])

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
            made = decode_message(schema)
        except UNREADABLE as error:
            which = (
                f"version {int.from_bytes(version, 'big', signed=True)}" if version else "the newest version"
            )
            self._warn(f"contents of {which} of the schema are not decoded: {error}")
            return None
        return None if made is None else (schema.kind, made)


def warn(words: str) -> None:
    """Writes a warning to standard error."""
    sys.stderr.write(f"magnetar: {words}\n")
