"""Which definition may follow which: as Apache Pulsar 4.0.8 answered (``avro_answers.json``), and edges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.schemas import compatibility, key_value
from magnetar.broker.schemas.compatibility import validate
from magnetar.broker.schemas.data import SchemaData, SchemaType, version_bytes, version_from_bytes
from magnetar.errors import IncompatibleSchema, InvalidSchemaData
from magnetar.protocol import key_values

ANSWERS = json.loads((Path(__file__).parent / "avro_answers.json").read_text())
DEFINITIONS = {
    name: SchemaData(SchemaType.AVRO, json.dumps(each).encode())
    for name, each in ANSWERS["definitions"].items()
}


def fits(before: SchemaData, new: SchemaData, strategy: str) -> bool:
    try:
        compatibility.check_producer([before], new, strategy)
    except IncompatibleSchema:
        return False
    return True


@pytest.mark.parametrize("strategy", ["BACKWARD", "FORWARD", "FULL"])
@pytest.mark.parametrize("before", DEFINITIONS)
def test_what_follows_what_is_as_in_apache_pulsar(before: str, strategy: str) -> None:
    found = [
        name
        for name, new in DEFINITIONS.items()
        if name != before
        and (compatibility.same(DEFINITIONS[before], new) or fits(DEFINITIONS[before], new, strategy))
    ]
    assert found == ANSWERS[strategy][before]


def avro(definition: Any) -> SchemaData:
    return SchemaData(SchemaType.AVRO, json.dumps(definition).encode())


def record(*fields: Any, name: str = "A") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def test_recursive_records_end() -> None:
    node = record({"name": "next", "type": ["null", "Node"], "default": None}, name="Node")
    wider = record(
        {"name": "next", "type": ["null", "Node"], "default": None},
        {"name": "x", "type": "int", "default": 1},
        name="Node",
    )
    narrower = record({"name": "next", "type": ["null", "Node"]}, {"name": "y", "type": "int"}, name="Node")
    assert fits(avro(node), avro(wider), "FULL")
    assert not fits(avro(node), avro(narrower), "BACKWARD")
    assert fits(avro(narrower), avro(node), "BACKWARD")


@pytest.mark.parametrize(
    "default",
    [
        ("int", 1.5),
        ("int", 1 << 31),
        ("long", "1"),
        ("boolean", 0),
        ("double", "x"),
        ("string", 1),
        (["null", "int"], "x"),
        ({"type": "array", "items": "int"}, ["x"]),
        ({"type": "map", "values": "int"}, {"a": "x"}),
        ({"type": "map", "values": "int"}, []),
        (record({"name": "y", "type": "int"}, name="B"), {}),
        ("null", 0),
        ("bytes", 1),
    ],
)
def test_a_default_that_does_not_fit(default: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidSchemaData, match="default"):
        validate(avro(record({"name": "x", "type": default[0], "default": default[1]})))


def test_defaults_that_fit() -> None:
    inner = record({"name": "y", "type": "int"}, {"name": "z", "type": "int", "default": 1}, name="B")
    for kind, value in (
        ("long", 1 << 40),
        ("double", 1),
        ("boolean", True),
        (["int", "null"], None),
        ({"type": "array", "items": "int"}, []),
        ({"type": "map", "values": ["null", "int"]}, {"a": None, "b": 1}),
        (inner, {"y": 1}),
        ("bytes", "\u00ff"),
    ):
        validate(avro(record({"name": "x", "type": kind, "default": value})))


def test_aliases_name_what_was_written() -> None:
    old = avro(record({"name": "x", "type": "int"}))
    renamed = avro(record({"name": "w", "type": "int", "aliases": ["x"]}))
    assert fits(old, renamed, "BACKWARD")
    assert not fits(old, renamed, "FORWARD")
    kind = {"type": "enum", "name": "E", "symbols": ["a"]}
    other = {"type": "enum", "name": "F", "symbols": ["a"]}
    assert not fits(avro(kind), avro(other), "BACKWARD")
    assert fits(avro(kind), avro(other | {"aliases": ["E"]}), "BACKWARD")


def test_what_is_nested_too_deep() -> None:
    deep: Any = "int"
    for _ in range(150):
        deep = {"type": "array", "items": deep}
    assert not fits(avro(deep), avro("int"), "BACKWARD")
    text = '{"type":"array","items":' * 50_000 + '"int"' + "}" * 50_000
    with pytest.raises(InvalidSchemaData):
        validate(SchemaData(SchemaType.AVRO, text.encode()[: 1 << 20]))


def test_key_value_texts() -> None:
    for key, value in ((b"", b""), (b'{"a":1}', b""), (b"", b"[1]")):
        joined = key_values.join(key, value)
        assert key_value.split(joined) == (key, value)
        assert key_value.from_text(key_value.to_text(joined)) == joined
    assert key_value.split(b"\xff\xff\xff\xff\xff\xff\xff\xff") == (b"", b"")
    for bad in (b"", b"\0\0\0\1", b"\0\0\0\0", b"\xff\xff\xff\xfe\0\0\0\0"):
        with pytest.raises(InvalidSchemaData):
            key_value.split(bad)


def test_versions() -> None:
    assert version_bytes(258) == bytes((0, 0, 0, 0, 0, 0, 1, 2))
    assert version_from_bytes(version_bytes(258)) == 258
    for bad in (b"", b"1", bytes(9)):
        with pytest.raises(InvalidSchemaData):
            version_from_bytes(bad)
