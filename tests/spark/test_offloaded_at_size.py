"""Large messages that moved to tiered storage, read by Spark from there, byte by byte.

``MAGNETAR_OFFLOAD_MB`` (200) says how many messages of about 1 MB.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from offloaded_topics import ledgers, wait_until
from pyspark.sql import SparkSession
from server import Server
from spark_world import Cluster

pytestmark = pytest.mark.skipif(
    "MAGNETAR_SPARK_SERVICE_URL" in os.environ, reason="the folder of the ledgers is Magnetar's"
)
MEGABYTES = int(os.environ.get("MAGNETAR_OFFLOAD_MB", "200"))
PER_LEDGER = max(50, MEGABYTES // 200)
TOPIC = "persistent://public/default/large"
SETTINGS: dict[str, int | str] = {
    "managedLedgerMaxEntriesPerLedger": PER_LEDGER,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerOffloadDriver": "filesystem",
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0,
    "managedLedgerOffloadDeletionLagMs": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "backlogQuotaDefaultLimitBytes": -1,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Cluster, Path]]:
    """A cluster whose ledgers of the topic are all in a folder but the last one, and that folder."""
    folder = tmp_path_factory.mktemp("large")
    server = Server(folder, {**SETTINGS, "fileSystemURI": f"file://{folder}/tiered"})
    server.start()
    try:
        cluster = Cluster(server.url, server.http_url)
        producer = cluster.client.create_producer(
            TOPIC, batching_enabled=False, block_if_queue_full=True, max_pending_messages=20
        )
        for number in range(MEGABYTES):
            producer.send_async(anything(number), lambda *_: None)
        producer.flush()
        wait_until(server, TOPIC, MEGABYTES // PER_LEDGER)
        while sum(each["size"] for each in ledgers(server, TOPIC) if not each["offloaded"]) > 1_100_000 * (
            PER_LEDGER
        ):
            time.sleep(0.1)
        yield server, cluster, folder / "tiered"
        cluster.close()
    finally:
        server.close()


def anything(number: int) -> bytes:
    """Returns a message of about 1 MB, always the same for a number."""
    random = Random(number)
    return random.randbytes(random.randrange(900_000, 1_100_000))


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "through the broker"])
def test_everything_comes_back_byte_by_byte(
    world: tuple[Server, Cluster, Path], spark: SparkSession, direct: bool
) -> None:
    server, cluster, folder = world
    options = cluster.options(topic=TOPIC)
    if direct:
        options |= {"offload.driver": "filesystem", "offload.uri": f"file://{folder}"}
    before = read_by_broker(server)
    frame = spark.read.format("pulsar").options(**options).load()
    found = [row.hash for row in frame.selectExpr("sha2(value, 256) as hash").collect()]
    assert sorted(found) == sorted(
        hashlib.sha256(anything(number)).hexdigest() for number in range(MEGABYTES)
    )
    assert (read_by_broker(server) == before) is direct


def read_by_broker(server: Server) -> int:
    """Returns how many bytes the broker has read from the folder."""
    _, metrics = server.ask("GET", "/metrics/")
    found = re.findall(rb"^brk_ledgeroffloader_read_bytes_total{.*} (\d+)$", metrics, re.MULTILINE)
    return sum(map(int, found))
