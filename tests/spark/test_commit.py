"""Publishing what was staged, cut short at every place; without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_world import Cluster

from magnetar.client import MessageId
from magnetar.spark.codec.schemas import NOTHING
from magnetar.spark.errors import DataLoss, DeduplicationIsOff, InvalidOption, NotPublished, StagingDamaged
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.committing import commit
from magnetar.spark.writing.cutting import CutEntry, RowCutter
from magnetar.spark.writing.sink import StreamSink, TaskDone
from magnetar.spark.writing.staging import Manifest, StagedFile, Staging

SCHEMA = StructType([StructField("value", BinaryType())])


class Stopped(Exception):
    pass


class StopsAfter(Staging):
    """A process that ends after so many entries."""

    def __init__(self, folder: Path, entries: int) -> None:
        super().__init__(folder)
        self._entries = entries

    def entries(self, manifest: Manifest) -> Iterator[CutEntry]:
        for index, entry in enumerate(super().entries(manifest)):
            if index == self._entries:
                raise Stopped
            yield entry

    def publish_is_done(self, manifest: Manifest) -> NoReturn:
        raise Stopped


def options(cluster: Cluster, topic: str, **more: str) -> QueryOptions:
    given = cluster.options(topic=topic, **more)
    given["pulsar.producer.batchingMaxMessages"] = "3"
    return QueryOptions.parse(given)


def stage(
    staging: Staging, wanted: QueryOptions, batch_id: int, values: list[str], partition: int = 0
) -> StagedFile:
    writer = staging.writer(batch_id, partition)
    cutter = RowCutter(SCHEMA, wanted, lambda topic: 0, lambda topic: NOTHING)
    for entry in cutter.entries(pa.record_batch([pa.array([each.encode() for each in values])], ["value"])):
        writer.add(entry)
    return writer.finish()


def values(cluster: Cluster, topic: str) -> list[str]:
    reader = cluster.client.create_reader(topic, MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(120_000).data().decode())
    reader.close()
    return found


def names(batch_id: int, count: int) -> list[str]:
    return [f"{batch_id}.{number}" for number in range(count)]


def keep(cluster: Cluster, topic: str) -> None:
    """Lets nothing be trimmed that was not read."""
    cluster.client.subscribe(topic, "keep").close()


def last_sequence_id(cluster: Cluster, topic: str, staging: Staging) -> int:
    producer = cluster.client.create_producer(topic, producer_name=staging.producer(may_begin=False))
    found = producer.last_sequence_id()
    producer.close()
    return found


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4, 7])
def test_a_batch_cut_short_goes_on_where_it_ended(
    cluster: Cluster, topic: str, tmp_path: Path, cut: int
) -> None:
    keep(cluster, topic)
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    commit(wanted, staging, 0, [stage(staging, wanted, 0, names(0, 5))])
    files = [stage(staging, wanted, 1, names(1, 8)[:4], 0), stage(staging, wanted, 1, names(1, 8)[4:], 1)]
    with pytest.raises(Stopped):
        commit(wanted, StopsAfter(tmp_path, cut), 1, files)
    others = [stage(staging, wanted, 1, ["other"])]
    commit(wanted, Staging(tmp_path), 1, others)
    commit(wanted, Staging(tmp_path), 1, others)
    assert values(cluster, topic) == names(0, 5) + names(1, 8)


@pytest.mark.parametrize("cut", [0, 1, 3, 9])
@pytest.mark.parametrize("before", [0, 2])
def test_a_batch_cut_short_is_looked_up_when_the_broker_forgot_its_producer(
    cluster: Cluster, topic: str, tmp_path: Path, cut: int, before: int
) -> None:
    keep(cluster, topic)
    other = cluster.client.create_producer(topic)
    for number in range(before):
        other.send(b"before.%d" % number)
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    with pytest.raises(Stopped):
        commit(wanted, StopsAfter(tmp_path, cut), 0, [stage(staging, wanted, 0, names(0, 8))])
    other.send(b"between")
    forget(cluster, topic)
    assert last_sequence_id(cluster, topic, staging) == -1
    commit(wanted, staging, 0, [])
    found = [each for each in values(cluster, topic) if each[0] == "0"]
    assert found == names(0, 8)
    other.close()


def forget(cluster: Cluster, topic: str) -> None:
    """Switches deduplication off, which forgets all producers, and on again."""
    cluster.admin.set_topic_deduplication(topic, False)
    end = time.monotonic() + 30
    # Apache Pulsar says that it is done before it is.
    while cluster.admin.topic_stats(topic)["deduplicationStatus"] != "Disabled":
        assert time.monotonic() < end, "the topic still deduplicates"
        time.sleep(0.02)


def test_a_damaged_file_is_named_and_nothing_of_it_is_published(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    keep(cluster, topic)
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    staged = stage(staging, wanted, 0, names(0, 8))
    with pytest.raises(Stopped):
        commit(wanted, StopsAfter(tmp_path, 0), 0, [staged])
    path = tmp_path / staged.name
    good = path.read_bytes()
    path.write_bytes(good[:50] + bytes([good[50] ^ 1]) + good[51:])
    with pytest.raises(StagingDamaged, match=staged.name):
        commit(wanted, staging, 0, [])
    path.unlink()
    with pytest.raises(StagingDamaged, match=f"{staged.name} of batch 0 is missing"):
        commit(wanted, staging, 0, [])
    assert values(cluster, topic) == []
    path.write_bytes(good)
    commit(wanted, staging, 0, [])
    assert values(cluster, topic) == names(0, 8)


def test_a_damaged_manifest_is_named(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    with pytest.raises(Stopped):
        commit(wanted, StopsAfter(tmp_path, 0), 0, [stage(staging, wanted, 0, names(0, 8))])
    path = tmp_path / "0-manifest"
    path.write_bytes(path.read_bytes().replace(b"rows", b"sows", 1))
    with pytest.raises(StagingDamaged, match="0-manifest is damaged"):
        commit(wanted, staging, 0, [])


def test_an_empty_staging_folder_of_a_query_that_has_run_is_refused(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    keep(cluster, topic)
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    files = [stage(staging, wanted, 7, names(7, 2))]
    with pytest.raises(StagingDamaged, match="'newStaging'"):
        commit(wanted, staging, 7, files)
    commit(options(cluster, topic, newStaging="true"), staging, 7, files)
    assert values(cluster, topic) == names(7, 2)


def test_another_query_is_not_taken_for_the_one_that_has_published(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    keep(cluster, topic)
    wanted = options(cluster, topic, stagingDir=str(tmp_path))
    staging, sink = Staging(tmp_path), StreamSink(SCHEMA, wanted)
    for batch_id in range(2):
        staged = stage(staging, wanted, batch_id, names(batch_id, 3))
        sink.commit([TaskDone(3, staged, "one"), TaskDone(0, None, "one")], batch_id)
    for batch_id in range(3):
        done = [TaskDone(3, stage(staging, wanted, batch_id, ["lost"]), "other")]
        with pytest.raises(
            InvalidOption, match="has the staged rows of query one; this is query other, another query"
        ):
            sink.commit(done, batch_id)
        sink.abort(done, batch_id)
    sink.commit([TaskDone(3, stage(staging, wanted, 2, names(2, 3)), "one")], 2)
    assert values(cluster, topic) == names(0, 3) + names(1, 3) + names(2, 3)


def test_a_query_whose_first_batches_have_no_rows_goes_on(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    keep(cluster, topic)
    wanted = options(cluster, topic)
    staging = Staging(tmp_path / "staging")
    for batch_id in range(2):
        commit(wanted, staging, batch_id, [])
    commit(wanted, staging, 2, [stage(staging, wanted, 2, names(2, 3))])
    assert values(cluster, topic) == names(2, 3)


def test_staged_files_go_when_they_are_published(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    for batch_id in range(3):
        stage(staging, wanted, batch_id, ["of an attempt that failed"])
        commit(wanted, staging, batch_id, [stage(staging, wanted, batch_id, names(batch_id, 8))])
    assert {each.name for each in tmp_path.iterdir()} == {"producer", "2-manifest", "2-published"}


def test_deduplication_that_is_required_is_not_switched_on(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    wanted = options(cluster, topic, **{"deduplication.enable": "require"})
    staging = Staging(tmp_path)
    files = [stage(staging, wanted, 0, names(0, 2))]
    with pytest.raises(
        DeduplicationIsOff, match=f"run: pulsar-admin topicPolicies set-deduplication --enable {topic}"
    ):
        commit(wanted, staging, 0, files)
    assert staging.manifest(0) is None
    cluster.admin.set_topic_deduplication(topic, True)
    commit(wanted, staging, 0, files)


def test_a_batch_that_can_never_be_published_is_not_decided(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    with pytest.raises(NotPublished, match=r"5300\d\d\d bytes"):
        commit(wanted, staging, 0, [stage(staging, wanted, 0, ["x" * 5_300_000])])
    assert staging.manifest(0) is None


def test_what_was_trimmed_unseen_is_told(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    wanted = options(cluster, topic)
    staging = Staging(tmp_path)
    producer = cluster.client.create_producer(topic)
    producer.send(b"first")
    with pytest.raises(Stopped):
        commit(wanted, StopsAfter(tmp_path, 1), 0, [stage(staging, wanted, 0, names(0, 8))])
    for _ in range(120):
        producer.send(b"fills ledgers, which are trimmed as nobody keeps them")
    producer.close()
    cluster.admin.unload_topic(topic)
    forget(cluster, topic)
    with pytest.raises(DataLoss, match="batch 0 may have been published in part"):
        commit(wanted, staging, 0, [])
