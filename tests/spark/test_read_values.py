"""Columns from the schemas of topics, and what happens to messages that do not fit them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pulsar.schema import AvroSchema
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_world import Cluster

from magnetar.spark.errors import InvalidOption, MalformedMessage, SparkSourceError
from magnetar.spark.reading.quarantine import SCHEMA
from magnetar.spark.source import PulsarDataSource

NARROW: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "customer", "type": ["null", "string"], "default": None},
    ],
}
WIDE = {
    **NARROW,
    "fields": [*NARROW["fields"], {"name": "country", "type": "string", "default": "DE"}],
}


@pytest.fixture(scope="module")
def official(cluster: Cluster) -> Iterator[pulsar.Client]:
    client = pulsar.Client(cluster.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def rows_of(cluster: Cluster, **options: str) -> list[dict[str, Any]]:
    """What Spark would read, without a session."""
    source = PulsarDataSource(cluster.options(**options))
    reader = source.reader(source.schema())
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def put_schema(cluster: Cluster, topic: str, kind: str, definition: Any = "", **properties: str) -> None:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    body = json.dumps({"type": kind, "schema": text, "properties": properties})
    path = topic.removeprefix("persistent://")
    cluster.admin._http.ask("POST", f"/admin/v2/schemas/{path}/schema", body=body)


def put(cluster: Cluster, topic: str, *contents: bytes, **options: Any) -> None:
    """Contents as they are, on a topic that keeps them."""
    cluster.client.subscribe(topic, "keep").close()
    producer = cluster.client.create_producer(topic)
    for content in contents:
        producer.send(content, **options)
    producer.close()


def test_avro_records_become_columns_whatever_version_they_were_written_with(
    cluster: Cluster, official: pulsar.Client, topic: str
) -> None:
    cluster.client.subscribe(topic, "keep").close()
    for definition, record in (
        (NARROW, {"number": 1, "customer": "Ada"}),
        (WIDE, {"number": 2, "customer": None, "country": "FR"}),
    ):
        producer = official.create_producer(topic, schema=AvroSchema(None, schema_definition=definition))
        producer.send(record)
        producer.close()
    assert PulsarDataSource(cluster.options(topic=topic)).schema().fieldNames()[:3] == [
        "number",
        "customer",
        "country",
    ]
    found = [(row["number"], row["customer"], row["country"]) for row in rows_of(cluster, topic=topic)]
    assert found == [(1, "Ada", "DE"), (2, None, "FR")]


def test_json_objects_become_columns(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, b'{"number": 1, "customer": "Ada"}', b'{"number": 2, "country": "FR", "more": 1}')
    put_schema(cluster, topic, "JSON", WIDE)
    found = [(row["number"], row["customer"], row["country"]) for row in rows_of(cluster, topic=topic)]
    assert found == [(1, "Ada", None), (2, None, "FR")]


def test_spark_reads_columns_and_can_leave_some_out(
    spark: SparkSession, cluster: Cluster, official: pulsar.Client, topic: str
) -> None:
    cluster.client.subscribe(topic, "keep").close()
    producer = official.create_producer(topic, schema=AvroSchema(None, schema_definition=NARROW))
    for number in range(20):
        producer.send_async({"number": number, "customer": f"c{number % 3}"}, lambda *_: None)
    producer.flush()
    producer.close()
    load = spark.read.format("pulsar").options(**cluster.options(topic=topic))
    totals = load.load().groupBy("customer").sum("number").collect()
    assert {row[0]: row[1] for row in totals} == {"c0": 63, "c1": 70, "c2": 57}


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        ("STRING", "żółw".encode(), "żółw"),
        ("BOOLEAN", b"\1", True),
        ("INT8", b"\xff", -1),
        ("INT16", b"\x01\x00", 256),
        ("INT32", b"\xff\xff\xff\xfe", -2),
        ("INT64", b"\0\0\0\1\0\0\0\0", 1 << 32),
        ("FLOAT", b"\x3f\x80\0\0", 1.0),
        ("DOUBLE", b"\xbf\xf0\0\0\0\0\0\0", -1.0),
        ("TIMESTAMP", (1000).to_bytes(8, "big"), datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)),
        ("TIME", (3_600_001).to_bytes(8, "big"), 3_600_001_000),
        ("LOCAL_TIME", (3_600_001_002_003).to_bytes(8, "big"), 3_600_001_002),
        ("DATE", (86_400_000 * 3).to_bytes(8, "big"), datetime.date(1970, 1, 4)),
    ],
)
def test_primitives(cluster: Cluster, topic: str, kind: str, content: bytes, value: Any) -> None:
    put(cluster, topic, content)
    put_schema(cluster, topic, kind)
    assert [row["value"] for row in rows_of(cluster, topic=topic)] == [value]


def test_keys_and_values_become_two_columns(cluster: Cluster, topic: str) -> None:
    inline = b"\0\0\0\1k" + b"\0\0\0\4" + (7).to_bytes(4, "big")
    put(cluster, topic, inline)
    properties = {"key.schema.type": "STRING", "value.schema.type": "INT32", "kv.encoding.type": "INLINE"}
    put_schema(cluster, topic, "KEY_VALUE", {"key": "", "value": ""}, **properties)
    assert [(row["key"], row["value"]) for row in rows_of(cluster, topic=topic)] == [("k", 7)]


def test_bytes_can_be_asked_for(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, b"\1\0")
    put_schema(cluster, topic, "INT16")
    assert [row["value"] for row in rows_of(cluster, topic=topic, **{"value.format": "bytes"})] == [b"\1\0"]


def test_topics_with_different_schemas_are_refused_unless_allowed(cluster: Cluster, topic: str) -> None:
    for name, kind in ((f"{topic}-a", "STRING"), (f"{topic}-b", "INT32")):
        put(cluster, name, b"abcd")
        put_schema(cluster, name, kind)
    both = f"{topic}-a,{topic}-b"
    with pytest.raises(SparkSourceError, match="different schemas"):
        rows_of(cluster, topics=both)
    found = rows_of(cluster, topics=both, allowDifferentTopicSchemas="true")
    assert [row["value"] for row in found] == [b"abcd", b"abcd"]


def test_malformed_messages_go_to_quarantine_with_reasons(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    put(cluster, topic, b"1234", b"12345", b"", b"abcd")
    put_schema(cluster, topic, "INT32")
    options = {"topic": topic, "quarantine.path": str(tmp_path / "bad")}
    for _ in range(2):
        assert [row["value"] for row in rows_of(cluster, **options)] == [0x31323334, 0x61626364]
    kept = pq.read_table(tmp_path / "bad").cast(SCHEMA)
    assert kept.column("data").to_pylist() == [b"12345", b""]
    assert kept.column("topic").to_pylist() == [topic] * 2
    assert all("does not fit the schema" in reason for reason in kept.column("reason").to_pylist())


def test_entries_that_cannot_be_taken_apart_go_there_whole(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
    from magnetar.spark.codec.columns import BYTES
    from magnetar.spark.codec.rows import EntryPart, Malformed, RowSelection, record_batches

    found: list[Malformed] = []
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=3)
    raw = metadata.SerializeToString()
    entry = len(raw).to_bytes(4, "big") + raw + b"\0\0\0"
    parts = [EntryPart(3, 4, entry), EntryPart(3, 5, b"\0")]
    batches: list[pa.RecordBatch] = list(
        record_batches(topic, -1, parts, BYTES, RowSelection(), None, found.append)
    )
    assert batches == []
    assert [(each.ledger_id, each.entry_id, each.batch_index) for each in found] == [(3, 4, -1), (3, 5, -1)]
    assert found[0].data == entry


@pytest.mark.parametrize("options", [{"mode": "FAILFAST"}, {}])
def test_a_malformed_message_ends_the_query_where_nothing_keeps_it(
    cluster: Cluster, topic: str, options: dict[str, str]
) -> None:
    put(cluster, topic, b"12345")
    put_schema(cluster, topic, "INT32")
    with pytest.raises(MalformedMessage, match=rf"{topic} \d+:0: the content does not fit"):
        rows_of(cluster, topic=topic, **options)


def test_a_column_that_the_schema_does_not_have_is_refused_by_name(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, b"x")
    source = PulsarDataSource(cluster.options(topic=topic))
    for make in (source.reader, source.streamReader):
        with pytest.raises(InvalidOption, match="unknown column 'valu'; use one of value, __key, "):
            make(StructType([StructField("valu", BinaryType())]))


def test_schemas_without_columns_are_refused_by_name(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, b"x")
    union = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}
    put_schema(cluster, topic, "JSON", union)
    with pytest.raises(SparkSourceError, match=r"value\.a: a union of several types"):
        rows_of(cluster, topic=topic)


def test_a_union_of_avro_has_a_field_for_each_type(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, b"\x02\x02x")
    union = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}
    put_schema(cluster, topic, "AVRO", union)
    assert [row["a"] for row in rows_of(cluster, topic=topic)] == [{"member0": None, "member1": "x"}]
