"""ZooKeeper whose data are lost or older than the bookies' data: brokers refuse, and nothing is deleted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from kazoo.client import KazooClient
from zookeeper_server import opened

from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.ledger_record import ledger_path
from magnetar.ledger.bookkeeper.ledgers import LedgerIdUsed
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.ledger.interface import Quorums
from magnetar.metadata.passing_on import ResolvingStore

_TOPIC = "persistent://public/default/before"
_IDS = "/ledgers/idgen"
_MESSAGES = [b"%d" % number for number in range(50)]


@contextmanager
def counting_again(cluster: BookKeeperServers) -> Iterator[None]:
    """ZooKeeper counts ledgers from 0 on, as from an empty or restored copy; afterwards as before."""
    client = KazooClient(cluster.zookeeper.address)
    client.start()

    def next_id() -> int:
        path = client.create(f"{_IDS}/ID-", ephemeral=True, sequence=True)
        client.delete(path)
        return int(path.rpartition("-")[2])

    try:
        last = next_id()
        client.delete(_IDS, recursive=True)
        client.create(_IDS)
        try:
            yield
        finally:
            while next_id() <= last:
                pass
    finally:
        client.stop()
        client.close()


@contextmanager
def without_record(cluster: BookKeeperServers, ledger_id: int) -> Iterator[None]:
    """ZooKeeper does not know a ledger, as before it was made."""
    path = f"/ledgers{ledger_path(ledger_id)}"
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    try:
        value, _ = client.get(path)
        client.delete(path)
        try:
            yield
        finally:
            client.create(path, value)
    finally:
        client.stop()
        client.close()


def started(broker: BrokerProcess, *options: str) -> subprocess.CompletedProcess[str]:
    """The end of a broker that does not start."""
    command = [sys.executable, "-m", "magnetar", "broker", "--config", str(broker.folder / "standalone.conf")]
    command += ["--binary-port", "0", "--http-port", "0", "--wait", "20", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def published(without_brokers: BookKeeperServers, tmp_path: Path) -> tuple[BrokerProcess, int]:
    """A broker that was killed, and a ledger with its messages."""
    broker = BrokerProcess(tmp_path, without_brokers)
    broker.start()
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        client.subscribe(_TOPIC, "s").close()
        producer = client.create_producer(_TOPIC, batching_enabled=False)
        for message in _MESSAGES:
            stored = producer.send(message)
    finally:
        client.close()
        broker.kill()
    return broker, stored.ledger_id()


def test_a_broker_refuses_ids_that_were_given_out_before(
    published: tuple[BrokerProcess, int], without_brokers: BookKeeperServers
) -> None:
    broker, stored = published
    with counting_again(without_brokers):
        refused = started(broker)
        assert refused.returncode == 1, refused.stderr
        assert "the metadata in ZooKeeper is older than the data of the bookies" in refused.stderr
        with without_record(without_brokers, stored):
            asyncio.run(no_ledger_is_made(without_brokers))
    broker.start()
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(_TOPIC, "s")
        assert [consumer.receive(20_000).data() for _ in _MESSAGES] == _MESSAGES
    finally:
        client.close()
        broker.kill()


async def no_ledger_is_made(cluster: BookKeeperServers) -> None:
    """Nor by a broker that was running already."""
    io = real_io(asyncio.get_running_loop(), ".")
    metadata = ResolvingStore(await opened(cluster.zookeeper.address), io.loop)
    store = await BookKeeperLedgerStore.open_store(io, metadata, BookKeeperSettings())
    before = await store.ledger_ids()
    try:
        with pytest.raises(LedgerIdUsed, match="gives out ledger id"):
            await asyncio.gather(*(store.create(Quorums(3, 3, 2), {}) for _ in range(300)))
    finally:
        made = set(await store.ledger_ids()) - set(before)
        for ledger_id in made:
            await store.delete(ledger_id)
        await store.close()
        await metadata.close()


def test_an_empty_zookeeper_is_refused(without_brokers: BookKeeperServers, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, without_brokers)
    conf = broker.folder / "standalone.conf"
    emptied = conf.read_text().replace(
        without_brokers.metadata_store, f"{without_brokers.metadata_store}/emptied"
    )
    conf.write_text(emptied)
    refused = started(broker)
    assert refused.returncode == 1, refused.stderr
    assert "magnetar initialize-cluster-metadata" in refused.stderr
