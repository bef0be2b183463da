"""Reading with Spark: rows a second and CPU seconds a million rows, from a topic with a backlog.

    python -m bench.spark.read [--rows 2000000] [--rounds 3] [--sizes 100,1000] [--no-session]

A server of its own is filled with batches first. *task* is what runs in a task, alone in a process: from the
socket to Arrow. *session* is a whole query of Spark on one core into nowhere; its CPU is that of the driver,
the JVM and the Python workers. A run whose number of rows is not what was published is void.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
from pyspark.sql import Observation
from pyspark.sql.functions import count, lit

from bench.servers import Magnetar
from magnetar.client.blocking import Client

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "time", "type": "long"},
        {"name": "value", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def content(kind: str, size: int) -> bytes:
    """One message of about this size."""
    if kind == "bytes":
        return b"x" * size
    stream = io.BytesIO()
    record = {"device": "d-0001", "time": 1_700_000_000_000, "value": 0.5, "note": "n" * (size - 26)}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


def fill(server: Magnetar, topic: str, kind: str, size: int, rows: int) -> None:
    """Publishes ``rows`` messages in batches of 1,000; a subscription keeps them."""
    data = content(kind, size)
    failed: list[object] = []

    def sent(result: object, message_id: object) -> None:
        if message_id is None:
            failed.append(result)

    with Client(server.url) as client:
        client.subscribe(topic, "keep").close()
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=1 << 20,
            block_if_queue_full=True,
            max_pending_messages=20_000,
        )
        for _ in range(rows):
            producer.send_async(data, sent)
        producer.flush()
    if failed:
        raise SystemExit(f"publishing failed: {failed[0]}")


def task(options: dict[str, str], rows: int) -> tuple[float, float]:
    """Wall and CPU seconds of reading all parts, one after the other."""
    from magnetar.spark.source import PulsarDataSource

    source = PulsarDataSource(options)
    reader = source.reader(source.schema())
    parts = reader.partitions()
    wall, cpu = time.perf_counter(), time.process_time()
    found = sum(batch.num_rows for part in parts for batch in reader.read(part))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if found != rows:
        raise SystemExit(f"void: {found} rows, {rows} were published")
    return wall, cpu


def tree_cpu(root: int) -> float:
    """CPU seconds of a process and all that came from it, with those that have ended."""
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
    return sum(parents[pid][1] for pid in inside if pid in parents) / os.sysconf("SC_CLK_TCK")


class Session:
    """One session of Spark on one core for all runs."""

    def __init__(self, folder: Path) -> None:
        from pyspark.sql import SparkSession

        from magnetar.spark import register

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        self._spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .getOrCreate()
        )
        register(self._spark)

    def read(self, options: dict[str, str], rows: int) -> tuple[float, float]:
        """Wall and CPU seconds of one query."""
        wall, cpu = time.perf_counter(), tree_cpu(os.getpid())
        rows_read = self._spark.read.format("pulsar").options(**options).load()
        counted = Observation()
        rows_read.observe(counted, count(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
        wall, cpu = time.perf_counter() - wall, tree_cpu(os.getpid()) - cpu
        if counted.get["rows"] != rows:
            raise SystemExit(f"void: {counted.get['rows']} rows, {rows} were published")
        return wall, cpu

    def stop(self) -> None:
        self._spark.stop()


def in_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call answers in a fresh process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


def register_avro(server: Magnetar, topic: str) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.http_port)
    body = json.dumps({"type": "AVRO", "schema": json.dumps(AVRO), "properties": {}})
    path = f"/admin/v2/schemas/{topic.removeprefix('persistent://')}/schema"
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    if connection.getresponse().status >= 300:
        raise SystemExit("the schema was refused")
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 B; fewer where they are larger")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--kinds", default="bytes,avro")
    parser.add_argument("--no-session", action="store_true", help="leave Spark itself out")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = Magnetar("magnetar", "Magnetar", "magnetar", Path(name) / "server")
        server.start()
        session = None if given.no_session else Session(Path(name))
        try:
            for kind in given.kinds.split(","):
                for size in map(int, given.sizes.split(",")):
                    measure(server, session, kind, size, given.rows * 100 // max(100, size), given.rounds)
        finally:
            if session is not None:
                session.stop()
            server.stop()


def measure(server: Magnetar, session: Session | None, kind: str, size: int, rows: int, rounds: int) -> None:
    topic = f"persistent://public/default/{kind}-{size}"
    fill(server, topic, kind, size, rows)
    if kind == "avro":
        register_avro(server, topic)
    options = {"service.url": server.url, "admin.url": server.admin_url, "topic": topic}
    ways: dict[str, Callable[[], tuple[float, float]]] = {"task": lambda: in_process(task, options, rows)}
    if session is not None:
        ways["session"] = lambda: session.read(options, rows)
    for way, run in ways.items():
        server_before = server.cpu_seconds()
        runs = [run() for _ in range(rounds)]
        server_cpu = (server.cpu_seconds() - server_before) / rounds
        wall, cpu = median(each[0] for each in runs), median(each[1] for each in runs)
        print(
            f"{way:8} {kind:6} {size:5} B  {rows / wall:10,.0f} rows/s  {rows / cpu:10,.0f} rows/s of CPU  "
            f"{cpu / rows * 1e6:5.2f} s CPU a million rows  ({server_cpu / rows * 1e6:.2f} s of the server)",
            flush=True,
        )


if __name__ == "__main__":
    main()
