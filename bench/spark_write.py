"""Rows a second that the Spark sink writes, for each core: ``python -m bench.spark_write --service-url ...``.

It needs a server that runs, and writes to topics of its own. Four figures: cutting Arrow batches into staged
entries, publishing what is staged (both in this process, with its CPU time), and ``df.write`` in Spark on one
core, at least once and exactly once (time on the clock, Spark's Python and JVM together). A run counts only
if each topic has as many messages as there were rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from magnetar.admin_client import AdminClient
from magnetar.client.blocking import Client
from magnetar.spark import register
from magnetar.spark.committing import commit
from magnetar.spark.cutting import RowCutter
from magnetar.spark.options import Options
from magnetar.spark.staging import Staging

_ROWS_OF_A_BATCH = 10_000


class Target:
    """The server, and the topics of this run."""

    def __init__(self, service_url: str, admin_url: str) -> None:
        self.urls = {"service.url": service_url, "admin.url": admin_url}
        self._client = Client(service_url)
        self._admin = AdminClient(admin_url)
        self._run = os.urandom(4).hex()

    def topic(self, name: str) -> str:
        """A topic that keeps everything."""
        topic = f"persistent://public/default/spark-write-{self._run}-{name}"
        self._client.subscribe(topic, "keep").close()
        return topic

    def check(self, topic: str, rows: int) -> None:
        """Counts messages, and removes the topic."""
        found = self._admin.topic_stats(topic)["msgInCounter"]
        if found != rows:
            sys.exit(f"void: {found} messages in {topic}, {rows} were written")
        self._admin.delete_topic(topic, force=True)


def in_process(target: Target, rows: int, size: int) -> None:
    """Cutting and publishing without Spark."""
    topic = target.topic("staged")
    options = Options.parse({**target.urls, "topic": topic})
    batch = pa.record_batch([pa.array([os.urandom(size) for _ in range(_ROWS_OF_A_BATCH)])], ["value"])
    schema = StructType([StructField("value", BinaryType())])
    with tempfile.TemporaryDirectory() as folder:
        staging = Staging(Path(folder))
        cutter = RowCutter(schema, options, lambda _: 0)
        writer = staging.writer(0, 0)
        began, used = time.perf_counter(), time.process_time()
        for _ in range(rows // _ROWS_OF_A_BATCH):
            for entry in cutter.entries(batch):
                writer.add(entry)
        staged = writer.finish()
        _say("cut and staged", rows, time.perf_counter() - began, time.process_time() - used)
        began, used = time.perf_counter(), time.process_time()
        commit(options, staging, 0, [staged])
        _say("published from the stage", rows, time.perf_counter() - began, time.process_time() - used)
    target.check(topic, rows)


def in_spark(target: Target, rows: int, size: int) -> None:
    """Writing rows that Spark has in memory, on one core."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", folder)
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        frame = (
            spark.range(0, rows, 1, 1).selectExpr(f"lpad(cast(id as string), {size}, 'x') as value").cache()
        )
        frame.count()
        for name, more in (("warm", {}), ("direct", {}), ("once", {"writeId": "once", "stagingDir": folder})):
            topic = target.topic(name)
            began = time.perf_counter()
            _write(frame, {**target.urls, "topic": topic, **more})
            _say(f"df.write, {name}", rows, time.perf_counter() - began, None)
            target.check(topic, rows)
        spark.stop()


def _write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("pulsar").options(**options).mode("append").save()


def _say(what: str, rows: int, seconds: float, cpu: float | None) -> None:
    used = "" if cpu is None else f", {cpu * 1e6 / rows:.2f} us CPU a row"
    print(f"{what}: {rows / seconds:,.0f} rows/s{used}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service-url", required=True)
    parser.add_argument("--admin-url", required=True)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a row")
    parser.add_argument("--without-spark", action="store_true")
    arguments = parser.parse_args()
    target = Target(arguments.service_url, arguments.admin_url)
    in_process(target, arguments.rows, arguments.size)
    if not arguments.without_spark:
        in_spark(target, arguments.rows, arguments.size)


if __name__ == "__main__":
    main()
