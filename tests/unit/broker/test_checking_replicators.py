"""Replicators are compared with policies now and then, whether anybody has told of a change or not."""

from __future__ import annotations

from typing import Any

from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.replication.clusters import ReplicationSettings, Way
from magnetar.errors import ServiceNotReady


def nowhere(_name: str, _record: object) -> Way:
    raise ServiceNotReady("it is away")


def lived(check_seconds: float) -> Lived:
    settings: Any = ReplicationSettings("standalone", check_seconds=check_seconds)
    return Lived(EffectivePolicies(), reach=nowhere, replication=settings)


def test_replicators_are_begun_and_ended_at_the_next_check() -> None:
    life = lived(600.0)
    topic = life.topic()
    life.use(topic, replication_clusters=("standalone", "west"))
    life.world.wait(599)
    assert not topic.replicators
    life.world.wait(2)
    assert list(topic.replicators) == ["west"]
    assert [each.name for each in topic.managed_ledger.cursors.values()] == ["pulsar.repl.west"]
    life.use(topic, replication_clusters=("standalone",))
    life.world.wait(600)
    assert not topic.replicators
    assert not list(topic.managed_ledger.cursors.values())


def test_without_an_interval_only_changes_count() -> None:
    life = lived(0.0)
    topic = life.topic()
    life.use(topic, replication_clusters=("standalone", "west"))
    life.world.wait(6000)
    assert not topic.replicators
