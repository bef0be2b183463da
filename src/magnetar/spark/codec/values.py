"""Converts payloads to the columns of the topic's schema: whole batches at once if possible, otherwise
message by message.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from magnetar.admin_client import AdminClient, NotFound
from magnetar.protocol.key_values import join, split
from magnetar.spark.codec.avro_types import plain
from magnetar.spark.codec.columns import VALUE
from magnetar.spark.codec.decoders import BAD_VALUES, Decoder, decoder_of
from magnetar.spark.codec.hot_avro import KINDS, Column, FlatReader
from magnetar.spark.codec.hot_rows import Bytes, RowBuilder
from magnetar.spark.codec.rows import Malformed, malformed_row
from magnetar.spark.codec.schemas import KEY, Definition, columns_of, definition_of, type_of

__all__ = [
    "ColumnBuilder",
    "Whole",
    "whole_of",
]
_BAD_COLUMNS = (*BAD_VALUES, pa.ArrowException)
Columns = dict[str, pa.Array]
Whole = Callable[[Bytes, pa.Array], Columns | None]
"""Converts payloads to columns; gets the payloads both as :class:`Bytes` and as an array without nulls.
Returns None if some payloads do not match the schema.
"""
_SCALED = {"timestamp-millis": 1000, "local-timestamp-millis": 1000}
_AS_THEY_ARE = ("timestamp-micros", "local-timestamp-micros", "date")
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)
"""The range of the years 1 to 9999, the range of dates in Python and Spark, in microseconds."""
_NUMBERS = {"INT8": ">i1", "INT16": ">i2", "INT32": ">i4", "INT64": ">i8", "FLOAT": ">f4", "DOUBLE": ">f8"}


class ColumnBuilder:
    """Builds the columns of one topic in one task."""

    def __init__(
        self, admin: AdminClient, topic: str, wanted: Definition, *, empty_is_null: bool = False
    ) -> None:
        """:param empty_is_null: whether the columns of a message with an empty payload are null"""
        self._empty_is_null = empty_is_null
        self._admin = admin
        self._topic = topic
        self._wanted = wanted
        schema = to_arrow_schema(StructType(columns_of(wanted).fields), timezone="UTC")
        self._types: dict[str, object] = {each.name: each.type for each in schema}
        self._is_wrapped = wanted.kind != "KEY_VALUE" and not isinstance(type_of(wanted), StructType)
        """Whether a decoded value is not a struct, so that it becomes the single column ``VALUE``."""
        self._decoders: dict[bytes, Decoder | str] = {}
        self._refused = {struct.pack(">q", version): reason for version, reason in wanted.refused}
        self._wholes: dict[bytes, Whole | None] = {}

    def columns(
        self, values: pa.Array, rows: RowBuilder, topic: str, malformed: Callable[[Malformed], object]
    ) -> tuple[dict[str, pa.Array], Sequence[bool] | None]:
        """Returns the columns by name, and for each row whether its payload could be converted (None: all
        payloads were converted). Messages whose payload could not be converted are passed to ``malformed``.
        """
        whole = self._whole(values, rows)
        if whole is not None:
            return whole, None
        raw: list[bytes | None] = values.to_pylist()
        keys = self._keys(rows)
        bad: dict[int, str] = {}
        found: list[object] = [None] * len(raw)
        decoders = [self._decoder(version) for version in rows.schema_versions]
        versions = rows.versions
        for row, data in enumerate(raw):
            if self._empty_is_null and not data:
                continue
            decode = decoders[versions[row]]
            if isinstance(decode, str):
                bad[row] = decode
                continue
            try:
                if keys is not None:
                    found[row] = decode(join(keys[row], data))
                elif data is not None:
                    found[row] = decode(data)
            except BAD_VALUES as error:
                bad[row] = f"the content does not fit the schema: {error}"
        columns = self._arrays(found, bad)
        for row, reason in sorted(bad.items()):
            malformed(malformed_row(topic, rows, row, reason, raw[row] or b""))
        return columns, [row not in bad for row in range(len(raw))] if bad else None

    def _whole(self, values: pa.Array, rows: RowBuilder) -> dict[str, pa.Array] | None:
        """Converts all payloads at once and returns the columns; None: they must be converted one by one."""
        if self._wanted.kind == "KEY_VALUE" or values.null_count:
            return None
        versions = pc.unique(
            pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(rows.versions)])
        )
        if len(versions) != 1:
            return None
        version = rows.schema_versions[versions[0].as_py()]
        if version in self._refused:
            return None
        if version not in self._wholes:
            written = self._written(version)
            types = {name: kind for name, kind in self._types.items() if not name.startswith("__")}
            self._wholes[version] = None if written is None else whole_of(written, self._wanted, types)
        whole = self._wholes[version]
        return None if whole is None else whole(rows.values, values)

    def _keys(self, rows: RowBuilder) -> list[bytes | None] | None:
        """Returns the keys of the messages if the schema is a KEY_VALUE whose key is the message's key;
        otherwise None.
        """
        if not self._wanted.separated:
            return None
        offsets, data, valid = rows.keys.offsets, rows.keys.data, rows.keys.valid
        return [
            bytes(data[offsets[row] : offsets[row + 1]]) if valid[row >> 3] >> (row & 7) & 1 else None
            for row in range(rows.count)
        ]

    def _arrays(self, found: list[object], bad: dict[int, str]) -> dict[str, pa.Array]:
        names = [name for name in self._types if not name.startswith("__")]
        kind = pa.struct([pa.field(name, self._types[name]) for name in names])
        records = [None if each is None else {VALUE: each} for each in found] if self._is_wrapped else found
        try:
            array = pa.array(records, kind)
        except _BAD_COLUMNS:
            for row, record in enumerate(records):
                try:
                    pa.array([record], kind)
                except _BAD_COLUMNS as error:
                    bad[row] = f"the content does not fit the schema: {error}"
                    records[row] = None
            array = pa.array(records, kind)
        return dict(zip(names, array.flatten(), strict=True))

    def _decoder(self, version: bytes) -> Decoder | str:
        """Returns the decoder for messages of a schema version, or the reason why they cannot be decoded."""
        known = self._decoders.get(version)
        if known is None:
            known = self._decoders[version] = self._made(version)
        return known

    def _made(self, version: bytes) -> Decoder | str:
        if version in self._refused:
            return self._refused[version]
        wanted, written = self._wanted, self._written(version)
        if written is None:
            return f"the topic has no schema version {struct.unpack('>q', version)[0]}"
        if wanted.kind != "KEY_VALUE":
            return decoder_of(written, wanted)
        return _pair(written if written.kind == "KEY_VALUE" else wanted, wanted)

    def _written(self, version: bytes) -> Definition | None:
        """Returns the schema with the given version; None: the topic does not have this version."""
        if len(version) != 8:
            newest = self._wanted.newest
            return replace(self._wanted, text=newest, newest="") if newest else self._wanted
        try:
            return definition_of(self._admin, self._topic, struct.unpack(">q", version)[0])
        except NotFound:
            return None


def _pair(written: Definition, wanted: Definition) -> Decoder:
    assert wanted.key is not None
    assert wanted.value is not None
    key = decoder_of(written.key or wanted.key, wanted.key)
    value = decoder_of(written.value or wanted.value, wanted.value)

    def decode(data: bytes) -> object:
        parts = [
            None if part is None else decoder(part)
            for decoder, part in zip((key, value), split(data), strict=True)
        ]
        return {KEY: parts[0], VALUE: parts[1]}

    return decode


def whole_of(written: Definition, wanted: Definition, types: dict[str, pa.DataType]) -> Whole | None:
    """Returns a function that converts whole batches; None: messages of this schema must be converted one by
    one. The function can decline a batch in which a message does not match; the caller then converts its
    messages one by one, to find the problem. JSON is always converted one by one, because Arrow's JSON reader
    crashes on some invalid input.

    :param types: the types of the columns
    """
    if wanted.kind == "AVRO":
        return _Avro.of(written if written.kind == "AVRO" else wanted, wanted, types)
    if wanted.kind == "STRING":
        return _text
    form = _NUMBERS.get(wanted.kind)
    return None if form is None else _numbers(np.dtype(form))


def _text(values: Bytes, array: pa.Array) -> Columns | None:
    try:
        return {VALUE: array.cast(pa.string())}
    except pa.ArrowException:
        return None


def _numbers(form: np.dtype[Any]) -> Whole:
    own = form.newbyteorder("=")

    def columns(values: Bytes, array: pa.Array) -> Columns | None:
        offsets = np.frombuffer(values.offsets, np.int32, len(array) + 1)
        if not (np.diff(offsets) == form.itemsize).all():
            return None
        return {VALUE: pa.array(np.frombuffer(values.data, form, len(array)).astype(own))}

    return columns


class _Field:
    """A field of a flat record (no nested types): its type, the position of null in the union, and the
    logical type.
    """

    def __init__(self, definition: Any) -> None:
        """:raises KeyError: the type of the field is nested"""
        self.null = 0
        if isinstance(definition, list):
            if len(definition) != 2 or "null" not in definition:
                raise KeyError("union")
            self.null = 1 + definition.index("null")
            definition = definition[2 - self.null]
        self.symbols: list[str] | None = None
        self.logical: str | None = None
        if isinstance(definition, dict):
            self.logical = definition.get("logicalType")
            self.symbols = definition.get("symbols")
            definition = definition["type"]
        if self.logical is not None and self.logical not in _SCALED and self.logical not in _AS_THEY_ARE:
            raise KeyError(self.logical)
        if not isinstance(definition, str):
            raise KeyError("nested")
        self.type = definition
        self.kind = KINDS[definition]


def _fields(definition: object) -> dict[str, _Field] | None:
    """Returns the fields of a flat record; None: the record is not flat."""
    if not isinstance(definition, dict) or definition.get("type") != "record":
        return None
    try:
        return {each["name"]: _Field(each["type"]) for each in definition["fields"]}
    except KeyError:
        return None


class _Avro:
    """Converts flat Avro records; the fields that the writer's and the reader's definition share must have
    compatible types.
    """

    def __init__(
        self, written: dict[str, _Field], missing: list[str], types: dict[str, pa.DataType], wanted: set[str]
    ) -> None:
        self._written = written
        self._missing = missing
        self._types = types
        self._wanted = wanted
        kinds, nulls = (bytes(getattr(each, name) for each in written.values()) for name in ("kind", "null"))
        self._reader = FlatReader(kinds, nulls)

    @classmethod
    def of(cls, written: Definition, wanted: Definition, types: dict[str, pa.DataType]) -> _Avro | None:
        writer, reader = (plain(json.loads(each.text)) for each in (written, wanted))
        theirs, ours = _fields(writer), _fields(reader)
        if theirs is None or ours is None or any("aliases" in each for each in reader["fields"]):
            return None
        missing = []
        for each in reader["fields"]:
            name = each["name"]
            if name not in theirs:
                if "default" not in each or each["default"] is not None:
                    return None
                missing.append(name)
            elif not _alike(theirs[name], ours[name]):
                return None
        return cls(theirs, missing, types, set(ours) - set(missing))

    def __call__(self, values: Bytes, array: pa.Array) -> Columns | None:
        count = len(array)
        columns = [
            Column(each.kind, count, values.end) if name in self._wanted else None
            for name, each in self._written.items()
        ]
        if not self._reader.read(values.data, values.offsets, count, columns):
            return None
        found: Columns = {name: pa.nulls(count, self._types[name]) for name in self._missing}
        try:
            for (name, field), column in zip(self._written.items(), columns, strict=True):
                if column is not None:
                    found[name] = _array(field, column, count, self._types[name])
        except pa.ArrowException:
            return None
        return found


def _alike(theirs: _Field, ours: _Field) -> bool:
    """Whether values of a written field can be read as values of the wanted field without conversion; if the
    written field permits null, the wanted field must permit it, too.
    """
    if theirs.null and not ours.null:
        return False
    return (theirs.type, theirs.logical, theirs.symbols) == (ours.type, ours.logical, ours.symbols)


def _array(field: _Field, column: Column, count: int, kind: pa.DataType) -> pa.Array:
    """Converts a column that :class:`FlatReader` has filled to an Arrow array.

    :raises pa.ArrowException: a value does not match the column's type
    """
    valid = pa.py_buffer(column.valid) if field.null else None
    if field.type in ("bytes", "string"):
        buffers = [valid, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
        found = pa.Array.from_buffers(kind, count, buffers)
        if pa.types.is_string(kind):
            found.validate(full=True)
        return found
    if field.type in ("int", "long", "enum"):
        numbers = pa.Array.from_buffers(pa.int64(), count, [valid, pa.py_buffer(column.numbers)])
        return _converted(field, numbers, kind)
    if field.type == "boolean":
        flags = pa.Array.from_buffers(pa.uint8(), count, [valid, pa.py_buffer(column.data)])
        return flags.cast(pa.bool_())
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(column.data)])


def _converted(field: _Field, numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    if field.symbols is not None:
        return pa.array(field.symbols, pa.string()).take(numbers)
    if field.type == "int":
        # An Avro int has 32 bits, whatever its logical type.
        numbers = numbers.cast(pa.int32())
    if field.logical is None:
        return numbers
    if field.logical in _SCALED:
        numbers = pc.multiply_checked(numbers, _SCALED[field.logical])
    first, last = _DAYS if field.logical == "date" else _MICROSECONDS
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and (found["min"] < first or found["max"] > last):
        raise pa.ArrowInvalid("a date or time is not between the years 1 and 9999")
    return numbers.cast(kind)
