"""Delays of redelivery that grow with the number of redeliveries."""

from __future__ import annotations

import pytest
from client_world import World, arrives

from magnetar.client import ConsumerType, InvalidConfiguration, RedeliveryBackoff
from magnetar.client.consumer import Consumer
from magnetar.client.message import Message

SHARED = ConsumerType.Shared


def received(world: World, consumer: Consumer, number: int, redeliveries: int) -> Message:
    arrives(consumer, number, redeliveries)
    return world.loop.run_until(consumer.receive())


def requests(world: World) -> list[tuple[float, list[int]]]:
    """Returns the requests since the last call, with the time since the first of them was possible."""
    found, world.broker.redeliveries = world.broker.redeliveries, []
    return found


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (RedeliveryBackoff(), [10, 20, 40, 80, 160, 320, 600, 600]),
        (RedeliveryBackoff(100, 1000, 3), [0.1, 0.3, 0.9, 1]),
        (RedeliveryBackoff(1000, 1000), [1, 1, 1]),
        (RedeliveryBackoff(0, 1000), [0, 0, 0]),
        (RedeliveryBackoff(1000, 1500, 1.1), [1, 1.1, 1.21, 1.331, 1.4641, 1.5]),
    ],
)
def test_delays(backoff: RedeliveryBackoff, expected: list[float]) -> None:
    backoff.check()
    assert [backoff.seconds(number) for number in range(len(expected))] == pytest.approx(expected)
    assert backoff.seconds(2**31) == pytest.approx(backoff.max_delay_ms / 1000 if backoff.min_delay_ms else 0)


@pytest.mark.parametrize(
    "backoff",
    [
        RedeliveryBackoff(-1),
        RedeliveryBackoff(10, 9),
        RedeliveryBackoff(1, 2, 1),
        RedeliveryBackoff(1, 2, float("nan")),
    ],
)
def test_impossible_delays_are_refused(backoff: RedeliveryBackoff) -> None:
    with pytest.raises(InvalidConfiguration, match="a RedeliveryBackoff requires"):
        World().consumer(negative_ack_redelivery_backoff=backoff)


def test_a_back_off_of_a_time_out_needs_the_time_out() -> None:
    with pytest.raises(InvalidConfiguration, match="requires unacked_messages_timeout_ms"):
        World().consumer(ack_timeout_redelivery_backoff=RedeliveryBackoff())


def test_negative_acknowledgements_wait_longer_each_time() -> None:
    world = World()
    consumer = world.consumer(
        consumer_type=SHARED, negative_ack_redelivery_backoff=RedeliveryBackoff(1000, 5000)
    )
    start = world.loop.time()
    for number, redeliveries in ((1, 2), (2, 0), (3, 1), (4, 9)):
        consumer.negative_acknowledge(received(world, consumer, number, redeliveries))
    world.loop.run_for(0.5)
    consumer.negative_acknowledge(received(world, consumer, 5, 0).message_id())
    world.loop.run_for(10)
    assert [(round(at - start, 3), entries) for at, entries in requests(world)] == [
        (1, [2]),
        (1.5, [5]),
        (2, [3]),
        (4, [1]),
        (5, [4]),
    ]
    world.loop.run_until(consumer.close())


def test_entries_wait_longer_each_time() -> None:
    world = World()
    consumer = world.consumer(
        consumer_type=SHARED, negative_ack_redelivery_backoff=RedeliveryBackoff(1000, 5000)
    )
    start = world.loop.time()
    arrives(consumer, 1, 1)
    consumer.negative_acknowledge(world.loop.run_until(consumer.receive_entry()))
    world.loop.run_for(10)
    assert [(round(at - start, 3), entries) for at, entries in requests(world)] == [(2, [1])]
    world.loop.run_until(consumer.close())


def test_messages_without_an_acknowledgement_wait_longer_each_time() -> None:
    world = World()
    consumer = world.consumer(
        consumer_type=SHARED,
        unacked_messages_timeout_ms=1000,
        ack_timeout_redelivery_backoff=RedeliveryBackoff(500, 5000),
    )
    start = world.loop.time()
    messages = [
        received(world, consumer, number, redeliveries)
        for number, redeliveries in ((1, 1), (2, 0), (3, 9), (4, 1), (5, 0), (6, 3))
    ]
    world.loop.run_until(consumer.acknowledge(messages[3]))
    consumer.negative_acknowledge(messages[4])
    world.loop.run_for(1.2)
    received(world, consumer, 6, 0)
    world.loop.run_for(10)
    assert [(round(at - start, 3), entries) for at, entries in requests(world)] == [
        (1.5, [2]),
        (2, [1]),
        (2.7, [6]),
        (6, [3]),
    ], "the sixth is received again before its time, and then waits as one that was never redelivered"
    world.loop.run_until(consumer.close())


def test_a_cumulative_acknowledgement_ends_the_times_of_all() -> None:
    world = World()
    consumer = world.consumer(
        unacked_messages_timeout_ms=1000, ack_timeout_redelivery_backoff=RedeliveryBackoff(500, 5000)
    )
    messages = [received(world, consumer, number, number) for number in range(3)]
    world.loop.run_until(consumer.acknowledge_cumulative(messages[-1]))
    world.loop.run_for(10)
    assert requests(world) == []
    world.loop.run_until(consumer.close())


def test_nothing_is_requested_after_a_seek() -> None:
    world = World()
    consumer = world.consumer(
        consumer_type=SHARED,
        negative_ack_redelivery_backoff=RedeliveryBackoff(1000, 5000),
        unacked_messages_timeout_ms=1000,
        ack_timeout_redelivery_backoff=RedeliveryBackoff(500, 5000),
    )
    for number in range(3):
        consumer.negative_acknowledge(received(world, consumer, number, number))
        received(world, consumer, number + 10, number)
    world.loop.run_until(consumer.seek(0))
    world.loop.run_for(10)
    assert requests(world) == []
    world.loop.run_until(consumer.close())
