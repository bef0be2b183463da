"""Writing, seen by a client that reads the topic afterwards."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_world import Cluster

from magnetar.client import Message, MessageId


def messages(cluster: Cluster, topic: str) -> list[Message]:
    """All messages of a topic without partitions, in order."""
    reader = cluster.client.create_reader(topic, MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(120_000))
    reader.close()
    return found


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(f.col("id").cast("string").alias("value"))


def write(frame: DataFrame, cluster: Cluster, **options: str) -> None:
    frame.write.format("pulsar").options(**cluster.options(**options)).mode("append").save()


def test_rows_become_messages(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.createDataFrame(
        [
            (b"one", "key-é", {"a": "1", "b": "2"}, 1_700_000_000.5),
            (None, None, None, None),
            (b"", "k", {}, 0.0),
        ],
        "value binary, __key string, __messageProperties map<string,string>, seconds double",
    )
    frame = frame.withColumn("__eventTime", f.col("seconds").cast("timestamp")).drop("seconds").coalesce(1)
    write(frame, cluster, topic=topic)
    one, two, three = sorted(
        messages(cluster, topic), key=lambda each: (each.data() != b"one", each.partition_key() != "")
    )
    assert (one.data(), one.partition_key(), one.properties()) == (b"one", "key-é", {"a": "1", "b": "2"})
    assert one.event_timestamp() == 1_700_000_000_500
    assert (two.data(), two.partition_key(), two.properties(), two.event_timestamp()) == (b"", "", {}, 0)
    assert (three.data(), three.partition_key(), three.event_timestamp()) == (b"", "k", 0)


def test_topics_come_from_a_column(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = numbers(spark, 1000).withColumn(
        "__topic",
        f.when(f.col("value") % 3 == 0, f.lit(topic + "-a")).when(f.col("value") % 3 == 1, topic + "-b"),
    )
    write(frame, cluster, topic=topic)
    for remainder, name in enumerate((topic + "-a", topic + "-b", topic)):
        found = sorted(int(each.data()) for each in messages(cluster, name))
        assert found == list(range(remainder, 1000, 3)), name


def test_keys_choose_the_partition_that_other_clients_choose(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    cluster.admin.create_partitioned_topic(topic, 5)
    keys = [f"key-{number}-é𝄞"[: 6 + number % 8] for number in range(200)]
    frame = spark.createDataFrame([(key, key) for key in keys], "value string, __key string")
    write(frame, cluster, topic=topic)
    producer = cluster.client.create_producer(topic)
    expected = Counter((key, producer.send(key.encode(), partition_key=key).partition()) for key in keys)
    producer.close()
    found: Counter[tuple[str, int]] = Counter()
    for number in range(5):
        found.update(
            (each.partition_key(), number) for each in messages(cluster, f"{topic}-partition-{number}")
        )
    assert found == expected + expected


def test_columns_become_json(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = spark.sql(
        "select 7 as number, 'x' as name, array(1,2) as list, map('a', 1L) as pairs, null as nothing"
    )
    write(frame, cluster, topic=topic)
    (found,) = messages(cluster, topic)
    assert json.loads(found.data()) == {
        "number": 7,
        "name": "x",
        "list": [1, 2],
        "pairs": {"a": 1},
        "nothing": None,
    }


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
def test_entries_are_compressed_batches(
    spark: SparkSession, cluster: Cluster, topic: str, codec: str
) -> None:
    write(numbers(spark, 3000, 1), cluster, topic=topic, **{"pulsar.producer.compressionType": codec})
    assert [int(each.data()) for each in messages(cluster, topic)] == list(range(3000))
    stats = cluster.admin.topic_internal_stats(topic)
    assert 3 <= stats["numberOfEntries"] <= 6


def test_a_named_write_is_done_once(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    for _ in range(3):
        # Run again, it has other rows: what it was the first time counts.
        frame = numbers(spark, 500).withColumn("value", f.concat("value", f.lit(":"), f.rand()))
        write(frame, cluster, topic=topic, writeId="job-1", stagingDir=str(tmp_path))
    found = [int(each.data().split(b":")[0]) for each in messages(cluster, topic)]
    assert sorted(found) == list(range(500))
    write(numbers(spark, 10), cluster, topic=topic, writeId="job-2", stagingDir=str(tmp_path))
    assert len(messages(cluster, topic)) == 510


@pytest.mark.parametrize(
    ("options", "columns", "reason"),
    [
        ({"writeId": "x"}, "value", "'writeId' requires 'stagingDir'"),
        ({"writeId": "../x", "stagingDir": "/tmp"}, "value", "cannot be '../x'"),
        (
            {"writeId": "x", "stagingDir": "s3a://bucket/x"},
            "value",
            "not a directory of a mounted file system",
        ),
        ({"writeId": "x", "delivery": "at-least-once"}, "value", "'delivery' is at-least-once"),
        ({"delivery": "exactly-once"}, "value", "requires 'writeId' and 'stagingDir'"),
        ({"value.encoding": "bytes"}, "value, 1 as other", "requires one column 'value'"),
        ({}, "value, 1 as __key", "'__key' must be binary or string, not int"),
        ({}, "'k' as __key", "the rows have no column 'value'"),
        (
            {},
            "value, 'non-persistent://public/default/x' as __topic",
            "is a non-persistent topic, so messages can be lost",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    spark: SparkSession, cluster: Cluster, topic: str, options: dict[str, str], columns: str, reason: str
) -> None:
    frame = numbers(spark, 1).selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match=r"(?s)Invalid(Option|Rows)") as raised:
        write(frame, cluster, topic=topic, **options)
    assert reason in str(raised.value)


def test_a_topic_is_never_overwritten(spark: SparkSession, cluster: Cluster, topic: str) -> None:
    frame = numbers(spark, 1)
    with pytest.raises(Exception, match="overwrit"):
        frame.write.format("pulsar").options(**cluster.options(topic=topic)).mode("overwrite").save()
    with pytest.raises(Exception, match="set the option 'topic' or add a column '__topic'"):
        write(frame, cluster)
