"""Bounds on what is sent, over virtual time: exact, of several at once, and nobody starves."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from peers import TOPIC, Brokers, Peer

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.flow.dispatch_rates import LimitedBy
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import DispatchRate, GroupRates
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
UNBOUNDED = EffectivePolicies(max_unacked_per_consumer=0, max_unacked_per_subscription=0)
BY_MESSAGE = DispatchSettings(throttle_by_message=True)


def entry(batch: int = 0, size: int = 10) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key="k")
    if batch:
        metadata.num_messages_in_batch = batch
    return build_entry(metadata, bytes(size))


def topic_of(brokers: Brokers, name: str = TOPIC) -> Topic:
    found = brokers.broker.topics.loaded[name]
    assert isinstance(found, Topic)
    return found


def store(brokers: Brokers, count: int, data: bytes | None = None, name: str = TOPIC) -> None:
    """Puts entries into a topic, without a client."""
    topic, data = topic_of(brokers, name), data or entry()
    buffer, size = data * count, len(data)
    starts = array("q", range(0, size * count, size))
    ends = array("q", range(size, size * count + 1, size))
    topic.managed_ledger.append(buffer, starts, ends, count, size * count, None)
    wanted = topic.managed_ledger.entries_added + count
    brokers.until(lambda: topic.managed_ledger.entries_added == wanted)


def take(peer: Peer, number: int = 1, permits: int = 1 << 30) -> None:
    peer.send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=permits)


def sent(brokers: Brokers, name: str = "s", topic: str = TOPIC) -> int:
    """Messages that a subscription was sent."""
    return topic_of(brokers, topic).subscriptions[name].rate_out.messages


def subscription(brokers: Brokers, name: str = "s") -> Subscription:
    return topic_of(brokers).subscriptions[name]


def started(
    kind: int, rate: DispatchRate, count: int, dispatch: DispatchSettings | None = None, **policies: object
) -> tuple[Brokers, Peer]:
    """A broker with a backlog of single messages, and a consumer that takes all of it."""
    brokers = Brokers(
        policies=replace(UNBOUNDED, subscription_dispatch_rate=rate, **policies),  # type: ignore[arg-type]
        dispatch=dispatch,
    )
    peer = brokers.subscribed("s", kind)
    if count:
        store(brokers, count)
    take(peer)
    return brokers, peer


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
@pytest.mark.parametrize(("rate", "seconds"), [(10, 20), (1_000, 10), (100_000, 1)])
def test_what_is_sent_is_as_much_as_the_rate_says(kind: int, rate: int, seconds: int) -> None:
    brokers, _peer = started(kind, DispatchRate(rate), rate * (seconds + 3))
    brokers.world.wait(1.5)
    before = sent(brokers)
    brokers.world.wait(seconds)
    assert sent(brokers) - before == pytest.approx(rate * seconds, rel=0.02)


def test_a_period_is_the_time_in_which_so_many_are_sent() -> None:
    brokers, _peer = started(SHARED, DispatchRate(50, period_seconds=10), 200)
    brokers.world.wait(20.0)
    assert 145 <= sent(brokers) <= 151


def test_bytes_are_bounded_and_what_is_too_much_is_paid_by_waiting() -> None:
    size = len(entry(size=10_000))
    brokers, _peer = started(EXCLUSIVE, DispatchRate(0, size // 2), 0)
    store(brokers, 20, entry(size=10_000))
    brokers.world.wait(1.0)
    assert sent(brokers) >= 1, "what is larger than the bucket goes out"
    brokers.world.wait(2.0)
    before = sent(brokers)
    brokers.world.wait(20.0)
    assert sent(brokers) - before == 10


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@pytest.mark.parametrize(("by_message", "batches"), [(True, 10), (False, 100)])
def test_batches_count_as_their_messages_or_as_one(kind: int, by_message: bool, batches: int) -> None:
    dispatch = DispatchSettings(throttle_by_message=by_message)
    brokers, _peer = started(kind, DispatchRate(10), 0, dispatch)
    store(brokers, 300, entry(batch=10))
    brokers.world.wait(3.0)
    before = sent(brokers) // 10
    brokers.world.wait(10.0)
    assert abs(sent(brokers) // 10 - before - batches) <= 1


def test_a_batch_larger_than_the_rate_goes_out_whole() -> None:
    brokers, _peer = started(SHARED, DispatchRate(10), 0, BY_MESSAGE)
    store(brokers, 10, entry(batch=100))
    brokers.world.wait(0.1)
    assert sent(brokers) == 100
    brokers.world.wait(8.0)
    assert sent(brokers) == 100
    brokers.world.wait(2.0)
    assert sent(brokers) == 200


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_is_delivered_again_counts_too(kind: int) -> None:
    brokers, peer = started(kind, DispatchRate(20), 20)
    brokers.world.wait(2.0)
    assert sent(brokers) == 20
    for _ in range(3):
        peer.send(
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1
        )
    brokers.world.wait(1.0)
    assert 20 < sent(brokers) <= 60


def test_the_least_of_all_bounds_counts() -> None:
    brokers, _peer = started(SHARED, DispatchRate(1000), 5000, dispatch_rate=DispatchRate(100))
    brokers.world.wait(2.0)
    before = sent(brokers)
    brokers.world.wait(5.0)
    assert abs(sent(brokers) - before - 500) <= 2
    held = subscription(brokers).throttle
    assert held is not None
    assert held.held_back.keys() == {(LimitedBy.TOPIC, True)}


def test_subscriptions_of_a_bounded_topic_share_what_it_has() -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, dispatch_rate=DispatchRate(300)))
    peers = [brokers.subscribed(f"s{n}", SHARED) for n in range(3)]
    store(brokers, 5000)
    for peer in peers:
        take(peer)
    brokers.world.wait(2.0)
    before = [sent(brokers, f"s{n}") for n in range(3)]
    for _ in range(100):
        # What is stored meanwhile asks all of them again, always in the same order.
        store(brokers, 1)
        brokers.world.wait(0.1)
    found = [sent(brokers, f"s{n}") - former for n, former in enumerate(before)]
    assert sum(found) == pytest.approx(3000, rel=0.05)
    assert all(each == pytest.approx(1000, rel=0.25) for each in found), found


def test_the_broker_s_bound_is_that_of_all_topics() -> None:
    brokers = Brokers(policies=UNBOUNDED, dispatch_rate=DispatchRate(100))
    names = [TOPIC + str(n) for n in range(4)]
    for name in names:
        take(brokers.subscribed("s", SHARED, name))
        store(brokers, 1000, name=name)
    brokers.world.wait(3.0)
    before = sum(sent(brokers, topic=name) for name in names)
    brokers.world.wait(10.0)
    assert abs(sum(sent(brokers, topic=name) for name in names) - before - 1000) <= 2
    least = min(sent(brokers, topic=name) for name in names)
    assert least > 150


def test_a_bounded_subscription_leaves_the_others_alone() -> None:
    brokers = Brokers(
        policies=replace(UNBOUNDED, subscription_dispatch_rates={"slow": DispatchRate(1)}),
    )
    slow, fast = brokers.subscribed("slow", SHARED), brokers.subscribed("fast", SHARED)
    take(slow)
    take(fast)
    store(brokers, 1000)
    brokers.until(lambda: sent(brokers, "fast") == 1000)
    assert sent(brokers, "slow") <= 1
    turns = len(brokers.turns)
    brokers.world.wait(0.5)
    assert brokers.broker.budget.waiting == 0
    assert len(brokers.turns) == turns


def test_another_rate_counts_at_once_and_none_lets_everything_go() -> None:
    brokers, _peer = started(SHARED, DispatchRate(1), 1000)
    brokers.world.wait(5.0)
    assert sent(brokers) <= 7
    topic = topic_of(brokers)
    topic.apply_policies(replace(topic.policies, subscription_dispatch_rate=DispatchRate(100)))
    brokers.world.wait(3.0)
    assert 200 < sent(brokers) < 420
    topic.apply_policies(replace(topic.policies, subscription_dispatch_rate=DispatchRate()))
    brokers.world.wait(0.1)
    assert sent(brokers) == 1000
    assert subscription(brokers).throttle is None


def test_a_relative_rate_adds_what_is_published() -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, dispatch_rate=DispatchRate(10, 0, True)))
    take(brokers.subscribed("s", SHARED))
    store(brokers, 5000)
    topic = topic_of(brokers)
    for _ in range(60):
        topic.rate_in.messages += 10
        brokers.world.wait(0.1)
    before = sent(brokers)
    for _ in range(100):
        topic.rate_in.messages += 10
        brokers.world.wait(0.1)
    assert sent(brokers) - before == pytest.approx(1100, rel=0.05)


@pytest.mark.parametrize(("bound", "wanted"), [(True, 10), (False, 500)])
def test_subscriptions_that_keep_up_are_bounded_only_where_it_is_said(bound: bool, wanted: int) -> None:
    brokers, _peer = started(SHARED, DispatchRate(10), 500, DispatchSettings(throttle_caught_up=bound))
    brokers.world.wait(0.01)
    assert sent(brokers) == wanted


def test_topics_of_a_resource_group_share_its_bound() -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, resource_group="g"))
    groups = brokers.broker.topics.shared_limits.groups
    groups.define({"g": GroupRates(dispatch_messages=100)})
    names = [TOPIC + str(n) for n in range(3)]
    for name in names:
        take(brokers.subscribed("s", SHARED, name))
        store(brokers, 1000, name=name)
    brokers.world.wait(12.0)
    total = sum(sent(brokers, topic=name) for name in names)
    assert 1200 <= total <= 1302
    assert groups.of("g").dispatch.messages_used == total
    groups.define({})
    brokers.world.wait(1.0)
    assert sum(sent(brokers, topic=name) for name in names) == 3000


def test_a_subscription_that_ends_waits_nowhere() -> None:
    brokers, peer = started(SHARED, DispatchRate(1), 100)
    brokers.world.wait(1.0)
    throttle = subscription(brokers).throttle
    assert throttle is not None
    assert [each.waiting for each in throttle.limiters] == [1]
    peer.send(BaseCommand.UNSUBSCRIBE, "unsubscribe", consumer_id=1, request_id=9)
    brokers.until(lambda: peer.count(BaseCommand.SUCCESS) == 2)
    assert [each.waiting for each in throttle.limiters] == [0]
    assert all(each._timer is None for each in throttle.limiters), "nothing is left that keeps the topic"


def test_what_is_owed_is_forgotten_with_the_rate() -> None:
    brokers, _peer = started(SHARED, DispatchRate(1), 0, BY_MESSAGE)
    store(brokers, 3, entry(batch=1000))
    brokers.world.wait(10.0)
    assert sent(brokers) == 1000
    topic = topic_of(brokers)
    topic.apply_policies(replace(topic.policies, subscription_dispatch_rate=DispatchRate(2000)))
    brokers.world.wait(0.1)
    assert sent(brokers) == 3000
