"""The first example of docs/spark.md, as somebody runs it who has set up nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark_world import Cluster

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from magnetar.spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
source = spark.read.format("pulsar").option("service.url", sys.argv[1]).option("admin.url", sys.argv[2])
print("rows:", source.option("topic", sys.argv[3]).load().count())
"""


@pytest.mark.skipif("MAGNETAR_SPARK_MASTER" in os.environ, reason="has a session of its own")
def test_workers_run_in_the_interpreter_that_has_the_source(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    producer = cluster.client.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number)
    producer.close()
    # Spark would start python3: here it is one without any packages.
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    (other / "python3").chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.url, cluster.http_url, topic],
        env=kept | {"PATH": f"{other}:{os.defpath}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "rows: 3" in ended.stdout, ended.stderr[-2000:]
