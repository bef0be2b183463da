"""Contents of messages as values of JSON, by the schemas of their topic."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from magnetar.admin_client import AdminClient, AdminError, NotFound
from magnetar.client.message import Message
from magnetar.client.primitive_contents import BAD_VALUES, PRIMITIVES, Decoder
from magnetar.naming.topic_name import TopicName

_UNREADABLE = (*BAD_VALUES, RecursionError)
_1970 = datetime(1970, 1, 1)


class Contents:
    """Asks the admin interface for each version of a schema once."""

    def __init__(self, admin: AdminClient, topic: str, warn: Callable[[str], None]) -> None:
        """:param warn: told once why schemas cannot be asked for; contents are then not decoded"""
        self._admin = admin
        self._topic = str(TopicName.parse(topic).base)
        self._warn = warn
        self._known: dict[bytes, tuple[str, Decoder] | None] = {}

    def decoded(self, message: Message) -> tuple[str, Any] | None:
        """The type of the schema and the value; None: there is none, or the content does not fit it."""
        if message.has_null_value() or message.encryption() is not None:
            return None
        version = message.schema_version()
        if version not in self._known:
            self._known[version] = self._decoder(version)
        found = self._known[version]
        if found is None:
            return None
        kind, decode = found
        try:
            return kind, plain(decode(message.data()))
        except _UNREADABLE:
            return None

    def _decoder(self, version: bytes) -> tuple[str, Decoder] | None:
        number = int.from_bytes(version, "big", signed=True) if len(version) == 8 else None
        try:
            schema = self._admin.schema(self._topic, number)
        except NotFound:
            return None
        except (AdminError, OSError) as error:
            self._warn(f"contents are not decoded, for there is no schema to be had: {error}")
            self._known[version] = None
            return None
        kind = schema["type"]
        try:
            made = _decoder(kind, schema["data"])
        except _UNREADABLE as error:
            self._warn(f"contents of version {schema['version']} of the schema are not decoded: {error}")
            return None
        return None if made is None else (kind, made)


def _decoder(kind: str, definition: str) -> Decoder | None:
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
    return None if kind in ("NONE", "BYTES") else PRIMITIVES.get(kind)


def _avro(definition: Any) -> Decoder:
    import fastavro

    schema = fastavro.parse_schema(definition)

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes more than the record has")
        return value

    return decode


def plain(value: Any) -> Any:
    """What JSON can say of it: bytes in hexadecimal, times in ISO 8601, else the text."""
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
    """To standard error."""
    sys.stderr.write(f"magnetar: {words}\n")
