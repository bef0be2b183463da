"""Converts Avro definitions to Spark column types, and Spark columns to Avro definitions like those of the
official clients.

A nullable column becomes a union with null as its first type and as its default.
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
    "branch_of",
    "column_type",
    "definition_for",
    "field_for",
    "members_of",
    "plain",
    "record_name",
    "with_members",
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
"""Logical types that have no column type; their columns have the type of the underlying Avro type."""
_MEMBER = "member"
"""The field name in the records that :func:`with_members` makes from the types of a union."""
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


def column_type(
    definition: object,
    names: dict[str, object] | None = None,
    at: str = "value",
    *,
    has_members: bool = False,
) -> DataType:
    """Returns the column type for an Avro definition.

    :param names: the named types that are already known, which the function extends; None: no type is known
    :param at: the path of the field, for errors
    :param has_members: whether a union of several types becomes a struct with a field for each type
    :raises SparkSourceError: the definition is recursive, or has a union of several types without
        ``has_members``
    """
    return _ColumnTypes({} if names is None else names, has_members).of(definition, at)


class _ColumnTypes:
    def __init__(self, names: dict[str, object], has_members: bool) -> None:
        self._names = names
        self._has_members = has_members

    def of(self, definition: object, at: str) -> DataType:
        if isinstance(definition, list):
            members = members_of(definition)
            if self._has_members and len(members) > 1:
                fields = [self.of(each, f"{at}.{name}") for name, each in members.items()]
                return StructType([StructField(*each) for each in zip(members, fields, strict=True)])
            return self.of(without_null(definition, at), at)
        if isinstance(definition, str):
            return self._known(definition, at)
        if not isinstance(definition, dict):
            raise SparkSourceError(f"{at}: {definition!r} is not a type of Avro")
        kind = definition["type"]
        logical = definition.get("logicalType")
        if logical == "decimal":
            return DecimalType(int(definition["precision"]), int(definition.get("scale", 0)))
        if logical in _LOGICAL and kind in ("int", "long"):
            return _LOGICAL[logical]
        if kind == "array":
            return ArrayType(self.of(definition["items"], f"{at}[]"))
        if kind == "map":
            return MapType(StringType(), self.of(definition["values"], f"{at}{{}}"))
        if kind not in ("record", "error", "enum", "fixed"):
            return self.of(kind, at)
        found = self._named(definition, at)
        for name in _names_of(definition):
            self._names[name] = found
        return found

    def _known(self, name: str, at: str) -> DataType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        known = self._names.get(name)
        if known is None:
            raise SparkSourceError(f"{at}: the type {name!r} is recursive or not defined")
        assert isinstance(known, DataType)
        return known

    def _named(self, definition: dict[str, Any], at: str) -> DataType:
        if definition["type"] == "enum":
            return StringType()
        if definition["type"] == "fixed":
            return BinaryType()
        return StructType(
            [
                StructField(each["name"], self.of(each["type"], f"{at}.{each['name']}"))
                for each in definition["fields"]
            ]
        )


def _names_of(definition: Any) -> tuple[str, ...]:
    name, space = definition["name"], definition.get("namespace")
    return (name, f"{space}.{name}") if space else (name,)


def without_null(union: list[Any], at: str) -> object:
    """Returns the only non-null type of a union.

    :raises SparkSourceError: the union has several non-null types, or no such type
    """
    others = [each for each in union if each != "null"]
    if len(others) != 1:
        raise SparkSourceError(
            f"{at}: a union of several types cannot become a column; use value.format=bytes to read the bytes"
        )
    return others[0]


def members_of(union: list[object]) -> dict[str, object]:
    """Returns the non-null types of a union, by the names that Spark's Avro reader gives them."""
    return {f"member{number}": each for number, each in enumerate(each for each in union if each != "null")}


def with_members(definition: object, *, are_named: bool, at: str = "union") -> Any:
    """Returns a definition with the same encoding, in which each type of a union is wrapped in a record with
    one field; such a record is encoded like its field. The record's name contains the path of the union and
    the type, so that the types of writer and reader are matched.

    :param are_named: True for the reader's definition, whose fields have the names of :func:`members_of`;
        False for the writer's
    """

    def within(part: object, name: str) -> object:
        return with_members(part, are_named=are_named, at=f"{at}_{name}")

    if isinstance(definition, list):
        members = members_of(definition)
        if len(members) < 2:
            return [within(each, "only") for each in definition]
        records = iter(
            {
                "type": "record",
                "name": f"{at}_{branch_of(each)}",
                "fields": [
                    {
                        "name": name if are_named else _MEMBER,
                        "aliases": [_MEMBER] if are_named else [],
                        "type": within(each, branch_of(each)),
                    }
                ],
            }
            for name, each in members.items()
        )
        return [each if each == "null" else next(records) for each in definition]
    if not isinstance(definition, dict):
        return definition
    found: dict[str, Any] = {
        key: within(each, key) if key in ("type", "items", "values") else each
        for key, each in definition.items()
    }
    if "fields" in found:
        found["fields"] = [
            {**each, **_default_of(each), "type": within(each["type"], each["name"])}
            for each in found["fields"]
        ]
    return found


def _default_of(field: dict[str, object]) -> dict[str, object]:
    """Returns ``{"default": …}`` with the wrapped default of a field whose type is a union of several types;
    an empty dict if the field needs no such change. In Avro, the default of a union has the union's first
    type.
    """
    union = field["type"]
    if field.get("default") is None or not isinstance(union, list):
        return {}
    members = list(members_of(union))
    return {"default": {members[0]: field["default"]}} if len(members) > 1 else {}


def branch_of(definition: object) -> str:
    """Returns the name of a type in a union, by which the types of two unions are matched."""
    if isinstance(definition, dict):
        definition = definition["name"] if "name" in definition else definition["type"]
    return re.sub("[^A-Za-z0-9_]", "_", str(definition).rpartition(".")[2])


def plain(definition: object) -> Any:
    """Returns the definition without the logical types that have no column type."""
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
    """Returns the Avro definition, as JSON, of a record with a field for each column.

    :param name: the record's name, from :func:`record_name`
    :raises InvalidRows: Avro cannot represent a column's name or type; the error text names the column
    """
    record = {"type": "record", "name": name, "fields": [field_for(each, name) for each in fields]}
    return json.dumps(record, separators=(",", ":"))


def record_name(topic: str) -> str:
    """Returns the local name of a topic, converted to a valid Avro name."""
    name = re.sub("[^A-Za-z0-9_]", "_", topic.rpartition("/")[2])
    return name if _NAME.fullmatch(name) else f"_{name}"


def field_for(column: StructField, within: str) -> dict[str, object]:
    """Returns the Avro field of a column.

    :param within: the name of the enclosing record, for nested names
    :raises InvalidRows: see :func:`definition_for`
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
