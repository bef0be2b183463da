"""Topics of a standalone broker go to a cluster by command, are served there, and come back."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
import pytest
import test_interchange
from apache_broker import ApacheBroker
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from server import Server
from test_interchange import (
    EVERYTHING,
    ask,
    batches,
    compacted,
    deduplicated,
    delayed,
    make_namespace,
    plain,
    schemas,
    topic,
)

SETTINGS = {"acknowledgmentAtBatchIndexLevelEnabled": "true", "brokerDeduplicationEnabled": "true"}
NAMESPACE = "public/exported"


def magnetar(*arguments: str | Path) -> str:
    """What the command prints. A failure is told with all it said."""
    command = [sys.executable, "-m", "magnetar", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def killed_half_way(arguments: list[str | Path]) -> None:
    """Runs the command until it has told of two topics, and kills it."""
    command = [sys.executable, "-m", "magnetar", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(2)]
        process.kill()
    assert all(line.startswith("exported: ") for line in told)


@contextmanager
def serving(broker: Server | BrokerProcess | ApacheBroker) -> Iterator[pulsar.Client]:
    broker.start()
    client = pulsar.Client(
        broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )
    try:
        yield client
    finally:
        client.close()
        broker.stop()


def test_topics_go_to_a_cluster_and_come_back(
    without_brokers: BookKeeperServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_interchange, "NAMESPACE", NAMESPACE)
    alone = Server(tmp_path, dict(SETTINGS))
    ours = BrokerProcess(tmp_path / "ours", without_brokers, **SETTINGS)
    apaches = ApacheBroker(tmp_path / "apaches", without_brokers, **SETTINGS)
    data, conf, mapping = tmp_path / "data", ours.folder / "standalone.conf", tmp_path / "mapping"
    sent: list[bytes] = []
    left: list[bytes] = []
    values: list[int] = []
    latest: dict[str, bytes] = {}
    kept = ""

    def everything(broker: Server | BrokerProcess | ApacheBroker, client: pulsar.Client, turn: int) -> None:
        nonlocal left
        assert ask(broker, "GET", f"namespaces/{NAMESPACE}/maxConsumersPerTopic") == 77
        path = f"persistent/{NAMESPACE}/plain/maxProducers"
        assert ask(broker, "GET", path) == 55
        left = plain(client, turn, sent, left)
        schemas(client, turn, values)
        deduplicated(client, turn)
        compacted(broker, client, turn, latest)
        batches(client, turn)
        delayed(client, turn)
        partitioned(client, turn)

    try:
        with serving(alone) as client:
            make_namespace(alone)
            ask(alone, "POST", f"namespaces/{NAMESPACE}/maxConsumersPerTopic", 77)
            client.create_producer(topic("plain")).close()
            ask(alone, "POST", f"persistent/{NAMESPACE}/plain/maxProducers", 55)
            ask(alone, "PUT", f"persistent/{NAMESPACE}/parts/partitions", 2)
            everything(alone, client, 0)
            kept = stored_id(client, 30)
        to_cluster = ["export-ledgers", "--from", data, "--to", conf, "--namespace", NAMESPACE]
        assert "7 topics can be exported" in magnetar(*to_cluster, "--no-mapping", "--check")
        assert "7 topics were exported" in magnetar(*to_cluster, "--mapping", mapping)
        with serving(ours) as client:
            assert (
                next_after(
                    client, magnetar("translate-positions", "--mapping", mapping, topic("plain"), kept)
                )
                == sent[31]
            )
            everything(ours, client, 1)
            refused = subprocess.run(
                [sys.executable, "-m", "magnetar", *map(str, to_cluster), "--no-mapping", "--check"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert refused.returncode == 1
            assert re.search(r"broker \S+ is running at \S+; stop it first", refused.stdout)
        with serving(apaches) as client:
            everything(apaches, client, 2)
        back = ["export-ledgers", "--from", conf, "--to", data, "--namespace", NAMESPACE, "--no-mapping"]
        killed_half_way(back)
        assert "topics were exported" in magnetar(*back)
        with serving(alone) as client:
            everything(alone, client, 3)
    finally:
        for broker in (alone, ours):
            broker.close()
        apaches.stop()


def partitioned(client: pulsar.Client, turn: int) -> None:
    """Each turn publishes to both partitions; the subscription gets what the turn before left."""
    name = topic("parts")
    consumer = client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(name, batching_enabled=False)
    if turn:
        found = {consumer.receive(timeout_millis=EVERYTHING) for _ in range(20)}
        assert {message.data() for message in found} == {b"%d-%d" % (turn - 1, n) for n in range(20)}
        for message in found:
            consumer.acknowledge(message)
    for number in range(20):
        producer.send(b"%d-%d" % (turn, number))
    consumer.close()


def stored_id(client: pulsar.Client, number: int) -> str:
    """The id of a message, as a client stores it."""
    reader = client.create_reader(topic("plain"), pulsar.MessageId.earliest)
    for _ in range(number):
        reader.read_next(timeout_millis=EVERYTHING)
    return base64.b64encode(reader.read_next(timeout_millis=EVERYTHING).message_id().serialize()).decode()


def next_after(client: pulsar.Client, stored: str) -> bytes:
    start = pulsar.MessageId.deserialize(base64.b64decode(stored))
    reader = client.create_reader(topic("plain"), start)
    return reader.read_next(timeout_millis=EVERYTHING).data()
