"""Creates Avro definitions from columns, as official clients do from classes.

A nullable column is a union with null first, and null is its default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

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

from magnetar.spark.errors import InvalidRows

__all__ = ["definition_for", "field_for", "record_name"]

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
_LOGICAL: dict[type[DataType], tuple[str, str]] = {
    DateType: ("int", "date"),
    TimestampType: ("long", "timestamp-micros"),
    TimestampNTZType: ("long", "local-timestamp-micros"),
}


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
    """:param within: the name of the enclosing record, for nested names

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
    if type(kind) in _LOGICAL:
        beneath, logical = _LOGICAL[type(kind)]
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
