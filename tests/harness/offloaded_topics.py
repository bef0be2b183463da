"""Topics whose ledgers move to tiered storage, through the official client and Pulsar's commands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, Protocol

import pulsar

ADMIN = "magnetar.cli.pulsar_admin"


class Served(Protocol):
    """A broker."""

    @property
    def url(self) -> str: ...

    @property
    def http_url(self) -> str: ...


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def admin(server: Served, *arguments: str) -> str:
    ended = run(ADMIN, "--admin-url", server.http_url, *arguments)
    assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
    return ended.stdout


def connected(server: Served) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def content(number: int, size: int) -> bytes:
    return b"%d " % number + bytes([number % 251]) * size


def publish(server: Served, topic: str, count: int, size: int, first: int = 0) -> None:
    client = connected(server)
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for number in range(first, first + count):
        producer.send_async(content(number, size), None)
    producer.flush()
    client.close()


def check_read(server: Served, topic: str, count: int, size: int) -> None:
    client = connected(server)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for number in range(count):
        assert reader.read_next(20_000).data() == content(number, size), number
    assert not reader.has_message_available()
    client.close()


def ledgers(server: Served, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(admin(server, "topics", "stats-internal", topic))["ledgers"]
    return found


def wait_until(server: Served, topic: str, offloaded: int) -> None:
    """Waits until at least this number of ledgers is offloaded."""
    while sum(each["offloaded"] for each in ledgers(server, topic)) < offloaded:
        time.sleep(0.1)
