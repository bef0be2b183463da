"""Measures the code of Spark's tasks and driver, without Spark: ``python -m bench.spark.tasks``.

    python -m bench.spark.tasks [--rows 2000000] [--rounds 3] [--sizes 100,1000] [--kinds bytes,avro]

*read* goes from the socket to Arrow, *stage* from Arrow to a staged file, *publish* from there to receipts.
Prints one JSON object per line, with rows per second of elapsed time and of CPU time. A run whose number of
rows is not what was published is void.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from bench.servers import Magnetar
from bench.spark.filling import PARTITIONS, make_topic, messages_in
from bench.spark.workloads import Void, read_topic
from magnetar.spark.options import QueryOptions
from magnetar.spark.source import PulsarDataSource
from magnetar.spark.writing.committing import commit
from magnetar.spark.writing.cutting import RowCutter
from magnetar.spark.writing.staging import Staging

_ROWS_OF_A_BATCH = 10_000
Took = tuple[float, float]
"""Seconds: wall-clock, and CPU."""


@contextmanager
def taking() -> Iterator[Callable[[], Took]]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield lambda: (time.perf_counter() - wall, time.process_time() - cpu)


def read(options: dict[str, str], rows: int) -> dict[str, Took]:
    """Reads all parts, one after the other."""
    source = PulsarDataSource(options)
    reader = source.reader(source.schema())
    parts = reader.partitions()
    found = 0
    with taking() as took:
        for part in parts:
            for batch in reader.read(part):
                assert isinstance(batch, pa.RecordBatch)
                found += batch.num_rows
        reading = took()
    if found != rows:
        raise Void(f"{found} of {rows} rows")
    return {"read": reading}


def write(options: dict[str, str], rows: int, size: int) -> dict[str, Took]:
    """Splits and stages rows of Arrow, then publishes them like a driver."""
    parsed = QueryOptions.parse(options)
    batch = pa.record_batch([pa.array([os.urandom(size) for _ in range(_ROWS_OF_A_BATCH)])], ["value"])
    with tempfile.TemporaryDirectory() as folder:
        staging = Staging(Path(folder))
        cutter = RowCutter(StructType([StructField("value", BinaryType())]), parsed, lambda _: PARTITIONS)
        writer = staging.writer(0, 0)
        with taking() as took:
            for _ in range(rows // _ROWS_OF_A_BATCH):
                for entry in cutter.entries(batch):
                    writer.add(entry)
            staged = writer.finish()
            cutting = took()
        with taking() as took:
            commit(parsed, staging, 0, [staged])
            publishing = took()
    return {"stage": cutting, "publish": publishing}


def in_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of a call in a new process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


def say(kind: str, size: int, rows: int, runs: list[dict[str, Took]]) -> None:
    for what in runs[0]:
        wall, cpu = (median(run[what][each] for run in runs) for each in (0, 1))
        figures = {"rows_per_second": round(rows / wall), "rows_per_cpu_second": round(rows / cpu)}
        sys.stdout.write(
            json.dumps({"what": what, "kind": kind, "size": size, "rows": rows, **figures}) + "\n"
        )
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 B; fewer where they are larger")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--kinds", default="bytes,avro")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = Magnetar("magnetar", "Magnetar", "magnetar", Path(name) / "server")
        server.start()
        urls = {"service.url": server.url, "admin.url": server.admin_url}
        try:
            for size in map(int, given.sizes.split(",")):
                rows = given.rows * 100 // max(100, size) // 20_000 * 20_000
                for kind in given.kinds.split(","):
                    options = {**urls, "topic": read_topic(server, kind, size, rows)}
                    runs = [in_process(read, options, rows) for _ in range(given.rounds)]
                    say(kind, size, rows, runs)
                runs = []
                for number in range(given.rounds):
                    topic = f"persistent://public/default/write-{size}-{number}"
                    make_topic(server.admin_url, topic)
                    runs.append(in_process(write, {**urls, "topic": topic}, rows, size))
                    if (found := messages_in(server.url, server.admin_url, topic)) != rows:
                        raise Void(f"{found} messages of {rows} rows")
                say("bytes", size, rows, runs)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
