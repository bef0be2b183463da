"""Writing by schema: what is registered, and who can read it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    Double,
    Integer,
    JsonSchema,
    Long,
    Map,
    Record,
    String,
    StringSchema,
)
from pyspark.sql import DataFrame, SparkSession
from spark_world import Cluster

from magnetar.client import Message, MessageId

NARROW: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "customer", "type": ["null", "string"], "default": None},
    ],
}


class Order(Record):  # type: ignore[misc]
    """As users of the official client describe what ``RICH`` has."""

    number = Long()
    small = Integer()
    name = String()
    price = Double()
    paid = Boolean()
    raw = Bytes()
    tags = Array(String())
    counts = Map(Integer())


RICH = (
    "cast(id as bigint) as number, cast(id as int) as small, concat('ż', id) as name, id / 4 as price,"
    " id % 2 = 0 as paid, cast(concat('b', id) as binary) as raw, array('a', cast(id as string)) as tags,"
    " map('n', cast(id as int)) as counts"
)
EVERYTHING = (
    "cast(id as byte) as tiny, cast(id as short) as short, cast(id as float) / 8 as single,"
    " timestamp_micros(1700000000123456 + id) as at, date_add(date'2024-02-28', cast(id as int)) as day,"
    " cast(timestamp_micros(1700000000123456) as timestamp_ntz) as here,"
    " cast(12345.67 as decimal(10,2)) as amount, struct(id as deep, array(struct('x' as inner)) as list)"
    " as parts, if(id = 1, null, 'text') as maybe, map('k', struct(1 as one)) as pairs"
)


@pytest.fixture(scope="module")
def official(cluster: Cluster) -> Iterator[pulsar.Client]:
    client = pulsar.Client(cluster.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def frame_of(spark: SparkSession, columns: str, count: int = 3) -> DataFrame:
    return spark.range(0, count, 1, 1).selectExpr(*_split(columns))


def _split(columns: str) -> list[str]:
    """At commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in columns:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def write(frame: DataFrame, cluster: Cluster, topic: str, **options: str) -> None:
    named = {name.replace("_", "."): value for name, value in options.items()}
    cluster.client.subscribe(topic, "keep").close()
    frame.write.format("pulsar").options(**cluster.options(topic=topic, **named)).mode("append").save()


def read(spark: SparkSession, cluster: Cluster, topic: str) -> DataFrame:
    return spark.read.format("pulsar").options(**cluster.options(topic=topic)).load()


def messages(cluster: Cluster, topic: str) -> list[Message]:
    reader = cluster.client.create_reader(topic, MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(120_000))
    reader.close()
    return found


def put_schema(cluster: Cluster, topic: str, kind: str, definition: Any = "", **properties: str) -> None:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    body = json.dumps({"type": kind, "schema": text, "properties": properties})
    path = topic.removeprefix("persistent://")
    cluster.admin._http.ask("POST", f"/admin/v2/schemas/{path}/schema", body=body)


@pytest.mark.parametrize("encoding", ["avro", "json"])
def test_the_official_client_reads_records_by_its_own_schema(
    spark: SparkSession, cluster: Cluster, official: pulsar.Client, topic: str, encoding: str
) -> None:
    write(frame_of(spark, RICH), cluster, topic, value_encoding=encoding, value_schema="register")
    assert cluster.admin.schema(topic)["type"] == encoding.upper()
    if encoding == "json":
        # What it makes of bytes in JSON is its own; all else is common.
        definition = json.loads(cluster.admin.schema(topic)["data"])
        assert [each["name"] for each in definition["fields"]] == [each.strip() for each in Order._fields]
    made = AvroSchema(Order) if encoding == "avro" else JsonSchema(Order)
    consumer = official.subscribe(
        topic, "official", schema=made, initial_position=pulsar.InitialPosition.Earliest
    )
    for number in range(3):
        found = consumer.receive(120_000).value()
        assert (found.number, found.small, found.name) == (number, number, f"ż{number}")
        assert (found.price, found.paid) == (number / 4, number % 2 == 0)
        assert (found.tags, found.counts) == (["a", str(number)], {"n": number})
        if encoding == "avro":
            assert found.raw == b"b%d" % number
    consumer.close()


@pytest.mark.parametrize("encoding", ["avro", "json"])
@pytest.mark.parametrize("columns", [RICH, EVERYTHING])
def test_all_types_come_back_as_they_were(
    spark: SparkSession, cluster: Cluster, topic: str, encoding: str, columns: str
) -> None:
    frame = frame_of(spark, columns)
    write(frame, cluster, topic, value_encoding=encoding, value_schema="register")
    back = read(spark, cluster, topic).selectExpr(*frame.columns)
    wider = {"tinyint": "int", "smallint": "int"}
    assert [(name, wider.get(kind, kind)) for name, kind in frame.dtypes] == back.dtypes
    assert [row.asDict(True) for row in back.collect()] == [row.asDict(True) for row in frame.collect()]


def test_the_topics_schema_is_used_where_it_fits(
    spark: SparkSession, cluster: Cluster, official: pulsar.Client, topic: str
) -> None:
    put_schema(cluster, topic, "AVRO", NARROW)
    columns = "'Ada' as customer, cast(id as short) as number"
    write(frame_of(spark, columns), cluster, topic, value_encoding="avro")
    write(frame_of(spark, "cast(id as int) as number"), cluster, topic, value_schema="register")
    assert cluster.admin.schema(topic)["version"] == 0
    reader = official.create_reader(
        topic, pulsar.MessageId.earliest, schema=AvroSchema(None, schema_definition=NARROW)
    )
    found = [reader.read_next(120_000).value() for _ in range(6)]
    reader.close()
    assert [each["number"] for each in found] == [0, 1, 2, 0, 1, 2]
    assert [each["customer"] for each in found] == ["Ada"] * 3 + [None] * 3


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_column_more_becomes_a_field_more_with_null_as_default(
    spark: SparkSession, cluster: Cluster, topic: str, kind: str
) -> None:
    put_schema(cluster, topic, kind, NARROW)
    write(
        frame_of(spark, "cast(id as int) as number"),
        cluster,
        topic,
        value_encoding=kind.lower(),
        value_schema="register",
    )
    wide = "cast(id as int) as number, 'Ada' as customer, 'DE' as country"
    write(frame_of(spark, wide), cluster, topic, value_encoding=kind.lower(), value_schema="register")
    assert cluster.admin.schema(topic)["version"] == 1
    rows = read(spark, cluster, topic).selectExpr("number", "customer", "country").collect()
    assert sorted(map(tuple, rows), key=str) == sorted(
        [(n, None, None) for n in range(3)] + [(n, "Ada", "DE") for n in range(3)], key=str
    )


@pytest.mark.parametrize(
    ("column", "kind", "content"),
    [
        ("concat('ż', id)", "STRING", "ż1".encode()),
        ("id = 1", "BOOLEAN", b"\1"),
        ("cast(-id as byte)", "INT8", b"\xff"),
        ("cast(-id as short)", "INT16", b"\xff\xff"),
        ("cast(-id as int)", "INT32", b"\xff\xff\xff\xff"),
        ("id * 4294967296", "INT64", b"\0\0\0\1\0\0\0\0"),
        ("cast(id as float)", "FLOAT", b"\x3f\x80\0\0"),
        ("-cast(id as double)", "DOUBLE", b"\xbf\xf0\0\0\0\0\0\0"),
        ("date_add(date'1970-01-01', cast(3 * id as int))", "LOCAL_DATE", (3).to_bytes(8, "big")),
        (
            "timestamp_micros(-2000001 * id)",
            "INSTANT",
            (-3).to_bytes(8, "big", signed=True) + (999_999_000).to_bytes(4, "big"),
        ),
        (
            "cast(timestamp_micros(86400000001 * id) as timestamp_ntz)",
            "LOCAL_DATE_TIME",
            (1).to_bytes(8, "big") + (1000).to_bytes(8, "big"),
        ),
    ],
)
def test_primitives_are_what_clients_write_and_come_back(
    spark: SparkSession, cluster: Cluster, topic: str, column: str, kind: str, content: bytes
) -> None:
    frame = frame_of(spark, f"if(id = 2, null, {column}) as value")
    write(frame, cluster, topic, value_encoding="primitive")
    assert cluster.admin.schema(topic)["type"] == kind.replace("LOCAL_DATE_TIME", "LOCAL_DATE_TIME")
    assert [each.data() for each in messages(cluster, topic)][1:] == [content, b""]
    assert read(spark, cluster, topic).selectExpr("value").collect() == frame.collect()


def test_primitives_follow_the_schema_of_the_topic(
    spark: SparkSession, cluster: Cluster, official: pulsar.Client, topic: str
) -> None:
    put_schema(cluster, topic, "INT64")
    write(frame_of(spark, "cast(id as int) as value"), cluster, topic, value_schema="register")
    assert [each.data() for each in messages(cluster, topic)] == [n.to_bytes(8, "big") for n in range(3)]
    times = f"{topic}-times"
    put_schema(cluster, times, "TIMESTAMP")
    write(frame_of(spark, "timestamp_millis(id) as value"), cluster, times, value_encoding="primitive")
    assert [each.data() for each in messages(cluster, times)] == [n.to_bytes(8, "big") for n in range(3)]
    texts = f"{topic}-texts"
    write(frame_of(spark, "'x' as value"), cluster, texts, value_schema="register")
    reader = official.create_reader(texts, pulsar.MessageId.earliest, schema=StringSchema())
    assert reader.read_next(120_000).value() == "x"
    reader.close()


def test_a_named_write_to_partitions_declares_its_schema_each_time(
    spark: SparkSession, cluster: Cluster, official: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    cluster.admin.create_partitioned_topic(topic, 3)
    for _ in range(2):
        options = {"value_encoding": "avro", "writeId": "w", "stagingDir": str(tmp_path)}
        frame = frame_of(spark, "id as number, concat('k', id) as __key", 50)
        write(frame, cluster, topic, **options)
    found = read(spark, cluster, topic)
    assert found.dtypes[0] == ("number", "bigint")
    assert sorted(row.number for row in found.collect()) == list(range(50))
    reader = official.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
    assert reader.read_next(120_000)._message.int_schema_version() == 0
    reader.close()


UNION = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}


@pytest.mark.parametrize(
    ("schema", "options", "columns", "reason"),
    [
        (("AVRO", NARROW), {"value_encoding": "json", "value_schema": "register"}, "1 as number",
         "schema of type AVRO, which 'value.encoding=json' cannot write; use 'value.encoding=avro'"),
        (("AVRO", NARROW), {"value_encoding": "avro"}, "id as number",
         "the field 'number' of its schema is int, but the column is bigint"),
        (("AVRO", NARROW), {"value_encoding": "avro"}, "'x' as customer",
         "the field 'number' of its schema has no default, and no column provides it"),
        (("AVRO", NARROW), {"value_encoding": "avro"}, "if(id = 1, null, 1) as number",
         "a row has None for the field 'number'"),
        (("JSON", NARROW), {"value_schema": "register"}, "if(id = 1, null, 1) as number",
         "a row has null for the field 'number'"),
        (("AVRO", UNION), {"value_encoding": "avro"}, "1 as a", "a union of several types"),
        (("KEY_VALUE", {"key": "", "value": ""}), {"value_encoding": "avro"}, "1 as a",
         "has a schema of type KEY_VALUE, which cannot be written"),
        (("INT32", ""), {"value_encoding": "avro"}, "1 as a",
         "requires one column 'value' with 'value.encoding=primitive'"),
        (("INT32", ""), {"value_encoding": "primitive"}, "id as value",
         "requires a column of int, not bigint"),
        (None, {"value_encoding": "primitive"}, "1 as a", "requires one column 'value' of a primitive type"),
        (None, {"value_encoding": "avro"}, "1 as `a-b`", "a schema cannot have a field 'a-b'"),
        (None, {"value_encoding": "avro"}, "map(1, 2) as a", "keys of maps must be text, not int"),
        (None, {"value_encoding": "avro"}, "interval 1 day as a", "a schema cannot have the type"),
        (None, {"value_encoding": "avro", "value_schema": "none"}, "1 as a",
         "without a schema, the values cannot be read"),
        (None, {"value_encoding": "bytes", "value_schema": "register"}, "'x' as value",
         "cannot be used with"),
    ],
)  # fmt: skip
def test_what_no_schema_lets_be_written_is_refused_by_name(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    schema: tuple[str, Any] | None,
    options: dict[str, str],
    columns: str,
    reason: str,
) -> None:
    if schema is not None:
        more = {"key.schema.type": "STRING", "value.schema.type": "STRING"} if "KEY" in schema[0] else {}
        put_schema(cluster, topic, *schema, **more)
    with pytest.raises(Exception, match=r"(?s)Invalid(Option|Rows)") as raised:
        write(frame_of(spark, columns), cluster, topic, **options)
    assert reason in str(raised.value)
    assert messages(cluster, topic) == []


def test_what_the_topic_does_not_let_change_is_refused_with_the_brokers_reason(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    cluster.admin.create_topic(topic)
    put_schema(cluster, topic, "AVRO", NARROW)
    path = f"/admin/v2/persistent/{topic.removeprefix('persistent://')}/schemaCompatibilityStrategy"
    cluster.admin._http.ask("PUT", path, body=json.dumps("ALWAYS_INCOMPATIBLE"))
    wide = frame_of(spark, "1 as number, 'DE' as country")
    for more in ({}, {"writeId": "w", "stagingDir": str(tmp_path)}):
        with pytest.raises(Exception, match="does not accept the schema of these rows"):
            write(wide, cluster, topic, value_encoding="avro", **more)
    assert messages(cluster, topic) == []
    write(frame_of(spark, "1 as number"), cluster, topic, value_encoding="avro")
    assert len(messages(cluster, topic)) == 3
