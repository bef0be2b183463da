"""Topics that get more partitions while they are used."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import BUSY, TOPIC, World, arrives

from magnetar.client.client import Client
from magnetar.client.enums import HashingScheme
from magnetar.client.exceptions import AlreadyClosed, InvalidConfiguration, Timeout
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.client.outgoing_message import MessageOptions
from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def producer_on(world: World, partitions: int, **routing: Any) -> PartitionedProducer:
    options = ProducerOptions(batching_enabled=False, send_timeout_millis=0)
    producer = PartitionedProducer(world.services, TOPIC, partitions, options, **routing)
    world.loop.run_until(producer.open())
    return producer


def consumer_on(world: World, partitions: int) -> PartitionedConsumer:
    consumer = PartitionedConsumer(world.services, TOPIC, "s", partitions, ConsumerOptions())
    world.loop.run_until(consumer.open())
    return consumer


def topics_of(world: World, kind: int) -> list[str]:
    """Of all producers, or consumers, that were made known."""
    asked = [command for command in world.broker.asked if command.type == kind]
    return [c.producer.topic if kind == BaseCommand.PRODUCER else c.subscribe.topic for c in asked]


def pending(producer: PartitionedProducer) -> list[int]:
    return [part.pending_messages for part in producer._parts]


def test_messages_go_to_partitions_that_came() -> None:
    world = World()
    world.counts[TOPIC] = 2
    producer = producer_on(world, 2)
    world.loop.run_for(61)
    assert len(pending(producer)) == 2
    world.counts[TOPIC] = 4
    world.loop.run_for(60)
    for number in range(8):
        producer.enqueue(b"m%d" % number, lambda _id, _error: None, None, None)
    assert pending(producer) == [2, 2, 2, 2]
    # A question would make a topic anew that somebody has deleted.
    assert world.looks == [False, False]


def test_keys_go_where_they_go_among_as_many_partitions() -> None:
    world = World()
    grown, whole = (
        producer_on(world, count, hashing_scheme=HashingScheme.Murmur3_32Hash) for count in (1, 3)
    )
    world.counts[TOPIC] = 3
    world.loop.run_for(61)
    for key in "abcdefgh":
        for each in (grown, whole):
            each.enqueue(b"m", lambda _id, _error: None, None, MessageOptions(partition_key=key))
    assert pending(grown) == pending(whole)


def test_messages_of_partitions_that_came_are_delivered_and_acknowledged() -> None:
    world = World()
    consumer = consumer_on(world, 1)
    receiving = world.loop.create_task(consumer.receive())
    world.counts[TOPIC] = 3
    world.loop.run_for(61)
    assert topics_of(world, BaseCommand.SUBSCRIBE) == [f"{TOPIC}-partition-{n}" for n in range(3)]
    arrives(consumer._parts[2], 7, 0)
    message = world.loop.run_until(receiving)
    assert message.message_id().partition() == 2
    world.loop.run_until(consumer.acknowledge(message))
    with pytest.raises(Timeout):
        world.loop.run_until(consumer.receive(100))


def test_a_partition_that_cannot_be_had_is_tried_later_and_none_before_it() -> None:
    world = World()
    consumer = consumer_on(world, 1)
    world.broker.gone.add(f"{TOPIC}-partition-1")
    world.counts[TOPIC] = 3
    world.loop.run_for(61)
    assert len(consumer._parts) == 1
    world.broker.gone.clear()
    world.loop.run_for(60)
    assert [part.topic() for part in consumer._parts] == [f"{TOPIC}-partition-{n}" for n in range(3)]


def test_fewer_partitions_than_there_were_change_nothing() -> None:
    world = World()
    consumer, producer = consumer_on(world, 2), producer_on(world, 2)
    world.loop.run_for(61)
    assert (len(consumer._parts), len(producer._parts)) == (2, 2)
    assert consumer.is_connected()
    assert producer.is_connected()


def test_nobody_looks_for_who_is_closed_or_does_not_want_it() -> None:
    world, other = World(), World(partitions_seconds=0)
    for each in (consumer_on(world, 1), producer_on(world, 1)):
        world.loop.run_until(each.close())
    consumer_on(other, 1)
    producer_on(other, 1)
    for each in (world, other):
        each.loop.run_for(600)
        assert each.looks == []


def test_what_is_closed_while_it_looks_leaves_nothing_behind() -> None:
    world = World()
    consumer = consumer_on(world, 1)
    world.counts[TOPIC] = 2
    world.broker.silent.add(BaseCommand.SUBSCRIBE)
    world.loop.run_for(61)
    assert len(topics_of(world, BaseCommand.SUBSCRIBE)) == 2
    world.loop.run_until(consumer.close())
    world.loop.run_for(1)
    # What the broker was asked for and did not answer is taken back, too.
    assert world.broker.count(BaseCommand.CLOSE_CONSUMER) == 2
    assert len(world.services.attachments) == 0
    with pytest.raises(AlreadyClosed):
        world.loop.run_until(consumer.receive())


def test_of_a_list_of_topics_only_partitions_come() -> None:
    world = World()
    there = {TOPIC, BUSY + "-2-partition-0"}

    async def find(makes_topics: bool) -> set[str]:
        world.looks.append(makes_topics)
        return set(there)

    consumer = TopicsConsumer(world.services, find, "s", ConsumerOptions(), 60)
    world.loop.run_until(consumer.open())
    there |= {BUSY + "-2-partition-1", TOPIC + "-partition-0", BUSY + "-3"}
    there.remove(TOPIC)
    world.loop.run_for(61)
    assert set(consumer._by_topic) == {TOPIC, BUSY + "-2-partition-0", BUSY + "-2-partition-1"}
    assert world.looks == [True, False]
    world.loop.run_until(consumer.close())


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_an_interval_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidConfiguration, match="partitions_update_interval_seconds"):
        Client(
            "pulsar://broker:6650",
            io=World().simulation.io,  # type: ignore[arg-type]
            partitions_update_interval_seconds=seconds,
        )
