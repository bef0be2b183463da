"""The broker publishes to topics and follows them itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.topics.within import TopicWriter, read_on
from magnetar.errors import ServiceNotReady, TopicTerminated
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


def entry(sequence_id: int) -> bytes:
    metadata = MessageMetadata(producer_name="within", sequence_id=sequence_id, publish_time=1)
    return build_entry(metadata, b"%d" % sequence_id)


def test_what_is_appended_is_durable_and_can_be_read_on_from_anywhere() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    lived.subscribe(topic, "keep")
    writer = TopicWriter(topic, "within")
    seen: list[bytes] = []

    def take(run: EntryRun) -> None:
        seen.extend(run.entry(index) for index in range(run.count))

    async def work() -> list[Position]:
        positions = [await writer.append(entry(number), number) for number in range(25)]
        assert topic.managed_ledger.last_confirmed == positions[-1]
        return positions

    positions = lived.world.run(work())
    assert positions == sorted(set(positions))
    assert lived.world.run(read_on(topic, EARLIEST, take)) == positions[-1]
    assert seen == [entry(number) for number in range(25)]
    seen.clear()
    assert lived.world.run(read_on(topic, positions[20], take)) == positions[-1]
    assert seen == [entry(number) for number in range(21, 25)]
    assert lived.world.run(read_on(topic, positions[-1], take)) == positions[-1]
    assert topic.rate_in.messages == 25


def test_appends_that_wait_together_are_told_apart() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    lived.subscribe(topic, "keep")
    writer = TopicWriter(topic, "within")
    loop = lived.world.simulation.loop
    waiting = [loop.create_task(writer.append(entry(number), number)) for number in range(12)]
    positions = [lived.world.run(each) for each in waiting]
    runs = [lived.world.run(topic.managed_ledger.reader.read(at, at, 1, 1)) for at in positions]
    assert [run.entry(0) for run in runs] == [entry(number) for number in range(12)]


def test_an_append_that_cannot_be_stored_is_told_why() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    writer = TopicWriter(topic, "within")
    lived.world.run(writer.append(entry(0), 0))
    lived.world.run(topic.terminate())
    with pytest.raises(TopicTerminated):
        lived.world.run(writer.append(entry(1), 1))
    lived.world.run(lived.broker.topics.unload_topic(topic))
    with pytest.raises(ServiceNotReady):
        lived.world.run(writer.append(entry(2), 2))


def test_all_who_follow_hear_of_what_was_stored() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    heard: list[str] = []
    topic.followers.add(lambda: heard.append("one"))
    topic.followers.add(lambda: heard.append("two"))
    lived.world.run(TopicWriter(topic, "within").append(entry(0), 0))
    assert heard == ["one", "two"]


def test_what_the_broker_writes_counts_for_deduplication() -> None:
    lived = Lived(replace(EffectivePolicies(), deduplication=True))
    topic = lived.topic()
    lived.world.run(TopicWriter(topic, "within").append(entry(7), 7))
    assert topic.last_sequence_id("within") == 7
