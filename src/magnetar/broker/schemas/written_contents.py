"""Encodes, by a schema, the message payloads that HTTP requests contain as strings.

Numbers and times are encoded as in ``org.apache.pulsar.client.impl.schema``; Avro records are given in Avro's
JSON encoding (https://avro.apache.org/docs/1.11.1/specification/#json-encoding).
"""

from __future__ import annotations

import io
import json
import re
import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from functools import partial

from magnetar.broker.schemas import key_value
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.errors import InvalidRequest, InvalidSchemaData
from magnetar.protocol import key_values

Encode = Callable[[str], bytes]
"""Returns the encoded form of a string; raises one of :data:`_BAD` if the string does not fit the schema."""

_BAD = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors of encoders; fastavro raises AttributeError if a value is not the expected object."""
_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"\.([0-9]{1,9})(?=$|[Z+-])")
_NUMBER = re.compile(r"[+-]?([0-9.]+([eE][+-]?[0-9]+)?|NaN|Infinity)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_TRUTHS = {"true": b"\1", "false": b"\0"}


class WrittenContents:
    """Encodes the keys and payloads of messages with one schema.

    :raises InvalidRequest: payloads of the schema's type cannot be given as strings
    :raises InvalidSchemaData: the schema is invalid
    """

    def __init__(self, schema: SchemaData) -> None:
        self._key: Encode | None = None
        self._inline = False
        value = schema
        if schema.type is SchemaType.KEY_VALUE:
            key, value = key_value.parts(schema)
            self._key = _encoder(key)
            self._inline = not key_value.is_separated(schema)
        self._value = _encoder(value)

    @property
    def encodes_keys(self) -> bool:
        """Whether the message key is the encoded key in Base64."""
        return self._key is not None and not self._inline

    def key(self, text: str) -> str:
        """Returns the message key for a key as text: the text itself or, if :attr:`encodes_keys`, the encoded
        key in Base64.

        :raises InvalidRequest: the text is not of the schema's type
        """
        return b64encode(self._encoded_key(text)).decode() if self.encodes_keys else text

    def _encoded_key(self, text: str) -> bytes:
        assert self._key is not None
        return _fitting(self._key, text, "key")

    def content(self, text: str, key: str | None) -> bytes:
        """Returns the payload of a message.

        :param key: the key of the message, which precedes the value in the payload if the schema requires it
        :raises InvalidRequest: the text is not of the schema's type
        """
        value = _fitting(self._value, text, "payload")
        if not self._inline:
            return value
        return key_values.join(b"" if key is None else self._encoded_key(key), value)


def _fitting(encode: Encode, text: str, what: str) -> bytes:
    try:
        return encode(text)
    except _BAD as error:
        shown = text if len(text) <= 100 else f"{text[:100]}..."
        raise InvalidRequest(f"The {what} {shown!r} does not fit the schema: {error}") from error


def _encoder(schema: SchemaData) -> Encode:
    if schema.type is SchemaType.AVRO:
        return _avro(schema)
    found = _ENCODERS.get(schema.type)
    if found is None:
        raise InvalidRequest(f"{schema.type.name} values cannot be given as text; publish them with a client")
    return found


def _avro(schema: SchemaData) -> Encode:
    # Imported here because it is large and rarely needed.
    import fastavro

    try:
        definition = fastavro.parse_schema(json.loads(schema.definition))
    except (*_BAD, fastavro.schema.SchemaParseException) as error:
        raise InvalidSchemaData(f"Invalid schema definition data for AVRO schema: {error}") from error

    def encode(text: str) -> bytes:
        # The reader takes one record per line.
        line = json.dumps(_json_value(text))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, definition, next(fastavro.json_reader(io.StringIO(line), definition)))
        return out.getvalue()

    return encode


def _json(text: str) -> bytes:
    return json.dumps(_json_value(text), separators=(",", ":"), ensure_ascii=False).encode()


def _json_value(text: str) -> object:
    return json.loads(text, parse_constant=_no_json)


def _no_json(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _whole(form: str, text: str) -> bytes:
    if not _WHOLE.fullmatch(text):
        raise ValueError("must be a whole number")
    return struct.pack(form, int(text))


def _number(form: str, text: str) -> bytes:
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a number")
    return struct.pack(form, float(text))


def _moment(text: str) -> tuple[datetime, int]:
    """Returns a time without its fraction of a second, and the fraction in nanoseconds; UTC if the text has
    no offset.
    """
    rest, nanos = _without_fraction(text)
    found = datetime.fromisoformat(rest)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)), nanos


def _without_fraction(text: str) -> tuple[str, int]:
    found = _FRACTION.search(text)
    if found is None:
        return text, 0
    return text[: found.start()] + text[found.end() :], int(found[1].ljust(9, "0"))


def _seconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return since.days * 86_400 + since.seconds


def _timestamp(text: str) -> bytes:
    moment, nanos = _moment(text)
    return struct.pack(">q", _seconds(moment) * 1000 + nanos // 1_000_000)


def _instant(text: str) -> bytes:
    moment, nanos = _moment(text)
    return struct.pack(">qi", _seconds(moment), nanos)


def _days(text: str) -> int:
    return (date.fromisoformat(text) - _EPOCH_DAY).days


def _date(text: str) -> bytes:
    return struct.pack(">q", _days(text) * 86_400_000)


def _local_date(text: str) -> bytes:
    return struct.pack(">q", _days(text))


def _nanos_of_day(text: str) -> int:
    rest, nanos = _without_fraction(text)
    found = time.fromisoformat(rest)
    if found.tzinfo is not None:
        raise ValueError("must be a time without an offset")
    return (found.hour * 3600 + found.minute * 60 + found.second) * 1_000_000_000 + nanos


def _time(text: str) -> bytes:
    return struct.pack(">q", _nanos_of_day(text) // 1_000_000)


def _local_time(text: str) -> bytes:
    return struct.pack(">q", _nanos_of_day(text))


def _local_date_time(text: str) -> bytes:
    day, separator, rest = text.partition("T")
    if not separator:
        raise ValueError("must be a date and a time separated by T")
    return struct.pack(">qq", _days(day), _nanos_of_day(rest))


_ENCODERS: dict[SchemaType, Encode] = {
    SchemaType.NONE: str.encode,
    SchemaType.STRING: str.encode,
    SchemaType.JSON: _json,
    SchemaType.BOOLEAN: lambda text: _TRUTHS[text.lower()],
    SchemaType.INT8: partial(_whole, ">b"),
    SchemaType.INT16: partial(_whole, ">h"),
    SchemaType.INT32: partial(_whole, ">i"),
    SchemaType.INT64: partial(_whole, ">q"),
    SchemaType.FLOAT: partial(_number, ">f"),
    SchemaType.DOUBLE: partial(_number, ">d"),
    SchemaType.DATE: _date,
    SchemaType.TIME: _time,
    SchemaType.TIMESTAMP: _timestamp,
    SchemaType.INSTANT: _instant,
    SchemaType.LOCAL_DATE: _local_date,
    SchemaType.LOCAL_TIME: _local_time,
    SchemaType.LOCAL_DATE_TIME: _local_date_time,
}
