"""How often what deduplication knows is saved: as the topic says, else its namespace, else the broker."""

from __future__ import annotations

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies, of_namespace, of_topic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.within import TopicWriter
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


def published(lived: Lived, topic: Topic) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    lived.world.run(TopicWriter(topic, "p").append(build_entry(metadata, b"x"), 1))


def is_saved(topic: Topic) -> bool:
    assert topic.deduplication is not None
    return topic.deduplication.cursor.mark_delete == topic.max_read_position


@pytest.mark.parametrize(
    ("namespace", "own", "wanted"), [({}, {}, 120), (600, {}, 600), (600, 30, 30), (0, 30, 30), (600, 0, 0)]
)
def test_the_nearest_policy_says_when(namespace: int, own: int, wanted: int) -> None:
    field = "deduplicationSnapshotIntervalSeconds"
    of = of_namespace(EffectivePolicies(), {field: namespace} if namespace != {} else {}, "standalone")
    found = of_topic(of, {field: own} if own != {} else {})
    assert found.deduplication_snapshot_seconds == wanted


@pytest.mark.parametrize(("interval", "before", "after"), [(30, 25, 10), (300, 290, 20)])
def test_a_snapshot_is_taken_when_it_is_time(interval: int, before: int, after: int) -> None:
    policies = EffectivePolicies(deduplication=True, deduplication_snapshot_seconds=interval)
    lived = Lived(policies, deduplication_check_seconds=1.0)
    topic = lived.topic()
    published(lived, topic)
    lived.world.wait(before)
    assert not is_saved(topic)
    lived.world.wait(after)
    assert is_saved(topic)


def test_none_is_taken_for_its_age_where_the_interval_is_zero() -> None:
    policies = EffectivePolicies(deduplication=True, deduplication_snapshot_seconds=0)
    lived = Lived(policies, deduplication_check_seconds=1.0)
    topic = lived.topic()
    published(lived, topic)
    lived.world.wait(1000)
    assert not is_saved(topic)
    lived.use(topic, deduplication_snapshot_seconds=1)
    lived.world.wait(3)
    assert is_saved(topic)
