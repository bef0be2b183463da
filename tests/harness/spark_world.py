"""Spark sessions for tests, and a cluster with messages in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.client.blocking import Client
from magnetar.client.enums import BatchingType
from magnetar.client.message_id import MessageId
from magnetar.spark import register

_END_SECONDS = 600.0
_SOCKET_SECONDS = 300
"""Time for a process to connect to another one; Spark's 15 s are too short beside other suites, which have a
higher priority (``tools/suites``)."""


def session(master: str, folder: Path) -> SparkSession:
    """A session with everything it writes in ``folder``."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = str(_SOCKET_SECONDS)
    # Executor processes that Spark starts itself need the package that is tested.
    source = str(Path(__file__).parents[2] / "src")
    folder.mkdir(parents=True, exist_ok=True)
    made = (
        SparkSession.builder.master(master)
        .appName("tests")
        .config("spark.driver.memory", "512m")
        # A JVM that is killed leaves its temporary files behind.
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.authenticate.socketTimeout", f"{_SOCKET_SECONDS}s")
        .config("spark.executorEnv.PYTHONPATH", source)
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    register(made)
    return made


def end(made: SparkSession) -> None:
    """Stops a session and its JVM, and waits until that has ended: nothing of it runs beside what follows."""
    made.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    # This is how it is told.
    process.stdin.close()
    process.wait(_END_SECONDS)


class Cluster:
    """A broker to read from and to write to, and clients of it."""

    def __init__(self, url: str, http_url: str) -> None:
        self.url = url
        self.http_url = http_url
        self.client = Client(url)
        self.admin = AdminClient(http_url)

    def options(self, **more: str) -> dict[str, str]:
        return {"service.url": self.url, "admin.url": self.http_url, **more}

    def close(self) -> None:
        self.client.close()


@contextmanager
def served(folder: Path, settings: dict[str, int | str]) -> Iterator[Cluster]:
    """A cluster of its own; or, where MAGNETAR_SPARK_SERVICE_URL and _ADMIN_URL say so, what runs there."""
    server = None if "MAGNETAR_SPARK_SERVICE_URL" in os.environ else Server(folder, settings)
    if server is not None:
        server.start()
    try:
        if server is not None:
            found = Cluster(server.url, server.http_url)
        else:
            found = Cluster(os.environ["MAGNETAR_SPARK_SERVICE_URL"], os.environ["MAGNETAR_SPARK_ADMIN_URL"])
        yield found
        found.close()
    finally:
        if server is not None:
            server.close()


def publish(cluster: Cluster, topic: str, count: int, first: int = 0, **options: Any) -> list[MessageId]:
    """Messages ``m0``, ``m1`` …, kept by a subscription; their ids in the order of the numbers."""
    cluster.client.subscribe(topic, "keep").close()
    options.setdefault("batching_max_messages", 10)
    # As official clients batch: all keys in one batch, in the order of the numbers.
    options.setdefault("batching_type", BatchingType.Default)
    producer = cluster.client.create_producer(topic, **options)
    ids: dict[int, MessageId] = {}
    for number in range(first, first + count):

        def sent(_result: object, message_id: MessageId | None, number: int = number) -> None:
            assert message_id is not None
            ids[number] = message_id

        producer.send_async(
            b"m%d" % number,
            sent,
            partition_key=f"k{number % 7}",
            properties={"number": str(number)} if number % 2 else {},
            event_timestamp=number * 1000,
        )
    producer.flush()
    producer.close()
    return [ids[number] for number in range(first, first + count)]
