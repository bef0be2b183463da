"""Measures how fast ledgers move to tiered storage and are read back, and the processor time of the broker.

``python -m bench.tiered_storage`` starts moto's S3 server in a process of its own on this machine, and prints
figures as JSON; with ``--driver filesystem`` it measures files, and with ``--server pulsar`` Apache Pulsar.
A run is void unless the official client reads back each message, in order, from tiered storage, after the
broker was restarted. ``docs/measurements/tiered-storage.md`` has results.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pulsar

from bench.conditions import conditions
from bench.generators import Void
from bench.peer_jars import FILES, OBJECTS, add_jars, chosen_jars, fetch_offloaders
from bench.process import end, free_port
from bench.servers import ApachePulsar, Magnetar, Server
from magnetar.admin_client import AdminClient

TOPIC = "persistent://public/default/archived"
_PATH = "/admin/v2/persistent/public/default/archived"
_PROFILE = """<configuration>
  <property><name>io.file.buffer.size</name><value>4096</value></property>
  <property><name>io.seqfile.local.dir</name><value>{folder}/hadoop</value></property>
</configuration>
"""
_BUCKET = "tier"
_ACCESS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    # Of Apache Pulsar's driver S3.
    "ACCESS_KEY_ID": "key",
    "ACCESS_KEY_SECRET": "secret",
}
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


def ask_to_offload(server: Server, below: int) -> None:
    """Asks for all ledgers with lower ids to be offloaded."""
    body = json.dumps({"ledgerId": below, "entryId": 0, "partitionIndex": -1}).encode()
    headers = {"Content-Type": "application/json"}
    urlopen(Request(f"{server.admin_url}{_PATH}/offload", body, headers, method="PUT"), timeout=60).close()


def offload_status(server: Server) -> dict[str, Any]:
    with urlopen(f"{server.admin_url}{_PATH}/offload", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def bytes_read(server: Server) -> int:
    """Returns the bytes of entries that the broker has read from tiered storage."""
    with urlopen(f"{server.admin_url}/metrics/", timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(r"^brk_ledgeroffloader_read_bytes(?:_total)?{.*} (\S+)", text, re.MULTILINE)
    return int(sum(map(float, found)))


def client_of(server: Server) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def fill(server: Server, count: int, size: int) -> None:
    client = client_of(server)
    producer = client.create_producer(
        TOPIC, batching_enabled=False, max_pending_messages=10_000, block_if_queue_full=True
    )
    for number in range(count):
        producer.send_async(content(number, size), None)
    producer.flush()
    client.close()


def read(server: Server, count: int, size: int) -> None:
    """:raises Void: a message is missing or different"""
    client = client_of(server)
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    for number in range(count):
        if reader.read_next(60_000).data() != content(number, size):
            raise Void(f"message {number} is not what was published")
    client.close()


def figures(server: Server, megabytes: float, began: float, cpu: float) -> dict[str, float]:
    """Returns the speed of a step, and what it cost the broker."""
    seconds, used = time.monotonic() - began, server.cpu_seconds() - cpu
    return {
        "MB/s": round(megabytes / seconds, 1),
        "seconds": round(seconds, 1),
        "cpu, s/GB": round(used * 1000 / megabytes, 2),
    }


def move(server: Server) -> dict[str, Any]:
    """Offloads all closed ledgers.

    :return: how fast they were offloaded
    :raises Void: that fails, or takes too long
    """
    admin = AdminClient(server.admin_url)
    *closed, last = admin.topic_internal_stats(TOPIC)["ledgers"]
    megabytes = sum(each["size"] for each in closed) / 1e6
    began, cpu = time.monotonic(), server.cpu_seconds()
    ask_to_offload(server, last["ledgerId"])
    wait(lambda: offload_status(server)["status"] != "RUNNING", "ledgers are not offloaded")
    out = figures(server, megabytes, began, cpu)
    status = offload_status(server)
    if status["status"] != "SUCCESS":
        raise Void(f"ledgers cannot be offloaded: {status['lastError']}")
    return {"offloaded, MB": round(megabytes), "ledgers": len(closed), "offloading": out}


def settings_of(url: str, entries_per_ledger: int = 50_000) -> dict[str, str]:
    """Returns the settings of a broker that offloads to an object store."""
    return settings_for(entries_per_ledger) | {
        "managedLedgerOffloadDriver": "aws-s3",
        "s3ManagedLedgerOffloadBucket": _BUCKET,
        "s3ManagedLedgerOffloadRegion": "us-east-1",
        "s3ManagedLedgerOffloadServiceEndpoint": url,
    }


def settings_of_apache(url: str) -> dict[str, str]:
    """Returns the settings with which Apache Pulsar offloads to an object store.

    Its driver ``aws-s3`` asks Amazon for the location of the bucket, whatever the endpoint is. Its driver
    ``S3`` writes the same objects.
    """
    return settings_for(50_000) | {
        "managedLedgerOffloadDriver": "S3",
        "managedLedgerOffloadBucket": _BUCKET,
        "managedLedgerOffloadRegion": "us-east-1",
        "managedLedgerOffloadServiceEndpoint": url,
    }


def settings_of_files(folder: Path) -> dict[str, str]:
    """Returns the settings of a broker that offloads to a file system."""
    profile = folder / "file_system.xml"
    profile.write_text(_PROFILE.format(folder=folder))
    (folder / "tiered").mkdir()
    return settings_for(50_000) | {
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemProfilePath": str(profile),
        "fileSystemURI": f"file://{folder}/tiered",
    }


def settings_for(entries_per_ledger: int) -> dict[str, str]:
    """Returns settings for ledgers that are read from tiered storage while both stores have them."""
    return {
        "managedLedgerDataReadPriority": "tiered-storage-first",
        "managedLedgerMaxEntriesPerLedger": str(entries_per_ledger),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }


def measure(server: Server, count: int, size: int) -> dict[str, Any]:
    """:raises Void: what is read is not what was published"""
    fill(server, count, size)
    found = move(server)
    # No entry is left in memory either.
    server.stop()
    server.start()
    began, cpu = time.monotonic(), server.cpu_seconds()
    read(server, count, size)
    # A few messages are in the last ledger, which is not offloaded.
    back = figures(server, count * size / 1e6, began, cpu)
    if bytes_read(server) < found["offloaded, MB"] * 0.9e6:
        raise Void("the messages did not come from tiered storage")
    return found | {"reading": back}


@contextmanager
def chosen(options: argparse.Namespace) -> Iterator[Server]:
    """Returns the server to be measured, which is not started yet."""
    with tempfile.TemporaryDirectory(prefix="tiered-") as name, ExitStack() as ending:
        folder = Path(name)
        if options.driver == "aws-s3":
            url = ending.enter_context(object_store())
            settings = settings_of(url) if options.server == "magnetar" else settings_of_apache(url)
        else:
            settings = settings_of_files(folder)
        if options.server == "magnetar":
            yield Magnetar("magnetar", "Magnetar", "magnetar", folder / "data", settings=settings)
            return
        archive = {
            "offloadersDirectory": str(
                options.offloaders or fetch_offloaders(OBJECTS if options.driver == "aws-s3" else FILES)
            ),
            "narExtractionDirectory": str(folder / "extracted"),
            "managedLedgerMaxLedgerRolloverTimeMinutes": "1000",
        }
        yield ApachePulsar(
            "pulsar",
            "Apache Pulsar",
            "pulsar",
            folder / "data",
            settings=settings | archive,
            jars=chosen_jars(options),
        )


def add_server(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that :func:`chosen` needs, besides that of the jars."""
    parser.add_argument("--driver", choices=("aws-s3", "filesystem"), default="aws-s3")
    parser.add_argument("--server", choices=("magnetar", "pulsar"), default="magnetar")
    parser.add_argument(
        "--offloaders",
        type=lambda path: Path(path).absolute(),
        help="the folder with Apache's archive of the driver; fetched if missing",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=1_000, help="bytes of a message, 8 or more")
    add_server(parser)
    add_jars(parser)
    options = parser.parse_args()
    try:
        with chosen(options) as server:
            server.start()
            try:
                found = conditions() | {"server": server.title, "driver": options.driver}
                found |= measure(server, options.messages, options.size)
            finally:
                server.stop()
    except Void as void:
        sys.stderr.write(f"void: {void}\n")
        return 1
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
