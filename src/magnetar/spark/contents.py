"""The content of a message from the columns of a row: bytes as they are, or fields as JSON."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, MapType, StringType, StructType, TimestampType

from magnetar.spark.columns import METADATA_NAMES, VALUE
from magnetar.spark.errors import InvalidRows
from magnetar.spark.options import Options

__all__ = ["EVENT_TIME", "KEY", "PROPERTIES", "TOPIC", "Content", "check_columns"]

KEY, TOPIC, EVENT_TIME, PROPERTIES = "__key", "__topic", "__eventTime", "__messageProperties"

_TYPES = {
    KEY: (BinaryType(), StringType()),
    TOPIC: (StringType(),),
    EVENT_TIME: (TimestampType(),),
    PROPERTIES: (MapType(StringType(), StringType()),),
}


def check_columns(schema: StructType, options: Options) -> None:
    """:raises InvalidRows: rows of this schema cannot be written"""
    named = {field.name: field.dataType for field in schema.fields}
    for name, allowed in _TYPES.items():
        found = named.get(name)
        if found is not None and not any(_same(found, each) for each in allowed):
            wanted = " or ".join(each.simpleString() for each in allowed)
            raise InvalidRows(f"the column {name} must be {wanted}, not {found.simpleString()}")
    if TOPIC not in named and not options.topic:
        raise InvalidRows(f"there is neither an option 'topic' nor a column {TOPIC}")
    Content(schema, options)


def _same(found: Any, wanted: Any) -> bool:
    return bool(found.simpleString() == wanted.simpleString())


class Content:
    """Makes the contents of messages; ``__messageId`` and ``__publishTime`` come from the broker: ignored."""

    def __init__(self, schema: StructType, options: Options) -> None:
        """:raises InvalidRows: there is no content, or it cannot be encoded so"""
        fields = [field for field in schema.fields if field.name not in METADATA_NAMES]
        self._names = [field.name for field in fields]
        if not fields:
            raise InvalidRows(
                f"there is no column {VALUE}, and no other column besides those that begin with __"
            )
        plain = self._names == [VALUE] and fields[0].dataType in (BinaryType(), StringType())
        self.encoding = options.value_encoding or ("bytes" if plain else "json")
        if self.encoding == "bytes" and not plain:
            found = ", ".join(field.simpleString() for field in fields)
            raise InvalidRows(
                f"'value.encoding=bytes' needs one column {VALUE} of bytes or text, not {found}"
            )
        if self.encoding == "avro":
            raise InvalidRows("'value.encoding=avro' is not supported yet; json is")

    def encoded(self, rows: pa.RecordBatch) -> pa.Array:
        """One content for each row; null where the message has none."""
        if self.encoding == "bytes":
            return rows.column(VALUE)
        texts = [json.dumps(row, default=_plain, separators=(",", ":")) for row in self._rows(rows)]
        return pa.array(texts, pa.large_string())

    def _rows(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        return list(rows.select(self._names).to_pylist(maps_as_pydicts="strict"))


def _plain(value: object) -> object:
    """What JSON has no form for, as Spark's ``to_json`` writes it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    raise InvalidRows(f"a {type(value).__name__} cannot be written as JSON")
