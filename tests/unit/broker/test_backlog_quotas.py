"""Backlog quotas in a simulated broker."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import BacklogQuota
from magnetar.broker.publishing.producer import AccessMode, Producer
from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import EVICTION, EXCEPTION, HOLD, backlog_bytes
from magnetar.errors import QuotaExceeded, QuotaExceededHold
from magnetar.naming.topic_name import TopicName

CHECK = {"backlog_quota_check_seconds": 10}


class Wire:
    """A producer's connection that remembers what it is told."""

    address, client_version, supports_partial_producer, non_persistent_pending = "a", "v", True, 0

    def __init__(self) -> None:
        self.told: list[str] = []

    def stop_producer(self, _producer: Producer) -> None:
        self.told.append("stop")

    def close_producer(self, _producer: Producer) -> None:
        self.told.append("close")


def by_size(policy: str, limit: int = 1000) -> EffectivePolicies:
    return EffectivePolicies(storage_quota=BacklogQuota(limit, -1, policy))


def by_age(policy: str, seconds: int = 60) -> EffectivePolicies:
    return EffectivePolicies(age_quota=BacklogQuota(-1, seconds, policy))


def producer_on(lived: Lived, topic: Topic, wire: Any) -> Producer:
    producer = Producer(
        topic,
        wire,
        1,
        "p",
        user_provided_name=False,
        epoch=0,
        access_mode=AccessMode.Shared,
        topic_epoch=None,
        metadata={},
        connected_ms=0,
    )
    lived.world.run(topic.producers.add(producer))
    return producer


@pytest.mark.parametrize(("policy", "error"), [(HOLD, QuotaExceededHold), (EXCEPTION, QuotaExceeded)])
def test_producers_are_closed_and_refused_until_the_backlog_shrinks(
    policy: str, error: type[Exception]
) -> None:
    lived = Lived(by_size(policy), **CHECK)
    topic, wire = lived.topic(), Wire()
    subscription = lived.subscribe(topic)
    producer = producer_on(lived, topic, wire)
    lived.publish(topic, 5)
    lived.world.wait(15)
    assert not wire.told
    lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
    lived.publish(topic, 30)
    assert backlog_bytes(topic) >= 1000
    with pytest.raises(error):
        lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
    lived.world.wait(15)
    assert wire.told == ["stop", "close"]
    assert producer.closed
    assert not topic.producers
    assert subscription.backlog() == 35
    subscription.skip_to(subscription.cursor.nth_unconsumed(30))
    lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))


def test_a_producer_gets_its_receipts_before_it_is_closed() -> None:
    lived = Lived(by_size(HOLD))
    topic, wire = lived.topic(), Wire()
    producer = producer_on(lived, topic, wire)
    producer.pending = 1
    closing = lived.world.simulation.loop.create_task(topic.producers.close_in_order())
    lived.world.wait(1)
    assert wire.told == ["stop"]
    assert not producer.closed
    producer.pending = 0
    topic.on_durable(())
    lived.world.run(closing)
    assert wire.told == ["stop", "close"]


def test_a_topic_whose_receipts_do_not_come_keeps_no_other_from_being_looked_at() -> None:
    lived = Lived(by_size(HOLD), **CHECK)
    names = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(3)]
    topics, wires = [lived.topic(name) for name in names], [Wire() for _ in names]
    for topic, wire in zip(topics, wires, strict=True):
        lived.subscribe(topic)
        producer_on(lived, topic, wire)
        lived.publish(topic, 40)
    waiting = next(iter(topics[0].producers.values()))
    waiting.pending = 1
    lived.world.wait(35)
    assert [wire.told for wire in wires] == [["stop"], ["stop", "close"], ["stop", "close"]]
    waiting.pending = 0
    topics[0].on_durable(())
    lived.world.wait(1)
    assert wires[0].told == ["stop", "close"]


def test_the_slowest_is_evicted_until_nine_tenths_are_left() -> None:
    lived = Lived(by_size(EVICTION, 2000), **CHECK)
    topic, wire = lived.topic(), Wire()
    slow, fast = lived.subscribe(topic, "slow"), lived.subscribe(topic, "fast")
    producer_on(lived, topic, wire)
    lived.publish(topic, 100, size=50)
    fast.skip_to(fast.cursor.nth_unconsumed(90))
    lived.world.wait(15)
    assert 1200 < backlog_bytes(topic) <= 1800
    assert slow.backlog() < 100
    assert fast.backlog() == 10
    assert slow.expired.messages == 0
    assert not wire.told
    lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
    evictions = lived.broker.upkeep.quotas.of(topic)
    assert (evictions.by_size, evictions.by_time) == (1, 0)
    assert lived.broker.upkeep.quotas.all.by_size == 1


@pytest.mark.parametrize("precise", [True, False])
def test_ages_are_bounded_as_well(precise: bool) -> None:
    lived = Lived(by_age(HOLD), precise_age_quota=precise, **CHECK)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 5)
    lived.world.wait(70)
    # Told by ledgers alone, what is in an open one has no age.
    if precise:
        with pytest.raises(QuotaExceededHold):
            lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
        assert lived.broker.upkeep.quotas.of(topic).age_seconds >= 60
    else:
        lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
        assert lived.broker.upkeep.quotas.of(topic).age_seconds == -1
    lived.publish(topic, 10)
    lived.world.wait(70)
    with pytest.raises(QuotaExceededHold):
        lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
    subscription.skip_to(subscription.cursor.nth_unconsumed(15))
    lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
    lived.world.wait(15)
    assert lived.broker.upkeep.quotas.of(topic).age_seconds == -1


@pytest.mark.parametrize("precise", [True, False])
def test_what_is_too_old_is_evicted(precise: bool) -> None:
    lived = Lived(by_age(EVICTION), precise_age_quota=precise, **CHECK)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 15)
    lived.world.wait(45)
    lived.publish(topic, 10)
    lived.world.wait(30)
    # Ten a ledger; whole ledgers without precision.
    assert subscription.backlog() == (10 if precise else 15)
    assert lived.broker.upkeep.quotas.of(topic).by_time >= 1


def test_what_has_no_backlog_is_never_refused() -> None:
    lived = Lived(by_size(EXCEPTION, 0), **CHECK)
    topic, wire = lived.topic(), Wire()
    lived.publish(topic, 50)
    producer_on(lived, topic, wire)
    lived.world.run(topic.subscriptions.subscribe("reader", (-1, -1), {}, durable=False, create=True))
    lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
    lived.world.wait(15)
    assert not wire.told


def test_quotas_can_be_switched_off() -> None:
    lived = Lived(by_size(HOLD), backlog_quota_check=False, **CHECK)
    topic, wire = lived.topic(), Wire()
    lived.subscribe(topic)
    producer_on(lived, topic, wire)
    lived.publish(topic, 50)
    lived.world.wait(15)
    lived.world.run(lived.broker.upkeep.quotas.check_producer(topic))
    assert not wire.told


def test_what_is_known_of_a_topic_goes_with_it() -> None:
    lived = Lived(by_size(EVICTION), **CHECK)
    topic = lived.topic()
    lived.subscribe(topic)
    lived.publish(topic, 50)
    lived.world.wait(15)
    assert lived.broker.upkeep.quotas.of(topic).by_size == 1
    lived.world.run(lived.broker.topics.delete_topic(topic))
    lived.world.wait(15)
    assert lived.broker.upkeep.quotas.of(topic).by_size == 0


def test_kinds_of_background_work_have_names_that_metrics_may_have() -> None:
    """Found here: one of a kind with a space made the whole page unreadable."""
    lived = Lived(EffectivePolicies(), inactive_topics_check_seconds=5, **CHECK)
    lived.topic()
    lived.world.wait(30)
    extra = lived.world.run(take_snapshot(lived.broker)).extra
    assert "magnetar_longest_slice_backlog_quotas_seconds" in extra
    assert "magnetar_longest_slice_inactive_topics_seconds" in extra
    assert all(re.fullmatch("[a-z_]+", name) for name in extra)


def test_eviction_goes_by_bytes_where_entries_differ() -> None:
    lived = Lived(by_size(EVICTION, 20_000), **CHECK)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    lived.publish(topic, 10, size=2000)
    lived.publish(topic, 50, size=100)
    lived.world.wait(11)
    # Some of the large ones are enough.
    assert 0.8 * 20_000 < backlog_bytes(topic) <= 18_000
    assert subscription.backlog() >= 55
