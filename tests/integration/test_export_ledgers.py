"""``magnetar export-ledgers`` as a process, between the data of two brokers, with the official client."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pulsar
import pytest
from server import MINIATURE, Server

TOPICS = [f"persistent://public/default/t{number}" for number in range(12)]
MESSAGES = 30


def client_of(server: Server) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topics with a subscription each, which has consumed every third message."""
    folder = tmp_path / "from"
    folder.mkdir()
    server = Server(folder, dict(MINIATURE))
    server.start()
    client = client_of(server)
    for topic in TOPICS:
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(MESSAGES):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        for number in range(MESSAGES):
            message = consumer.receive(timeout_millis=30_000)
            if number % 3 == 0:
                consumer.acknowledge(message)
        consumer.close()
    client.close()
    server.stop()
    return folder / "data"


def command(source: Path, target: Path) -> list[str]:
    options = ["--all", "--mapping", str(target.parent / "mapping")]
    return [
        sys.executable,
        "-m",
        "magnetar",
        "export-ledgers",
        "--from",
        str(source),
        "--to",
        str(target),
        *options,
    ]


def check(folder: Path) -> None:
    """All of it is there, and the subscriptions are where they were."""
    server = Server(folder, {})
    server.start()
    try:
        client = client_of(server)
        for topic in TOPICS:
            consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
            left = [b"%d" % number for number in range(MESSAGES) if number % 3]
            assert [consumer.receive(timeout_millis=30_000).data() for _ in left] == left
        client.close()
    finally:
        server.close()


def test_it_is_killed_again_and_again(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "to" / "data"
    target.parent.mkdir()
    for attempt in range(20):
        process = subprocess.Popen(command(data, target), stdout=subprocess.DEVNULL)
        # A process needs some time to begin; then it is killed a little later each time.
        try:
            assert process.wait(0.3 * 1.3**attempt) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        else:
            break
    else:
        raise AssertionError("it never came to an end")
    check(target.parent)
    told = (target.parent / "mapping").read_text().splitlines()[1:]
    assert {line.split("\t")[0] for line in told} == set(TOPICS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_is_stopped_in_order(data: Path, tmp_path: Path, number: signal.Signals) -> None:
    target = tmp_path / "to" / "data"
    target.parent.mkdir()
    process = subprocess.Popen(
        command(data, target), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("exported: ")
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == "magnetar: not exported: interrupted; run the same command again to resume\n"
    done = subprocess.run(command(data, target), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    check(target.parent)
