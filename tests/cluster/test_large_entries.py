"""Messages that are about as large as bookies take, or larger: they fail alone, and nobody else notices."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from zookeeper_server import opened

from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.metadata.passing_on import ResolvingStore

MIB = 1 << 20


@contextmanager
def serving(folder: Path, cluster: BookKeeperServers, **settings: int | str) -> Iterator[pulsar.Client]:
    broker = BrokerProcess(folder, cluster, **settings)
    broker.start()
    client = pulsar.Client(
        broker.url,
        operation_timeout_seconds=20,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        yield client
    finally:
        client.shutdown()
        broker.close()


def test_the_largest_messages_of_a_client_are_stored_or_refused_alone(
    without_brokers: BookKeeperServers, tmp_path: Path
) -> None:
    topic = "persistent://public/default/largest"
    with serving(tmp_path, without_brokers) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=30_000)
        stored = []
        for size in (10, 5 * MIB - 2000, *range(5 * MIB - 120, 5 * MIB + 20, 20), 11):
            try:
                producer.send(bytes(size))
                stored.append(size)
            except pulsar.PulsarException:
                assert size > 5 * MIB - 200, size
        assert stored[:2] == [10, 5 * MIB - 2000]
        assert stored[-1] == 11
        assert [len(consumer.receive(20_000).data()) for _ in stored] == stored


def test_a_broker_that_takes_larger_messages_than_its_bookies_does_not_start(
    without_brokers: BookKeeperServers, tmp_path: Path
) -> None:
    """One such message would be written to one ledger after another, and keep its topic from all others."""
    BrokerProcess(tmp_path, without_brokers, maxMessageSize=6 * MIB)
    command = [sys.executable, "-m", "magnetar", "broker", "--config", str(tmp_path / "standalone.conf")]
    command += ["--binary-port", "0", "--http-port", "0", "--wait", "20"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 1, refused.stderr
    assert f"maxMessageSize={6 * MIB}: the bookies do not accept entries of that size" in refused.stderr
    assert f"Set nettyMaxFrameSizeBytes of every bookie to {6 * MIB + 10240} or more" in refused.stderr
    asyncio.run(nothing_is_left(without_brokers))


async def nothing_is_left(cluster: BookKeeperServers) -> None:
    io = real_io(asyncio.get_running_loop(), ".")
    metadata = ResolvingStore(await opened(cluster.zookeeper.address), io.loop)
    store = await BookKeeperLedgerStore.open_store(io, metadata, BookKeeperSettings())
    try:
        for ledger_id in await store.ledger_ids():
            reader = await store.open(ledger_id, recover=False)
            assert b"size-check" not in reader.metadata.custom.get("pulsar/managed-ledger", b"")
            reader.close()
    finally:
        await store.close()
        await metadata.close()


def test_a_broker_takes_larger_messages_where_its_bookies_do(tmp_path: Path) -> None:
    size = 6 * MIB
    servers = BookKeeperServers(tmp_path / "servers", bookies=3, nettyMaxFrameSizeBytes=size + 10240)
    try:
        servers.start()
        with serving(tmp_path / "broker", servers, maxMessageSize=size) as client:
            topic = "persistent://public/default/larger"
            consumer = client.subscribe(topic, "s")
            client.create_producer(topic, batching_enabled=False).send(bytes(size - 100))
            assert len(consumer.receive(30_000).data()) == size - 100
    finally:
        servers.close()
