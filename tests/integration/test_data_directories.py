"""Data directories of every release open with this one, with all they hold, also without their metadata."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

KEPT = sorted((Path(__file__).parent / "data_directories").glob("*.tar.gz"))
LEFT = [number for number in range(30) if number >= 10 and (number >= 20 or number % 2)]
TOPICS = ("persistent://public/default/kept", "persistent://sample/standalone/ns1/kept")
WITHOUT_SCHEMAS = "0.1.0.tar.gz"
HOLDER = "magnetar-recovered"
BEHIND = "magnetar_storage_metadata_journal_behind"

each_release = pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)


def test_there_is_one() -> None:
    assert KEPT


def unpacked(archive: Path, folder: Path) -> Server:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return Server(folder, {"brokerDeleteInactiveTopicsEnabled": "false"})


def connected(server: Server) -> Any:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def received(client: Any, topic: str, subscription: str, count: int) -> list[int]:
    """The numbers of so many messages, which are acknowledged."""
    consumer = client.subscribe(topic, subscription)
    found = []
    for _ in range(count):
        message = consumer.receive(10_000)
        found.append(int(message.properties()["number"]))
        assert message.data() == f"message {found[-1]}".encode()
        consumer.acknowledge(message)
    consumer.close()
    return found


def check_everything(server: Server) -> None:
    client = connected(server)
    try:
        for topic in TOPICS:
            for subscription, expected in (("half", LEFT), ("none", list(range(30)))):
                assert received(client, topic, subscription, len(expected)) == expected
            status, body = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
            assert status == 200
            assert all(s["msgBacklog"] == 0 for s in json.loads(body)["subscriptions"].values())
    finally:
        client.shutdown()


def check_schema(server: Server) -> None:
    status, body = server.ask("GET", "/admin/v2/schemas/public/default/kept-orders/schema")
    assert status == 200
    found = json.loads(body)
    assert (found["version"], found["type"]) == (0, "JSON")
    assert "number" in found["data"]


def recovered(server: Server) -> str:
    """What ``magnetar recover-metadata`` prints."""
    command = [sys.executable, "-m", "magnetar", "recover-metadata", "--data-dir", "data"]
    done = subprocess.run(
        command, cwd=server.folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def lose_metadata(server: Server) -> None:
    shutil.rmtree(server.folder / "data" / "metadata")


@each_release
def test_opens_with_everything_in_it(archive: Path, tmp_path: Path) -> None:
    server = unpacked(archive, tmp_path)
    server.start()
    try:
        check_everything(server)
    finally:
        server.close()


@each_release
def test_its_metadata_get_a_journal_that_restores_them(archive: Path, tmp_path: Path) -> None:
    server = unpacked(archive, tmp_path)
    server.start()
    try:
        wait_for_journal(server)
        server.kill()
        lose_metadata(server)
        assert "read the metadata journal" in recovered(server)
        server.start()
        check_everything(server)
        if archive.name != WITHOUT_SCHEMAS:
            check_schema(server)
    finally:
        server.close()


def wait_for_journal(server: Server) -> None:
    for _ in range(200):
        metrics = server.ask("GET", "/metrics")[1].decode()
        (line,) = (line for line in metrics.splitlines() if line.startswith(BEHIND))
        if line.endswith(" 0"):
            return
        time.sleep(0.1)
    pytest.fail("the ledgers never had a complete copy of the metadata")


@each_release
def test_its_metadata_are_rebuilt_from_ledgers_alone(archive: Path, tmp_path: Path) -> None:
    server = unpacked(archive, tmp_path)
    lose_metadata(server)
    assert "no metadata journal found" in recovered(server)
    server.start()
    try:
        client = connected(server)
        try:
            assert TOPICS[0] in json.loads(server.ask("GET", "/admin/v2/persistent/public/default")[1])
            assert TOPICS[1] in json.loads(server.ask("GET", "/admin/persistent/sample/standalone/ns1")[1])
            for topic in TOPICS:
                assert received(client, topic, HOLDER, 30) == list(range(30))
        finally:
            client.shutdown()
        if archive.name != WITHOUT_SCHEMAS:
            check_schema(server)
    finally:
        server.close()
