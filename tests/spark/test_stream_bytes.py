"""``spark.readStream``: queries with checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from spark_world import Cluster, publish


class Stream:
    """A query that keeps what each of its batches got, by batch number."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._folder = folder
        self._options = options
        self.batches: dict[int, list[bytes]] = {}
        self.progress: list[dict[str, Any]] = []

    def run(self) -> None:
        """Reads what there is, and ends."""
        rows = self._spark.readStream.format("pulsar").options(**self._options).load()

        def keep(batch: DataFrame, number: int) -> None:
            self.batches[number] = [bytes(row.value) for row in batch.select("value").collect()]

        query = (
            rows.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.progress = [json.loads(each.json) for each in query.recentProgress]


def test_a_query_goes_on_where_its_checkpoint_says(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    publish(cluster, topic, 100, batching_enabled=True, batching_max_publish_delay_ms=1000)
    options = cluster.options(topic=topic, startingOffsets="earliest", maxRowsPerTrigger="37")
    stream = Stream(spark, tmp_path, options)
    stream.run()
    assert [len(stream.batches[number]) for number in sorted(stream.batches)] == [37, 37, 26]
    publish(cluster, topic, 20, 100)
    stream.run()
    found = [value for number in sorted(stream.batches) for value in stream.batches[number]]
    assert found == [b"m%d" % number for number in range(120)]
    source = stream.progress[0]["sources"][0]
    assert source["endOffset"]["topics"][topic]["next"]
    assert source["latestOffset"]["topics"][topic]["backlog"] == 0


def test_the_last_batch_is_read_again_when_its_end_was_not_recorded(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    publish(cluster, topic, 50)
    stream = Stream(spark, tmp_path, cluster.options(topic=topic, startingOffsets="earliest"))
    stream.run()
    before = dict(stream.batches)
    publish(cluster, topic, 20, 50)
    for each in (tmp_path / "checkpoint" / "commits").iterdir():
        each.unlink()
    stream.run()
    assert stream.batches[0] == before[0]
    assert stream.batches[1] == [b"m%d" % number for number in range(50, 70)]


def test_what_comes_after_a_first_run_without_messages_is_kept(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    publish(cluster, topic, 0)
    stream = Stream(spark, tmp_path, cluster.options(topic=topic))
    stream.run()
    cursors = set(cluster.admin.topic_internal_stats(topic)["cursors"])
    offset = next((tmp_path / "checkpoint" / "offsets").glob("[0-9]*")).read_text().splitlines()[-1]
    # One of its own, and it is the one that the checkpoint names.
    assert cursors == {"keep", json.loads(offset)["subscription"]}
    publish(cluster, topic, 20)
    stream.run()
    assert [value for number in sorted(stream.batches) for value in stream.batches[number]] == [
        b"m%d" % number for number in range(20)
    ]
