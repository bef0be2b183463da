"""Messages with a delivery time: when which subscription gets them, and what is known of those that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delaying import (
    EXCLUSIVE,
    FAILOVER,
    HOUR,
    KEY_SHARED,
    SECOND,
    SHARED,
    Delays,
    acknowledge,
    flow,
    got,
    timed_frame,
)

from magnetar.broker.policies.values import DelayedDelivery, DispatchRate
from magnetar.broker.stats.taken import of_subscription
from magnetar.broker.subscriptions.persistent import reset
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, ServerError


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_a_message_comes_when_its_time_has_come(kind: int) -> None:
    brokers = Delays()
    consumer = brokers.consumer(kind)
    brokers.send(5 * SECOND, None, 2 * SECOND, -SECOND)
    brokers.until(lambda: len(got(consumer)) == 2)
    assert got(consumer) == [1, 3]
    assert brokers.delayed() == 2
    brokers.run_for(1900)
    assert len(got(consumer)) == 2
    brokers.run_for(300)
    assert got(consumer) == [1, 3, 2]
    brokers.run_for(2700)
    assert len(got(consumer)) == 3
    brokers.run_for(300)
    assert got(consumer) == [1, 3, 2, 0]
    assert brokers.delayed() == 0


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_types_that_deliver_in_order_wait_for_nothing(kind: int) -> None:
    brokers = Delays()
    consumer = brokers.consumer(kind)
    brokers.send(HOUR, None)
    brokers.until(lambda: len(got(consumer)) == 2)
    assert got(consumer) == [0, 1]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_nothing_waits_where_delays_are_switched_off(kind: int) -> None:
    brokers = Delays(active=False)
    consumer = brokers.consumer(kind)
    brokers.send(HOUR)
    brokers.until(lambda: got(consumer) == [0])
    brokers.use(active=True)
    brokers.send(HOUR, None)
    brokers.until(lambda: got(consumer) == [0, 2])
    assert brokers.delayed() == 1


def test_up_to_a_tick_early_where_that_is_wanted() -> None:
    brokers = Delays(strict=False, tick_ms=10 * SECOND)
    consumer = brokers.consumer(SHARED)
    brokers.send(9 * SECOND, 11 * SECOND)
    brokers.until(lambda: len(got(consumer)) == 1)
    assert got(consumer) == [0]


def test_what_comes_due_within_a_tick_comes_together() -> None:
    brokers = Delays(tick_ms=10 * SECOND)
    consumer = brokers.consumer(SHARED)
    brokers.send(1 * SECOND, 2 * SECOND, 3 * SECOND)
    brokers.run_for(1100)
    assert got(consumer) == [0]
    brokers.run_for(9 * SECOND)
    assert len(got(consumer)) == 1
    brokers.run_for(1 * SECOND)
    assert got(consumer) == [0, 1, 2]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_those_that_wait_cost_no_permits(kind: int) -> None:
    brokers = Delays()
    consumer = brokers.consumer(kind, permits=1)
    brokers.send(*[5 * SECOND] * 50, None, 5 * SECOND)
    brokers.until(lambda: len(got(consumer)) == 1)
    assert got(consumer) == [50]
    brokers.run_for(6 * SECOND)
    assert len(got(consumer)) == 1
    flow(consumer, 100)
    brokers.until(lambda: len(got(consumer)) == 52)
    assert got(consumer)[1:] == [*range(50), 51]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_has_become_due_goes_out_at_the_rate_of_its_subscription(kind: int) -> None:
    brokers = Delays()
    policies = replace(brokers.topic.policies, subscription_dispatch_rate=DispatchRate(messages=10))
    brokers.topic.apply_policies(policies)
    consumer = brokers.consumer(kind)
    brokers.send(*[5 * SECOND] * 60)
    brokers.run_for(4900)
    assert not got(consumer), "those that wait use nothing up"
    brokers.run_for(2 * SECOND)
    assert 20 <= len(got(consumer)) <= 31
    brokers.run_for(5 * SECOND)
    assert sorted(got(consumer)) == list(range(60))


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_they_are_part_of_the_backlog_and_counted(kind: int) -> None:
    brokers = Delays()
    brokers.consumer(kind)
    brokers.send(HOUR, HOUR, None)
    brokers.until(lambda: brokers.delayed() == 2)
    figures = of_subscription(brokers.subscription())
    assert (figures.backlog, figures.backlog_no_delayed) == (3, 1)
    assert figures.delay_index_bytes > 0


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_they_wait_on_when_all_consumers_leave(kind: int) -> None:
    brokers = Delays()
    first = brokers.consumer(kind)
    brokers.send(5 * SECOND, None, 2 * SECOND)
    brokers.until(lambda: got(first) == [1])
    first.send(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=9)
    brokers.until(lambda: not brokers.subscription().consumers)
    brokers.run_for(3 * SECOND)
    second = brokers.consumer(kind, number=2)
    brokers.until(lambda: len(got(second)) == 2)
    assert sorted(got(second)) == [1, 2]
    assert brokers.delayed() == 1
    brokers.run_for(3 * SECOND)
    assert sorted(got(second)) == [0, 1, 2]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_is_given_back_after_its_time_comes_at_once(kind: int) -> None:
    brokers = Delays()
    consumer = brokers.consumer(kind)
    brokers.send(2 * SECOND)
    brokers.run_for(3 * SECOND)
    assert got(consumer) == [0]
    consumer.send(
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1
    )
    brokers.until(lambda: len(got(consumer)) == 2)
    assert consumer.received(BaseCommand.MESSAGE)[1].message.redelivery_count == 1


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_was_consumed_while_it_waited_never_comes(kind: int) -> None:
    brokers = Delays()
    consumer = brokers.consumer(kind)
    brokers.send(2 * SECOND, 2 * SECOND, 2 * SECOND, 2 * SECOND)
    brokers.until(lambda: brokers.delayed() == 4)
    acknowledge(brokers, consumer, 2)
    assert brokers.delayed() == 3
    ledger_id = brokers.topic.managed_ledger.current_ledger.ledger_id
    assert brokers.subscription().skip_to((ledger_id, 0)) == 1
    assert brokers.delayed() == 2
    brokers.run_for(3 * SECOND)
    assert got(consumer) == [1, 3]
    brokers.send(2 * SECOND)
    brokers.until(lambda: brokers.delayed() == 1)
    brokers.subscription().skip_to(brokers.topic.max_read_position)
    assert brokers.delayed() == 0
    brokers.run_for(3 * SECOND)
    assert len(got(consumer)) == 2


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_after_a_seek_they_wait_for_their_time_again(kind: int) -> None:
    brokers = Delays()
    consumer = brokers.consumer(kind)
    brokers.send(2 * SECOND, 20 * SECOND, None)
    brokers.run_for(3 * SECOND)
    assert got(consumer) == [2, 0]
    subscription = brokers.subscription()
    subscription.disconnect_all()
    reset(subscription, (0, 0))
    again = brokers.consumer(kind, number=2)
    brokers.until(lambda: len(got(again)) == 2)
    assert got(again) == [0, 2]
    assert brokers.delayed() == 1
    brokers.run_for(18 * SECOND)
    assert got(again) == [0, 2, 1]


def test_another_type_of_subscription_gets_them_at_once_and_back_again() -> None:
    brokers = Delays()
    first = brokers.consumer(SHARED)
    brokers.send(HOUR, None)
    brokers.until(lambda: got(first) == [1])
    brokers.subscription().disconnect_all()
    second = brokers.consumer(EXCLUSIVE, number=2)
    brokers.until(lambda: got(second) == [0, 1])
    brokers.subscription().disconnect_all()
    third = brokers.consumer(KEY_SHARED, number=3)
    brokers.until(lambda: got(third) == [1])
    assert brokers.delayed() == 1


def test_nothing_more_is_read_while_as_many_as_allowed_wait_equally_long() -> None:
    brokers = Delays(look_ahead=10)
    consumer = brokers.consumer(SHARED)
    for _ in range(4):
        brokers.send(*[5 * SECOND] * 5)
    brokers.until(lambda: brokers.delayed() >= 10)
    brokers.run_for(SECOND)
    waiting = brokers.delayed()
    assert waiting == 10
    # They go out at a tick, up to a second late, and the rest is read then.
    brokers.run_for(6 * SECOND)
    assert got(consumer) == list(range(20))


def test_a_pause_does_not_keep_back_what_comes_again() -> None:
    brokers = Delays(look_ahead=10)
    first = brokers.consumer(SHARED)
    brokers.send(None)
    brokers.until(lambda: got(first) == [0])
    brokers.send(*[60 * SECOND] * 20)
    brokers.until(lambda: brokers.delayed() >= 10)
    brokers.subscription().disconnect_all()
    second = brokers.consumer(SHARED, number=2)
    brokers.run_for(SECOND)
    assert got(second) == [0]


def test_all_is_read_while_they_wait_for_different_times() -> None:
    brokers = Delays(look_ahead=10)
    consumer = brokers.consumer(SHARED)
    for _ in range(4):
        brokers.send(*(delay * SECOND for delay in (9, 5, 7, 50, 30)))
    brokers.send(None)
    brokers.until(lambda: len(got(consumer)) == 1)
    assert brokers.delayed() == 20


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_many_that_become_due_at_once_all_come(kind: int) -> None:
    brokers = Delays()
    consumer = brokers.consumer(kind, permits=10_000)
    for _ in range(6):
        brokers.send(*(2 * SECOND + (n * 37) % 50 for n in range(500)))
    brokers.until(lambda: brokers.delayed() == 3000)
    brokers.run_for(5 * SECOND)
    assert sorted(got(consumer)) == list(range(3000))
    assert len(brokers.subscription().dispatcher.replay) == 0


def test_what_becomes_due_here_and_there_is_read_in_few_reads() -> None:
    brokers = Delays()
    consumer = brokers.consumer(SHARED)
    due = [entry_id for entry_id in range(400) if entry_id % 7 in (0, 3)]
    for first in range(0, 400, 50):
        brokers.send(*(5 * SECOND if each in due else HOUR for each in range(first, first + 50)))
    brokers.until(lambda: brokers.delayed() == 400)
    reader = brokers.topic.managed_ledger.reader
    reader.forget(brokers.topic.managed_ledger.current_ledger.ledger_id)
    read, reads = reader.read, []

    async def counted(*asked: object) -> object:
        reads.append(asked)
        return await read(*asked)

    reader.read = counted
    brokers.until(lambda: len(got(consumer)) == len(due))
    assert got(consumer) == due
    assert len(reads) <= 3
    assert brokers.delayed() == 400 - len(due)


def test_keys_stay_with_their_consumers() -> None:
    brokers = Delays()
    first = brokers.consumer(KEY_SHARED)
    second = brokers.consumer(KEY_SHARED, number=2)
    brokers.send(*[SECOND] * 52, keys="abcdefghijklmnopqrstuvwxyz" * 2)
    brokers.send(*[None] * 26, keys="abcdefghijklmnopqrstuvwxyz")
    brokers.run_for(2 * SECOND)
    assert sorted(got(first) + got(second)) == list(range(78))
    assert got(first)
    assert got(second)
    keys = [{entry_id % 26 for entry_id in got(each)} for each in (first, second)]
    assert not keys[0] & keys[1]


def test_a_longer_delay_than_allowed_is_refused() -> None:
    brokers = Delays()
    policy = DelayedDelivery(True, 1000, 10 * SECOND)
    brokers.topic.apply_policies(replace(brokers.topic.policies, delayed_delivery=policy))
    consumer = brokers.consumer(EXCLUSIVE)
    brokers.producer.forget()
    frames = [timed_frame(n, brokers.now + n * SECOND, brokers.now) for n in (9, 10, 11)]
    frames.append(timed_frame(12, None, brokers.now))
    brokers.producer.connection.data_received(b"".join(frames))
    brokers.until(lambda: brokers.producer.count(BaseCommand.SEND_ERROR) == 1)
    refused = brokers.producer.received(BaseCommand.SEND_ERROR)[0].send_error
    assert (refused.sequence_id, refused.error) == (11, ServerError.NotAllowedError)
    assert refused.message == "Exceeds max allowed delivery delay of 10000 milliseconds"
    brokers.until(lambda: len(got(consumer)) == 3)


def test_the_wall_clock_may_be_set() -> None:
    brokers = Delays()
    consumer = brokers.consumer(SHARED)
    brokers.send(HOUR)
    brokers.until(lambda: brokers.delayed() == 1)
    brokers.world.simulation.io.clock.offset_ms = HOUR
    brokers.run_for(61 * SECOND)
    assert got(consumer) == [0]


def test_a_subscription_without_such_messages_has_no_index() -> None:
    brokers = Delays()
    consumer = brokers.consumer(SHARED)
    brokers.send(None, -SECOND * 5, None)
    brokers.until(lambda: len(got(consumer)) == 3)
    assert len(brokers.subscription().dispatcher.delays or ()) == 0
    assert brokers.delayed() == 0
