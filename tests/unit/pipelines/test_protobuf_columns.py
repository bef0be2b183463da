"""Messages of protobuf become columns, in both formats, also when their schema changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from protobuf_messages import Compiled
from schema_versions import TOPIC, Registry, content_columns, created, definition, put, rows, views

from magnetar.spark.codec.decoders import decoder_of
from magnetar.spark.codec.schemas import Definition, columns_of, definition_of_fitting_versions
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.pipelines.table_commits import TableError

EVERYTHING = """
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";
enum Colour { RED = 0; BLUE = 4; }
message Place { double x = 1; repeated string names = 2; }
message Order {
  int32 i32 = 1; sint64 i64 = 2; uint32 u32 = 3; fixed64 u64 = 4;
  bool flag = 5; float f = 6; string text = 7; bytes raw = 8;
  Colour colour = 9; repeated Colour colours = 10;
  Place place = 11; repeated Place places = 12;
  map<string, Place> by_name = 13; map<int32, string> by_number = 14;
  oneof which { int32 number = 15; string word = 16; google.protobuf.Empty nothing = 17; }
  optional int32 maybe = 18;
  google.protobuf.Timestamp at = 19; google.protobuf.Duration took = 20; google.protobuf.Value any = 21;
}
"""

each_format = pytest.mark.parametrize("form", ["delta", "iceberg"])


def filled(compiled: Compiled) -> bytes:
    order = compiled.message(i32=-1, i64=-(1 << 62), u32=1 << 31, u64=(1 << 64) - 1, flag=True, f=0.5)
    order.text, order.raw, order.colour, order.word, order.maybe = "é", b"\x00\xff", 4, "w", 0
    order.colours.extend([0, 4, 9])
    order.place.x = 1.5
    order.places.add(names=["a", "b"])
    order.by_name["k"].x = 2.5
    order.by_number[7] = "seven"
    order.at.FromJsonString("2024-05-01T12:00:00.123456Z")
    order.took.FromJsonString("-1.5s")
    order.any.struct_value.update({"a": [1, None, "b"]})
    return bytes(order.SerializeToString())


@each_format
def test_each_kind_of_field_is_a_column(tmp_path: Path, form: str) -> None:
    compiled = Compiled(tmp_path, EVERYTHING)
    wanted = definition(compiled.definition)
    table = created(tmp_path, form, content_columns(wanted))
    put(table, wanted, (compiled.definition, filled(compiled)), (compiled.definition, b""))
    full = {
        "i32": -1,
        "i64": -(1 << 62),
        "u32": 1 << 31,
        "u64": Decimal((1 << 64) - 1),
        "flag": True,
        "f": 0.5,
        "text": "é",
        "raw": b"\x00\xff",
        "colour": "BLUE",
        "colours": ["RED", "BLUE", "9"],
        "place": {"x": 1.5, "names": []},
        "places": [{"x": 0.0, "names": ["a", "b"]}],
        "by_name": [("k", {"x": 2.5, "names": []})],
        "by_number": [(7, "seven")],
        "number": None,
        "word": "w",
        "nothing": None,
        "maybe": 0,
        "at": datetime(2024, 5, 1, 12, 0, 0, 123456, UTC),
        "took": {"seconds": -1, "nanos": -500_000_000},
        "any": '{"a":[1.0,null,"b"]}',
    }
    absent = dict.fromkeys(("place", "number", "word", "nothing", "maybe", "at", "took", "any"))
    zeros = {"i32": 0, "i64": 0, "u32": 0, "u64": Decimal(0), "flag": False, "f": 0.0, "text": "", "raw": b""}
    lists: dict[str, object] = {name: [] for name in ("colours", "places", "by_name", "by_number")}
    for found in views(tmp_path, table, form):
        for row in found:
            row["by_name"], row["by_number"] = (
                list(dict(row[each]).items()) for each in lists if "by" in each
            )
        assert found == [full, {**zeros, "colour": "RED", **lists, **absent}]


@each_format
def test_fields_of_later_versions_are_told_apart_by_number(tmp_path: Path, form: str) -> None:
    first = Compiled(tmp_path, "message Item { int32 a = 1; } message Order { int32 id = 1; Item item = 2; }")
    table = created(tmp_path, form, content_columns(definition(first.definition)))
    one = first.message(id=1, item={"a": 1}).SerializeToString()
    put(table, definition(first.definition), (first.definition, one))
    # Another name for the field 1, another message for the field 2, and new fields in both.
    text = "message Order { int32 number = 1; Thing item = 2; string added = 3; }"
    second = Compiled(tmp_path, f"message Thing {{ optional int32 a = 1; bool b = 9; }} {text}")
    third = Compiled(tmp_path, "message Order { string added = 3; reserved 1, 2; }")
    wanted = definition(first.definition, second.definition, third.definition)
    two = second.message(number=2, item={"b": True}, added="two").SerializeToString()
    three = third.message(added="three").SerializeToString()
    versions = ((second.definition, two), (third.definition, three), (first.definition, one))
    put(table, wanted, *versions)
    one_row = {"id": 1, "item": {"a": 1, "b": None}, "added": None}
    for found in views(tmp_path, table, form):
        assert sorted(found, key=lambda row: (row["id"] is None, row["id"])) == [
            one_row,
            one_row,
            {"id": 2, "item": {"a": None, "b": True}, "added": "two"},
            {"id": None, "item": None, "added": "three"},
        ]


@each_format
def test_a_type_that_changes_stops_the_table(tmp_path: Path, form: str) -> None:
    first = Compiled(tmp_path, "message Order { int32 id = 1; }")
    second = Compiled(tmp_path, "message Order { string number = 1; }")
    table = created(tmp_path, form, content_columns(definition(first.definition)))
    with pytest.raises(TableError, match="the field 'id' is int32 in the table and string"):
        table.widen(content_columns(definition(first.definition, second.definition)))
    admin: Any = Registry(first.definition, second.definition)

    def refusal(wanted: Definition) -> str:
        return "" if columns_of(wanted)["id"].dataType.simpleString() == "int" else "another type"

    found = definition_of_fitting_versions(admin, TOPIC, {}, refusal)
    reason = "the table cannot have its schema version 1: another type"
    assert (found.refused, columns_of(found)["id"].dataType.simpleString()) == (((1, reason),), "int")


def test_two_numbers_with_one_name(tmp_path: Path) -> None:
    first = Compiled(tmp_path, "message Order { int32 id = 1; }")
    second = Compiled(tmp_path, "message Order { int32 id = 2; }")
    with pytest.raises(
        SparkSourceError, match=r"the field value\.id has the number 2 in one version .* 1 in"
    ):
        definition(first.definition, second.definition)
    admin: Any = Registry(first.definition, second.definition)
    found = definition_of_fitting_versions(admin, TOPIC, {}, lambda wanted: "")
    assert [version for version, _ in found.refused] == [1]


def test_values_are_read_with_the_type_that_they_were_written_with(tmp_path: Path) -> None:
    """An int64 read as an int32 would lose its upper half without an error."""
    long = Compiled(tmp_path, "message Order { int64 id = 1; }")
    short = Compiled(tmp_path, "message Order { int32 id = 1; }")
    wanted = definition(long.definition, short.definition)
    data = long.message(id=(1 << 40) + 1).SerializeToString()
    with pytest.raises(pa.ArrowInvalid):
        rows(wanted, (long.definition, data))
    [batch] = rows(definition(short.definition, long.definition), (long.definition, data))
    assert batch.to_pylist() == [{"id": (1 << 40) + 1}]


def test_fields_of_proto2(tmp_path: Path) -> None:
    text = """
    message Order { required int32 id = 1; optional int32 size = 2 [default = 7]; optional group Extra = 3 {
      optional string note = 4; } repeated Colour colours = 5 [packed = true]; enum Colour { RED = 1; } }
    """
    compiled = Compiled(tmp_path, text, "proto2")
    # The number of the group begins and ends it; the enum is closed, and 9 none of its values.
    data = b"\x08\x05\x1b\x22\x01n\x1c\x2a\x02\x01\x09"
    [batch] = rows(definition(compiled.definition), (compiled.definition, data))
    assert batch.to_pylist() == [{"id": 5, "size": None, "extra": {"note": "n"}, "colours": ["RED"]}]


@pytest.mark.parametrize("data", [b"\x08", b"\xff", b"\x3a\x05abc", b"\x3a\x01\xff"])
def test_bytes_that_are_not_a_message(tmp_path: Path, data: bytes) -> None:
    compiled = Compiled(tmp_path, EVERYTHING)
    with pytest.raises(ValueError, match=r"."):
        rows(definition(compiled.definition), (compiled.definition, data))


def test_a_timestamp_outside_of_the_years_1_to_9999(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path, EVERYTHING)
    order = compiled.message()
    order.at.seconds = 253_402_300_800
    with pytest.raises(ValueError, match="must be between the years 1 and 9999"):
        rows(definition(compiled.definition), (compiled.definition, order.SerializeToString()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message Order { Order next = 1; }", r"value\.next: the message shop\.Order contains itself"),
        ("message Order { repeated A a = 1; } message A { map<string, A> m = 1; }", r"value\.a\[\]\.m\{\}: "),
        (
            "message Order { int32 __key = 1; }",
            "has a field '__key', which is also the name of a metadata column",
        ),
    ],
)
def test_messages_that_are_no_columns(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SparkSourceError, match=words):
        columns_of(definition(Compiled(tmp_path, text).definition))


@pytest.mark.parametrize("text", ["", "{}", '{"fileDescriptorSet": "!"}', '{"fileDescriptorSet": ""}', "[]x"])
def test_definitions_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SparkSourceError, match="the schema definition "):
        columns_of(definition(text))


def parsing_info(*fields: tuple[int, str, str, str]) -> str:
    names = ("number", "name", "type", "label")
    return json.dumps([{**dict(zip(names, each, strict=True)), "definition": None} for each in fields])


def test_protobuf_has_the_columns_that_its_registry_entry_tells(tmp_path: Path) -> None:
    compiled = Compiled(tmp_path, EVERYTHING)
    single, many = "LABEL_OPTIONAL", "LABEL_REPEATED"
    info = parsing_info(
        (1, "i32", "INT32", single),
        (7, "text", "STRING", single),
        (9, "colour", "ENUM", single),
        (10, "colours", "ENUM", many),
        (11, "place", "MESSAGE", single),
        (12, "places", "MESSAGE", many),
        (18, "maybe", "INT32", single),
    )
    more = parsing_info((1, "number", "INT32", single), (15, "more", "INT32", single))
    wanted = definition(info, more, kind="PROTOBUF")
    place = compiled.message(place={"x": 1.5}).place.SerializeToString()
    [batch] = rows(wanted, (info, filled(compiled)), (more, b"\x08\x05\x78\x06"))
    first = {"i32": -1, "text": "é", "colour": 4, "colours": [0, 4, 9], "place": place, "maybe": 0}
    assert batch.to_pylist() == [
        {**first, "places": [b"\x12\x01a\x12\x01b"], "more": None},
        {**dict.fromkeys(first), "places": None, "i32": 5, "more": 6},
    ]
    wanted = definition("", kind="PROTOBUF")
    assert content_columns(wanted) == pa.schema([("value", pa.binary())])
    assert decoder_of(wanted, wanted)(b"\x08") == b"\x08"
    with pytest.raises(SparkSourceError, match="'extra' is a group"):
        columns_of(definition(parsing_info((1, "extra", "GROUP", single)), kind="PROTOBUF"))
