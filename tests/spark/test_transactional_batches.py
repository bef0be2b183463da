"""Batches as transactions: drivers that are killed at every step, and what follows; without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_world import Cluster, served
from test_commit import names, stage, values
from test_stream_write import add, lines, run
from test_write import messages

from magnetar.client.coordinators import TransactionCoordinators, TransactionId
from magnetar.client.exceptions import TransactionNotFound
from magnetar.spark.errors import DataLoss, NotPublished, StagingDamaged
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.committing import commit
from magnetar.spark.writing.cutting import CutEntry
from magnetar.spark.writing.staging import Attempt, Manifest, StagedFile, Staging

SETTINGS: dict[str, int | str] = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMaxEntriesPerLedger": 50,
    "magnetarMinLedgerRolloverSeconds": 0,
}
Ends = dict[str, tuple[int, int]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with transactions; or, where MAGNETAR_SPARK_SERVICE_URL says so, what runs there."""
    with served(tmp_path_factory.mktemp("server"), SETTINGS) as found:
        yield found


@pytest.fixture
def topics(world: Cluster, topic: str) -> list[str]:
    """Two topics, of which nothing is trimmed."""
    found = [f"{topic}-a", f"{topic}-b"]
    for each in found:
        world.client.subscribe(each, "keep").close()
    return found


STEPS = (
    "before the manifest",
    "behind the manifest",
    "behind the attempt",
    "in the middle",
    "before the commit",
    "behind the record of the commit",
    "behind the commit",
)


def options(world: Cluster, topic: str, **more: str) -> dict[str, str]:
    return {**world.options(topic=topic, **more), "pulsar.producer.batchingMaxMessages": "3"}


def transactional(world: Cluster, topic: str, **more: str) -> QueryOptions:
    return QueryOptions.parse(options(world, topic, delivery="transactional", **more))


def staged(
    world: Cluster, staging: Staging, batch_id: int, topics: list[str], count: int = 8
) -> list[StagedFile]:
    return [
        stage(
            staging,
            transactional(world, topic),
            batch_id,
            [f"{topic[-1]}{each}" for each in names(batch_id, count)],
        )
        for topic in topics
    ]


def wanted(topics: list[str], *batches: int, count: int = 8) -> list[list[str]]:
    return [
        [f"{topic[-1]}{each}" for batch_id in batches for each in names(batch_id, count)] for topic in topics
    ]


def found(world: Cluster, topics: list[str]) -> list[list[str]]:
    return [values(world, topic) for topic in topics]


def stopped_at(
    world: Cluster, folder: Path, topics: list[str], step: str, batch_id: int, count: int = 8
) -> None:
    choice = options(world, topics[0], delivery="transactional")
    stops(choice, folder, step, batch_id, staged(world, Staging(folder), batch_id, topics, count))


def stops(choice: dict[str, str], folder: Path, step: str, batch_id: int, files: list[StagedFile]) -> None:
    """A process publishes the batch, and kills itself at the step."""
    said = [
        json.dumps(choice),
        str(folder),
        step,
        str(batch_id),
        json.dumps([asdict(each) for each in files]),
    ]
    program = Path(__file__).parent / "killed_commit.py"
    ended = subprocess.run([sys.executable, program, *said], capture_output=True, text=True, timeout=600)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_that_was_stopped_is_there_once_and_as_a_whole(
    world: Cluster, topics: list[str], tmp_path: Path, step: str
) -> None:
    staging = Staging(tmp_path)
    choice = transactional(world, topics[0])
    commit(choice, staging, 0, staged(world, staging, 0, topics))
    # More entries than may wait for receipts: some are stored, and some are not.
    count = 3600 if step == "in the middle" else 8
    stopped_at(world, tmp_path, topics, step, 1, count)
    first, second = wanted(topics, 0), wanted(topics, 1, count=count)
    both = [a + b for a, b in zip(first, second, strict=True)]
    assert found(world, topics) == (both if step == "behind the commit" else first)
    began = time.monotonic()
    # Behind the manifest other rows do not matter.
    other = staged(world, staging, 1, topics, 8 if step == "before the manifest" else 2)
    commit(choice, Staging(tmp_path), 1, other)
    commit(choice, Staging(tmp_path), 1, other)
    assert found(world, topics) == both
    assert time.monotonic() - began < 60, "it waited for the time-out of a transaction"
    commit(choice, staging, 2, staged(world, staging, 2, topics))
    third = wanted(topics, 2)
    assert found(world, topics) == [a + b for a, b in zip(both, third, strict=True)]
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"producer", "2-manifest", "2-published"}


def forget(patch: pytest.MonkeyPatch, folder: Path) -> Attempt:
    """The coordinator has forgotten the last attempt at batch 0, as Apache Pulsar's does at once."""
    attempt = Staging(folder).last_attempt(0)
    assert attempt is not None
    end = TransactionCoordinators.end

    async def forgetful(self: TransactionCoordinators, transaction: TransactionId, *, commit: bool) -> None:
        if transaction == (attempt.most, attempt.least):
            raise TransactionNotFound(f"{transaction} is not known")
        await end(self, transaction, commit=commit)

    patch.setattr(TransactionCoordinators, "end", forgetful)
    return attempt


def test_the_topics_say_that_a_forgotten_transaction_is_committed(
    world: Cluster, topics: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_at(world, tmp_path, topics, "behind the commit", 0)
    forget(monkeypatch, tmp_path)
    other = world.client.create_producer(topics[0])
    other.send(b"behind")
    other.close()
    staging = Staging(tmp_path)
    commit(transactional(world, topics[0]), staging, 0, staged(world, staging, 0, topics, 2))
    first, second = wanted(topics, 0)
    assert found(world, topics) == [[*first, "behind"], second]


def test_the_topics_say_that_a_forgotten_transaction_is_aborted(
    world: Cluster, topics: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_at(world, tmp_path, topics, "behind the record of the commit", 0)
    attempt = forget(monkeypatch, tmp_path)
    assert found(world, topics) == [[], []]
    world.admin._http.ask("POST", f"/admin/v3/transactions/abortTransaction/{attempt.most}/{attempt.least}")
    staging = Staging(tmp_path)
    commit(transactional(world, topics[0]), staging, 0, [])
    assert found(world, topics) == wanted(topics, 0)
    assert staging.published(0)


def test_a_transaction_that_timed_out_is_published_again(
    world: Cluster, topics: list[str], tmp_path: Path
) -> None:
    class Slow(Staging):
        def entries(self, manifest: Manifest) -> Iterator[CutEntry]:
            time.sleep(1.5)
            yield from super().entries(manifest)

    staging = Staging(tmp_path)
    files = staged(world, staging, 0, topics)
    with pytest.raises(NotPublished, match="'transactionTimeoutMs'"):
        commit(transactional(world, topics[0], transactionTimeoutMs="1000"), Slow(tmp_path), 0, files)
    assert found(world, topics) == [[], []]
    commit(transactional(world, topics[0]), staging, 0, [])
    assert found(world, topics) == wanted(topics, 0)


def test_a_batch_behind_the_open_transaction_of_another_client_waits(
    world: Cluster, topics: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own messages are hidden, committed or not: nothing may be concluded."""
    monkeypatch.setattr("magnetar.spark.writing.transactional._PATIENCE_SECONDS", 1.0)
    producers = [world.client.create_producer(topic) for topic in topics]
    other = world.client.transaction().begin()
    for producer in producers:
        producer.send(b"other", transaction=other)
    stopped_at(world, tmp_path, topics, "behind the commit", 0)
    with monkeypatch.context() as patch:
        forget(patch, tmp_path)
        with pytest.raises(NotPublished, match="another open transaction hides its messages"):
            commit(transactional(world, topics[0]), Staging(tmp_path), 0, [])
        other.abort()
        commit(transactional(world, topics[0]), Staging(tmp_path), 0, [])
    assert found(world, topics) == wanted(topics, 0)
    for producer in producers:
        producer.close()


def test_what_was_trimmed_unseen_is_reported(
    world: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = world.client.create_producer(topic)
    producer.send(b"first")
    stopped_at(world, tmp_path, [topic], "behind the commit", 0)
    forget(monkeypatch, tmp_path)
    for _ in range(120):
        producer.send(b"fills ledgers, which are trimmed as nobody keeps them")
    producer.close()
    world.admin.unload_topic(topic)
    with pytest.raises(DataLoss, match=r"transaction \(\d+,\d+\) of batch 0 may have been committed"):
        commit(transactional(world, topic), Staging(tmp_path), 0, [])


def test_consumers_see_a_batch_when_it_is_committed(
    world: Cluster, topics: list[str], tmp_path: Path
) -> None:
    seen: list[list[list[str]]] = []

    class Watched(Staging):
        def decide_commit(self, batch_id: int, attempt: Attempt, ends: Ends) -> None:
            seen.append(found(world, topics))
            super().decide_commit(batch_id, attempt, ends)

    staging = Watched(tmp_path)
    commit(transactional(world, topics[0]), staging, 0, staged(world, staging, 0, topics))
    assert seen == [[[], []]]
    assert found(world, topics) == wanted(topics, 0)


@pytest.mark.parametrize("first", ["transactional", "exactly-once"])
def test_a_batch_is_finished_in_the_way_in_which_it_was_decided(
    world: Cluster, topics: list[str], tmp_path: Path, first: str
) -> None:
    ways = {"transactional", "exactly-once"}
    [second] = ways - {first}
    given = options(world, topics[0], delivery=first)
    begun, other = QueryOptions.parse(given), QueryOptions.parse(given | {"delivery": second})
    staging = Staging(tmp_path)
    stops(given, tmp_path, "in the middle", 0, staged(world, staging, 0, topics, 3600))
    commit(other, staging, 0, [])
    commit(other, staging, 1, staged(world, staging, 1, topics))
    commit(begun, staging, 2, staged(world, staging, 2, topics))
    pairs = zip(wanted(topics, 0, count=3600), wanted(topics, 1, 2), strict=True)
    assert found(world, topics) == [a + b for a, b in pairs]


def test_a_batch_of_a_release_without_transactions_keeps_its_form(
    world: Cluster, topics: list[str], tmp_path: Path
) -> None:
    """A release that does not know transactions must refuse a batch that was decided as one."""
    for way, version in (("exactly-once", b'"version": 1'), ("transactional", b'"version": 2')):
        files = staged(world, Staging(tmp_path / way), 0, topics)
        stops(options(world, topics[0], delivery=way), tmp_path / way, "behind the manifest", 0, files)
        assert version in (tmp_path / way / "0-manifest").read_bytes()


def test_two_drivers_of_one_query_publish_a_batch_once(
    world: Cluster, topics: list[str], tmp_path: Path
) -> None:
    """The second one begins while the first has sent everything and is about to commit."""
    choice = transactional(world, topics[0])

    class Interrupted(Staging):
        def decide_commit(self, batch_id: int, attempt: Attempt, ends: Ends) -> None:
            with ThreadPoolExecutor() as threads:
                # It aborts the transaction of the first one, whose producers do not answer the broker.
                threads.submit(commit, choice, Staging(tmp_path), 0, []).result()
            super().decide_commit(batch_id, attempt, ends)

    staging = Interrupted(tmp_path)
    with pytest.raises(NotPublished, match=r"transaction \(0,\d+\) of batch 0 is not committed"):
        commit(choice, staging, 0, staged(world, staging, 0, topics))
    commit(choice, Staging(tmp_path), 0, [])
    assert found(world, topics) == wanted(topics, 0)


def test_removed_records_of_attempts_do_not_make_a_broker_drop_the_batch(
    world: Cluster, topics: list[str], tmp_path: Path
) -> None:
    stopped_at(world, tmp_path, topics, "before the commit", 0)
    for record in tmp_path.glob("0-attempt-*"):
        record.unlink()
    with pytest.raises(NotPublished, match=r"files of .* were removed while the query was running"):
        commit(transactional(world, topics[0]), Staging(tmp_path), 0, [])


def test_a_damaged_record_is_named(world: Cluster, topics: list[str], tmp_path: Path) -> None:
    stopped_at(world, tmp_path, topics, "behind the record of the commit", 0)
    path = tmp_path / "0-commit-0"
    path.write_bytes(path.read_bytes().replace(b"ends", b"ENDS"))
    with pytest.raises(StagingDamaged, match="0-commit-0 is damaged"):
        commit(transactional(world, topics[0]), Staging(tmp_path), 0, [])


@pytest.mark.skipif("MAGNETAR_SPARK_SERVICE_URL" in os.environ, reason="that broker has transactions")
def test_without_coordinators_nothing_is_decided(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    cluster.client.subscribe(topic, "keep").close()
    staging = Staging(tmp_path)
    files = [stage(staging, transactional(cluster, topic), 0, names(0, 3))]
    with pytest.raises(NotPublished, match="transactionCoordinatorEnabled=true"):
        commit(transactional(cluster, topic), staging, 0, files)
    assert staging.manifest(0) is None
    commit(QueryOptions.parse(options(cluster, topic)), staging, 0, files)
    assert values(cluster, topic) == names(0, 3)


def test_a_stream_and_a_named_write_through_spark(
    spark: SparkSession, world: Cluster, topic: str, tmp_path: Path
) -> None:
    world.admin.create_partitioned_topic(topic, 3)
    world.client.subscribe(topic, "keep").close()
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    expected = add(folder, 1, 700) + add(folder, 2, 10)
    for number in range(3, 5):
        run(lines(spark, folder), world, checkpoint, topic=topic, delivery="transactional")
        expected += add(folder, number, 30)
    run(lines(spark, folder), world, checkpoint, topic=topic, delivery="transactional")
    rows = spark.createDataFrame([("named",)], "value string")
    for _again in range(2):
        (
            rows.write.format("pulsar")
            .options(**world.options(topic=topic, delivery="transactional", writeId="one"))
            .option("stagingDir", str(tmp_path / "staging"))
            .mode("append")
            .save()
        )
    arrived = messages(world, topic)
    assert sorted(each.data().decode() for each in arrived) == sorted([*expected, "named"])
    with pytest.raises(Exception, match="'delivery=transactional' of a batch requires 'writeId'"):
        rows.write.format("pulsar").options(**world.options(topic=topic, delivery="transactional")).mode(
            "append"
        ).save()


def test_batches_end_before_an_open_transaction(spark: SparkSession, world: Cluster, topic: str) -> None:
    producer = world.client.create_producer(topic)

    def read() -> list[str]:
        rows = spark.read.format("pulsar").options(**world.options(topic=topic)).load()
        return [bytes(row.value).decode() for row in rows.orderBy("__messageId").collect()]

    world.client.subscribe(topic, "keep").close()
    producer.send(b"before")
    assert read() == ["before"]
    committed, aborted = world.client.transaction().begin(), world.client.transaction().begin()
    producer.send(b"committed", transaction=committed)
    producer.send(b"aborted", transaction=aborted)
    producer.send(b"behind")
    assert read() == ["before"]
    aborted.abort()
    assert read() == ["before"]
    committed.commit()
    assert read() == ["before", "committed", "behind"]
    producer.close()
