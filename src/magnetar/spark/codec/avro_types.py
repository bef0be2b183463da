"""Column types for Avro definitions, and Avro definitions for columns, as official clients create them.

A nullable column is a union with null first, and null is its default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
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

from magnetar.spark.errors import InvalidRows, SparkSourceError

__all__ = [
    "column_type",
    "definition_for",
    "field_for",
    "plain",
    "record_name",
    "without_null",
]
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
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[type[DataType], str] = {
    StringType: "string",
    BinaryType: "bytes",
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
}
_DEFINED_LOGICAL: dict[type[DataType], tuple[str, str]] = {
    DateType: ("int", "date"),
    TimestampType: ("long", "timestamp-micros"),
    TimestampNTZType: ("long", "local-timestamp-micros"),
}


def column_type(definition: Any, names: dict[str, object] | None = None, at: str = "value") -> DataType:
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


def _named(definition: Any, names: dict[str, object], at: str) -> DataType:
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


def without_null(union: list[Any], at: str) -> object:
    """Returns the only type of a union besides null.

    :raises SparkSourceError: the union has several, or none
    """
    others = [each for each in union if each != "null"]
    if len(others) != 1:
        raise SparkSourceError(
            f"{at}: a union of several types cannot become a column; use value.format=bytes to read the bytes"
        )
    return others[0]


def plain(definition: object) -> Any:
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


def definition_for(name: str, fields: Sequence[StructField]) -> str:
    """Returns a record with a field for each column, as JSON.

    :param name: see :func:`record_name`
    :raises InvalidRows: Avro cannot represent a column's name or type; the text names it
    """
    record = {"type": "record", "name": name, "fields": [field_for(each, name) for each in fields]}
    return json.dumps(record, separators=(",", ":"))


def record_name(topic: str) -> str:
    """Returns the last part of a topic's name as a valid Avro name."""
    name = re.sub("[^A-Za-z0-9_]", "_", topic.rpartition("/")[2])
    return name if _NAME.fullmatch(name) else f"_{name}"


def field_for(column: StructField, within: str) -> dict[str, object]:
    """Returns the Avro field of a column.

    :param within: the name of the enclosing record, for nested names

    :raises InvalidRows: as :func:`definition_for`
    """
    if not _NAME.fullmatch(column.name):
        raise InvalidRows(
            f"a schema cannot have a field {column.name!r}: a name has letters, digits and _, and does not "
            "begin with a digit; rename the column"
        )
    kind = _type_for(column.dataType, f"{within}_{column.name}", column.name)
    if column.nullable:
        return {"name": column.name, "type": ["null", kind], "default": None}
    return {"name": column.name, "type": kind}


def _type_for(kind: DataType, name: str, at: str) -> object:
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    if type(kind) in _DEFINED_LOGICAL:
        beneath, logical = _DEFINED_LOGICAL[type(kind)]
        return {"type": beneath, "logicalType": logical}
    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, ArrayType):
        item = _type_for(kind.elementType, name, f"{at}[]")
        return {"type": "array", "items": ["null", item] if kind.containsNull else item}
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise InvalidRows(
                f"the column {at}: keys of maps must be text, not {kind.keyType.simpleString()}"
            )
        value = _type_for(kind.valueType, name, f"{at}{{}}")
        return {"type": "map", "values": ["null", value] if kind.valueContainsNull else value}
    if isinstance(kind, StructType):
        return {"type": "record", "name": name, "fields": [field_for(each, name) for each in kind.fields]}
    raise InvalidRows(
        f"the column {at}: a schema cannot have the type {kind.simpleString()}; cast the column"
    )
