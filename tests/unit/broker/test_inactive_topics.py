"""Deleting topics that nobody uses, in a simulated world."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from world import World, append

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Owner
from magnetar.broker.ownership.peers import PeerAnswer
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import InactiveTopics, Retention
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.persistent import Topic, TopicSettings
from magnetar.broker.upkeep.inactivity import CAUGHT_UP, InactiveTopicsCheck
from magnetar.io.wheel import TimerWheel
from magnetar.naming.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/t")
EARLIEST = (-1, -1)


class Swept:
    """A broker that deletes what nobody used for ten seconds."""

    def __init__(self, mode: str = InactiveTopics.mode, **settings: Any) -> None:
        self.world = World()
        io = self.world.simulation.io
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        policies = EffectivePolicies(inactive_topics=InactiveTopics(True, 10, mode))
        topic = TopicSettings(DispatchSettings())
        known = BrokerSettings("standalone", urls[1], urls[0], topic, policies=policies, **settings)
        wheel = TimerWheel(io.loop)
        self.broker = BrokerService(io, wheel, self.world.metadata, self.world.managed, known)
        self.check = InactiveTopicsCheck(self.broker.topics, self.broker.beside)

    def topic(self, name: TopicName = NAME) -> Topic:
        return self.world.run(self.broker.topics.load(name, create=True))

    def subscribe(self, topic: Topic) -> Any:
        return self.world.run(topic.subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=True))

    def after(self, seconds: float) -> None:
        """The check runs after so long."""
        self.world.wait(seconds)
        self.world.run(self.check.run())

    def exists(self, name: TopicName = NAME) -> bool:
        return self.world.run(self.world.managed.exists(name.path))


def test_a_topic_nobody_uses_is_deleted_when_its_time_is_over() -> None:
    swept = Swept()
    swept.topic()
    swept.after(9)
    assert swept.exists()
    swept.after(1.5)
    assert not swept.exists()
    assert not swept.broker.topics.loaded


def test_a_subscription_keeps_a_topic_until_it_is_removed() -> None:
    swept = Swept()
    topic = swept.topic()
    swept.subscribe(topic)
    swept.after(20)
    swept.world.run(topic.subscriptions.unsubscribe("s"))
    swept.after(9)
    assert swept.exists()
    swept.after(1.5)
    assert not swept.exists()


def test_a_subscription_that_is_just_being_made_keeps_its_topic() -> None:
    swept = Swept()
    topic = swept.topic()
    swept.world.wait(20)
    making = swept.world.simulation.loop.create_task(
        topic.subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=True)
    )
    check = swept.world.simulation.loop.create_task(swept.check.run())
    swept.world.run(making)
    swept.world.run(check)
    assert swept.exists()
    assert not topic.closing


def test_a_deletion_that_has_begun_goes_on_when_the_broker_stops() -> None:
    swept = Swept()
    topic = swept.topic()
    for _ in range(4):
        append(topic.managed_ledger, 5)
        swept.world.wait(1)
    swept.world.wait(20)
    assert swept.world.run(swept.world.store.ledger_ids())
    check = swept.world.simulation.loop.create_task(swept.check.run())
    while not topic.closing:
        swept.world.wait(0.0001)
    check.cancel()
    swept.world.run(swept.broker.stop())
    assert not swept.exists()
    assert not swept.world.run(swept.world.store.ledger_ids())


@pytest.mark.parametrize("backlog", [False, True])
def test_a_backlog_keeps_a_topic_in_the_other_mode(backlog: bool) -> None:
    swept = Swept(CAUGHT_UP)
    topic = swept.topic()
    swept.subscribe(topic)
    if backlog:
        append(topic.managed_ledger, 1)
    swept.after(20)
    assert swept.exists() is backlog


def test_retention_by_time_keeps_a_topic_as_long() -> None:
    swept = Swept()
    topic = swept.topic()
    topic.policies = replace(topic.policies, retention=Retention(1, 0))
    swept.after(59)
    assert swept.exists()
    swept.after(2)
    assert not swept.exists()


@pytest.mark.parametrize("policy", [InactiveTopics(False, 10), None])
def test_topics_are_kept_where_policies_say_so(policy: InactiveTopics | None) -> None:
    swept = Swept()
    name = NAME if policy else TopicName.parse("persistent://public/default/__change_events")
    topic = swept.topic(name)
    if policy:
        topic.policies = replace(topic.policies, inactive_topics=policy)
    swept.after(1000)
    assert swept.exists(name)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_partitioned_topic_goes_with_its_last_partition_where_wanted(wanted: bool) -> None:
    swept = Swept(delete_inactive_partitioned=wanted)
    run = swept.world.run
    run(swept.broker.namespaces.create_partitioned(NAME, 2, {}))
    kept = swept.topic(NAME.partition(0))
    swept.subscribe(kept)
    swept.topic(NAME.partition(1))
    swept.after(20)
    assert not swept.exists(NAME.partition(1))
    assert run(swept.broker.namespaces.partitions(NAME)) == 2
    run(kept.subscriptions.unsubscribe("s"))
    swept.after(20)
    assert not swept.exists(NAME.partition(0))
    assert run(swept.broker.namespaces.partitions(NAME)) == (0 if wanted else 2)


class Other:
    """Another broker, with some non-persistent topics and the bundles they lie in."""

    def __init__(self, swept: Swept, *loaded: TopicName) -> None:
        self.brokers = self.admin = self
        self.loaded = list(loaded)
        self._served = swept.broker
        self._own = swept.broker.ownership.owner_of

    def get(self, broker_id: str) -> str:
        return broker_id

    async def owner_of(self, bundle: Bundle, asked: Asked, *, persistent: bool = True) -> Owner:
        if any(name in bundle for name in self.loaded):
            return Owner("other:8080", Addresses(None), here=False, generation=1)
        return await self._own(bundle, asked, persistent=persistent)

    async def call(self, _broker: str, _method: str, path: str, *_more: Any) -> PeerAnswer:
        bundle = Bundle.parse(path.removeprefix("/admin/v2/non-persistent/"))
        return PeerAnswer(200, json.dumps([str(name) for name in self.loaded if name in bundle]).encode())


def test_a_partition_of_another_broker_keeps_a_non_persistent_partitioned_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swept = Swept(delete_inactive_partitioned=True)
    run = swept.world.run
    name = TopicName.parse("non-persistent://public/default/t")
    run(swept.broker.namespaces.create_partitioned(name, 4, {}))
    bundles = [run(swept.broker.bundles.of_topic(name.partition(index))) for index in range(4)]
    there = next(index for index in range(4) if bundles[index] != bundles[0])
    other = Other(swept, name.partition(there))
    monkeypatch.setattr(swept.broker, "beside", other)
    monkeypatch.setattr(swept.broker.ownership, "owner_of", other.owner_of)
    swept.topic(name.partition(0))
    swept.after(20)
    assert not swept.broker.topics.loaded
    assert run(swept.broker.namespaces.partitions(name)) == 4
    other.loaded.clear()
    swept.topic(name.partition(0))
    swept.after(20)
    assert run(swept.broker.namespaces.partitions(name)) == 0


def test_many_topics_are_looked_at_in_slices() -> None:
    swept = Swept()
    for number in range(50):
        swept.topic(TopicName.parse(f"persistent://public/default/t{number}"))
    swept.after(20)
    assert not swept.broker.topics.loaded
