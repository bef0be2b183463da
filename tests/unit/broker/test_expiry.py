"""Time to live, in a simulated broker: a week in seconds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lived import Lived

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.dispatch.key_shared import KeySharedPolicy
from magnetar.broker.dispatch.key_shared.consumer import KeyedConsumer
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import Retention
from magnetar.broker.subscriptions.base import SubscriptionType
from magnetar.broker.subscriptions.persistent import reset
from magnetar.broker.topics.entries import published_at
from magnetar.broker.upkeep.expiry import expire, last_published_before
from magnetar.io.waiting import sleep

TTL = EffectivePolicies(message_ttl_seconds=60)


class Unsent:
    def expect(self, _reading: Any, _size: int) -> None: ...


class Wire:
    """A consumer's connection that counts frames."""

    address, client_version = "a", "v"

    class outgoing:
        unsent = Unsent()
        room = 1 << 20

    def __init__(self) -> None:
        self.queued = 0

    def queue(self, _frames: bytes) -> None:
        self.queued += 1

    def send_active_consumer_change(self, _consumer: Any, _active: bool) -> None: ...


def test_what_is_older_than_its_time_is_consumed_and_no_more() -> None:
    lived = Lived(TTL, expiry_check_seconds=10)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 25)
    lived.world.wait(40)
    lived.publish(topic, 5)
    assert subscription.backlog() == 30
    lived.world.wait(35)
    assert subscription.backlog() == 5
    assert subscription.expired.messages == 25
    assert subscription.last_expire_ms > 0
    lived.world.wait(60)
    assert subscription.backlog() == 0


def test_rates_come_and_go() -> None:
    lived = Lived(TTL, expiry_check_seconds=10, stats_seconds=20)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 100)
    lived.world.wait(85)
    assert subscription.expired.per_second == 5
    lived.world.wait(40)
    assert subscription.expired.per_second == 0
    assert subscription.expired.messages == 100


def test_it_is_asked_of_policies_each_time() -> None:
    lived = Lived(EffectivePolicies(), expiry_check_seconds=10)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 3)
    lived.world.wait(7 * 86_400)
    assert subscription.backlog() == 3
    lived.use(topic, message_ttl_seconds=60)
    lived.world.wait(15)
    assert subscription.backlog() == 0


def test_holes_and_batches_do_not_matter() -> None:
    lived = Lived(TTL, expiry_check_seconds=10)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 12, batch=4)
    first = subscription.cursor.first_unconsumed()
    subscription.cursor.consume_batch_indexes(*first, 0b1110, 4)
    subscription.cursor.delete(first[0], first[1] + 3)
    lived.world.wait(75)
    assert subscription.backlog() == 0
    assert subscription.expired.messages == 11
    assert not subscription.cursor.state.batches


def test_readers_are_left_alone() -> None:
    lived = Lived(TTL, expiry_check_seconds=10)
    topic = lived.topic()
    reader = lived.world.run(topic.subscriptions.subscribe("r", (-1, -1), {}, durable=False, create=True))
    lived.publish(topic, 5)
    lived.world.wait(100)
    assert reader.backlog() == 5


def test_a_ledger_closed_long_ago_has_expired_whatever_its_producers_clock_said() -> None:
    lived = Lived(TTL, expiry_check_seconds=10)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 10, early_ms=-(10**9))
    lived.publish(topic, 3)
    lived.world.wait(75)
    assert subscription.backlog() == 0


@pytest.mark.parametrize("kind", [SubscriptionType.Shared, SubscriptionType.Key_Shared])
def test_what_expired_in_the_hands_of_a_consumer_blocks_it_no_more(kind: SubscriptionType) -> None:
    policies = EffectivePolicies(
        message_ttl_seconds=60, max_unacked_per_consumer=10, max_unacked_per_subscription=10
    )
    lived = Lived(policies, expiry_check_seconds=10)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    wire: Any = Wire()
    more = {"priority": 0, "epoch": None, "metadata": {}, "connected_ms": 0, "partition": -1}
    consumer: Any = (
        KeyedConsumer(KeySharedPolicy(), subscription, wire, 1, "c", **more)
        if kind is SubscriptionType.Key_Shared
        else Consumer(subscription, wire, 1, "c", **more)
    )
    subscription.add(consumer, kind, 0)
    lived.publish(topic, 30)
    subscription.flow(consumer, 1000)
    lived.world.wait(5)
    assert (consumer.unacked, consumer.blocked) == (10, True)
    lived.world.wait(70)
    assert subscription.backlog() == 0
    assert (consumer.unacked, consumer.blocked, dict(consumer.pending)) == (0, False, {})
    assert (subscription.dispatcher.unacked, len(subscription.dispatcher.replay)) == (0, 0)  # type: ignore[union-attr]
    lived.publish(topic, 4)
    lived.world.wait(1)
    assert consumer.unacked == 4


def test_a_cursor_that_is_moved_back_meanwhile_is_left_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(EffectivePolicies(retention=Retention(-1, -1)))
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 30)
    first = subscription.cursor.first_unconsumed()
    subscription.skip_to(subscription.cursor.nth_unconsumed(10))

    async def slowly(*given: Any) -> Any:
        found = await last_published_before(*given)
        reset(subscription, first)
        return found

    monkeypatch.setattr("magnetar.broker.upkeep.expiry.last_published_before", slowly)
    lived.world.wait(100)
    assert lived.world.run(expire(subscription, lived.clock.wall_ms())) == 0
    assert subscription.backlog() == 30


def test_nothing_younger_goes_where_ledgers_are_trimmed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    cursor, ledgers = subscription.cursor, topic.managed_ledger.ledgers
    lived.publish(topic, 50, early_ms=100_000)
    lived.publish(topic, 50)
    last, first_ledger = cursor.nth_unconsumed(50), ledgers.first_id()
    reads = 0

    async def consumed_meanwhile(*given: Any) -> int:
        nonlocal reads
        reads += 1
        if reads == 4:
            subscription.skip_to(cursor.nth_unconsumed(30))
            topic.managed_ledger.trimmer.schedule()
            await sleep(lived.broker.io.loop, 1)
        return await published_at(*given)

    for module in ("topics.entries", "upkeep.expiry"):
        monkeypatch.setattr(f"magnetar.broker.{module}.published_at", consumed_meanwhile)
    lived.world.run(expire(subscription, lived.clock.wall_ms() - 60_000))
    assert ledgers.first_id() > first_ledger
    assert cursor.mark_delete == last


@settings(max_examples=40)
@given(
    steps=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 50)), min_size=1, max_size=8),
    age=st.integers(0, 400),
    skipped=st.integers(0, 30),
)
def test_the_last_one_before_a_time(steps: list[tuple[int, int]], age: int, skipped: int) -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    times: list[int] = []
    for count, seconds in steps:
        times += [lived.clock.wall_ms()] * count
        lived.publish(topic, count)
        lived.world.wait(seconds)
    subscription.skip_to(subscription.cursor.nth_unconsumed(skipped))
    done = min(skipped, len(times))
    before_ms = lived.clock.wall_ms() - age * 1000
    found = lived.world.run(
        last_published_before(topic.managed_ledger, subscription.cursor.mark_delete, before_ms)
    )
    ledgers = topic.managed_ledger.ledgers
    passed = len(times) - ledgers.entries_after(found)
    expected = max(done, sum(time_ms < before_ms for time_ms in times))
    assert passed == expected, Counter(times)
