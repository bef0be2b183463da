"""A Spark session that reads queries from standard input, and answers with their durations.

A program for any Python with PySpark 3.1 or later, so that the same code measures both connectors. The first
line of standard input is a JSON object ``{"master", "conf", "magnetar"}``; each further line is a query:

* ``{"do": "read", "options": {...}, "columns": [...]}``: counts the rows and sums the lengths of the columns
  as text, so that every value is looked at
* ``{"do": "hold", "rows": N, "size": B, "parts": P, "topic": T}``: makes rows and keeps them in memory
* ``{"do": "write", "options": {...}}``: writes the rows that are held
* ``{"do": "store", "options": {...}, "folder": F}``: writes a topic to Parquet files
* ``{"do": "pipeline", "name": N, "config": F}``: runs a pipeline of Magnetar in this session
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, length, lit
from pyspark.sql.functions import sum as total

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu(root: int) -> float:
    """Returns the CPU seconds of a process and its descendants, including those that have ended."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    inside = {root}
    while more := {pid for pid, (parent, _) in parents.items() if parent in inside} - inside:
        inside |= more
    return sum(parents[pid][1] for pid in inside if pid in parents) / _TICKS


def start(master: str, conf: dict[str, str], magnetar: bool) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if magnetar:
        from magnetar.spark import register

        register(spark)
    return spark


class Queries:
    """The supported queries."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._held: DataFrame | None = None

    def hold(self, rows: int, size: int, parts: int, topic: str) -> int:
        if self._held is not None:
            self._held.unpersist(blocking=True)
        frame = self._spark.range(0, rows, 1, parts)
        text = f"lpad(cast(id as string), {size}, 'x') as value"
        self._held = frame.selectExpr(text, f"'{topic}' as __topic").cache()
        return self._held.count()

    def read(self, options: dict[str, str], columns: list[str]) -> list[int]:
        frame = self._spark.read.format("pulsar").options(**options).load()
        sums = [total(length(col(name).cast("string"))) for name in columns]
        return list(frame.agg(count(lit(1)), *sums).collect()[0])

    def write(self, options: dict[str, str]) -> int:
        assert self._held is not None
        self._held.write.format("pulsar").options(**options).mode("append").save()
        return 0

    def store(self, options: dict[str, str], folder: str) -> int:
        self._spark.read.format("pulsar").options(**options).load().write.parquet(folder)
        return 0

    def pipeline(self, name: str, config: str) -> int:
        from magnetar.spark.pipelines.run import run_pipeline

        return run_pipeline(name, Path(config), quiet=True)

    def take(self, asked: dict[str, Any]) -> object:
        return getattr(self, asked.pop("do"))(**asked)


def main() -> None:
    queries = Queries(start(**json.loads(sys.stdin.readline())))
    answers = os.fdopen(int(sys.argv[1]), "w")
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), tree_cpu(os.getpid())
        found = queries.take(json.loads(line))
        wall, cpu = time.perf_counter() - wall, tree_cpu(os.getpid()) - cpu
        answers.write(json.dumps({"found": found, "wall": wall, "cpu": cpu}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
