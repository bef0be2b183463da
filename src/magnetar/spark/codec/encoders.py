"""Encodes payloads with a schema: records as Avro or JSON, and primitive values as the official clients
encode them.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

from magnetar.spark.codec.avro_types import column_type, field_for, plain, without_null
from magnetar.spark.codec.columns import VALUE
from magnetar.spark.codec.decoders import writer
from magnetar.spark.codec.schemas import TIMES, Definition
from magnetar.spark.errors import InvalidRows, SparkSourceError

__all__ = [
    "Encode",
    "encoder_of",
    "fits",
    "fitted",
]
Encode = Callable[[pa.RecordBatch], pa.Array]
"""Returns the payload of each row; null for a message without a payload."""
_Convert = Callable[[Any], object]
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_DAY = datetime.date(1970, 1, 1)
_MICRO = datetime.timedelta(microseconds=1)
_DAY_MS = 86_400_000
_DAY_MICROS = _DAY_MS * 1000
_BAD = (TypeError, ValueError, OverflowError, LookupError, ArithmeticError)
_FIXED = {"INT8": "i1", "INT16": ">i2", "INT32": ">i4", "INT64": ">i8", "FLOAT": ">f4", "DOUBLE": ">f8"}
_WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType),
    ShortType: (IntegerType, LongType),
    IntegerType: (LongType,),
    FloatType: (DoubleType,),
}
"""By column type: the types to which it can be converted without loss."""


def encoder_of(definition: Definition, names: Sequence[str]) -> Encode:
    """Returns a function that encodes rows as payloads.

    :param names: the names of the columns that the payload contains
    """
    if definition.kind == "AVRO":
        return _avro(definition.text, names)
    if definition.kind == "JSON":
        return _json(definition.text, names)
    return lambda rows: _primitive(definition.kind, rows.column(VALUE))


def _avro(text: str, names: Sequence[str]) -> Encode:
    definition = fastavro.parse_schema(plain(json.loads(text)))
    write = fastavro.schemaless_writer

    def encoded(rows: pa.RecordBatch) -> pa.Array:
        out = []
        stream = io.BytesIO()
        for row in rows.select(names).to_pylist(maps_as_pydicts="strict"):
            stream.seek(0)
            stream.truncate()
            try:
                write(stream, definition, row)
            except _BAD as error:
                raise _refused(definition, row, error) from error
            out.append(stream.getvalue())
        return pa.array(out, pa.large_binary())

    return encoded


def _refused(definition: Any, row: dict[str, object], error: Exception) -> InvalidRows:
    """Returns the error for a row that cannot be encoded, with the name of the invalid field, which fastavro
    does not always report.
    """
    for each in definition["fields"]:
        name, value = each["name"], row.get(each["name"])
        if name in row and not fastavro.validate(value, each["type"], raise_errors=False):
            return InvalidRows(f"a row has {value!r} for the field {name!r} of type {each['type']}")
    return InvalidRows(f"a row does not fit the schema: {error}")


def _json(text: str, names: Sequence[str]) -> Encode:
    definition = json.loads(text)
    convert = _record(definition, {})
    write = writer(ensure_ascii=False)

    def encoded(rows: pa.RecordBatch) -> pa.Array:
        found = rows.select(names).to_pylist(maps_as_pydicts="strict")
        try:
            return pa.array([write(convert(row)) for row in found], pa.large_string())
        except (TypeError, ValueError) as error:
            raise InvalidRows(f"a row does not fit the schema: {error}") from error

    return encoded


def _converter(definition: Any, names: dict[str, _Convert | None]) -> _Convert | None:
    """Returns the function that converts a value for JSON; None: no conversion is needed."""
    if isinstance(definition, list):
        return _converter(without_null(definition, VALUE), names)
    if isinstance(definition, str):
        return _text_of_bytes if definition == "bytes" else names.get(definition)
    kind, logical = definition["type"], definition.get("logicalType")
    if logical == "decimal":
        return str
    if logical == "date":
        return _days
    if logical in ("timestamp-millis", "local-timestamp-millis"):
        return lambda value: _micros(value) // 1000
    if logical in ("timestamp-micros", "local-timestamp-micros"):
        return _micros
    if kind == "array":
        return _each_item(_converter(definition["items"], names))
    if kind == "map":
        return _each_value(_converter(definition["values"], names))
    if kind == "record":
        return _record(definition, names)
    found = None if kind in ("enum", "string") else _converter(kind, names)
    if kind == "fixed":
        found = _text_of_bytes
    if "name" in definition:
        names[definition["name"]] = found
    return found


def _each_item(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda value: [None if each is None else convert(each) for each in value]


def _each_value(convert: _Convert | None) -> _Convert | None:
    if convert is None:
        return None
    return lambda value: {key: None if each is None else convert(each) for key, each in value.items()}


def _record(definition: Any, names: dict[str, _Convert | None]) -> _Convert:
    parts = []
    for each in definition["fields"]:
        required = not (isinstance(each["type"], list) and "null" in each["type"])
        parts.append((each["name"], _converter(each["type"], names), required, each.get("default")))

    def convert(row: dict[str, object]) -> dict[str, object]:
        found = {}
        for name, part, required, default in parts:
            if name not in row:
                found[name] = default
                continue
            value = row[name]
            if value is None and required:
                raise InvalidRows(f"a row has null for the field {name!r}, which the schema does not allow")
            found[name] = value if part is None or value is None else part(value)
        return found

    names[definition["name"]] = convert
    return convert


def _text_of_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _days(value: datetime.date) -> int:
    return (value - _EPOCH_DAY).days


def _micros(value: datetime.datetime) -> int:
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return (value - _EPOCH) // _MICRO


def _primitive(kind: str, column: pa.Array) -> pa.Array:
    if kind in ("STRING", "BYTES", "NONE"):
        return column
    if kind == "BOOLEAN":
        return _packed(column.cast(pa.int8()), "i1", column)
    if kind in _FIXED:
        return _packed(column, _FIXED[kind], column)
    if kind in ("DATE", "LOCAL_DATE"):
        days = column.cast(pa.int32()).cast(pa.int64())
        return _packed(pc.multiply(days, _DAY_MS) if kind == "DATE" else days, ">i8", column)
    if kind in TIMES:
        return _time_of_day(kind, column)
    micros = _filled(column.cast(pa.timestamp("us")).cast(pa.int64()))
    if kind == "TIMESTAMP":
        return _split(np.floor_divide(micros, 1000), None, None, column)
    if kind == "INSTANT":
        seconds, rest = np.divmod(micros, 1_000_000)
        return _split(seconds, rest * 1000, ">i4", column)
    days, rest = np.divmod(micros, _DAY_MICROS)
    return _split(days, rest * 1000, ">i8", column)


def _time_of_day(kind: str, column: pa.Array) -> pa.Array:
    micros = _filled(column)
    wrong = micros[(micros < 0) | (micros >= _DAY_MICROS)]
    if len(wrong):
        raise InvalidRows(f"a row has {wrong[0]} for a {kind}; it must be microseconds since midnight")
    return _split(micros // 1000 if kind == "TIME" else micros * 1000, None, None, column)


def _filled(column: pa.Array) -> Any:
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False)


def _packed(column: pa.Array, form: str, nulls: pa.Array) -> pa.Array:
    return _pieces(_filled(column).astype(form).tobytes(), np.dtype(form).itemsize, nulls)


def _split(first: Any, second: Any, form: str | None, nulls: pa.Array) -> pa.Array:
    """Encodes each number of ``first`` as 8 bytes, followed by the number of ``second`` at the same index.

    :param form: the numpy type of the numbers in ``second``; None: ``second`` is not encoded
    """
    fields = [("first", ">i8")] + ([("second", form)] if form else [])
    packed = np.empty(len(first), np.dtype(fields))
    packed["first"] = first
    if form:
        packed["second"] = second
    return _pieces(packed.tobytes(), packed.itemsize, nulls)


def _pieces(data: bytes, size: int, nulls: pa.Array) -> pa.Array:
    """Splits ``data`` into payloads of ``size`` bytes each; a payload is null where ``nulls`` is null."""
    offsets = np.arange(0, size * (len(nulls) + 1), size, dtype=np.int64)
    made = pa.Array.from_buffers(
        pa.large_binary(), len(nulls), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    if not nulls.null_count:
        return made
    return pc.if_else(pc.is_valid(nulls), made, pa.scalar(None, pa.large_binary()))


def fitted(definition: str, columns: Sequence[StructField], topic: str) -> str:
    """Returns the Avro definition for writing rows: the topic's definition, extended by fields for further
    columns.

    :raises InvalidRows: a field is missing in the rows, or has another type; the error text names the field
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
    """Checks that the rows contain all required fields.

    :param given: the names of the columns
    :param at: the path of the record, for errors
    :raises InvalidRows: a field without a default is missing
    """
    for each in record["fields"]:
        may_be_null = isinstance(each["type"], list) and "null" in each["type"]
        if each["name"] not in given and "default" not in each and not may_be_null:
            raise InvalidRows(
                f"{topic}: the field {at + each['name']!r} of its schema has no default, and no "
                "column provides it; add the column"
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
