"""Topics with transactions as Spark reads them: what is committed, wherever it is stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from offloaded_topics import ledgers, wait_until
from pyspark.sql import SparkSession
from raw_transactions import Transactions
from server import Server
from spark_world import Cluster

from magnetar.spark.connection import Connection
from magnetar.spark.ledgers import layout_of, ranges_between
from magnetar.spark.options import QueryOptions
from magnetar.spark.positions import EARLIEST
from magnetar.spark.reading import entries as through_broker
from magnetar.spark.reading import offloaded, segments

pytestmark = pytest.mark.skipif(
    "MAGNETAR_SPARK_SERVICE_URL" in os.environ, reason="read plans are Magnetar's"
)
SETTINGS: dict[str, int | str] = {
    "transactionCoordinatorEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "managedLedgerMaxEntriesPerLedger": 40,
    "magnetarMinLedgerRolloverSeconds": 0,
    "magnetarSegmentSizeBytes": 65536,
}
FILLING = b" " * 4000
"""Fills files, so that a part of the topic is read from them."""


class World:
    def __init__(self, folder: Path, **settings: int | str) -> None:
        self.files = folder / "data"
        self.server = Server(folder, {**SETTINGS, **settings})
        self.server.start()
        self.cluster = Cluster(self.server.url, self.server.http_url)
        self.talk = Transactions(self.server.port)

    def publish(self, topic: str) -> list[str]:
        """Publishes plain messages, and those of transactions that have ended; returns what is committed."""
        self.producer, _ = self.talk.client.produce(topic)
        self.full, self.sequence = topic, 0
        seen = []
        for number in range(60):
            seen += [self.send(f"plain {number}"), self.send(f"committed {number}", commit=True)]
            self.send(f"aborted {number}", commit=False)
        return seen

    def begin(self) -> int:
        least = self.talk.begin()
        self.talk.add(least, self.full)
        return least

    def send(self, text: str, *, least: int | None = None, commit: bool | None = None) -> str:
        own = self.begin() if commit is not None else least
        self.talk.send(self.producer, text.encode() + FILLING, self.sequence, own)
        self.sequence += 1
        if own is not None and commit is not None:
            self.talk.end(own, commit=commit)
        return text

    def options(self, topic: str, mode: str) -> dict[str, str]:
        files = {"read.mode": "segments", "segments.directory": str(self.files)}
        return {**self.cluster.options(topic=topic), **(files if mode == "segments" else {})}

    def close(self) -> None:
        self.talk.client.close()
        self.cluster.close()
        self.server.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("transactions"))
    yield made
    made.close()


@pytest.mark.parametrize("mode", ["broker", "segments"])
def test_batches_have_what_is_committed(world: World, topic: str, mode: str, spark: SparkSession) -> None:
    seen = world.publish(topic)

    def read() -> list[str]:
        frame = spark.read.format("pulsar").options(**world.options(topic, mode)).load()
        rows = frame.selectExpr("trim(cast(value as string)) v", "__messageId id").collect()
        assert len({row.id for row in rows}) == len(rows)
        return sorted(row.v for row in rows)

    assert read() == sorted(seen)
    if mode == "segments":
        plan = world.cluster.admin.make_read_plan(topic, (-1, -1))
        world.cluster.admin.release_read_plan(plan["id"])
        assert plan["ranges"], "a part is in files"
        assert len(plan["abortedTransactions"]) == 60
    least = world.begin()
    inside, behind = world.send("inside", least=least), world.send("behind")
    assert read() == sorted(seen), "an open transaction hides what follows"
    world.talk.end(least, commit=True)
    assert read() == sorted([*seen, inside, behind])


@pytest.mark.parametrize("mode", ["broker", "segments"])
def test_a_stream_does_not_pass_an_open_transaction(
    world: World, topic: str, mode: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Its offset stays before the first message, which is read once the transaction is committed."""
    seen = world.publish(topic)
    least, lost = world.begin(), world.begin()
    inside, behind = world.send("inside", least=least), world.send("behind")
    world.send("inside another", least=lost)

    def run() -> list[str]:
        source = {**world.options(topic, mode), "startingOffsets": "earliest"}
        frame = spark.readStream.format("pulsar").options(**source).load()
        rows: list[str] = []

        def take(batch: object, _number: int) -> None:
            rows.extend(
                row.v
                for row in batch.selectExpr("trim(cast(value as string)) v").collect()  # type: ignore[attr-defined]
            )

        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(rows)

    assert run() == sorted(seen)
    assert run() == []
    world.talk.end(least, commit=True)
    assert run() == sorted([inside, behind])
    world.talk.end(lost, commit=False)
    assert run() == []
    last = world.send("last")
    assert run() == [last]


def test_ledgers_in_tiered_storage_have_no_aborted_messages(topic: str, tmp_path: Path) -> None:
    world = World(
        tmp_path,
        managedLedgerMinLedgerRolloverTimeMinutes=0,
        managedLedgerOffloadDriver="filesystem",
        fileSystemURI=f"file://{tmp_path}/tiered",
        managedLedgerOffloadAutoTriggerSizeThresholdBytes=20_000,
        managedLedgerOffloadDeletionLagMs=0,
    )
    try:
        seen = world.publish(topic)
        wait_until(world.server, topic, 2)
        away = {each["ledgerId"] for each in ledgers(world.server, topic) if each["offloaded"]}
        options = world.cluster.options(
            topic=topic,
            **{"offload.driver": "filesystem", "offload.uri": f"file://{tmp_path}/tiered"},
        )
        with Connection(QueryOptions.parse(options)) as connection:
            layout = layout_of(connection.admin, topic)
            ranges = ranges_between(layout, layout.resolved(EARLIEST), layout.end)
            assert any(each.ledger in away for each in ranges)
            parts = list(offloaded.entries_of(connection, topic, ranges, through_broker.entries_of))
            texts = [part.data.removesuffix(FILLING) for part in parts]
            found = [each for each in texts if each.endswith(tuple(text.encode() for text in seen))]
            assert len(found) == len(seen)
            assert not [each for each in texts if b"aborted" in each]
            assert connection.admin.aborted_transactions(topic) == {
                (0, number) for number in range(1, 120, 2)
            }
    finally:
        world.close()


def test_a_broker_without_transactions_knows_no_aborted_ones(cluster: Cluster, topic: str) -> None:
    cluster.client.create_producer(topic).close()
    assert cluster.admin.aborted_transactions(topic) == set()


def test_files_without_a_plan_for_aborted_messages(world: World, topic: str) -> None:
    """The files have aborted messages: only the ids that the plan carries keep them out."""
    world.publish(topic)
    with Connection(QueryOptions.parse(world.options(topic, "segments"))) as connection:
        layout = layout_of(connection.admin, topic)
        ranges = ranges_between(layout, layout.resolved(EARLIEST), layout.end)
        found = list(segments.entries_of(connection, topic, ranges))
        assert not [part for part in found if b"aborted" in part.data]
        assert sum(b"plain" in part.data for part in found) == 60
