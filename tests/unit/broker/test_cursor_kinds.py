"""Cursors that are nobody's subscription, and one that only looks like one."""

from __future__ import annotations

import pytest
from lived import Lived

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import BacklogQuota
from magnetar.broker.subscriptions.cursor_kinds import COMPACTION, DEDUPLICATION, SUBSCRIPTION, kind_of
from magnetar.broker.topics.base import TopicSettings
from magnetar.broker.upkeep.backlog_quotas import EVICTION, backlog_bytes, slowest
from magnetar.broker.upkeep.expiry import due, expire
from magnetar.broker.upkeep.inactivity import CAUGHT_UP, is_used
from magnetar.errors import ProducerBusy
from magnetar.managed_ledger.position import EARLIEST
from magnetar.naming.replicators import DEFAULT_PREFIX

_REPLICATION = "pulsar.repl.elsewhere"


def test_names_tell_what_cursors_are_for() -> None:
    kinds = {name: kind_of(name, DEFAULT_PREFIX) for name in ("s", "pulsar.dedup2", "__compaction2")}
    assert set(kinds.values()) == {SUBSCRIPTION}
    assert kind_of(COMPACTION, DEFAULT_PREFIX).subscribed
    assert not kind_of(DEDUPLICATION, DEFAULT_PREFIX).subscribed
    assert not kind_of(_REPLICATION, DEFAULT_PREFIX).subscribed
    assert kind_of(_REPLICATION, "other") is SUBSCRIPTION


@pytest.mark.parametrize("name", [DEDUPLICATION, _REPLICATION])
def test_clients_cannot_take_the_names_of_other_kinds(name: str) -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    with pytest.raises(ProducerBusy, match="reserved"):
        lived.subscribe(topic, name)
    assert name not in topic.managed_ledger.cursors


def test_only_subscriptions_are_made_of_cursors_that_are_found() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    for name in (_REPLICATION, COMPACTION, "s"):
        lived.world.run(lived.world.managed.open_cursor(topic.managed_ledger, name, EARLIEST, {}))
    lived.world.run(lived.broker.topics.unload_topic(topic))
    again = lived.topic()
    assert set(again.subscriptions) == {COMPACTION, "s"}
    assert _REPLICATION in again.managed_ledger.cursors


def test_the_prefix_of_replicators_is_a_setting() -> None:
    settings = TopicSettings(DispatchSettings(), batch_index_acks=True, replicator_prefix="between")
    lived = Lived(EffectivePolicies(), topic=settings)
    topic = lived.topic()
    for name in (_REPLICATION, "between.elsewhere"):
        lived.world.run(lived.world.managed.open_cursor(topic.managed_ledger, name, EARLIEST, {}))
    lived.world.run(lived.broker.topics.unload_topic(topic))
    again = lived.topic()
    assert set(again.subscriptions) == {_REPLICATION}
    assert again.subscriptions[_REPLICATION].kind is SUBSCRIPTION
    with pytest.raises(ProducerBusy, match="reserved"):
        lived.subscribe(again, "between.another")


def test_neither_time_nor_quotas_move_compaction() -> None:
    policies = EffectivePolicies(storage_quota=BacklogQuota(1000, -1, EVICTION), message_ttl_seconds=30)
    lived = Lived(policies, backlog_quota_check_seconds=10)
    topic = lived.topic()
    compaction, subscription = lived.subscribe(topic, COMPACTION), lived.subscribe(topic)
    lived.publish(topic, 100, size=50)
    before = compaction.cursor.mark_delete
    assert slowest(topic) is subscription
    lived.world.wait(45)
    assert due(topic) == [subscription]
    lived.world.run(expire(subscription, lived.clock.wall_ms() - 30_000))
    assert subscription.backlog() == 0
    assert compaction.cursor.mark_delete == before
    assert compaction.backlog() == 100
    assert backlog_bytes(topic) == 0


@pytest.mark.parametrize("mode", [CAUGHT_UP, "delete_when_no_subscriptions"])
def test_compaction_keeps_no_topic_that_nobody_uses(mode: str) -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    lived.subscribe(topic, COMPACTION)
    lived.publish(topic, 3)
    assert not is_used(topic, mode)
    lived.subscribe(topic)
    assert is_used(topic, "delete_when_no_subscriptions")
