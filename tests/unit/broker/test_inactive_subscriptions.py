"""Deleting subscriptions that nobody uses, in a simulated world: hours pass in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lived import Lived
from test_expiry import Wire

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.subscriptions.base import SubscriptionType
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.managed_ledger.position import EARLIEST

HOUR = 3600.0


@pytest.fixture
def lived() -> Lived:
    return Lived(EffectivePolicies(subscription_expiration_minutes=60), subscription_expiry_check_seconds=60)


def consumer(subscription: Subscription) -> Consumer[Subscription]:
    made = Consumer(
        subscription,
        Wire(),  # type: ignore[arg-type]
        1,
        "c",
        priority=0,
        epoch=None,
        metadata={},
        connected_ms=0,
        partition=-1,
    )
    subscription.add(made, SubscriptionType.Shared, 0)
    return made


def test_a_subscription_goes_when_nobody_has_used_it_for_its_time(lived: Lived) -> None:
    topic = lived.topic()
    lived.subscribe(topic)
    lived.world.wait(HOUR - 120)
    assert "s" in topic.subscriptions
    lived.world.wait(300)
    assert "s" not in topic.subscriptions
    assert "s" not in topic.managed_ledger.cursors


def test_its_time_begins_when_the_last_consumer_has_left(lived: Lived) -> None:
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    connected = consumer(subscription)
    lived.world.wait(5 * HOUR)
    assert "s" in topic.subscriptions
    subscription.remove(connected)
    lived.world.wait(HOUR - 120)
    assert "s" in topic.subscriptions
    lived.world.wait(300)
    assert "s" not in topic.subscriptions


def test_what_is_replicated_a_reader_s_or_not_to_expire_stays(lived: Lived) -> None:
    topic = lived.topic()
    lived.subscribe(topic, "kept").replicate(True)
    lived.world.run(topic.subscriptions.subscribe("reader", EARLIEST, {}, durable=False, create=True))
    lived.world.wait(3 * HOUR)
    assert set(topic.subscriptions) == {"kept", "reader"}


def test_zero_is_never_and_a_policy_counts_at_once(lived: Lived) -> None:
    topic = lived.topic()
    lived.use(topic, subscription_expiration_minutes=0)
    lived.subscribe(topic)
    lived.world.wait(10 * HOUR)
    assert "s" in topic.subscriptions
    topic.apply_policies(replace(topic.policies, subscription_expiration_minutes=1))
    lived.world.wait(120)
    assert "s" not in topic.subscriptions
