"""Columns and values of protobuf messages, from definitions of the schema types PROTOBUF_NATIVE and PROTOBUF.

A definition has one of three forms: the registry's PROTOBUF_NATIVE form with all descriptors; the property
``__PARSING_INFO__`` of PROTOBUF, a list of only the root message's fields; or the combined layout of several
versions (:meth:`MessageLayout.to_json`). Fields are identified by their numbers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magnetar.spark.errors import SparkSourceError

__all__ = ["PARSING_INFO", "MessageLayout", "layout_of", "protobuf_decoder"]

PARSING_INFO = "__PARSING_INFO__"
"""The property of a PROTOBUF schema that lists the fields of the root message."""
_PRESENT = "__present"
"""The only column of a message type without fields; it is always true. Fields of later schema versions become
further columns.
"""
_TIMESTAMP = "google.protobuf.Timestamp"
_JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
"""Recursive messages with a standard JSON form."""
_SCALARS: dict[str, DataType] = {
    "double": DoubleType(),
    "float": FloatType(),
    "int64": LongType(),
    "uint64": DecimalType(20, 0),
    "int32": IntegerType(),
    "fixed64": DecimalType(20, 0),
    "fixed32": LongType(),
    "bool": BooleanType(),
    "string": StringType(),
    "bytes": BinaryType(),
    "uint32": LongType(),
    "sfixed32": IntegerType(),
    "sfixed64": LongType(),
    "sint32": IntegerType(),
    "sint64": LongType(),
    "enum": StringType(),
    "timestamp": TimestampType(),
    "json": StringType(),
}
"""Column types by the names of types in ``.proto`` files; ``timestamp`` and ``json`` stand for standard
messages.
"""
_NAMES = {
    getattr(FieldDescriptorProto, f"TYPE_{name.upper()}"): name
    for name in _SCALARS
    if name not in ("timestamp", "json")
}
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first and last second of the years 1 to 9999, the range of dates in Python and Spark."""


@dataclass(frozen=True)
class FieldLayout:
    """A field of a message, and the column that it becomes."""

    name: str
    kind: str
    """A key of :data:`_SCALARS`, or ``message``."""
    form: str = "single"
    """The form of the field: ``single`` (one value), ``list`` (repeated) or ``map``."""
    key: str = ""
    """The type of a map's keys; empty: the field is not a map."""
    message: MessageLayout | None = None

    @property
    def type(self) -> DataType:
        """The type of the column."""
        item = _SCALARS[self.kind] if self.message is None else self.message.type
        if self.form == "map":
            return MapType(_SCALARS[self.key], item)
        return ArrayType(item) if self.form == "list" else item


@dataclass(frozen=True)
class MessageLayout:
    """The fields of a message type, by number."""

    fields: Mapping[int, FieldLayout]

    @property
    def type(self) -> StructType:
        """The columns of the fields."""
        found = [StructField(each.name, each.type) for each in self.fields.values()]
        return StructType(found or [StructField(_PRESENT, BooleanType())])

    def followed_by(self, later: MessageLayout, at: str = "value") -> MessageLayout:
        """Returns the combined layout of this schema version and a later one. A field keeps the name that it
        has in this version, and gets the type that it has in the later one.

        :raises SparkSourceError: fields with different numbers have the same name; the error text names the
            field
        """
        fields = dict(self.fields)
        for number, field in later.fields.items():
            before = fields.get(number)
            if before is None:
                fields[number] = field
                continue
            message = field.message
            if before.message is not None and message is not None:
                message = before.message.followed_by(message, f"{at}.{before.name}")
            fields[number] = replace(field, name=before.name, message=message)
        by_name: dict[str, int] = {}
        for number, field in fields.items():
            other = by_name.setdefault(field.name, number)
            if other != number:
                raise SparkSourceError(
                    f"the field {at}.{field.name} has the number {number} in one version of the schema and "
                    f"{other} in another: they are different fields, and cannot share a column; rename one"
                )
        return MessageLayout(fields)

    def to_json(self) -> str:
        """Returns this layout as a definition in JSON."""
        return json.dumps({"layout": self._described()}, separators=(",", ":"))

    def _described(self) -> list[object]:
        return [
            [number, each.name, each.kind, each.form, each.key]
            + ([] if each.message is None else [each.message._described()])
            for number, each in self.fields.items()
        ]


def _parsed_layout(fields: Any) -> MessageLayout:
    """Returns the layout that ``fields``, a list from :meth:`MessageLayout._described`, describes."""
    return MessageLayout(
        {
            number: FieldLayout(name, kind, form, key, _parsed_layout(rest[0]) if rest else None)
            for number, name, kind, form, key, *rest in fields
        }
    )


def layout_of(definition: str) -> MessageLayout:
    """Returns the layout of the messages that a definition describes.

    :raises SparkSourceError: the definition cannot be read, or a message contains itself
    """
    found = _json_of(definition)
    if isinstance(found, dict) and "layout" in found:
        return _parsed_layout(found["layout"])
    return _message_layout(_root(found), "value", ())


def _json_of(definition: str) -> object:
    try:
        found: object = json.loads(definition)
    except ValueError as error:
        raise SparkSourceError(f"the schema definition is not JSON: {error}") from error
    return found


def _message_layout(message: Descriptor, at: str, within: tuple[str, ...]) -> MessageLayout:
    if message.full_name in within:
        raise SparkSourceError(
            f"{at}: the message {message.full_name} contains itself, and cannot become a column; use "
            "value.format=bytes to read the bytes"
        )
    fields = {
        each.number: _field_layout(each, f"{at}.{each.name}", (*within, message.full_name))
        for each in message.fields
    }
    return MessageLayout(fields)


def _field_layout(field: FieldDescriptor, at: str, within: tuple[str, ...]) -> FieldLayout:
    if entry := _map_entry(field):
        found = _field_layout(entry.fields_by_name["value"], f"{at}{{}}", within)
        return replace(found, name=field.name, form="map", key=_NAMES[entry.fields_by_name["key"].type])
    form = "list" if _is_repeated(field) else "single"
    if field.message_type is None:
        return FieldLayout(field.name, _NAMES[field.type], form)
    if special := _special(field.message_type):
        return FieldLayout(field.name, special, form)
    at = f"{at}[]" if _is_repeated(field) else at
    return FieldLayout(field.name, "message", form, "", _message_layout(field.message_type, at, within))


def _is_repeated(field: FieldDescriptor) -> bool:
    # Not every version of the library has is_repeated, and others have no label.
    return isinstance(field.default_value, list)


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    """Returns the message type of a map's entries if the field is a map, otherwise None."""
    entry = field.message_type
    return entry if entry is not None and entry.GetOptions().map_entry else None


def _special(message: Descriptor) -> str:
    """Returns the key of :data:`_SCALARS` for a standard message type that does not become a struct; empty:
    the message type becomes a struct.
    """
    if message.full_name == _TIMESTAMP:
        return "timestamp"
    return "json" if message.full_name in _JSON else ""


def _root(definition: object) -> Descriptor:
    """Returns the descriptor of the root message.

    :raises SparkSourceError: the definition cannot be read
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        if isinstance(definition, list):
            return _described_by_numbers(pool, definition)
        if not isinstance(definition, dict):
            raise ValueError(f"{str(definition)[:200]!r} is neither a list nor a JSON object")
        files = FileDescriptorSet.FromString(base64.b64decode(definition["fileDescriptorSet"], validate=True))
        for file in _in_order(files):
            pool.Add(file)
        return pool.FindMessageTypeByName(definition["rootMessageTypeName"])
    # The pool reports wrong descriptors as TypeError.
    except (LookupError, TypeError, ValueError, DecodeError) as error:
        raise SparkSourceError(f"the schema definition cannot be parsed: {error}") from error


def _in_order(files: FileDescriptorSet) -> Iterator[FileDescriptorProto]:
    """Yields each file after the files that it imports."""
    by_name = {each.name: each for each in files.file}
    done: set[str] = set()

    def visit(name: str) -> Iterator[FileDescriptorProto]:
        if name not in done and name in by_name:
            done.add(name)
            for imported in by_name[name].dependency:
                yield from visit(imported)
            yield by_name[name]

    for each in files.file:
        yield from visit(each.name)


def _described_by_numbers(
    pool: descriptor_pool.DescriptorPool, fields: list[dict[str, object]]
) -> Descriptor:
    """Returns a message type with the fields in a ``__PARSING_INFO__`` list, which lacks the definitions of
    nested messages and enums. Nested messages become bytes, and enums become numbers. The list does not tell
    for which fields protobuf distinguishes an absent value from the default; the returned type distinguishes
    an absent value for all fields.
    """
    file = FileDescriptorProto(name="parsing_info.proto", syntax="proto2")
    message = file.message_type.add(name="Root")
    for each in fields:
        kind = {"MESSAGE": "BYTES", "ENUM": "INT32"}.get(str(each["type"]), str(each["type"]))
        if kind == "GROUP":
            raise ValueError(f"the field {each['name']!r} is a group; its fields are unknown")
        label = (
            FieldDescriptorProto.LABEL_REPEATED
            if each["label"] == "LABEL_REPEATED"
            else FieldDescriptorProto.LABEL_OPTIONAL
        )
        message.field.add(
            name=str(each["name"]),
            number=int(str(each["number"])),
            type=FieldDescriptorProto.Type.Value(f"TYPE_{kind}"),
            label=label,
        )
    pool.Add(file)
    return pool.FindMessageTypeByName("Root")


def protobuf_decoder(written: str, wanted: str) -> Callable[[bytes], object]:
    """Returns a function that decodes payloads to values of columns.

    :param written: the definition of the messages, in the registry's form
    :param wanted: the definition of the columns
    """
    root = _root(_json_of(written))
    kind = message_factory.GetMessageClass(root)
    convert = _of_message(root, layout_of(wanted))

    def decode(data: bytes) -> object:
        try:
            return convert(kind.FromString(data))
        except DecodeError as error:
            raise ValueError(str(error) or "the bytes are not a message of protobuf") from error

    return decode


_Convert = Callable[[Any], object]


def _of_message(message: Descriptor, layout: MessageLayout) -> _Convert:
    """Returns a function that converts messages to values of a struct."""
    parts = [
        (each.name, layout.fields[each.number].name, each.has_presence, _of_field(each, layout))
        for each in message.fields
        if each.number in layout.fields
    ]
    if not layout.fields:
        return lambda value: {_PRESENT: True}

    def convert(value: Message) -> object:
        found: dict[str, object] = {}
        for name, column, has_presence, part in parts:
            if not has_presence or value.HasField(name):
                found[column] = part(getattr(value, name))
        return found

    return convert


def _of_field(field: FieldDescriptor, layout: MessageLayout) -> _Convert:
    inner = layout.fields[field.number].message
    if entry := _map_entry(field):
        item = _of_item(entry.fields_by_name["value"], inner)
        key = _of_item(entry.fields_by_name["key"], None)
        return lambda values: [(key(name), item(values[name])) for name in values]
    item = _of_item(field, inner)
    return (lambda values: [item(each) for each in values]) if _is_repeated(field) else item


def _of_item(field: FieldDescriptor, layout: MessageLayout | None) -> _Convert:
    if field.message_type is None:
        if field.enum_type is None:
            return Decimal if _NAMES[field.type] in ("uint64", "fixed64") else _same
        names = {each.number: each.name for each in reversed(field.enum_type.values)}
        return lambda number: names.get(number, str(number))
    special = _special(field.message_type)
    if special == "timestamp":
        return _microseconds
    if special:
        return _as_json
    # Without a layout the column has another type, which refuses the value.
    return _same if layout is None else _of_message(field.message_type, layout)


def _same(value: object) -> object:
    return value


def _as_json(value: Message) -> str:
    return json.dumps(json_format.MessageToDict(value), separators=(",", ":"), ensure_ascii=False)


def _microseconds(value: Timestamp) -> int:
    if not _FIRST_SECOND <= value.seconds <= _LAST_SECOND or not 0 <= value.nanos < 1_000_000_000:
        raise ValueError(
            f"a timestamp has {value.seconds} seconds and {value.nanos} nanoseconds; it must be between the "
            "years 1 and 9999"
        )
    return int(value.seconds * 1_000_000 + value.nanos // 1000)
