"""Encodes the columns of a row as the payload of a message: as bytes, as JSON, or with a schema."""

from __future__ import annotations

import base64
import datetime
import decimal
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from magnetar.spark.codec.avro_types import definition_for, record_name
from magnetar.spark.codec.columns import METADATA_NAMES, VALUE
from magnetar.spark.codec.decoders import writer
from magnetar.spark.codec.encoders import Encode, encoder_of, fits, fitted
from magnetar.spark.codec.schemas import NOTHING, PRIMITIVES, RECORDS, Definition
from magnetar.spark.errors import InvalidRows
from magnetar.spark.options import QueryOptions

__all__ = ["EVENT_TIME", "KEY", "PROPERTIES", "TOPIC", "Content", "TopicContent", "check_columns"]

KEY, TOPIC, EVENT_TIME, PROPERTIES = "__key", "__topic", "__eventTime", "__messageProperties"

_TYPES = {
    KEY: (BinaryType(), StringType()),
    TOPIC: (StringType(),),
    EVENT_TIME: (TimestampType(),),
    PROPERTIES: (MapType(StringType(), StringType()),),
}
_KINDS: dict[type[DataType], str] = {
    StringType: "STRING",
    BinaryType: "BYTES",
    BooleanType: "BOOLEAN",
    ByteType: "INT8",
    ShortType: "INT16",
    IntegerType: "INT32",
    LongType: "INT64",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "LOCAL_DATE",
    TimestampType: "INSTANT",
    TimestampNTZType: "LOCAL_DATE_TIME",
}
"""By column type: the schema type that represents it without loss, for topics without a schema."""
_WORDS = {"AVRO": "avro", "JSON": "json"}
_TEXT = writer(lambda value: _plain(value))


def check_columns(schema: StructType, options: QueryOptions) -> Content:
    """Returns the object that encodes payloads from the columns of a query.

    :raises InvalidRows: rows with these columns cannot be written
    """
    named = {field.name: field.dataType for field in schema.fields}
    for name, allowed in _TYPES.items():
        found = named.get(name)
        if found is not None and not any(_same(found, each) for each in allowed):
            wanted = " or ".join(each.simpleString() for each in allowed)
            raise InvalidRows(f"the column '{name}' must be {wanted}, not {found.simpleString()}")
    if TOPIC not in named and not options.topic:
        raise InvalidRows(f"the topic is missing: set the option 'topic' or add a column '{TOPIC}'")
    return Content(schema, options)


def _same(found: Any, wanted: Any) -> bool:
    return bool(found.simpleString() == wanted.simpleString())


@dataclass(frozen=True)
class TopicContent:
    """How rows for one topic are encoded."""

    encoded: Encode
    schema: Definition
    """The schema that the producer declares; with the schema of bytes, the producer declares no schema."""


class Content:
    """Encodes rows as payloads; ignores the columns ``__messageId`` and ``__publishTime``, which the broker
    assigns.
    """

    def __init__(self, schema: StructType, options: QueryOptions) -> None:
        """:raises InvalidRows: no column is for the payload, or the columns cannot be encoded as the options
        require
        """
        fields = [field for field in schema.fields if field.name not in METADATA_NAMES]
        self._fields = fields
        self._names = [field.name for field in fields]
        if not fields:
            raise InvalidRows(
                f"the rows have no column '{VALUE}', and the names of all other columns begin with __"
            )
        self._single = self._names == [VALUE]
        plain = self._single and fields[0].dataType in (BinaryType(), StringType())
        self._asked = options.value_encoding
        self.by_schema = options.value_schema == "register"
        """Whether the encoding depends on the topic, and the producer declares a schema."""
        found = ", ".join(field.simpleString() for field in fields)
        if self._asked == "bytes" and not plain:
            raise InvalidRows(
                f"'value.encoding=bytes' requires one column '{VALUE}' of bytes or text, not {found}"
            )
        if self._asked == "primitive" and not (self._single and type(fields[0].dataType) in _KINDS):
            raise InvalidRows(
                f"'value.encoding=primitive' requires one column '{VALUE}' of a primitive type, not {found}"
            )
        self._bytes = self._asked == "bytes" or (plain and not self._asked)
        if self.by_schema:
            # Checks the columns themselves, without a topic.
            self.for_topic("topic", NOTHING)

    def for_topic(self, topic: str, found: Definition) -> TopicContent:
        """Returns how rows for one topic are encoded.

        :param found: the topic's schema
        :raises InvalidRows: the rows cannot be written with the schema; the error text says why
        """
        if not self.by_schema:
            return TopicContent(self._free, NOTHING)
        wanted = self._definition(topic, found)
        return TopicContent(encoder_of(wanted, self._names), wanted)

    def _definition(self, topic: str, found: Definition) -> Definition:
        asked = self._asked
        if found.kind in RECORDS:
            if asked not in ("", _WORDS[found.kind]):
                raise InvalidRows(
                    f"{topic} has a schema of type {found.kind}, which 'value.encoding={asked}' cannot "
                    f"write; use 'value.encoding={_WORDS[found.kind]}'"
                )
            return Definition(found.kind, fitted(found.text, self._fields, topic))
        if found.kind in ("NONE", "BYTES"):
            return self._new(topic)
        return self._known_primitive(topic, found)

    def _new(self, topic: str) -> Definition:
        """Returns the schema to declare for a topic that has no schema."""
        column = self._fields[0].dataType
        if self._asked == "primitive" or (not self._asked and self._single and type(column) in _KINDS):
            return Definition(_KINDS[type(column)])
        kind = "AVRO" if self._asked == "avro" else "JSON"
        return Definition(kind, definition_for(record_name(topic), self._fields))

    def _known_primitive(self, topic: str, found: Definition) -> Definition:
        wanted = PRIMITIVES.get(found.kind)
        if wanted is None:
            raise InvalidRows(
                f"{topic} has a schema of type {found.kind}, which cannot be written; use "
                "'value.schema=none' to write without a schema"
            )
        if self._asked not in ("", "primitive") or not self._single:
            raise InvalidRows(
                f"{topic} has a schema of type {found.kind}, which requires one column '{VALUE}' with "
                f"'value.encoding=primitive', not {self._asked or ', '.join(self._names)}"
            )
        column: StructField = self._fields[0]
        if not fits(column.dataType, wanted):
            raise InvalidRows(
                f"{topic} has a schema of type {found.kind}, which requires a column of "
                f"{wanted.simpleString()}, not {column.dataType.simpleString()}"
            )
        return Definition(found.kind)

    def _free(self, rows: pa.RecordBatch) -> pa.Array:
        """Encodes rows without a schema."""
        if self._bytes:
            return rows.column(VALUE)
        found = rows.select(self._names).to_pylist(maps_as_pydicts="strict")
        return pa.array([_TEXT(row) for row in found], pa.large_string())


def _plain(value: object) -> object:
    """Converts values that JSON cannot represent, as Spark's ``to_json`` does."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    raise InvalidRows(f"a {type(value).__name__} cannot be written as JSON")
