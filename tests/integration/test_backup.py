"""``magnetar backup`` of a broker under load, restored beside it, with the official client."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest
from process_signals import stop
from pulsar.schema import JsonSchema, Record, String
from server import MINIATURE, Server

StartServer = Callable[..., Server]
TOPICS = [f"persistent://public/default/load-{number}" for number in range(4)]
NAMESPACE = "/admin/v2/namespaces/public/default"
SETTINGS: dict[str, int | str] = {
    **MINIATURE,
    "brokerDeduplicationEnabled": "true",
    "brokerDeduplicationEntriesInterval": 50,
    "brokerDeleteInactiveTopicsEnabled": "false",
    "topicLevelPoliciesEnabled": "true",
}


class Order(Record):  # type: ignore[misc]
    text = String()


def connected(server: Server) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def done(*arguments: str | Path) -> str:
    ended = run(*arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def backup(server: Server, target: Path, *options: str) -> str:
    return done("backup", target, "--admin-url", server.http_url, "--quiet", *options)


class Producing:
    """Publishes to one topic until it is stopped, and knows which positions were acknowledged when."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[tuple[bytes, str]] = []
        self._stop = threading.Event()
        self._producer = client.create_producer(
            topic, producer_name=f"{topic[-6:]}-producer", batching_enabled=False, send_timeout_millis=0
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            text = b"%d " % number + b"x" * (number % 900)
            position = self._producer.send(text)
            self.acknowledged.append((text, str(position)))
            number += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)


def read_all(client: pulsar.Client, topic: str) -> list[tuple[bytes, str]]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found.append((message.data(), str(message.message_id())))
    reader.close()
    return found


def cursors(server: Server, topic: str) -> dict[str, Any]:
    """Mark-delete positions, individually acknowledged messages and properties."""
    path = f"/admin/v2/{topic.replace('://', '/')}/internalStats"
    found = json.loads(server.ask("GET", path)[1])["cursors"]
    wanted = ("markDeletePosition", "individuallyDeletedMessages", "properties", "cursorProperties")
    return {name: {key: each.get(key) for key in wanted} for name, each in found.items()}


@pytest.mark.timeout(120)
def test_everything_acknowledged_before_the_call_is_restored(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(**SETTINGS)
    client = connected(server)
    still = "persistent://public/default/still"
    assert server.ask(
        "POST", f"{NAMESPACE}/retention", '{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'
    )[0] in (200, 204)
    assert server.ask("POST", f"{NAMESPACE}/messageTTL", "86400")[0] == 204
    schema = JsonSchema(Order)
    typed = client.create_producer(still, producer_name="typed", schema=schema, batching_enabled=False)
    topic_ttl = "/admin/v2/persistent/public/default/still/messageTTL?messageTTL=4242"
    assert server.ask("POST", topic_ttl)[0] == 204
    shared = client.subscribe(still, "shared", pulsar.ConsumerType.Shared, schema=schema)
    exclusive = client.subscribe(still, "exclusive", schema=schema)
    for number in range(60):
        typed.send(Order(text=str(number)), sequence_id=1000 + number)
    for number in range(60):
        message = shared.receive(10_000)
        if number % 3 == 0:
            shared.acknowledge(message)
    for _ in range(40):
        last = exclusive.receive(10_000)
    exclusive.acknowledge_cumulative(last)
    time.sleep(0.3)
    shared.close()
    exclusive.close()
    expected = cursors(server, still)
    producing = [Producing(client, topic) for topic in TOPICS]
    holders = [client.subscribe(topic, "holds") for topic in TOPICS]
    try:
        while min(len(each.acknowledged) for each in producing) < 50:
            time.sleep(0.05)
        target = tmp_path / "backups"
        before = [len(each.acknowledged) for each in producing]
        first = backup(server, target)
        between = [len(each.acknowledged) for each in producing]
        time.sleep(0.5)
        second = backup(server, target)
        after = [len(each.acknowledged) for each in producing]
    finally:
        for each in producing:
            each.stop()
    assert holders
    client.close()
    assert "backup 1 of ledger store" in first
    assert "backup 2 of ledger store" in second
    assert "backup 2 as of" in done("verify-backup", target, "--quiet")

    for number, (least, most) in {1: (before, between), 2: (between, after)}.items():
        folder = tmp_path / f"restored-{number}"
        folder.mkdir()
        done("restore", target, "--data-dir", folder / "data", "--backup", str(number), "--quiet")
        restored = Server(folder, SETTINGS)
        restored.start()
        try:
            client = connected(restored)
            for each, low, high in zip(producing, least, most, strict=True):
                found = read_all(client, each.topic)
                assert low <= len(found) <= high + 1, (each.topic, low, len(found), high)
                known = each.acknowledged[: len(found)]
                assert found[: len(known)] == known
            assert cursors(restored, still) == expected
            check_contents(restored, client, still)
            client.close()
        finally:
            restored.close()
    # The broker that was backed up goes on as before.
    client = connected(server)
    for each in producing:
        assert [text for text, _ in read_all(client, each.topic)] == [text for text, _ in each.acknowledged]
    client.close()


def check_contents(server: Server, client: pulsar.Client, topic: str) -> None:
    """Schemas, policies and the state of deduplication."""
    assert server.ask("GET", f"{NAMESPACE}/messageTTL") == (200, b"86400")
    assert server.ask("GET", "/admin/v2/persistent/public/default/still/messageTTL") == (200, b"4242")
    found = json.loads(server.ask("GET", "/admin/v2/schemas/public/default/still/schema")[1])
    assert found["type"] == "JSON"
    consumer = client.subscribe(topic, "shared", pulsar.ConsumerType.Shared, schema=JsonSchema(Order))
    left = sorted(int(consumer.receive(10_000).value().text) for _ in range(40))
    assert left == [number for number in range(60) if number % 3]
    producer = client.create_producer(
        topic, producer_name="typed", schema=JsonSchema(Order), batching_enabled=False
    )
    assert producer.last_sequence_id() == 1059
    producer.send(Order(text="sent again"), sequence_id=1059)
    producer.send(Order(text="new"), sequence_id=1060)
    assert consumer.receive(10_000).value().text == "new"
    producer.close()
    consumer.close()


def test_a_later_backup_copies_only_new_segments(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(magnetarSegmentSizeBytes=131072)
    client = connected(server)
    topic, target = "persistent://public/default/grows", tmp_path / "backups"
    client.subscribe(topic, "holds").close()
    producer = client.create_producer(topic, batching_enabled=False)

    def publish() -> None:
        for _ in range(700):
            producer.send_async(bytes(3000), None)
        producer.flush()
        settle(server)

    publish()
    backup(server, target)
    first = files_of(target, 1)
    sealed = {path: file for path, file in first.items() if file["sealed"]}
    assert len(sealed) >= 10
    inodes = {path.name: path.stat().st_ino for path in (target / "files").iterdir()}
    publish()
    planned = backup(server, target, "--dry-run")
    assert not (target / "backup-2.json").exists()
    told = backup(server, target)
    assert "backup 2 of ledger store" in planned
    assert "backup 2 of ledger store" in told
    second = files_of(target, 2)
    same = sealed.keys() & second.keys()
    assert len(same) > len(sealed) // 2, "hardly any segment was kept"
    for path in same:
        assert second[path] == sealed[path]
        name = f"{path.rpartition('/')[2]}.{sealed[path]['sha256'][:16]}"
        assert (target / "files" / name).stat().st_ino == inodes[name], f"{path} was copied again"
    # Of many backups the newest stay, with what they need.
    for _ in range(3):
        backup(server, target, "--keep", "2")
    listed = sorted(path.name for path in target.glob("backup-*.json"))
    assert listed == ["backup-4.json", "backup-5.json"]
    assert done("verify-backup", target, "--quiet").count("is whole") == 2
    used = {
        f"{path.rpartition('/')[2]}.{file['sha256'][:16]}"
        for number in (4, 5)
        for path, file in files_of(target, number).items()
    }
    assert {path.name for path in (target / "files").iterdir()} == used
    client.close()


def settle(server: Server) -> None:
    """Waits until the store has rewritten what it will."""
    last: Any = None
    while True:
        found = json.loads(server.ask("GET", "/admin/v2/magnetar/storage")[1])["store"]["compactions"]
        if found == last and not found["running"]:
            return
        last = found
        time.sleep(0.3)


def files_of(target: Path, number: int) -> dict[str, Any]:
    manifest = json.loads((target / f"backup-{number}.json").read_text())
    return {file["path"]: file for file in manifest["files"]}


def test_a_broker_that_has_stopped(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    client = connected(server)
    topic, target = "persistent://public/default/stopped", tmp_path / "backups"
    client.subscribe(topic, "holds").close()
    client.create_producer(topic).send(b"kept")
    client.close()
    data = server.folder / "data"
    # A running one is asked.
    told = done("backup", target, "--data-dir", data, "--admin-url", server.http_url, "--quiet")
    assert "backup 1 of" in told
    server.kill()
    refused = run("backup", target, "--admin-url", server.http_url)
    assert refused.returncode == 1
    assert "magnetar: no backup was taken: " in refused.stderr
    assert "backup 2 of" in done("backup", target, "--data-dir", data, "--quiet")
    assert done("verify-backup", target, "--quiet").count("is whole") == 2
    restored = tmp_path / "restored"
    restored.mkdir()
    done("restore", target, "--data-dir", restored / "data", "--quiet")
    other = Server(restored, {})
    other.start()
    try:
        client = connected(other)
        assert client.subscribe(topic, "holds").receive(10_000).data() == b"kept"
        client.close()
    finally:
        other.close()
    server.start()
    # Another broker's data, or another broker, is refused by name.
    refused = run("backup", target, "--data-dir", restored / "elsewhere")
    assert "is not the data directory of a broker: it has no folder named ledgers" in refused.stderr
    fresh = start_server()
    refused = run("backup", target, "--admin-url", fresh.http_url)
    assert "use another folder for this broker" in refused.stderr
    refused = run("backup", target, "--data-dir", data, "--admin-url", fresh.http_url)
    assert "but the running broker uses" in refused.stderr


def begun(server: Server, target: Path) -> subprocess.Popen[str]:
    """A backup that has begun to copy, and is stopped until SIGCONT."""
    options = ["--admin-url", server.http_url, "--bytes-per-second", "200k", "--quiet"]
    command = [sys.executable, "-m", "magnetar", "backup", str(target), *options]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(target.glob("files/*.part")):
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    stop(running.pid)
    return running


def snapshots(server: Server) -> int:
    """The number of snapshots that the broker holds."""
    lines = server.ask("GET", "/metrics")[1].decode().splitlines()
    (line,) = (line for line in lines if line.startswith("magnetar_storage_snapshots{"))
    return int(float(line.rpartition(" ")[2]))


def test_files_stay_while_they_are_copied(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(**MINIATURE)
    client = connected(server)
    topic, target = "persistent://public/default/slow", tmp_path / "backups"
    consumer = client.subscribe(topic, "reads")
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(200):
        producer.send_async(bytes(3000), None)
    producer.flush()
    running = begun(server, target)
    try:
        # All of it is consumed, deleted and overwritten while it is copied.
        for _ in range(200):
            consumer.acknowledge(consumer.receive(10_000))
        for _ in range(300):
            producer.send_async(bytes(3000), None)
        producer.flush()
        assert snapshots(server) == 1
        running.send_signal(signal.SIGCONT)
        _, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 0, told
    assert "is whole" in done("verify-backup", target, "--quiet")
    assert snapshots(server) == 0
    for number in (signal.SIGTERM, signal.SIGINT):
        running = begun(server, target)
        try:
            running.send_signal(number)
            running.send_signal(signal.SIGCONT)
            _, told = running.communicate(timeout=60)
        finally:
            running.kill()
        assert (running.returncode, told) == (1, "magnetar: no backup was taken: interrupted\n")
        assert list(target.rglob("*.part")) == []
        assert snapshots(server) == 0
    client.close()


def test_a_restarted_broker_ends_a_backup(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(**MINIATURE)
    client = connected(server)
    topic, target = "persistent://public/default/restarted", tmp_path / "backups"
    client.subscribe(topic, "holds").close()
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(100):
        producer.send_async(bytes(3000), None)
    producer.flush()
    client.close()
    backup(server, target)
    running = begun(server, target)
    try:
        server.restart(kill=True)
        running.send_signal(signal.SIGCONT)
        _, told = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 1
    assert "magnetar: no backup was taken: " in told
    assert done("verify-backup", target, "--quiet").count("is whole") == 1
    assert "backup 2 of" in backup(server, target)
    assert done("verify-backup", target, "--quiet").count("is whole") == 2
