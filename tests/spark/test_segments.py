"""``read.mode=segments``: files of the store in place of its broker, while both are at work."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest
from faulty_object_store import BUCKET, Fault, ObjectStore, object_store
from offloaded_topics import ledgers, wait_until
from pyspark.sql import SparkSession
from server import Server
from spark_world import Cluster, publish

from magnetar.admin_client import AdminError, NotFound
from magnetar.ledger.embedded.reader import EntriesDamaged
from magnetar.spark.access import without_secrets
from magnetar.spark.codec.rows import EntryPart
from magnetar.spark.connection import Connection
from magnetar.spark.errors import InvalidOption
from magnetar.spark.ledgers import Range, layout_of, ranges_between
from magnetar.spark.options import QueryOptions
from magnetar.spark.positions import EARLIEST, Place
from magnetar.spark.reading import entries as through_broker
from magnetar.spark.reading import offloaded, segments

pytestmark = pytest.mark.skipif(
    "MAGNETAR_SPARK_SERVICE_URL" in os.environ, reason="read plans are Magnetar's"
)

BUSY = {
    "majorCompactionInterval": 1,
    "majorCompactionThreshold": "0.95",
    "managedLedgerMaxEntriesPerLedger": 200,
    "magnetarMinLedgerRolloverSeconds": 0,
    "magnetarSegmentSizeBytes": 65536,
    "brokerDeleteInactiveTopicsEnabled": "false",
}


class Store:
    """A server whose store rolls, compacts and recycles all the time, and where its files are."""

    def __init__(self, folder: Path, **settings: int | str) -> None:
        self.server = Server(folder, {**BUSY, **settings})
        self.server.start()
        self.cluster = Cluster(self.server.url, self.server.http_url)
        self.files = folder / "data"

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {
            **self.cluster.options(topic=topic, **more),
            "read.mode": "segments",
            "segments.directory": str(self.files),
        }

    def close(self) -> None:
        self.cluster.close()
        self.server.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store(tmp_path_factory.mktemp("store"))
    yield made
    made.close()


def _from_files(connection: Connection, topic: str, ranges: list[Range]) -> list[EntryPart]:
    """The same; what is in no file yet comes through the broker, and from a file a moment later."""
    return [part._replace(messages=0) for part in segments.entries_of(connection, topic, ranges)]


def _through_broker(connection: Connection, topic: str, ranges: list[Range]) -> list[EntryPart]:
    """Without what brokers tell of an entry besides it."""
    found = through_broker.entries_of(connection, topic, ranges)
    return [part._replace(messages=0) for part in found]


class Churn(threading.Thread):
    """Publishes and acknowledges on another topic: its ledgers die, segments are compacted and recycled."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self._client, self._topic = cluster.client, topic
        self._stopping = threading.Event()
        self.messages = 0

    def run(self) -> None:
        consumer = self._client.subscribe(self._topic, "churn")
        producer = self._client.create_producer(self._topic)
        while not self._stopping.is_set():
            for _ in range(50):
                producer.send_async(os.urandom(500), lambda *_: None)
            producer.flush()
            for _ in range(50):
                message = consumer.receive(120_000)
            consumer.acknowledge_cumulative(message)
            self.messages += 50
        producer.close()
        consumer.close()

    def __enter__(self) -> Churn:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()


def test_spark_reads_files_and_the_open_end_as_one(store: Store, topic: str, spark: SparkSession) -> None:
    publish(store.cluster, topic, 20_000, block_if_queue_full=True)
    plan = store.cluster.admin.make_read_plan(topic, (-1, -1))
    held = sum(each["lastEntryId"] - each["firstEntryId"] + 1 for each in plan["ranges"])
    store.cluster.admin.release_read_plan(plan["id"])
    assert 0 < held < 20_000, "both ways must have something to read"
    frame = spark.read.format("pulsar").options(**store.options(topic, maxEntriesPerPartition="150")).load()
    rows = frame.selectExpr("cast(value as string) v", "cast(__key as string) k", "__messageId id").collect()
    assert len({row.id for row in rows}) == 20_000
    assert sorted(row.v for row in rows) == sorted(f"m{number}" for number in range(20_000))
    assert all(row.k == f"k{int(row.v[1:]) % 7}" for row in rows)


def test_the_seam_loses_and_doubles_nothing_while_all_is_in_motion(store: Store, topic: str) -> None:
    publish(store.cluster, topic, 3000, block_if_queue_full=True)
    options = QueryOptions.parse(store.options(topic))
    first = 3000
    with Churn(store.cluster, f"{topic}-churn") as churn, Connection(options) as connection:
        before = set(os.listdir(store.files / "ledgers"))
        for turn in range(40):
            publish(store.cluster, topic, 500, first)
            first += 500
            layout = layout_of(connection.admin, topic)
            ranges = ranges_between(layout, layout.resolved(EARLIEST), layout.end)
            publishing = threading.Thread(target=publish, args=(store.cluster, topic, 500, first))
            publishing.start()
            direct = _from_files(connection, topic, ranges)
            publishing.join()
            first += 500
            assert direct == _through_broker(connection, topic, ranges)
            assert len(direct) == sum(each.entries for each in ranges)
            after = set(os.listdir(store.files / "ledgers"))
            # Segments are rewritten once a second at most.
            if turn >= 5 and before - after:
                break
    assert churn.messages > 500
    assert before - after, "segments have come and gone meanwhile"


def test_parts_of_batches_are_cut_as_the_broker_path_cuts_them(store: Store, topic: str) -> None:
    publish(store.cluster, topic, 2000, block_if_queue_full=True)
    with Connection(QueryOptions.parse(store.options(topic))) as connection:
        layout = layout_of(connection.admin, topic)
        ledger = layout.ledgers[0][0]
        for start, end in (((ledger, 3, 4), (ledger, 7, 2)), ((ledger, 3, 4), (layout.end.ledger, 1, 1))):
            ranges = ranges_between(layout, Place(*start), Place(*end))
            direct = _from_files(connection, topic, ranges)
            assert direct == _through_broker(connection, topic, ranges)
            assert (direct[0].first, direct[-1].end) == (start[2], end[2])


def test_ledgers_in_tiered_storage_are_read_through_the_broker(topic: str, tmp_path: Path) -> None:
    store = Store(
        tmp_path,
        managedLedgerMinLedgerRolloverTimeMinutes=0,
        managedLedgerOffloadDriver="filesystem",
        fileSystemURI=f"file://{tmp_path}/tiered",
        managedLedgerOffloadAutoTriggerSizeThresholdBytes=20_000,
        managedLedgerOffloadDeletionLagMs=0,
        defaultRetentionTimeInMinutes=-1,
        defaultRetentionSizeInMB=-1,
    )
    try:
        publish(store.cluster, topic, 3000, block_if_queue_full=True)
        wait_until(store.server, topic, 2)
        away = {each["ledgerId"] for each in ledgers(store.server, topic) if each["offloaded"]}
        with Connection(QueryOptions.parse(store.options(topic))) as connection:
            # Local copies go a moment later.
            while away & in_files(connection, topic):
                time.sleep(0.1)
            layout = layout_of(connection.admin, topic)
            ranges = ranges_between(layout, layout.resolved(EARLIEST), layout.end)
            direct = _from_files(connection, topic, ranges)
            assert {part.ledger_id for part in direct} >= away
            assert len(direct) == sum(each.entries for each in ranges)
            assert direct == _through_broker(connection, topic, ranges)
    finally:
        store.close()


OFFLOADED = {
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 20_000,
    "managedLedgerOffloadDeletionLagMs": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}


def offload_options(objects: ObjectStore) -> dict[str, str]:
    """Options for the store itself, which do not go through the proxy of the broker."""
    return {
        "offload.driver": "aws-s3",
        "offload.bucket": BUCKET,
        "offload.region": "us-east-1",
        "offload.endpoint": objects.target,
        "offload.credentialId": "test-key",
        "offload.credentialSecret": "test-secret",
    }


def test_tasks_read_offloaded_ledgers_that_the_broker_cannot_read(
    topic: str, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with object_store() as objects:
        driver = {**objects.settings(), "managedLedgerOffloadDriver": "aws-s3"}
        store = Store(tmp_path, **OFFLOADED, **driver)
        try:
            publish(store.cluster, topic, 3000, block_if_queue_full=True)
            wait_until(store.server, topic, 2)
            away = {each["ledgerId"] for each in ledgers(store.server, topic) if each["offloaded"]}
            more = offload_options(objects)
            options = {**store.options(topic, maxEntriesPerPartition="1000"), **more}
            with Connection(QueryOptions.parse(options)) as connection:
                while away & in_files(connection, topic):
                    time.sleep(0.1)
            # Neither the threads nor the memory of the broker have anything of them from here on.
            store.server.kill()
            objects.plan(Fault.RESET, "GET", times=10**6)
            store.server.start()
            frame = spark.read.format("pulsar").options(**options).load()
            rows = frame.selectExpr("cast(value as string) v", "__messageId id").collect()
            assert sorted(row.v for row in rows) == sorted(f"m{number}" for number in range(3000))
            assert len({row.id for row in rows}) == 3000
            _, metrics = store.server.ask("GET", "/metrics/")
            read = re.findall(rb"^brk_ledgeroffloader_read_bytes_total{.*} (\d+)$", metrics, re.MULTILINE)
            assert set(map(int, read)) <= {0}
            assert "test-secret" not in caplog.text + store.server.log
        finally:
            store.close()


def test_parts_of_offloaded_batches_are_cut_as_the_broker_path_cuts_them(topic: str, tmp_path: Path) -> None:
    files = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": f"file://{tmp_path}/tiered"}
    store = Store(tmp_path, **OFFLOADED, **files)
    try:
        publish(store.cluster, topic, 3000, block_if_queue_full=True)
        wait_until(store.server, topic, 2)
        options = QueryOptions.parse(
            {
                **store.cluster.options(topic=topic),
                "offload.driver": "filesystem",
                "offload.uri": f"file://{tmp_path}/tiered",
            }
        )
        with Connection(options) as connection:
            layout = layout_of(connection.admin, topic)
            ledger = layout.ledgers[0][0]
            whole = (layout.resolved(EARLIEST), layout.end)
            for start, end in (
                whole,
                (Place(ledger, 3, 4), Place(ledger, 7, 2)),
                (Place(ledger, 3, 4), layout.end),
            ):
                ranges = ranges_between(layout, start, end)
                found = [
                    part._replace(messages=0)
                    for part in offloaded.entries_of(connection, topic, ranges, through_broker.entries_of)
                ]
                assert found == _through_broker(connection, topic, ranges)
            # What the store does not have (any more) comes through the broker, which fails.
            (tmp_path / "tiered").rename(tmp_path / "away")
            (tmp_path / "tiered").mkdir()
            ranges = ranges_between(layout, Place(ledger, 0), Place(ledger, 1))
            asked: list[Range] = []

            def rest(_connection: Connection, _topic: str, wanted: Sequence[Range]) -> Generator[EntryPart]:
                asked.extend(wanted)
                yield from ()

            assert list(offloaded.entries_of(connection, topic, ranges, rest)) == []
            assert asked == ranges
    finally:
        store.close()


def test_options_of_tiered_storage_are_checked_without_showing_secrets(store: Store, topic: str) -> None:
    base = {**store.cluster.options(topic=topic), "offload.credentialSecret": "hidden-1"}
    for more, message in (
        ({}, "require 'offload.driver'"),
        ({"offload.driver": "azureblob"}, "azureblob is not supported"),
        ({"offload.driver": "aws-s3", "offload.region": "r"}, r"set offload\.bucket"),
        ({"offload.driver": "aws-s3", "offload.region": "r", "offload.bucket": "b"}, "go together"),
        ({"offload.driver": "filesystem"}, r"offload\.uri"),
        ({"offload.bucke": "b"}, "unknown option"),
    ):
        with pytest.raises(InvalidOption, match=message) as raised:
            QueryOptions.parse({**base, **more})
        assert "hidden-1" not in str(raised.value)
    given = {
        **base,
        "offload.driver": "aws-s3",
        "offload.region": "r",
        "offload.bucket": "b",
        "offload.credentialId": "i",
    }
    assert "hidden-1" not in repr(QueryOptions.parse(given))
    assert "hidden-1" not in repr(without_secrets(given))


def in_files(connection: Connection, topic: str) -> set[int]:
    """Returns the ledgers that a plan finds in files."""
    plan = connection.admin.make_read_plan(topic, (-1, -1))
    connection.admin.release_read_plan(plan["id"])
    return {each["ledgerId"] for each in plan["ranges"]}


def test_damage_in_a_file_fails_the_read(store: Store, topic: str) -> None:
    publish(store.cluster, topic, 3000, block_if_queue_full=True)
    with Connection(QueryOptions.parse(store.options(topic))) as connection:
        layout = layout_of(connection.admin, topic)
        ranges = ranges_between(layout, layout.resolved(EARLIEST), layout.end)
        whole = _from_files(connection, topic, ranges)
        plan = connection.admin.make_read_plan(topic, (-1, -1))
        path = store.files / plan["ranges"][0]["segmentFile"]
        at = path.read_bytes().index(whole[0].data) + 20
        with path.open("r+b") as file:
            file.seek(at)
            intact = file.read(1)
            file.seek(at)
            file.write(bytes([intact[0] ^ 1]))
        try:
            with pytest.raises(EntriesDamaged, match=f"ledger {whole[0].ledger_id} are damaged"):
                list(segments.entries_of(connection, topic, ranges))
        finally:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(intact)
        assert _from_files(connection, topic, ranges) == whole


def test_what_cannot_be_is_refused_by_name(store: Store, topic: str) -> None:
    admin = store.cluster.admin
    with pytest.raises(InvalidOption, match=r"segments\.directory"):
        QueryOptions.parse({**store.cluster.options(topic=topic), "read.mode": "segments"})
    with pytest.raises(NotFound):
        admin.make_read_plan(topic, (-1, -1))
    publish(store.cluster, topic, 10)
    with pytest.raises(AdminError, match="1 to 3600"):
        admin.make_read_plan(topic, (-1, -1), seconds=3601)
    with pytest.raises(NotFound, match="released, or it has expired"):
        admin.prolong_read_plan("0" * 32)
    status, body = store.server.ask(
        "POST", f"/admin/v2/magnetar/read-plans/{topic.replace('://', '/')}", '{"begin": 1}'
    )
    assert status == 400
    assert b"unknown fields begin" in body
