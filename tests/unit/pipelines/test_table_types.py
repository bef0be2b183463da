"""Times of day and unions of AVRO become columns, in both formats, also when their schema changes."""

from __future__ import annotations

import io
import json
from datetime import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from schema_versions import content_columns, created, definition, put, rows, views

from magnetar.client.readable import decode_message
from magnetar.client.schema import TopicSchema
from magnetar.spark.codec.encoders import encoder_of
from magnetar.spark.codec.schemas import Definition, columns_of
from magnetar.spark.errors import InvalidRows, SparkSourceError
from magnetar.spark.pipelines.table_commits import TableError

each_format = pytest.mark.parametrize("form", ["delta", "iceberg"])
PLACE = {"type": "record", "name": "Place", "namespace": "a.b", "fields": [{"name": "x", "type": "int"}]}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
DAY = {"type": "int", "logicalType": "date"}


@each_format
@pytest.mark.parametrize(
    ("kind", "number", "micros"),
    [
        ("TIME", 3_600_001, 3_600_001_000),
        ("TIME", -3_600_000, 82_800_000_000),
        ("LOCAL_TIME", 86_399_999_999_999, 86_399_999_999),
        ("LOCAL_TIME", 0, 0),
    ],
)
def test_times_of_day(tmp_path: Path, form: str, kind: str, number: int, micros: int) -> None:
    wanted = definition("", kind=kind)
    table = created(tmp_path, form, content_columns(wanted))
    put(table, wanted, ("", number.to_bytes(8, "big", signed=True)))
    table.widen(content_columns(wanted))
    seconds, rest = divmod(micros, 1_000_000)
    shown = time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest)
    for found in views(tmp_path, table, form):
        assert found == [{"value": micros if form == "delta" else shown}]


@pytest.mark.parametrize("number", [-1, 86_400_000_000_000])
def test_a_local_time_is_within_a_day(number: int) -> None:
    with pytest.raises(ValueError, match=f"must be nanoseconds of a day, not {number}"):
        rows(definition("", kind="LOCAL_TIME"), ("", number.to_bytes(8, "big", signed=True)))


@pytest.mark.parametrize(("kind", "unit"), [("TIME", 1000), ("LOCAL_TIME", 1)])
def test_times_of_day_are_written_and_shown(kind: str, unit: int) -> None:
    encode = encoder_of(Definition(kind), ["value"])
    [data, nothing] = encode(pa.RecordBatch.from_pydict({"value": [3_723_004_000, None]})).to_pylist()
    assert int.from_bytes(data, "big") == 3_723_004_000_000 // unit // (1000 if unit == 1000 else 1)
    assert nothing is None
    [batch] = rows(definition("", kind=kind), ("", data))
    assert batch.to_pylist() == [{"value": 3_723_004_000}]
    show: Any = decode_message(TopicSchema(kind, b""))
    assert show(type("Message", (), {"data": lambda self: data})()) == time(1, 2, 3, 4000)
    for wrong in (-1, 86_400_000_000):
        with pytest.raises(InvalidRows, match=f"a row has {wrong} for a {kind}"):
            encode(pa.RecordBatch.from_pydict({"value": [wrong]}))


def record(*fields: tuple[str, object]) -> str:
    described = [
        {
            "name": name,
            "type": kind,
            **({"default": None} if isinstance(kind, list) and kind[0] == "null" else {}),
        }
        for name, kind in fields
    ]
    return json.dumps({"type": "record", "name": "R", "namespace": "a.b", "fields": described})


def written(text: str, **values: object) -> tuple[str, bytes]:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(text)), values)
    return text, stream.getvalue()


@each_format
def test_a_union_has_a_column_for_each_type(tmp_path: Path, form: str) -> None:
    kinds: list[object] = ["null", "string", "long", PLACE, COLOUR, "bytes", {"type": "array", "items": DAY}]
    text = record(
        ("u", kinds),
        ("l", {"type": "array", "items": ["int", "string"]}),
        ("m", {"type": "map", "values": ["null", "int", "Place"]}),
    )
    wanted = definition(text, kind="AVRO")
    table = created(tmp_path, form, content_columns(wanted))
    values = ["s", 1 << 40, {"x": 5}, ("a.b.Colour", "BLUE"), b"\xff", [3], None]
    put(table, wanted, *(written(text, u=each, l=[1, "a"], m={"k": {"x": 7}, "n": 1}) for each in values))
    members = [f"member{number}" for number in range(6)]
    for found in views(tmp_path, table, form):
        shown = [{name: value for name, value in row["u"].items() if value is not None} for row in found[:6]]
        assert [list(each) for each in shown] == [[name] for name in members]
        assert [each[name] for each, name in zip(shown[:5], members, strict=False)] == [
            "s",
            1 << 40,
            {"x": 5},
            "BLUE",
            b"\xff",
        ]
        assert [str(each) for each in shown[5]["member5"]] == ["1970-01-04"]
        assert found[6]["u"] is None
        for row in found:
            assert row["l"] == [{"member0": 1, "member1": None}, {"member0": None, "member1": "a"}]
            assert dict(row["m"]) == {
                "k": {"member0": None, "member1": {"x": 7}},
                "n": {"member0": 1, "member1": None},
            }


@each_format
def test_a_union_that_changes(tmp_path: Path, form: str) -> None:
    """Types are added at the end, removed ones stay; a type at another place is another column."""
    first = record(("u", ["int", "string", "boolean"]))
    later = record(("u", ["int", "string", "double"]))
    table = created(tmp_path, form, content_columns(definition(first, kind="AVRO")))
    put(table, definition(first, kind="AVRO"), written(first, u=1))
    last = record(("u", ["int", "string", "boolean", "double"]), ("n", ["null", "int"]))
    put(table, definition(first, last, kind="AVRO"), written(first, u="a"), written(last, u=0.5, n=7))
    last = record(("u", ["int", "string"]), ("n", ["null", "int"]))
    both = definition(first, last, kind="AVRO")
    put(table, both, written(first, u=True), written(last, u="b", n=None))
    for found in views(tmp_path, table, form):
        shown = [[row["u"][f"member{number}"] for number in range(4)] for row in found]
        assert sorted(shown, key=str) == [
            [1, None, None, None],
            [None, "a", None, None],
            [None, "b", None, None],
            [None, None, None, 0.5],
            [None, None, True, None],
        ]
    with pytest.raises(TableError, match=r"the field 'u\.member2' is bool in the table and double"):
        table.widen(content_columns(definition(first, later, kind="AVRO")))
    with pytest.raises(TableError, match=r"the field 'u' is struct.* in the table and int32"):
        table.widen(content_columns(definition(record(("u", "int")), kind="AVRO")))


def test_the_default_of_a_union_is_one_of_its_first_type() -> None:
    first, last = record(("a", "int")), json.loads(record(("a", "int"), ("u", ["string", "int"])))
    last["fields"][1]["default"] = "x"
    [batch] = rows(definition(first, json.dumps(last), kind="AVRO"), written(first, a=1))
    assert batch.to_pylist() == [{"a": 1, "u": {"member0": "x", "member1": None}}]


def test_json_does_not_tell_the_type_of_a_union() -> None:
    with pytest.raises(SparkSourceError, match=r"value\.u: a union of several types cannot become a column"):
        columns_of(definition(record(("u", ["int", "string"])), kind="JSON"))


def test_removed_fields_stay_also_within_unions_and_lists() -> None:
    def place(*names: str) -> dict[str, object]:
        fields = [{"name": name, "type": "int"} for name in names]
        return {"type": "record", "name": "Place", "fields": fields}

    first = record(
        ("p", ["null", place("x", "y")]), ("l", {"type": "array", "items": {**place("z"), "name": "Q"}})
    )
    last = record(("p", ["null", place("x")]), ("l", {"type": "array", "items": {**place("w"), "name": "Q"}}))
    nullable = json.loads(last)
    nullable["fields"][1]["type"]["items"]["fields"][0] = {
        "name": "w",
        "type": ["null", "int"],
        "default": None,
    }
    wanted = definition(first, json.dumps(nullable), kind="AVRO")
    [batch] = rows(wanted, written(first, p={"x": 1, "y": 2}, l=[{"z": 3}]))
    assert batch.to_pylist() == [{"p": {"x": 1, "y": 2}, "l": [{"w": None, "z": 3}]}]
