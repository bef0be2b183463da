"""What readers acknowledge, and when."""

from __future__ import annotations

import pytest
from client_world import TOPIC, World, arrives

from magnetar.client.consumer import Consumer
from magnetar.client.message_id import MessageId
from magnetar.client.options import ReaderOptions
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck


def reading(
    world: World, start: MessageId | None = MessageId.earliest, *, inclusive: bool = False
) -> Consumer:
    options = ReaderOptions(durable=False, start_message_id=start, start_message_id_inclusive=inclusive)
    consumer = Consumer(world.services, TOPIC, "s", options)
    world.loop.run_until(consumer.open())
    return consumer


def acknowledged(world: World) -> list[int]:
    """Returns the entries of the acknowledgements since the last call."""
    acks, world.broker.acks = world.broker.acks, []
    assert all(each.ack.ack_type == CommandAck.Cumulative for each in acks)
    return [each.ack.message_id[0].entryId for each in acks]


def read(world: World, consumer: Consumer, *numbers: int) -> None:
    for number in numbers:
        arrives(consumer, number, 0)
        assert world.loop.run_until(consumer.receive()).data() == b"m%d" % number


def test_what_is_read_within_a_tenth_of_a_second_is_acknowledged_together() -> None:
    world = World()
    consumer = reading(world)
    world.loop.run_for(1)
    assert acknowledged(world) == []
    read(world, consumer, 1, 2, 3)
    assert acknowledged(world) == []
    world.loop.run_for(0.09)
    read(world, consumer, 4)
    world.loop.run_for(0.02)
    assert acknowledged(world) == [4]
    arrives(consumer, 5, 0)
    world.loop.run_for(1)
    assert acknowledged(world) == [], "it has arrived, but was not read"
    world.loop.run_until(consumer.receive())
    world.loop.run_for(1)
    assert acknowledged(world) == [5]
    world.loop.run_until(consumer.close())


def test_entries_are_acknowledged_too() -> None:
    world = World()
    consumer = reading(world)
    arrives(consumer, 1, 0)
    assert world.loop.run_until(consumer.receive_entry()).entry_id == 1
    world.loop.run_for(1)
    assert acknowledged(world) == [1]
    world.loop.run_until(consumer.close())


@pytest.mark.parametrize(
    ("start", "inclusive", "expected"),
    [
        (MessageId(-1, 1, 5), False, [5]),
        (MessageId(-1, 1, 5), True, []),
        (MessageId.latest, False, []),
        (MessageId.earliest, False, []),
        (None, False, []),
    ],
)
def test_a_message_that_the_reader_begins_behind_is_acknowledged(
    start: MessageId | None, inclusive: bool, expected: list[int]
) -> None:
    world = World()
    consumer = reading(world, start, inclusive=inclusive)
    world.loop.run_for(1)
    assert acknowledged(world) == expected
    world.loop.run_until(consumer.close())


def test_a_new_connection_learns_again_what_was_read() -> None:
    world = World()
    consumer = reading(world)
    read(world, consumer, 1, 2)
    consumer.connection_lost(world.broker)  # type: ignore[arg-type]
    world.loop.run_for(0.05)
    world.broker.acks.clear()
    world.loop.run_for(1)
    assert acknowledged(world) == [2]
    world.loop.run_until(consumer.close())


def test_nothing_is_acknowledged_while_the_reader_seeks() -> None:
    world = World()
    consumer = reading(world)
    read(world, consumer, 1, 2)
    world.broker.silent.add(BaseCommand.SEEK)
    seeking = world.loop.create_task(consumer.seek(MessageId.earliest))
    world.loop.run_for(5)
    assert world.broker.count(BaseCommand.SEEK) == 1
    assert acknowledged(world) == []
    world.loop.run_for(10)
    assert seeking.done()
    assert acknowledged(world) == [2], "the seek failed, so the position is still right"
    world.broker.silent.clear()
    read(world, consumer, 3)
    world.loop.run_until(consumer.seek(MessageId.earliest))
    world.loop.run_for(1)
    assert acknowledged(world) == []
    world.loop.run_until(consumer.close())


def test_a_closed_reader_acknowledges_nothing() -> None:
    world = World()
    consumer = reading(world)
    read(world, consumer, 1)
    world.loop.run_until(consumer.close())
    world.loop.run_for(1)
    assert acknowledged(world) == []


def test_a_consumer_without_a_durable_subscription_acknowledges_by_itself() -> None:
    world = World()
    consumer = world.consumer(durable=False, start_message_id=MessageId.earliest)
    read(world, consumer, 1)
    world.loop.run_for(1)
    assert acknowledged(world) == []
    world.loop.run_until(consumer.close())
