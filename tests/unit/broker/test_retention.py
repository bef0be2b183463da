"""Retention by policies of namespaces and topics, in a simulated broker: a week of rollover in seconds."""

from __future__ import annotations

from typing import Any

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import Retention
from magnetar.broker.stats.backlog_scan import space_of
from magnetar.broker.topics.persistent import Topic
from magnetar.managed_ledger.settings import ManagedLedgerSettings, RetentionSettings

HOUR = 3600.0
HOURLY = ManagedLedgerSettings(
    max_entries_per_ledger=10**6, min_rollover_ms=0, max_rollover_ms=int(HOUR * 1000)
)
CHECK = {"retention_check_seconds": 120.0}
SLACK_HOURS = 1.1
"""A ledger goes as a whole: what is in it waits for its last entry, and for the next check."""


def kept(topic: Topic) -> int:
    """Entries that are there."""
    return topic.managed_ledger.ledgers.total_entries()


def retained(minutes: int, megabytes: int) -> EffectivePolicies:
    return EffectivePolicies(retention=Retention(minutes, megabytes))


def week(lived: Lived, topic: Topic, check: Any, hours: int = 7 * 24) -> None:
    """Something is published each hour."""
    for hour in range(hours):
        lived.publish(topic, 2)
        lived.world.wait(HOUR)
        check(hour)


def test_a_week_of_three_hours() -> None:
    lived = Lived(retained(180, -1), HOURLY, **CHECK)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    seen = []

    def check(_hour: int) -> None:
        subscription.skip_to(topic.max_read_position)
        seen.append(kept(topic))

    week(lived, topic, check)
    assert max(seen) <= 2 * (3 + SLACK_HOURS + 1)
    assert min(seen[4:]) >= 2 * 3


def test_a_backlog_is_kept_whatever_retention_says() -> None:
    lived = Lived(retained(60, 1), HOURLY, **CHECK)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    week(lived, topic, lambda hour: None, 48)
    assert subscription.backlog() == kept(topic) == 96
    subscription.skip_to(topic.max_read_position)
    lived.world.wait(HOUR)
    assert kept(topic) <= 2 * (1 + SLACK_HOURS)


def test_topics_without_subscriptions_go_by_retention() -> None:
    lived = Lived(retained(120, -1), HOURLY, **CHECK)
    topic = lived.topic()
    week(lived, topic, lambda hour: None, 24)
    assert 2 * 2 <= kept(topic) <= 2 * (2 + SLACK_HOURS + 1)


def test_an_idle_topic_is_trimmed_as_well() -> None:
    lived = Lived(retained(60, -1), HOURLY, **CHECK)
    topic = lived.topic()
    lived.publish(topic, 7)
    lived.world.wait(1.5 * HOUR)
    assert kept(topic) == 7
    lived.world.wait(HOUR)
    assert kept(topic) == 0


@pytest.mark.parametrize(
    ("minutes", "megabytes", "left"),
    [(-1, -1, 12), (-1, 3, 3), (120, -1, 2), (0, 0, 0), (120, 1, 1), (120, 6, 2)],
)
def test_each_row_of_the_table(minutes: int, megabytes: int, left: int) -> None:
    """Twelve ledgers of 1 MiB each, closed an hour apart; ``left`` of them stay, besides the open one."""
    lived = Lived(retained(minutes, megabytes), HOURLY, **CHECK)
    topic = lived.topic()
    for _ in range(12):
        lived.publish(topic, 4, size=256 << 10)
        lived.world.wait(HOUR + 130)
    ledgers = topic.managed_ledger.ledgers
    closed = [summary for summary in ledgers if summary.closed_ms and summary.entries]
    assert len(closed) == left
    # The size that is left still reaches the limit, or nothing more could go.
    assert megabytes < 0 or minutes == 0 or len(closed) <= megabytes


def test_what_a_policy_keeps_outlives_loading_the_topic_again() -> None:
    """The broker's own default keeps nothing."""
    lived = Lived(EffectivePolicies(), HOURLY, **CHECK)
    topic = lived.topic()
    policies = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    namespace = topic.name.namespace_name
    lived.world.run(
        lived.broker.policies.change_namespace(
            namespace, lambda record: record.update(retention_policies=policies)
        )
    )
    week(lived, topic, lambda hour: None, 5)
    assert kept(topic) == 10
    lived.world.run(lived.broker.topics.unload_topic(topic))
    again = lived.topic()
    lived.world.wait(HOUR)
    assert kept(again) == 10


def test_a_new_policy_counts_at_once() -> None:
    lived = Lived(retained(-1, -1), HOURLY, **CHECK)
    topic = lived.topic()
    week(lived, topic, lambda hour: None, 5)
    assert kept(topic) == 10
    lived.use(topic, retention=Retention(0, 0))
    lived.world.wait(1)
    assert kept(topic) <= 2


def test_bytes_by_what_they_are_there_for() -> None:
    lived = Lived(retained(-1, 2), HOURLY, retention_check_seconds=10.0**6)
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    for _ in range(6):
        lived.publish(topic, 4, size=256 << 10)
        lived.world.run(roll(topic))
    found = space_of(topic)
    assert (found.backlog, found.retained, found.reclaimable, found.ledgers) == (found.stored, 0, 0, 7)
    assert 0 < found.oldest_closed_ms <= lived.clock.wall_ms()
    topic.managed_ledger.retention = RetentionSettings(-1, -1)
    subscription.skip_to(subscription.cursor.nth_unconsumed(20))
    lived.world.wait(1)
    topic.managed_ledger.retention = RetentionSettings(-1, 2 << 20)
    found = space_of(topic)
    assert found.backlog * 6 == found.stored
    assert found.reclaimable * 6 == found.stored * 4
    assert found.retained * 6 == found.stored
    assert found.ledgers == 7


async def roll(topic: Topic) -> None:
    topic.managed_ledger.start_over()
    await topic.managed_ledger.rolling.ended()


def test_truncation_keeps_nothing() -> None:
    lived = Lived(retained(-1, -1), HOURLY, **CHECK)
    topic = lived.topic()
    week(lived, topic, lambda hour: None, 3)
    lived.publish(topic, 3)
    subscription = lived.subscribe(topic)
    lived.world.run(topic.managed_ledger.trimmer.truncate())
    assert subscription.backlog() == kept(topic) == 9
    subscription.skip_to(topic.max_read_position)
    lived.world.run(topic.managed_ledger.trimmer.truncate())
    assert kept(topic) == 0
    lived.publish(topic, 2)
    assert subscription.backlog() == kept(topic) == 2
