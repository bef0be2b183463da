"""``magnetar orphaned-ledgers`` beside a broker that serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pulsar
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from zookeeper_server import opened

from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.metadata.passing_on import ResolvingStore

_MESSAGES = 20
_DAY_MS = 24 * 3_600_000
_TOPIC = "persistent://public/default/orphans"


def looked(conf: Path, *options: str) -> str:
    command = [sys.executable, "-m", "magnetar", "orphaned-ledgers", "--config", str(conf), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_store(cluster: BookKeeperServers, *customs: Mapping[str, bytes]) -> list[int]:
    """Makes ledgers that were made two days ago; answers all there are."""

    async def work() -> list[int]:
        io = real_io(asyncio.get_running_loop(), ".")
        metadata = ResolvingStore(await opened(cluster.zookeeper.address), io.loop)
        store = await BookKeeperLedgerStore.open_store(io, metadata, BookKeeperSettings())
        for custom in customs:
            writer = await store.create(Quorums(3, 3, 2), custom)
            found = await store.records.read(writer.ledger_id)
            older = replace(found.record, ctime_ms=found.record.ctime_ms - 2 * _DAY_MS)
            await store.records.write(writer.ledger_id, older, found.version)
        ledgers = list(await store.ledger_ids())
        await store.close()
        await metadata.close()
        return ledgers

    return asyncio.run(work())


def test_what_nothing_names_is_found_and_deleted(cluster: BookKeeperServers, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, cluster, managedLedgerMaxEntriesPerLedger=5)
    broker.start()
    try:
        client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        consumer = client.subscribe(_TOPIC, "s")
        producer = client.create_producer(_TOPIC, batching_enabled=False)
        for number in range(_MESSAGES):
            producer.send(b"%d" % number)
        conf = broker.folder / "standalone.conf"
        assert looked(conf) == "0 orphaned ledgers\n"
        before = with_store(cluster)
        name = "public/default/persistent/orphans"
        after = with_store(
            cluster, custom_metadata(name), {"application": b"another"}, custom_metadata(name, "s")
        )
        of_topic, of_another, of_cursor = sorted(set(after) - set(before))
        told = looked(conf)
        assert f"ledger {of_topic}, created" in told
        assert f"for subscription s of {name}, OPEN" in told
        assert told.endswith("2 orphaned ledgers; use --delete to delete them\n")
        assert with_store(cluster) == after
        assert looked(conf, "--hours", "100") == "0 orphaned ledgers\n"
        assert looked(conf, "--delete").endswith("2 orphaned ledgers\n")
        assert sorted(set(after) - set(with_store(cluster))) == [of_topic, of_cursor]
        assert of_another in with_store(cluster)
        for number in range(_MESSAGES):
            assert consumer.receive(20_000).data() == b"%d" % number
        client.close()
    finally:
        broker.close()
