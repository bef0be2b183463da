"""Measures how fast ledgers move to an object store and are read back, and the processor time of the broker.

``python -m bench.tiered_storage`` starts moto's S3 server in a process of its own on this machine, and prints
figures as JSON. A run is void unless the official client reads back each message, in order, after the local
copies are deleted. ``docs/measurements/tiered-storage.md`` has results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pulsar

from bench.conditions import conditions
from bench.generators import Void
from bench.process import end, free_port
from bench.servers import Magnetar
from magnetar.admin_client import AdminClient

_TOPIC = "persistent://public/default/archived"
_BUCKET = "tier"
_ACCESS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
_LOOK_SECONDS = 0.1
_PATIENCE = 600.0
"""How long a step may take, in seconds."""


@contextmanager
def object_store() -> Iterator[str]:
    """Runs an S3 server with a bucket; its URL."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import get_session

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    os.environ.update(_ACCESS)
    try:
        s3 = get_session().create_client("s3", endpoint_url=url, region_name="us-east-1")

        def made() -> bool:
            try:
                s3.create_bucket(Bucket=_BUCKET)
            except BotoCoreError:
                return False
            return True

        wait(made, "the object store does not answer")
        yield url
    finally:
        end(process)


def wait(true: Callable[[], bool], what: str) -> None:
    """:raises Void: it takes too long"""
    deadline = time.monotonic() + _PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise Void(what)
        time.sleep(_LOOK_SECONDS)


def content(number: int, size: int) -> bytes:
    return number.to_bytes(8, "big") + bytes([number % 251]) * (size - 8)


def set_threshold(server: Magnetar, megabytes: int) -> None:
    """Sets the size above which ledgers of the namespace are offloaded."""
    path = "/admin/v2/namespaces/public/default/offloadThreshold"
    headers = {"Content-Type": "application/json"}
    body = json.dumps(megabytes << 20).encode()
    urlopen(Request(server.admin_url + path, body, headers, method="PUT"), timeout=60).close()


def client_of(server: Magnetar) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def fill(server: Magnetar, count: int, size: int) -> None:
    client = client_of(server)
    producer = client.create_producer(
        _TOPIC, batching_enabled=False, max_pending_messages=10_000, block_if_queue_full=True
    )
    for number in range(count):
        producer.send_async(content(number, size), None)
    producer.flush()
    client.close()


def read(server: Magnetar, count: int, size: int) -> None:
    """:raises Void: a message is missing or different"""
    client = client_of(server)
    reader = client.create_reader(_TOPIC, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    for number in range(count):
        if reader.read_next(60_000).data() != content(number, size):
            raise Void(f"message {number} is not what was published")
    client.close()


def figures(server: Magnetar, megabytes: float, began: float, cpu: float) -> dict[str, float]:
    """Returns the speed of a step, and what it cost the broker."""
    seconds, used = time.monotonic() - began, server.cpu_seconds() - cpu
    return {
        "MB/s": round(megabytes / seconds, 1),
        "seconds": round(seconds, 1),
        "cpu, s/GB": round(used * 1000 / megabytes, 2),
    }


def measure(server: Magnetar, count: int, size: int) -> dict[str, Any]:
    """:raises Void: what is read is not what was published"""
    admin = AdminClient(server.admin_url)
    fill(server, count, size)

    def ledgers() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = admin.topic_internal_stats(_TOPIC)["ledgers"]
        return found

    closed = ledgers()[:-1]
    megabytes = sum(each["size"] for each in closed) / 1e6
    began, cpu = time.monotonic(), server.cpu_seconds()
    # From here on, everything is due.
    set_threshold(server, 0)
    wait(lambda: sum(each["offloaded"] for each in ledgers()) >= len(closed), "ledgers are not offloaded")
    out = figures(server, megabytes, began, cpu)

    def only_there() -> bool:
        (row,) = (row for row in admin.storage("public/default")["topics"] if row["topic"] == _TOPIC)
        return float(row["offloadedBytes"]) >= megabytes * 1e6

    wait(only_there, "local copies are not deleted")
    # No entry is left in memory either.
    server.stop()
    server.start()
    began, cpu = time.monotonic(), server.cpu_seconds()
    read(server, count, size)
    back = figures(server, megabytes, began, cpu)
    return {"offloaded, MB": round(megabytes), "ledgers": len(closed), "offloading": out, "reading": back}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=1_000, help="bytes of a message, 8 or more")
    options = parser.parse_args()
    try:
        with object_store() as url, tempfile.TemporaryDirectory(prefix="tiered-") as folder:
            settings = {
                "managedLedgerOffloadDriver": "aws-s3",
                "s3ManagedLedgerOffloadBucket": _BUCKET,
                "s3ManagedLedgerOffloadRegion": "us-east-1",
                "s3ManagedLedgerOffloadServiceEndpoint": url,
                "managedLedgerOffloadDeletionLagMs": "0",
                "managedLedgerMaxEntriesPerLedger": "50000",
                "managedLedgerMinLedgerRolloverTimeMinutes": "0",
                "defaultRetentionTimeInMinutes": "-1",
                "defaultRetentionSizeInMB": "-1",
            }
            server = Magnetar("magnetar", "Magnetar", "magnetar", Path(folder), settings=settings)
            server.start()
            try:
                found = conditions() | measure(server, options.messages, options.size)
            finally:
                server.stop()
    except Void as void:
        sys.stderr.write(f"void: {void}\n")
        return 1
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
