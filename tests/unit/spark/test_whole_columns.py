"""Columns of whole batches are those that come of reading one message after the other."""

from __future__ import annotations

import io
import json
from array import array
from typing import Any, NamedTuple, cast

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from magnetar.spark.codec.decoders import BAD_VALUES, decoder_of
from magnetar.spark.codec.hot_rows import Bytes
from magnetar.spark.codec.schemas import Definition, columns_of
from magnetar.spark.codec.values import whole_of


class Held(NamedTuple):
    """Contents as a builder of rows keeps them."""

    data: bytearray
    offsets: array[int]
    end: int


def held(contents: list[bytes]) -> Bytes:
    offsets = array("i", [0])
    for each in contents:
        offsets.append(offsets[-1] + len(each))
    # More room than is used, as there is behind a builder's values.
    return cast(Bytes, Held(bytearray(b"".join(contents) + bytes(7)), offsets, offsets[-1]))


def types_of(wanted: Definition) -> dict[str, pa.DataType]:
    schema = to_arrow_schema(StructType(columns_of(wanted).fields), timezone="UTC")
    return {each.name: each.type for each in schema if not each.name.startswith("__")}


def whole(contents: list[bytes], written: Definition, wanted: Definition) -> list[dict[str, Any]] | None:
    read = whole_of(written, wanted, types_of(wanted))
    assert read is not None
    found = read(held(contents), pa.array(contents, pa.binary()))
    if found is None:
        return None
    for name, kind in types_of(wanted).items():
        found[name].validate(full=True)
        assert found[name].type == kind
    table = pa.Table.from_pydict(found).select(list(types_of(wanted)))
    return cast(list[dict[str, Any]], table.to_pylist())


def one_by_one(contents: list[bytes], written: Definition, wanted: Definition) -> list[dict[str, Any]] | None:
    """None: one of them does not fit."""
    decode, types = decoder_of(written, wanted), types_of(wanted)
    kind = pa.struct([pa.field(*each) for each in types.items()])
    try:
        records = [decode(each) for each in contents]
        if wanted.kind != "AVRO":
            records = [{"value": each} for each in records]
        return cast(list[dict[str, Any]], pa.array(records, kind).to_pylist())
    except (*BAD_VALUES, pa.ArrowException):
        return None


_LONGS = st.integers(-(2**63), 2**63 - 1)
_INTS = st.integers(-(2**31), 2**31 - 1)
_SYMBOLS = ["RED", "GREEN", "BLUE"]
_TIMES = st.integers(-(2**50), 2**50)
_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", _INTS),
    ("long", _LONGS),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=20)),
    ({"type": "enum", "name": "Colour", "symbols": _SYMBOLS}, st.sampled_from(_SYMBOLS)),
    ({"type": "long", "logicalType": "timestamp-millis"}, _TIMES),
    ({"type": "long", "logicalType": "timestamp-micros"}, _TIMES),
    ({"type": "int", "logicalType": "date"}, st.integers(-700_000, 2_900_000)),
]


@st.composite
def schemas(draw: st.DrawFn) -> tuple[dict[str, Any], st.SearchStrategy[dict[str, Any]]]:
    chosen = draw(st.lists(st.sampled_from(range(len(_TYPES))), min_size=1, max_size=6))
    fields, values = [], {}
    for index, each in enumerate(chosen):
        kind, strategy = _TYPES[each]
        if isinstance(kind, dict) and "name" in kind:
            kind = {**kind, "name": f"Colour{index}"}
        name = f"f{index}"
        shape = draw(st.sampled_from(["plain", "null first", "null last"]))
        if shape == "plain":
            fields.append({"name": name, "type": kind})
        else:
            union = ["null", kind] if shape == "null first" else [kind, "null"]
            fields.append(
                {"name": name, "type": union, "default": None}
                if shape == "null first"
                else {"name": name, "type": union}
            )
            strategy = st.none() | strategy
        values[name] = strategy
    return {"type": "record", "name": "R", "fields": fields}, st.fixed_dictionaries(values)


def encoded(definition: dict[str, Any], record: dict[str, Any]) -> bytes:
    """Numbers of logical types are written as they are."""
    stream = io.BytesIO()
    bare = json.loads(json.dumps(definition))
    for each in bare["fields"]:
        options = each["type"] if isinstance(each["type"], list) else [each["type"]]
        for option in options:
            if isinstance(option, dict):
                option.pop("logicalType", None)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(bare), record)
    return stream.getvalue()


@given(data=st.data())
def test_flat_avro(data: st.DataObject) -> None:
    definition, record = data.draw(schemas())
    contents = [encoded(definition, each) for each in data.draw(st.lists(record, min_size=1, max_size=12))]
    schema = Definition("AVRO", json.dumps(definition))
    assert whole(contents, schema, schema) == one_by_one(contents, schema, schema)


@given(data=st.data())
def test_avro_that_is_damaged_is_read_as_before_or_left_to_the_other_way(data: st.DataObject) -> None:
    definition, record = data.draw(schemas())
    contents = [
        bytearray(encoded(definition, each)) for each in data.draw(st.lists(record, min_size=1, max_size=4))
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        hit = data.draw(st.sampled_from(contents))
        change = data.draw(st.sampled_from(["set", "cut", "add"]))
        if change == "add" or not hit:
            hit += data.draw(st.binary(min_size=1, max_size=11))
        elif change == "cut":
            del hit[data.draw(st.integers(0, len(hit) - 1)) :]
        else:
            hit[data.draw(st.integers(0, len(hit) - 1))] = data.draw(st.integers(0, 255))
    schema = Definition("AVRO", json.dumps(definition))
    stored = [bytes(each) for each in contents]
    found = whole(stored, schema, schema)
    if found is not None:
        assert repr(found) == repr(one_by_one(stored, schema, schema))


def _avro(*fields: dict[str, Any]) -> Definition:
    return Definition("AVRO", json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


def test_a_version_of_the_schema_with_other_fields() -> None:
    written = _avro({"name": "gone", "type": "string"}, {"name": "a", "type": "long"})
    wanted = _avro(
        {"name": "new", "type": ["null", "string"], "default": None}, {"name": "a", "type": ["null", "long"]}
    )
    contents = [encoded(json.loads(written.text), {"gone": "x" * number, "a": number}) for number in range(5)]
    assert whole(contents, written, wanted) == one_by_one(contents, written, wanted)
    assert whole(contents, written, wanted) == [{"new": None, "a": number} for number in range(5)]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (_avro({"name": "a", "type": "int"}), _avro({"name": "a", "type": "long"})),
        (_avro({"name": "a", "type": ["null", "int"]}), _avro({"name": "a", "type": "int"})),
        (_avro(), _avro({"name": "a", "type": "int", "default": 7})),
        (_avro({"name": "a", "type": {"type": "array", "items": "int"}}),) * 2,
        (_avro({"name": "a", "type": ["null", "int", "string"]}),) * 2,
        (_avro({"name": "b", "type": "int"}), _avro({"name": "a", "type": "int", "aliases": ["b"]})),
        # Arrow's own reader of JSON crashes on some texts that are none.
        (Definition("JSON", _avro({"name": "a", "type": "int"}).text),) * 2,
    ],
)
def test_what_is_left_to_the_other_way(written: Definition, wanted: Definition) -> None:
    assert whole_of(written, wanted, {}) is None


@pytest.mark.parametrize(
    ("kind", "contents"),
    [
        ("STRING", [b"abc", b"", "ä".encode()]),
        ("INT8", [b"\xff", b"\x01"]),
        ("INT16", [b"\xff\xfe", b"\x01\x00"]),
        ("INT32", [b"\0\0\0\x07", b"\xff\xff\xff\xff"]),
        ("INT64", [bytes(7) + b"\x07", b"\xff" * 8]),
        ("FLOAT", [b"\x3f\x80\0\0"]),
        ("DOUBLE", [b"\x3f\xf0" + bytes(6)]),
    ],
)
def test_primitives(kind: str, contents: list[bytes]) -> None:
    schema = Definition(kind)
    assert whole(contents, schema, schema) == one_by_one(contents, schema, schema)
    wrong = [*contents, b"\xff\xff\xff"]
    assert whole(wrong, schema, schema) is None
    assert one_by_one(wrong, schema, schema) is None
