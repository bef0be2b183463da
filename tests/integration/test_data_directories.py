"""Data directories of every release open with this one, with all they hold."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

KEPT = sorted((Path(__file__).parent / "data_directories").glob("*.tar.gz"))
LEFT = [number for number in range(30) if number >= 10 and (number >= 20 or number % 2)]


def test_there_is_one() -> None:
    assert KEPT


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_opens_with_everything_in_it(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    server = Server(tmp_path, {})
    server.start()
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for topic in ("persistent://public/default/kept", "persistent://sample/standalone/ns1/kept"):
            for subscription, expected in (("half", LEFT), ("none", list(range(30)))):
                consumer = client.subscribe(topic, subscription)
                found = []
                for _ in expected:
                    message = consumer.receive(10_000)
                    found.append(int(message.properties()["number"]))
                    assert message.data() == f"message {found[-1]}".encode()
                    consumer.acknowledge(message)
                assert found == expected
                consumer.close()
            status, body = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
            assert status == 200
            assert all(s["msgBacklog"] == 0 for s in json.loads(body)["subscriptions"].values())
    finally:
        client.shutdown()
        server.close()
