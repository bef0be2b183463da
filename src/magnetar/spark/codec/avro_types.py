"""Column types for Avro definitions, in which JSON and AVRO schemas of topics are written."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from magnetar.spark.errors import SparkSourceError

__all__ = ["column_type", "plain", "without_null"]

_PRIMITIVES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
_UNREAD = ("time-millis", "time-micros", "uuid", "duration")
"""Logical types without a column type: the underlying type is read."""


def column_type(definition: Any, names: dict[str, Any] | None = None, at: str = "value") -> DataType:
    """Returns the column type for a definition.

    :param names: named types so far
    :raises SparkSourceError: the definition has a union of several types, or is recursive
    """
    names = {} if names is None else names
    if isinstance(definition, list):
        return column_type(without_null(definition, at), names, at)
    if isinstance(definition, str):
        if definition in _PRIMITIVES:
            return _PRIMITIVES[definition]
        known = names.get(definition)
        if known is None:
            raise SparkSourceError(f"{at}: the type {definition!r} is recursive or not defined")
        assert isinstance(known, DataType)
        return known
    kind = definition["type"]
    logical = definition.get("logicalType")
    if logical == "decimal":
        return DecimalType(int(definition["precision"]), int(definition.get("scale", 0)))
    if logical in _LOGICAL and kind in ("int", "long"):
        return _LOGICAL[logical]
    if kind == "array":
        return ArrayType(column_type(definition["items"], names, f"{at}[]"))
    if kind == "map":
        return MapType(StringType(), column_type(definition["values"], names, f"{at}{{}}"))
    if kind not in ("record", "error", "enum", "fixed"):
        return column_type(kind, names, at)
    found = _named(definition, names, at)
    for name in _names_of(definition):
        names[name] = found
    return found


def _named(definition: Any, names: dict[str, Any], at: str) -> DataType:
    if definition["type"] == "enum":
        return StringType()
    if definition["type"] == "fixed":
        return BinaryType()
    return StructType(
        [
            StructField(each["name"], column_type(each["type"], names, f"{at}.{each['name']}"))
            for each in definition["fields"]
        ]
    )


def _names_of(definition: Any) -> tuple[str, ...]:
    name, space = definition["name"], definition.get("namespace")
    return (name, f"{space}.{name}") if space else (name,)


def without_null(union: list[Any], at: str) -> Any:
    """Returns the only type of a union besides null.

    :raises SparkSourceError: the union has several, or none
    """
    others = [each for each in union if each != "null"]
    if len(others) != 1:
        raise SparkSourceError(
            f"{at}: a union of several types cannot become a column; use value.format=bytes to read the bytes"
        )
    return others[0]


def plain(definition: Any) -> Any:
    """Returns the definition without logical types that have no column type."""
    if isinstance(definition, list):
        return [plain(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    found = {
        key: plain(each) if key in ("type", "items", "values", "fields") else each
        for key, each in definition.items()
    }
    if found.get("logicalType") in _UNREAD:
        del found["logicalType"]
    return found
