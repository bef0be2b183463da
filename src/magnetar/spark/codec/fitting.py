"""Checks whether columns can be written with a topic's schema, and extends the schema if necessary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from magnetar.spark.codec.avro_definitions import field_for
from magnetar.spark.codec.avro_types import column_type
from magnetar.spark.errors import InvalidRows, SparkSourceError

__all__ = ["fits", "fitted"]

_WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType),
    ShortType: (IntegerType, LongType),
    IntegerType: (LongType,),
    FloatType: (DoubleType,),
}
"""Types that a type can be converted to without loss."""


def fitted(definition: str, columns: Sequence[StructField], topic: str) -> str:
    """Returns the definition for rows: that of the topic, with additional fields for further columns.

    :raises InvalidRows: a field is missing in the rows, or has another type; the text names it
    """
    record = json.loads(definition)
    try:
        kind = column_type(record)
    except SparkSourceError as error:
        raise InvalidRows(f"{topic}: its schema cannot be used for writing: {error}") from error
    if not isinstance(kind, StructType):
        raise InvalidRows(f"{topic}: its schema must be a record, not {kind.simpleString()}")
    known = {each.name: each.dataType for each in kind.fields}
    given = {each.name: each for each in columns}
    _check_present(record, list(given), topic)
    for name, wanted in known.items():
        if name in given and not fits(given[name].dataType, wanted):
            raise InvalidRows(
                f"{topic}: the field {name!r} of its schema is {wanted.simpleString()}, but the column is "
                f"{given[name].dataType.simpleString()}"
            )
    added = [each for each in columns if each.name not in known]
    if not added:
        return definition
    # With a default, so that the schema is compatible in both directions.
    record["fields"] += [
        field_for(StructField(each.name, each.dataType, True), record["name"]) for each in added
    ]
    return json.dumps(record, separators=(",", ":"))


def _check_present(record: Any, given: Sequence[str], topic: str, at: str = "") -> None:
    """:raises InvalidRows: a field without a default is missing"""
    for each in record["fields"]:
        may_be_null = isinstance(each["type"], list) and "null" in each["type"]
        if each["name"] not in given and "default" not in each and not may_be_null:
            raise InvalidRows(
                f"{topic}: the field {at + each['name']!r} of its schema has no default, and there is no "
                "column for it"
            )


def fits(given: DataType, wanted: DataType) -> bool:
    """Whether values of one type can be converted to another without loss."""
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        names = {each.name: each.dataType for each in wanted.fields}
        return {each.name for each in given.fields} == set(names) and all(
            fits(each.dataType, names[each.name]) for each in given.fields
        )
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return fits(given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return fits(given.keyType, wanted.keyType) and fits(given.valueType, wanted.valueType)
    return given.simpleString() == wanted.simpleString() or type(wanted) in _WIDER.get(type(given), ())
