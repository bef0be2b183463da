"""Streams that write: what a query that ends and goes on has written, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_world import Cluster
from test_write import messages


def run(frame: DataFrame, cluster: Cluster, checkpoint: Path | str, **options: str) -> None:
    query = (
        frame.writeStream.format("pulsar")
        .options(**cluster.options(**options))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert not query.isActive


def add(folder: Path, number: int, rows: int) -> list[str]:
    folder.mkdir(exist_ok=True)
    ids = [f"{number}.{row}" for row in range(rows)]
    (folder / f"{number}.txt").write_text("\n".join(ids) + "\n")
    return ids


def lines(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_query_goes_on(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path, delivery: str
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    wanted = add(folder, 1, 700) + add(folder, 2, 10)
    run(lines(spark, folder), cluster, checkpoint, topic=topic, delivery=delivery)
    wanted += add(folder, 3, 30)
    run(lines(spark, folder), cluster, checkpoint, topic=topic, delivery=delivery)
    run(lines(spark, folder), cluster, checkpoint, topic=topic, delivery=delivery)
    assert sorted(each.data().decode() for each in messages(cluster, topic)) == sorted(wanted)
    assert (checkpoint / "magnetar-staging").exists() == (delivery == "exactly-once")
    enabled = cluster.admin.topic_stats(topic)["deduplicationStatus"] == "Enabled"
    assert enabled == (delivery == "exactly-once")


def test_a_batch_that_was_published_and_not_logged_is_not_published_again(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    folder, checkpoint, staging = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "staging"
    wanted = add(folder, 1, 100) + add(folder, 2, 100)
    frame = lines(spark, folder).withColumn("value", f.concat("value", f.lit(":"), f.rand()))
    run(frame, cluster, checkpoint, topic=topic, stagingDir=str(staging))
    # Spark's record that the last batch is done, and its checksum, are lost: it runs the batch again.
    for each in ("1", ".1.crc"):
        (checkpoint / "commits" / each).unlink()
    wanted += add(folder, 3, 100)
    run(frame, cluster, checkpoint, topic=topic, stagingDir=str(staging))
    found = [each.data().decode().split(":")[0] for each in messages(cluster, topic)]
    assert sorted(found) == sorted(wanted)
    # A query without the checkpoint is another one.
    with pytest.raises(Exception, match="use another 'stagingDir'"):
        run(frame, cluster, tmp_path / "another", topic=topic, stagingDir=str(staging))


def test_from_topic_to_topic(spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    source = topic + "-source"
    cluster.client.subscribe(source, "keep").close()
    producer = cluster.client.create_producer(source)
    for number in range(50):
        producer.send(b"%d" % number, partition_key=f"k{number % 7}", properties={"n": str(number)})
    producer.close()
    read = (
        spark.readStream.format("pulsar")
        .options(**cluster.options(topic=source, startingOffsets="earliest"))
        .load()
        .drop("__topic")
        .withColumn("__key", f.col("__key").cast("string"))
    )
    run(read, cluster, tmp_path / "checkpoint", topic=topic)
    found = messages(cluster, topic)
    assert sorted(int(each.data()) for each in found) == list(range(50))
    for each in found:
        assert each.properties() == {"n": each.data().decode()}
        assert each.partition_key() == f"k{int(each.data()) % 7}"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stagingDir": "hdfs://name/x"}, "not a directory of a mounted file system"),
        ({"writeId": "x"}, "'writeId' is only for batches"),
        ({"delivery": "sometimes"}, "'delivery' must be one of"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    add(tmp_path / "in", 1, 1)
    with pytest.raises(Exception, match="InvalidOption") as raised:
        run(lines(spark, tmp_path / "in"), cluster, tmp_path / "checkpoint", topic=topic, **options)
    assert reason in str(raised.value)
