"""Statistics of one non-persistent topic in Pulsar's JSON (``NonPersistentTopicStats``)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from magnetar.broker.dispatch.non_persistent import NonPersistentKeyShared
from magnetar.broker.publishing.producer import Producer
from magnetar.broker.stats.figures import ProducerMetrics, SubscriptionMetrics
from magnetar.broker.stats.taken import (
    of_non_persistent_subscription,
    of_non_persistent_topic,
    replication_stats,
)
from magnetar.broker.stats.topic_stats import (
    SUBSCRIPTION_ZEROES,
    TOPIC_ZEROES,
    subscriptions_stats,
    traffic_stats,
)
from magnetar.broker.stats.topic_stats import publisher_stats as stored_publisher_stats
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.topics.non_persistent import NonPersistentTopic

Json = dict[str, Any]

NOTHING_STORED: Json = {
    "storageSize": 0,
    "backlogSize": 0,
    "backlogQuotaLimitSize": 0,
    "backlogQuotaLimitTime": 0,
    "oldestBacklogMessageAgeSeconds": 0,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
}

_NOTHING_WAITS: Json = {
    "msgRateRedeliver": 0.0,
    "msgBacklog": 0,
    "backlogSize": 0,
    "msgBacklogNoDelayed": 0,
    "blockedSubscriptionOnUnackedMsgs": False,
    "msgInReplay": 0,
    "unackedMessages": 0,
    "lastMarkDeleteAdvancedTimestamp": 0,
    # True for every subscription of such a topic: none outlives the broker.
    "isDurable": False,
    "durable": False,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
}


def publisher_stats(producer: Producer, now: ProducerMetrics) -> Json:
    return {**stored_publisher_stats(producer, now), "msgDropRate": producer.drops.per_second}


def subscription_stats(subscription: NonPersistentSubscription, now: SubscriptionMetrics) -> Json:
    """Returns ``NonPersistentSubscriptionStats`` without the consumers."""
    dispatcher = subscription.dispatcher
    stats: Json = {
        **SUBSCRIPTION_ZEROES,
        **_NOTHING_WAITS,
        "msgRateOut": now.rate_out,
        "msgThroughputOut": now.throughput_out,
        "bytesOutCounter": now.bytes_out,
        "msgOutCounter": now.messages_out,
        "messageAckRate": now.ack_rate,
        "lastConsumedFlowTimestamp": now.last_consumed_flow_ms,
        "lastConsumedTimestamp": now.last_consumed_ms,
        "lastAckedTimestamp": now.last_acked_ms,
        "consumers": [],
        "subscriptionProperties": subscription.properties,
        "msgDropRate": now.drop_rate,
    }
    if isinstance(dispatcher, NonPersistentKeyShared):
        stats["allowOutOfOrderDelivery"] = dispatcher.division.policy.allow_out_of_order
        stats["keySharedMode"] = dispatcher.division.policy.mode.name
    if subscription.type is not None:
        stats["type"] = subscription.type.name
    if dispatcher is not None and dispatcher.active is not None:
        stats["activeConsumerName"] = dispatcher.active.name
    return stats


def topic_stats(
    topic: NonPersistentTopic, owner: str, *, publishers: bool, consumers: bool
) -> Generator[None, None, Json]:
    """Returns ``NonPersistentTopicStats``; may be interrupted like the statistics of other topics.

    ``msgDropRate`` counts, for a publisher, messages dropped because too much was pending on its connection;
    for a subscription, those that no consumer accepted; for the topic, both.

    :param owner: the broker's ``host:port``
    """
    taken, subscriptions = yield from subscriptions_stats(
        topic.subscriptions.values(), of_non_persistent_subscription, subscription_stats, consumers=consumers
    )
    now = of_non_persistent_topic(topic, taken)
    producers = list(zip(topic.local_producers(), now.producers, strict=True)) if publishers else []
    stats = {
        **TOPIC_ZEROES,
        **NOTHING_STORED,
        **traffic_stats(topic, now),
        "publishers": list[Json](),
        "subscriptions": subscriptions,
        "msgDropRate": topic.drops.per_second + sum(s.drop_rate for s in now.subscriptions),
        "replication": replication_stats(topic),
        "ownerBroker": owner,
    }
    for pair in producers:
        stats["publishers"].append(publisher_stats(*pair))
        yield
    return stats


def internal_stats(topic: NonPersistentTopic) -> Json:
    """Returns ``PersistentTopicInternalStats`` of a topic without ledgers."""
    return {
        "entriesAddedCounter": topic.entries_added,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "cursors": {
            name: {
                "waitingReadOp": False,
                "pendingReadOps": 0,
                "messagesConsumedCounter": 0,
                "cursorLedger": 0,
                "cursorLedgerLastEntry": 0,
                "active": False,
                "numberOfEntriesSinceFirstNotAckedMessage": 0,
                "totalNonContiguousDeletedMessagesRange": 0,
                "subscriptionHavePendingRead": False,
                "subscriptionHavePendingReplayRead": False,
            }
            for name in topic.subscriptions
        },
    }
