"""``spark.read`` of topics as bytes."""

from __future__ import annotations

import pytest
from spark_world import Cluster, publish

from conftest import Read
from magnetar.client.enums import CompressionType
from magnetar.client.message_id import MessageId


@pytest.mark.parametrize("batching", [False, True])
def test_all_messages_are_read_once(cluster: Cluster, read: Read, topic: str, batching: bool) -> None:
    ids = publish(cluster, topic, 235, batching_enabled=batching)
    rows = read(topic=topic).collect()
    assert sorted(row.value for row in rows) == sorted(b"m%d" % number for number in range(235))
    by_value = {bytes(row.value): row for row in rows}
    for number in (0, 1, 117, 234):
        row = by_value[b"m%d" % number]
        assert bytes(row["__key"]) == b"k%d" % (number % 7)
        assert row["__topic"] == topic
        assert row["__messageProperties"] == ({"number": str(number)} if number % 2 else {})
        assert (row["__eventTime"] is None) == (number == 0)
        assert MessageId.deserialize(bytes(row["__messageId"])).position == ids[number].position
        assert (MessageId.deserialize(bytes(row["__messageId"])).batch_index() >= 0) == batching


@pytest.mark.parametrize("compression", list(CompressionType), ids=lambda each: each.name)
def test_compressed_batches_are_read(
    cluster: Cluster, read: Read, topic: str, compression: CompressionType
) -> None:
    publish(cluster, topic, 40, batching_enabled=True, compression_type=compression)
    assert {bytes(row.value) for row in read(topic=topic).collect()} == {b"m%d" % each for each in range(40)}


def test_a_partitioned_topic_is_read_whole_in_parts_of_the_size_asked_for(
    cluster: Cluster, read: Read, topic: str
) -> None:
    cluster.admin.create_partitioned_topic(topic, 3)
    publish(cluster, topic, 300, batching_enabled=False)
    found = read(topic=topic, maxEntriesPerPartition="40")
    assert found.count() == 300
    assert found.rdd.getNumPartitions() >= 300 // 40
    assert {row["__topic"] for row in found.select("__topic").distinct().collect()} == {
        f"{topic}-partition-{index}" for index in range(3)
    }
