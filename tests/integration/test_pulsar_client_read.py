"""``pulsar-client read``, and contents that are declared as text, beside an official client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server import Server

from magnetar.admin_client import AdminClient

pulsar = pytest.importorskip("pulsar")
KEYS = Path(__file__).parent / "semantics" / "keys"


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server()


def run(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magnetar.cli.pulsar_client", "--url", server.url, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def contents(server: Server, *arguments: str) -> list[str]:
    ended = run(server, "read", *arguments)
    assert ended.returncode == 0, ended
    found = [line.partition("content:")[2] for line in ended.stdout.splitlines() if "content:" in line]
    assert ended.stdout.count("----- got message -----") == len(found)
    assert ended.stderr == f"{arguments[arguments.index('-n') + 1]} messages successfully read\n"
    return found


def test_messages_are_read_from_a_place_on(server: Server, topic: str) -> None:
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, batching_enabled=False)
    ids: list[Any] = [producer.send(b"%d" % number) for number in range(4)]
    client.close()
    second = f"{ids[1].ledger_id()}:{ids[1].entry_id()}"
    assert contents(server, topic, "-m", "earliest", "-n", "4") == ["0", "1", "2", "3"]
    assert contents(server, topic, "-m", second, "-n", "2") == ["2", "3"]
    assert contents(server, topic, "-m", second, "-i", "-n", "3") == ["1", "2", "3"]
    assert contents(server, topic, "-i", "-n", "1") == ["3"]
    assert contents(server, topic, "-m", "earliest", "-n", "2", "--hide-content") == []
    # Nothing is kept for who has read.
    assert AdminClient(server.http_url).topic_stats(topic)["subscriptions"] == {}
    refused = run(server, "read", topic, "-m", "soon")
    assert refused.returncode == 1
    assert "'soon' is not a message id; use earliest, latest or LEDGER:ENTRY" in refused.stderr


def test_text_is_declared_and_nothing_else_is_sent_as_such(server: Server, topic: str, tmp_path: Any) -> None:
    assert run(server, "produce", topic, "-m", "grün", "-vs", "string").returncode == 0
    assert AdminClient(server.http_url).schema(topic)["type"] == "STRING"
    assert contents(server, topic, "-m", "earliest", "-n", "1") == ["grün"]
    (tmp_path / "bytes").write_bytes(b"\xff")
    refused = run(server, "produce", topic, "-m", "a", "-f", str(tmp_path / "bytes"), "-vs", "string")
    assert (refused.returncode, "content 2 is not valid UTF-8" in refused.stderr) == (1, True)
    assert AdminClient(server.http_url).topic_stats(topic)["msgInCounter"] == 1


def test_one_partition_is_read_at_a_time(server: Server, topic: str) -> None:
    AdminClient(server.http_url).create_partitioned_topic(topic, 2)
    refused = run(server, "read", topic, "-m", "earliest")
    assert (refused.returncode, "name one of its partitions" in refused.stderr) == (1, True)


def test_what_is_not_decrypted(server: Server, topic: str) -> None:
    public = f"file://{KEYS / 'public.pem'}"
    assert run(server, "produce", topic, "-m", "sealed", "-ekn", "app", "-ekv", public).returncode == 0
    assert run(server, "produce", topic, "-m", "plain").returncode == 0
    consume = ("consume", topic, "-p", "Earliest", "-ekv", str(KEYS / "ec-private.pem"))
    shown = run(server, *consume, "-s", "as-it-is", "-ca", "CONSUME", "-n", "2").stdout
    assert ("sealed" in shown, shown.count("got message"), "content:plain" in shown) == (False, 2, True)
    for subscription, action in (("left", "FAIL"), ("let-go", "DISCARD")):
        found = run(server, *consume, "-s", subscription, "-ca", action)
        assert (found.returncode, "content:plain" in found.stdout) == (0, True)
    subscriptions = AdminClient(server.http_url).topic_stats(topic)["subscriptions"]
    assert {name: each["msgBacklog"] for name, each in subscriptions.items()} == {
        "as-it-is": 0,
        "left": 1,
        "let-go": 0,
    }
