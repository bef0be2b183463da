"""Records and schemas of ``magnetar.pulsar`` define, encode and check as those of the official client."""

from __future__ import annotations

import enum
from typing import Any

import pulsar.schema
import pytest

import magnetar.pulsar.schema as own_schema
from magnetar.protocol.pulsar_api_pb2 import MessageIdData

OFFICIAL, OWN = pulsar.schema, own_schema


def records(schema: Any) -> dict[str, Any]:
    """Returns the same classes, made with either package."""

    class Color(enum.Enum):
        red = 1
        green = 2

    class Point(schema.Record):
        _avro_namespace = "places"
        x = schema.Integer(required=True)
        y = schema.Double(default=1.5, required_default=True)

    class Everything(schema.Record):
        name = schema.String(default="nobody", required_default=True)
        flag = schema.Boolean()
        count = schema.Long(required=True)
        part = schema.Float()
        blob = schema.Bytes()
        color = Color
        other = schema.CustomEnum(Color, default=Color.green, required_default=True)
        nothing = schema.Null()
        point = Point
        again = Point(required=True)
        points = schema.Array(Point())
        names = schema.Array(schema.String())
        nested = schema.Array(schema.Array(schema.Integer()))
        by_name = schema.Map(Point())
        numbers = schema.Map(schema.Array(schema.Integer()), default={}, required_default=True)

    class Sorted(schema.Record):
        _sorted_fields = True
        b = schema.String()
        a = schema.Integer()

    class Empty(schema.Record):
        pass

    return {"Color": Color, "Point": Point, "Everything": Everything, "Sorted": Sorted, "Empty": Empty}


def value(made: dict[str, Any]) -> Any:
    point = made["Point"](x=1)
    return made["Everything"](
        name="n",
        count=5,
        part=1,
        blob="text",
        color="red",
        point={"x": 3, "y": 2.0},
        again=point,
        points=[{"x": 7}],
        names=["a", b"b".decode()],
        nested=[[1, 2], [3]],
        by_name={"k": {"x": 9}},
    )


@pytest.mark.parametrize("name", ["Point", "Everything", "Sorted", "Empty"])
@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_definitions_are_the_same_byte_for_byte(kind: str, name: str) -> None:
    theirs, ours = (getattr(schema, kind)(records(schema)[name]).schema_info() for schema in (OFFICIAL, OWN))
    assert ours.schema() == theirs.schema()
    assert ours.name() == theirs.name()
    assert int(ours.schema_type()) == int(theirs.schema_type())


@pytest.mark.parametrize("kind", ["BytesSchema", "StringSchema"])
def test_simple_schemas_are_the_same(kind: str) -> None:
    theirs, ours = (getattr(schema, kind)() for schema in (OFFICIAL, OWN))
    assert str(ours) == str(theirs)
    assert ours.schema_info().schema() == theirs.schema_info().schema()
    given: Any = b"x" if kind == "BytesSchema" else "ünï"
    assert ours.encode(given) == theirs.encode(given)
    assert ours.decode(ours.encode(given)) == given
    with pytest.raises(TypeError, match="Invalid record obj of type"):
        ours.encode(5)


def test_protobuf_descriptors_are_the_same() -> None:
    theirs, ours = (schema.ProtobufNativeSchema(MessageIdData) for schema in (OFFICIAL, OWN))
    assert ours.schema_info().schema() == theirs.schema_info().schema()
    message = MessageIdData(ledgerId=1, entryId=2)
    assert ours.decode(ours.encode(message)) == message
    assert ours.encode(message) == theirs.encode(message)
    with pytest.raises(TypeError, match="protobuf Message subclass"):
        own_schema.ProtobufNativeSchema(str)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_contents_are_the_same_byte_for_byte(kind: str) -> None:
    contents = []
    for schema in (OFFICIAL, OWN):
        made = records(schema)
        used = getattr(schema, kind)(made["Everything"])
        given = value(made)
        contents.append(used.encode(given))
        if kind == "AvroSchema":
            assert used.decode(contents[-1]) == given
    assert contents[0] == contents[1]
    decoded = [
        getattr(schema, kind)(records(schema)["Point"]).decode(getattr(schema, kind)(made).encode(made(x=4)))
        for schema in (OFFICIAL, OWN)
        for made in [records(schema)["Point"]]
    ]
    assert [(point.x, point.y) for point in decoded] == [(4, 1.5), (4, 1.5)]


def test_dictionaries_have_a_given_definition() -> None:
    definition = {"type": "record", "name": "D", "fields": [{"name": "n", "type": "int"}]}
    theirs, ours = (schema.AvroSchema(None, definition) for schema in (OFFICIAL, OWN))
    assert ours.encode({"n": 5}) == theirs.encode({"n": 5})
    assert ours.decode(ours.encode({"n": 5})) == {"n": 5}
    with pytest.raises(ValueError, match="should be dict type"):
        ours.encode(5)


def failure(schema: Any, wrong: str) -> str:
    """Returns class and text of the error for a wrong use."""
    made = records(schema)
    uses: dict[str, Any] = {
        "field": lambda: made["Point"](x="text"),
        "record": lambda: made["Everything"](point=5),
        "undeclared": lambda: setattr(made["Point"](x=1), "z", 1),
        "item": lambda: made["Everything"](names=[1]),
        "value": lambda: made["Everything"](by_name={"k": 1}),
        "key": lambda: made["Everything"](by_name={1: made["Point"](x=1)}),
        "member": lambda: made["Everything"](color="blue"),
        "number": lambda: made["Everything"](color=7),
        "enum": lambda: made["Everything"](color=1.5),
        "none": lambda: made["Everything"](nothing=1),
        "text": lambda: made["Everything"](name=1),
        "required": lambda: made["Point"](x=None),
        "no enum": lambda: schema.CustomEnum(int),
        "class": lambda: schema.Array(int),
        "schema": lambda: schema.AvroSchema(made["Point"]).encode(5),
        "none of both": lambda: schema.AvroSchema(None),
    }
    with pytest.raises(Exception) as error:
        uses[wrong]()
    return f"{type(error.value).__name__}: {error.value}".replace("pulsar.schema.definition.", "").replace(
        "magnetar.", ""
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "field",
        "record",
        "undeclared",
        "item",
        "value",
        "key",
        "member",
        "number",
        "enum",
        "none",
        "text",
        "required",
        "no enum",
        "class",
        "schema",
        "none of both",
    ],
)
def test_wrong_values_have_the_same_errors(wrong: str) -> None:
    assert failure(OWN, wrong) == failure(OFFICIAL, wrong)
