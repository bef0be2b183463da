"""What the tests of Pulsar's cookbook on retention and expiry share."""

from __future__ import annotations

import json
import shlex
from itertools import count
from typing import Any

import pytest
from server import Server

from magnetar.cli.pulsar_admin import main

pulsar = pytest.importorskip("pulsar")

WITHIN = 20.0
"""Seconds; checks run every second."""
names = count()
CHECKS = {
    "magnetarMessageExpiryCheckIntervalSeconds": 1,
    "backlogQuotaCheckIntervalInSeconds": 1,
    "retentionCheckIntervalInSeconds": 1,
    "preciseTimeBasedBacklogQuotaCheck": "true",
    "magnetarMinLedgerRolloverSeconds": 0,
    "managedLedgerMaxEntriesPerLedger": 10,
    "magnetarSegmentSizeBytes": 1 << 20,
}
"""Settings of a server that looks every second, with ledgers of ten entries."""


class Book:
    """A namespace, and ``pulsar-admin``."""

    def __init__(self, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys
        self.namespace = f"my-tenant/my-ns{next(names)}"
        self.topic = f"persistent://{self.namespace}/my-topic"
        self.run(f"namespaces create {self.namespace}")

    def tried(self, line: str) -> tuple[int, str, str]:
        """Exit code, output, errors; ``my-tenant/my-ns`` is the namespace of this test."""
        line = line.replace("my-tenant/my-ns ", f"{self.namespace} ")
        line = line.replace("my-tenant/my-ns/", f"{self.namespace}/")
        self._capsys.readouterr()
        code = main(["--admin-url", self._server.http_url, *shlex.split(line)])
        return code, *self._capsys.readouterr()

    def run(self, line: str) -> str:
        code, out, err = self.tried(line + " ")
        assert code == 0, (line, out, err)
        return out

    def json(self, line: str) -> Any:
        text = self.run(line)
        return json.loads(text) if text.strip() else None

    def stats(self, flags: str = "") -> Any:
        return self.json(f"topics stats {flags} {self.topic}")

    def subscription(self, name: str = "s") -> Any:
        return self.stats()["subscriptions"][name]

    def stored(self) -> int:
        """Entries that are there."""
        found: int = self.json(f"topics stats-internal {self.topic}")["numberOfEntries"]
        return found

    def metric(self, name: str, **labels: str) -> float:
        wanted = {"topic": self.topic, **labels}
        for line in self._server.ask("GET", "/metrics/")[1].decode().splitlines():
            inside = line.partition("{")[2].rpartition("}")[0]
            if line.startswith(name + "{") and all(f'{k}="{v}"' in inside for k, v in wanted.items()):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no {name} with {wanted}")


def publish(client: Any, topic: str, number: int, size: int = 10) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for index in range(number):
        producer.send(f"{index:04}".encode() + bytes(size))
    producer.close()


def read(client: Any, topic: str) -> list[int]:
    """What a reader gets from the earliest message on."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(5000).data()[:4]))
    reader.close()
    return found
