"""Messages with a delivery time: when which subscription gets them, and what is known of those that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from peers import TOPIC, Brokers, Peer

from magnetar.broker.delays.tracker import DelaySettings
from magnetar.broker.policies.values import DelayedDelivery
from magnetar.broker.stats.taken import of_subscription
from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata, ServerError

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = 0, 1, 2, 3
SECOND = 1000
HOUR = 3_600_000


def timed_frame(sequence_id: int, deliver_at: int | None, publish_time: int = 1, key: str = "") -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = sequence_id
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=publish_time)
    if deliver_at is not None:
        metadata.deliver_at_time = deliver_at
    if key:
        metadata.partition_key = key
    return encode_with_payload(command, build_entry(metadata, b"x"))


class Delays(Brokers):
    """A broker whose topic's messages are published some time from now."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._next = 0
        self.settings = settings
        self.producer = self.publisher()
        self.use(**settings)

    def use(self, **settings: Any) -> None:
        topic = self.topic
        delays = DelaySettings(**settings)
        topic.settings = topic.settings.__class__(
            **{
                **vars(topic.settings),
                "dispatch": topic.settings.dispatch.__class__(
                    **{**vars(topic.settings.dispatch), "delays": delays}
                ),
            }
        )
        policy = DelayedDelivery(delays.active, delays.tick_ms, topic.policies.delayed_delivery.max_delay_ms)
        topic.apply_policies(replace(topic.policies, delayed_delivery=policy))

    @property
    def topic(self) -> Any:
        return self.broker.topics[TOPIC]

    @property
    def now(self) -> int:
        return self.broker.io.clock.wall_ms()

    def send(self, *after: int | None, keys: str = "") -> None:
        """Publishes messages due so many ms from now; None: without a delivery time."""
        self.producer.forget()
        frames = []
        for place, delay in enumerate(after):
            at = None if delay is None else self.now + delay
            frames.append(timed_frame(self._next, at, self.now, keys[place : place + 1]))
            self._next += 1
        self.producer.connection.data_received(b"".join(frames))
        self.until(lambda: self.producer.count(BaseCommand.SEND_RECEIPT) == len(after))

    def consumer(self, kind: int, name: str = "s", permits: int = 1000, number: int = 1) -> Peer:
        peer = self.subscribed(name, kind, number=number)
        flow(peer, permits, number)
        return peer

    def run_for(self, milliseconds: int) -> None:
        """Lets everything happen that happens in that time."""
        end = self.now + milliseconds
        passed: list[bool] = []
        self.loop.call_later(milliseconds / 1000, passed.append, True)
        self.until(lambda: bool(passed))
        assert self.now >= end

    def subscription(self, name: str = "s") -> Any:
        return self.topic.subscriptions[name]

    def delayed(self, name: str = "s") -> int:
        return of_subscription(self.subscription(name)).delayed


def flow(peer: Peer, permits: int, number: int = 1) -> None:
    peer.send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=permits)


def got(peer: Peer) -> list[int]:
    """Entry ids, in the order they came."""
    return [command.message.message_id.entryId for command in peer.received(BaseCommand.MESSAGE)]


def acknowledge(brokers: Delays, peer: Peer, *entries: int, number: int = 1) -> None:
    ledger_id = brokers.topic.managed_ledger.current_ledger.ledger_id
    for entry_id in entries:
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = number
        command.ack.ack_type = CommandAck.Individual
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
        peer.connection.data_received(encode_command(command))


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
    subscription.reset((0, 0))
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
    brokers.run_for(5 * SECOND)
    assert got(consumer) == list(range(20))


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
    tracker = brokers.subscription().dispatcher.delays
    tracker._clock = Ahead(tracker._clock, HOUR)
    brokers.run_for(61 * SECOND)
    assert got(consumer) == [0]


class Ahead:
    """A clock whose wall time was set forward."""

    def __init__(self, clock: Any, milliseconds: int) -> None:
        self._clock = clock
        self._milliseconds = milliseconds

    def wall_ms(self) -> int:
        return int(self._clock.wall_ms()) + self._milliseconds

    def monotonic(self) -> float:
        return float(self._clock.monotonic())


def test_a_subscription_without_such_messages_has_no_index() -> None:
    brokers = Delays()
    consumer = brokers.consumer(SHARED)
    brokers.send(None, -SECOND * 5, None)
    brokers.until(lambda: len(got(consumer)) == 3)
    assert len(brokers.subscription().dispatcher.delays or ()) == 0
    assert brokers.delayed() == 0
