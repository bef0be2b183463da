"""docs/backup-clusters.md: its commands, and a cluster that is restored from the copies they make."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from documented_steps import blocks_of

pulsar = pytest.importorskip("pulsar")

PAGE = Path(__file__).parents[2] / "docs" / "backup-clusters.md"
TOPIC = "persistent://public/default/backed-up"
_BACK_UP, _RESTORE = 2, 3
"""Sections of the page."""
_ZOOKEEPER, _BOOKIE = "/var/lib/zookeeper", "/var/lib/bookkeeper"


def commands(section: int, place: str) -> str:
    """Those of a section for servers with their data at a place."""
    (found,) = [block for block in blocks_of(PAGE, section) if place in block]
    return found


def run(section: int, place: str, data: Path, folder: Path, number: int = 1) -> None:
    text = commands(section, place).replace(place, str(data)).replace("bookie-1", f"bookie-{number}")
    subprocess.run(["bash", "-euc", text], cwd=folder, check=True, timeout=60)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[BookKeeperServers]:
    """A cluster of its own, whose data are removed."""
    started = BookKeeperServers(tmp_path / "cluster", bookies=3)
    try:
        started.start()
        yield started
    finally:
        started.close()


def broker_of(servers: BookKeeperServers, folder: Path) -> BrokerProcess:
    two = {f"managedLedgerDefault{name}": 2 for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
    return BrokerProcess(
        folder,
        servers,
        metadataStoreSessionTimeoutMillis=20_000,
        managedLedgerMaxEntriesPerLedger=50,
        managedLedgerMinLedgerRolloverTimeMinutes=0,
        brokerDeleteInactiveTopicsEnabled="false",
        **two,
    )


def connected(broker: BrokerProcess) -> pulsar.Client:
    return pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def publish(client: pulsar.Client, first: int, end: int) -> None:
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(first, end):
        producer.send(b"message %d" % number)
    producer.close()


@pytest.mark.timeout(400)
def test_a_restored_cluster_is_as_it_was(servers: BookKeeperServers, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    broker = broker_of(servers, tmp_path / "broker")
    broker.start()
    try:
        client = connected(broker)
        consumer = client.subscribe(TOPIC, "reads", pulsar.ConsumerType.Shared)
        publish(client, 0, 200)
        for message in [consumer.receive(30_000) for _ in range(60)][::2]:
            consumer.acknowledge(message)
        client.close()
        broker.stop()
        servers.zookeeper.kill()
        run(_BACK_UP, _ZOOKEEPER, servers.zookeeper.folder / "data", copies)
        servers.zookeeper.start()
        for number, bookie in enumerate(servers.bookies, 1):
            bookie.kill()
            run(_BACK_UP, _BOOKIE, bookie.folder, copies, number)
            bookie.start()
        # The cluster goes on, and its last messages are not in the backup.
        broker.start()
        client = connected(broker)
        publish(client, 200, 300)
        client.close()
    finally:
        broker.close()
    for server in (*servers.bookies, servers.zookeeper):
        server.kill()
    run(_RESTORE, _ZOOKEEPER, servers.zookeeper.folder / "data", copies)
    for number, bookie in enumerate(servers.bookies, 1):
        run(_RESTORE, _BOOKIE, bookie.folder, copies, number)
    servers.zookeeper.start()
    for bookie in servers.bookies:
        bookie.start()
    broker.start()
    try:
        client = connected(broker)
        everything = [b"message %d" % number for number in range(200)]
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(30_000).data())
        assert found == everything
        consumer = client.subscribe(TOPIC, "reads", pulsar.ConsumerType.Shared)
        left = {consumer.receive(30_000).data() for _ in range(170)}
        assert left == set(everything) - set(everything[:60:2])
        publish(client, 200, 210)
        assert consumer.receive(30_000).data() == b"message 200"
        client.close()
    finally:
        broker.close()
    assert "ledgerID: " in servers.shell("listledgers")
