"""The reader of streams by itself: offsets, limits, what is kept and what is lost; without a session."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from spark_world import Cluster, publish

from magnetar.admin_client import topic_path
from magnetar.spark.codec.columns import BYTES
from magnetar.spark.errors import DataLoss
from magnetar.spark.ledgers import layout_of
from magnetar.spark.options import QueryOptions
from magnetar.spark.positions import Offset
from magnetar.spark.reading.streaming import StreamReader

ALL = ReadAllAvailable()


class Query:
    """What Spark does with a reader, step by step."""

    def __init__(self, cluster: Cluster, **options: str) -> None:
        self._options = QueryOptions.parse(cluster.options(**options))
        self.reader = StreamReader(self._options, BYTES)
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def restarted(self) -> Query:
        self.reader.stop()
        self.reader = StreamReader(self._options, BYTES)
        return self

    def plan(self, limit: Any = ALL) -> dict[str, Any]:
        return json.loads(json.dumps(self.reader.latestOffset(self.offset, limit)))

    def run(self, end: dict[str, Any]) -> list[bytes]:
        return [
            value
            for part in self.reader.partitions(self.offset, end)
            for batch in self.reader.read(part)
            for value in batch.column("value").to_pylist()
        ]

    def batch(self, limit: Any = ALL) -> list[bytes]:
        """Plans, reads and commits one batch."""
        end = self.plan(limit)
        if end == self.offset:
            return []
        found = self.run(end)
        self.reader.commit(end)
        self.offset = end
        return found


@pytest.fixture
def query(cluster: Cluster, topic: str) -> Iterator[Query]:
    publish(cluster, topic, 0)
    made = Query(cluster, topic=topic, startingOffsets="earliest")
    yield made
    made.reader.stop()


def messages(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


def test_batches_follow_each_other_without_gap_or_repetition(
    cluster: Cluster, topic: str, query: Query
) -> None:
    publish(cluster, topic, 120)
    assert query.batch() == messages(0, 120)
    assert query.batch() == []
    publish(cluster, topic, 77, 120, batching_enabled=True)
    assert query.restarted().batch() == messages(120, 197)


def test_a_row_limit_holds_exactly_and_cuts_batches(cluster: Cluster, topic: str, query: Query) -> None:
    publish(cluster, topic, 100, batching_enabled=True, batching_max_publish_delay_ms=1000)
    found = []
    for first in range(0, 98, 7):
        batch = query.batch(ReadMaxRows(7))
        assert batch == messages(first, first + 7)
        found += batch
    assert found + query.batch(ReadMaxRows(7)) == messages(0, 100)


def test_a_byte_limit_holds_and_lets_one_message_through(cluster: Cluster, topic: str, query: Query) -> None:
    publish(cluster, topic, 60)
    assert query.batch(ReadMaxBytes(1)) == messages(0, 1)
    size = cluster.admin.topic_internal_stats(topic)["totalSize"] // 60
    found = query.batch(ReadMaxBytes(size * 10))
    assert 8 <= len(found) <= 11
    assert found == messages(1, 1 + len(found))


def test_limits_are_shared_by_topics_that_take_turns(cluster: Cluster, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        publish(cluster, name, 20)
    query = Query(cluster, topics=",".join(names), startingOffsets="earliest")
    try:
        for _ in range(3):
            assert len(query.batch(ReadMaxRows(2))) == 2
        read = Offset.from_json(query.offset).topics
        assert [read[name].next.entry for name in names] == [2, 2, 2]
        assert len(query.batch(ReadMaxRows(30))) == 30
    finally:
        query.reader.stop()


def test_a_batch_is_planned_the_same_after_ledgers_were_closed(
    cluster: Cluster, topic: str, query: Query
) -> None:
    publish(cluster, topic, 130)
    end = query.plan()
    first = query.reader.partitions(query.offset, end)
    publish(cluster, topic, 70, 130)
    cluster.admin.unload_topic(topic)
    again = query.restarted().reader.partitions(query.offset, end)
    assert [(part.topic, part.ranges) for part in first] == [(part.topic, part.ranges) for part in again]
    assert query.run(end) == messages(0, 130)


def test_the_first_batch_is_the_same_when_spark_asks_again_where_to_start(
    cluster: Cluster, topic: str
) -> None:
    publish(cluster, topic, 10)
    query = Query(cluster, topic=topic)
    try:
        publish(cluster, topic, 10, 10)
        end = query.plan()
        publish(cluster, topic, 10, 20)
        query.offset = query.restarted().reader.initialOffset()
        assert query.run(end) == messages(10, 20)
    finally:
        query.reader.stop()


def test_nothing_unread_is_trimmed(cluster: Cluster, topic: str, query: Query) -> None:
    publish(cluster, topic, 5)
    query.batch()
    publish(cluster, topic, 200, 5)
    cluster.admin.delete_subscription(topic, "keep")
    publish_and_roll(cluster, topic)
    assert query.restarted().batch()[:200] == messages(5, 205)


def publish_and_roll(cluster: Cluster, topic: str) -> None:
    """Makes the broker close its ledger, and trim what nobody holds."""
    cluster.admin.unload_topic(topic)
    producer = cluster.client.create_producer(topic)
    producer.send(b"last")
    producer.close()
    cluster.admin.unload_topic(topic)
    cluster.admin._http.ask("POST", topic_path(topic) + "/trim")


def await_gone(cluster: Cluster, topic: str, ledger: int) -> None:
    """Brokers trim when they get to it."""
    end = time.monotonic() + 30
    while layout_of(cluster.admin, topic).has(ledger):
        assert time.monotonic() < end, f"the ledger {ledger} is still there"
        time.sleep(0.05)


@pytest.mark.parametrize("fails", [True, False])
def test_trimmed_messages_are_found_and_named(cluster: Cluster, topic: str, fails: bool) -> None:
    publish(cluster, topic, 120)
    query = Query(cluster, topic=topic, startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    try:
        end = query.plan()
        query.reader.partitions(query.offset, end)
        cluster.admin.delete_subscription(topic, "keep")
        cluster.admin.delete_subscription(topic, Offset.from_json(end).subscription)
        publish_and_roll(cluster, topic)
        lost = Offset.from_json(query.offset).topics[topic].next.ledger
        await_gone(cluster, topic, lost)
        if fails:
            with pytest.raises(DataLoss, match=rf"{topic}: the messages {lost}:0 to {lost}:\d+ were deleted"):
                query.run(end)
            with pytest.raises(
                DataLoss, match=rf"{topic}: the messages from {lost}:0:0 on have been deleted"
            ):
                query.restarted().plan()
        else:
            assert set(query.run(end)) < set(messages(0, 120))
    finally:
        query.reader.stop()


def test_messages_that_others_passed_over_before_the_first_batch_are_missed(
    cluster: Cluster, topic: str, query: Query
) -> None:
    name = Offset.from_json(query.offset).subscription
    # Nothing is there, and the query waits for it.
    query.reader.partitions(query.offset, query.plan())
    publish(cluster, topic, 120)
    lost = layout_of(cluster.admin, topic).ledgers[0][0]
    # As the time to live of messages does.
    path = f"{topic_path(topic)}/subscription/{name}/skip_all"
    cluster.admin._http.ask("POST", path)
    cluster.admin.delete_subscription(topic, "keep")
    publish_and_roll(cluster, topic)
    await_gone(cluster, topic, lost)
    with pytest.raises(DataLoss, match=rf"{topic}: the messages from {lost}:0:0 on have been deleted"):
        query.restarted().plan()


def test_a_topic_that_was_opened_again_before_its_first_message_has_lost_nothing(
    cluster: Cluster, topic: str, query: Query
) -> None:
    query.reader.partitions(query.offset, query.plan())
    for _ in range(2):
        cluster.admin.unload_topic(topic)
        cluster.client.subscribe(topic, "keep").close()
    publish(cluster, topic, 30)
    assert query.restarted().batch() == messages(0, 30)


def test_a_subscription_is_made_when_its_name_is_in_the_checkpoint(cluster: Cluster, topic: str) -> None:
    publish(cluster, topic, 20)
    offset = {}
    for _ in range(3):
        # Killed before Spark had written its first offset: the next run cannot know of this one.
        query = Query(cluster, topic=topic, startingOffsets="earliest")
        offset = query.plan()
        query.reader.stop()
    assert set(layout_of(cluster.admin, topic).cursors) == {"keep"}
    # Spark asks again where to start, which does not count, and runs the batch that it has written down.
    query = Query(cluster, topic=topic, startingOffsets="earliest")
    try:
        query.reader.initialOffset()
        assert query.run(offset) == messages(0, 20)
    finally:
        query.reader.stop()
    assert set(layout_of(cluster.admin, topic).cursors) == {"keep", offset["subscription"]}


def test_partitions_that_appear_later_are_read_from_their_beginning(cluster: Cluster, topic: str) -> None:
    cluster.admin.create_partitioned_topic(topic, 1)
    query = Query(cluster, topic=topic)
    try:
        publish(cluster, topic, 10)
        assert len(query.batch()) == 10
        cluster.admin._http.ask("POST", f"/admin/v2/{topic.replace('://', '/')}/partitions", body="3")
        publish(cluster, topic, 90, 10)
        assert sorted(query.batch()) == sorted(messages(10, 100))
    finally:
        query.reader.stop()


def test_available_now_leaves_out_what_comes_later(cluster: Cluster, topic: str, query: Query) -> None:
    publish(cluster, topic, 30)
    query.reader.prepareForTriggerAvailableNow()
    publish(cluster, topic, 30, 30)
    found: list[bytes] = []
    while batch := query.batch(ReadMaxRows(13)):
        found += batch
    assert found == messages(0, 30)


def test_the_backlog_is_reported_by_topic(cluster: Cluster, topic: str, query: Query) -> None:
    publish(cluster, topic, 30)
    query.batch(ReadMaxRows(10))
    reported = query.reader.reportLatestOffset()
    assert reported is not None
    assert reported["topics"][topic]["backlog"] == 20
