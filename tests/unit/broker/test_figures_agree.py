"""What statistics and metrics say of a topic is the same."""

from __future__ import annotations

from typing import Any

import pytest
from lived import Lived

from magnetar.broker.flow.rate_limits import PublishLimiter
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.stats.assembled import StatsSelection, stats_of
from magnetar.broker.stats.figures import TopicMetrics
from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.managed_ledger.position import EARLIEST
from magnetar.naming.topic_name import TopicName

TOPIC_FIGURES = {
    "msgRateIn": "rate_in",
    "msgThroughputIn": "throughput_in",
    "msgInCounter": "messages_in",
    "bytesInCounter": "bytes_in",
    "averageMsgSize": "average_message_size",
    "publishRateLimitedTimes": "publish_rate_limited",
}
STORED_FIGURES = {
    "storageSize": "storage_size",
    "backlogSize": "backlog_bytes",
    "backlogQuotaLimitSize": "backlog_quota_bytes",
    "backlogQuotaLimitTime": "backlog_quota_seconds",
}
SUBSCRIPTION_FIGURES = {
    "msgRateOut": "rate_out",
    "bytesOutCounter": "bytes_out",
    "msgOutCounter": "messages_out",
    "messageAckRate": "ack_rate",
    "msgBacklog": "backlog",
    "unackedMessages": "unacked_messages",
    "lastExpireTimestamp": "last_expire_ms",
    "totalMsgExpired": "total_expired",
}


def shown(lived: Lived, topic: AnyTopic) -> tuple[dict[str, Any], TopicMetrics]:
    stats = lived.world.run(stats_of(lived.broker.io, topic, "here", StatsSelection()))
    snapshot = lived.world.run(take_snapshot(lived.broker))
    return stats, next(found for found in snapshot.topics if found.name == topic.full_name)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_what_is_shown_of_a_topic_is_the_same_both_ways(domain: str) -> None:
    lived = Lived(EffectivePolicies())
    stored = domain == "persistent"
    name = TopicName.parse(f"{domain}://public/default/shown")
    topic: AnyTopic = lived.world.run(lived.broker.topics.load(name, create=True))
    topic.publish_limiter = PublishLimiter(1, 0, 0.0)
    topic.publish_limiter.take(100, 100, 0.0)
    for one in ("a", "b"):
        lived.world.run(topic.subscriptions.subscribe(one, EARLIEST, {}, durable=stored, create=True))
    if stored:
        lived.publish(topic, 7)
    stats, figures = shown(lived, topic)
    for key, attribute in (TOPIC_FIGURES | (STORED_FIGURES if stored else {})).items():
        assert stats[key] == getattr(figures, attribute), key
    assert stats["publishRateLimitedTimes"] == 1
    assert [*stats["subscriptions"]] == [s.name for s in figures.subscriptions] == ["a", "b"]
    for one in figures.subscriptions:
        for key, attribute in SUBSCRIPTION_FIGURES.items():
            assert stats["subscriptions"][one.name][key] == getattr(one, attribute), key
    if stored:
        assert figures.backlog == sum(s["msgBacklog"] for s in stats["subscriptions"].values()) > 0
