"""Where reading starts and ends, and what is left out on the way."""

from __future__ import annotations

import base64
import datetime
import json
import time

import pytest
from pyspark.sql import functions as f
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan, StringContains
from spark_world import Cluster, publish

from magnetar.client.message_id import MessageId
from magnetar.spark.codec.columns import BYTES
from magnetar.spark.errors import DataLoss, InvalidOption, InvalidPlace, SparkSourceError
from magnetar.spark.options import QueryOptions
from magnetar.spark.reading.batch import BatchReader
from magnetar.spark.reading.streaming import StreamReader


def reader_of(cluster: Cluster, **options: str) -> BatchReader:
    return BatchReader(QueryOptions.parse(cluster.options(**options)), BYTES)


def values(reader: BatchReader) -> list[bytes]:
    """What Spark would read, in the order of the parts."""
    parts = reader.partitions()
    return [
        value for part in parts for batch in reader.read(part) for value in batch.column("value").to_pylist()
    ]


def messages(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


def encoded(message_id: MessageId) -> str:
    return base64.b64encode(message_id.serialize()).decode()


def test_ids_of_messages_in_batches_are_the_first_and_the_last_that_are_read(
    cluster: Cluster, topic: str
) -> None:
    ids = publish(cluster, topic, 100, batching_enabled=True, batching_max_publish_delay_ms=1000)
    found = reader_of(
        cluster,
        topic=topic,
        startingOffsets=json.dumps({topic: encoded(ids[13])}),
        endingOffsets=json.dumps({topic: encoded(ids[57])}),
    )
    assert values(found) == messages(13, 58)


def test_ids_that_are_in_no_ledger_are_the_two_ends(cluster: Cluster, topic: str) -> None:
    publish(cluster, topic, 10)
    earliest, latest = (json.dumps({topic: encoded(each)}) for each in (MessageId.earliest, MessageId.latest))
    assert values(reader_of(cluster, topic=topic, startingOffsets=earliest)) == messages(0, 10)
    assert values(reader_of(cluster, topic=topic, startingOffsets=latest)) == []
    assert values(reader_of(cluster, topic=topic, endingOffsets=latest)) == messages(0, 10)
    for text, word in ((earliest, "earliest"), (latest, "latest")):
        begins = [
            StreamReader(QueryOptions.parse(cluster.options(topic=topic, startingOffsets=each)), BYTES)
            for each in (text, word)
        ]
        one, other = (each.initialOffset()["topics"] for each in begins)
        assert one == other
        for each in begins:
            each.stop()


def test_an_offset_of_a_stream_is_taken(cluster: Cluster, topic: str) -> None:
    ids = publish(cluster, topic, 100, batching_enabled=True, batching_max_publish_delay_ms=1000)
    place = f"{ids[23].ledger_id()}:{ids[23].entry_id()}:{ids[23].batch_index()}"
    offsets = json.dumps({"topics": {topic: {"next": place}}})
    assert values(reader_of(cluster, topic=topic, startingOffsets=offsets)) == messages(23, 100)
    assert values(reader_of(cluster, topic=topic, endingOffsets=offsets)) == messages(0, 23)


def test_times_bound_what_is_read(cluster: Cluster, topic: str) -> None:
    publish(cluster, topic, 60)
    time.sleep(0.01)
    middle = str(time.time_ns() // 1_000_000)
    publish(cluster, topic, 60, 60)
    assert values(reader_of(cluster, topic=topic, startingTime=middle)) == messages(60, 120)
    assert values(reader_of(cluster, topic=topic, endingTime=middle)) == messages(0, 60)


def test_latest_to_latest_is_nothing(cluster: Cluster, topic: str) -> None:
    publish(cluster, topic, 10)
    assert values(reader_of(cluster, topic=topic, startingOffsets="latest")) == []


def test_a_pattern_names_topics_with_all_their_partitions(cluster: Cluster, topic: str) -> None:
    cluster.admin.create_partitioned_topic(f"{topic}-x1", 2)
    publish(cluster, f"{topic}-x1", 10)
    publish(cluster, f"{topic}-x2", 5, 10)
    publish(cluster, f"{topic}-y", 5)
    found = values(reader_of(cluster, topicsPattern=f"{topic}-x.*"))
    assert sorted(found) == sorted(messages(0, 15))


def test_filters_are_taken_over_and_leave_out_what_they_say(cluster: Cluster, topic: str) -> None:
    publish(cluster, topic, 70, batching_enabled=True)
    time.sleep(0.01)
    middle = datetime.datetime.now(datetime.UTC)
    publish(cluster, topic, 70, 70, batching_enabled=True)
    reader = reader_of(cluster, topic=topic)
    kept = StringContains(("__topic",), "a")
    left = reader.pushFilters([In(("__key",), (b"k1", b"k3")), LessThan(("__publishTime",), middle), kept])
    assert list(left) == [kept]
    assert values(reader) == [b"m%d" % number for number in range(70) if number % 7 in (1, 3)]
    other = reader_of(cluster, topic=topic)
    assert list(other.pushFilters([GreaterThanOrEqual(("__publishTime",), middle)])) == []
    assert values(other) == messages(70, 140)
    none = reader_of(cluster, topic=topic)
    none.pushFilters([EqualTo(("__topic",), "persistent://public/default/another")])
    assert values(none) == []


def test_spark_hands_its_filters_over(cluster: Cluster, topic: str, read) -> None:
    publish(cluster, topic, 70)
    found = read(topic=topic).where(f.col("__key") == f.lit(b"k2")).select("value")
    assert sorted(bytes(row.value) for row in found.collect()) == sorted(
        b"m%d" % number for number in range(2, 70, 7)
    )


def test_what_is_asked_for_and_not_there_is_named(cluster: Cluster, topic: str) -> None:
    with pytest.raises(SparkSourceError, match=f"the topic {topic} does not exist"):
        reader_of(cluster, topic=topic).partitions()
    assert values(reader_of(cluster, topic=topic, waitingForNonExistedTopic="true")) == []
    publish(cluster, topic, 3)
    with pytest.raises(
        InvalidPlace, match="topics that this query does not read: persistent://public/default/z"
    ):
        reader_of(cluster, topic=topic, startingOffsets='{"z": "1:2"}').partitions()
    with pytest.raises(InvalidPlace, match="is not a message id"):
        reader_of(cluster, topic=topic, startingOffsets=json.dumps({topic: "%%"})).partitions()
    with pytest.raises(DataLoss, match="the messages from 0:5:0 on have been deleted"):
        reader_of(cluster, topic=topic, startingOffsets=json.dumps({topic: "0:5"})).partitions()
    with pytest.raises(InvalidOption, match="'topic'"):
        reader_of(cluster)
