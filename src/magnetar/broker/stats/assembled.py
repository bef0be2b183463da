"""Statistics of a topic that require reads from the stores, or requests to other brokers.

Examples are the times of messages, the ledgers of schemas and the statistics of partitions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from magnetar.broker.dispatch.non_persistent import NonPersistentKeyShared
from magnetar.broker.publishing.producer import Producer
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.broker.stats.figure_table import subscription_json, topic_json
from magnetar.broker.stats.figures import ProducerMetrics, SubscriptionMetrics, TopicMetrics
from magnetar.broker.stats.taken import (
    of_non_persistent_subscription,
    of_non_persistent_topic,
    replication_stats,
)
from magnetar.broker.stats.topic_stats import (
    SUBSCRIPTION_ZEROES,
    TOPIC_ZEROES,
    compacted_ledger,
    internal_stats,
    schema_ledger,
    subscriptions_stats,
    topic_stats,
    traffic_stats,
)
from magnetar.broker.stats.topic_stats import publisher_stats as stored_publisher_stats
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.entries import published_at
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.io.interfaces import Io
from magnetar.io.slices import gone_through, next_turn
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerError, NoSuchLedger
from magnetar.managed_ledger.managed_ledger import ManagedLedger

Json = dict[str, object]
_SLICES = "statistics"
_MANY = 100
"""If a topic has at least this number of subscriptions, other tasks run before its statistics are made."""
NO_TIME = 0
"""Stands for the publish time of the first unconsumed message if a subscription has no backlog."""
_FIRST_KNOWN = frozenset(("earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs"))
"""Fields with times, in which 0 means that no time is known; the statistics of all partitions together have
the earliest known time.
"""
_OF_ONE_PARTITION = frozenset(
    (
        "ownerBroker",
        "deduplicationStatus",
        "producerId",
        "address",
        "connectedSince",
        "drainingHashes",
        "keyHashRangeArrays",
        "oldestBacklogMessageSubscriptionName",
        "activeConsumerName",
    )
)
"""Fields of a partition's statistics that have no meaning for the whole topic, and are left out."""
_NAMES = {"publishers": "producerName", "consumers": "consumerName"}
"""For each list of clients, the field by which the same client is recognized on several partitions."""
_BY_NAME = frozenset(("subscriptions", "replication"))
"""Objects whose keys are names that users chose; the names do not determine the type of the values."""
_OF_CLIENTS = frozenset(("metadata", "subscriptionProperties", "consumersAfterMarkDeletePosition"))
"""Objects with string values whose keys are names that users chose; the values of the first partition are
used."""
NOTHING_STORED: Json = {
    "backlogQuotaLimitSize": 0,
    "backlogQuotaLimitTime": 0,
    "oldestBacklogMessageAgeSeconds": 0,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
}
_NOTHING_WAITS: Json = {
    "backlogSize": 0,
    # True for every subscription of such a topic: none outlives the broker.
    "isDurable": False,
    "durable": False,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
}


@dataclass(frozen=True, slots=True)
class StatsSelection:
    """The optional parts of the statistics of a topic; the defaults are Pulsar's."""

    backlog_size: bool = True
    earliest_time: bool = False
    publishers: bool = True
    consumers: bool = True

    def query(self) -> dict[str, str]:
        """Returns this selection as the query of a request to another broker."""
        truths = {
            "getPreciseBacklog": False,
            "subscriptionBacklogSize": self.backlog_size,
            "getEarliestTimeInBacklog": self.earliest_time,
            "excludePublishers": not self.publishers,
            "excludeConsumers": not self.consumers,
        }
        return {name: "true" if value else "false" for name, value in truths.items()}


async def stats_of(io: Io, topic: AnyTopic, owner: str, wanted: StatsSelection) -> Json:
    """Returns ``TopicStats`` or, for a non-persistent topic, ``NonPersistentTopicStats``; works in slices,
    between which the loop runs.

    :param owner: the broker's ``host:port``
    :raises LedgerError: an entry whose publish time is requested (``earliest_time``) cannot be read
    """
    if isinstance(topic, NonPersistentTopic):
        work = stats_of_non_persistent(topic, owner, publishers=wanted.publishers, consumers=wanted.consumers)
        return await gone_through(io, _SLICES, work)
    if len(topic.subscriptions) >= _MANY:
        # Concurrent requests take turns, as the parts without interruptions are long.
        await next_turn(io)
    oldest = await _oldest(topic)
    times = await _earliest_times(topic) if wanted.earliest_time else {}
    stats = await gone_through(
        io,
        _SLICES,
        topic_stats(
            topic,
            owner,
            backlog_size=wanted.backlog_size,
            publishers=wanted.publishers,
            consumers=wanted.consumers,
        ),
    )
    if oldest is not None:
        name, published_ms = oldest
        age_ms = max(0, topic.clock.wall_ms() - published_ms)
        stats["oldestBacklogMessageAgeSeconds"] = age_ms // 1000
        stats["oldestBacklogMessageSubscriptionName"] = name
    for name, time_ms in times.items():
        if name in stats["subscriptions"]:
            stats["subscriptions"][name]["earliestMsgPublishTimeInBacklog"] = time_ms
    stats["earliestMsgPublishTimeInBacklogs"] = earliest(times.values())
    return stats


def earliest(times: Iterable[int]) -> int:
    """Returns the earliest of the times that are known; :data:`NO_TIME` if none is known."""
    return min((time_ms for time_ms in times if time_ms != NO_TIME), default=NO_TIME)


async def internal_stats_of(io: Io, topic: AnyTopic, schemas: SchemaStorage, *, metadata: bool) -> Json:
    """Returns ``PersistentTopicInternalStats``: the ledgers and cursors of a topic; works in slices, between
    which the loop runs.

    :param metadata: whether to add the metadata of each ledger
    :raises LedgerError: the metadata of a ledger cannot be read
    """
    if isinstance(topic, NonPersistentTopic):
        return internal_stats_of_non_persistent(topic)
    ledgers = await schemas.ledgers(topic.schema_path)
    compacted = compacted_ledger(-1, -1, -1)
    current = topic.compaction.current
    if current is not None:
        with current.held():
            compacted = compacted_ledger(current.ledger_id, await current.entries(), await current.size())
    return {
        **await gone_through(io, _SLICES, internal_stats(topic, metadata=metadata)),
        "compactedLedger": compacted,
        "schemaLedgers": [schema_ledger(each) for each in ledgers],
    }


async def _oldest(topic: Topic) -> tuple[str, int] | None:
    """Returns the durable subscription that is farthest behind, and the publish time of its next message;
    None if no subscription has a backlog, or the message cannot be read now."""
    behind = [s for s in topic.subscriptions.values() if s.durable and s.cursor.backlog()]
    if not behind:
        return None
    last = min(behind, key=lambda subscription: subscription.cursor.mark_delete)
    try:
        published_ms = await _next_published(topic.managed_ledger, last)
    except LedgerError:
        # The request did not name this figure, for which Pulsar reads nothing; and the other figures matter
        # most when something cannot be read.
        return None
    return (last.name, published_ms) if published_ms != NO_TIME else None


async def _earliest_times(topic: Topic) -> dict[str, int]:
    return {
        subscription.name: await _next_published(topic.managed_ledger, subscription)
        for subscription in list(topic.subscriptions.values())
    }


async def _next_published(ledger: ManagedLedger, subscription: Subscription) -> int:
    """Returns the publish time of the first message that a subscription has not consumed, in ms since 1970;
    :data:`NO_TIME` if the subscription has no backlog."""
    cursor = subscription.cursor
    while cursor.backlog():
        position = cursor.first_unconsumed()
        try:
            return await published_at(ledger, position)
        except NoSuchLedger:
            # The ledger was consumed and trimmed during the read; try what is next now.
            if position[0] in ledger.ledgers:
                raise
    return NO_TIME


_LARGEST = frozenset(
    (
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "lastExpireTimestamp",
        "lastOffloadLedgerId",
        "lastOffloadSuccessTimeStamp",
        "lastOffloadFailureTimeStamp",
        "lastCompactionSucceedTimestamp",
        "lastCompactionFailedTimestamp",
        "lastCompactionDurationTimeInMills",
        "oldestBacklogMessageAgeSeconds",
        "topicEpoch",
        "backlogQuotaLimitSize",
        "backlogQuotaLimitTime",
        "avgMessagesPerEntry",
        "lastAckedTime",
        "lastConsumedTime",
    )
)
_OF_NO_PARTITION: Mapping[str, object] = {
    **TOPIC_ZEROES,
    **NOTHING_STORED,
    "msgChunkPublished": False,
    "publishers": [],
    "waitingPublishers": 0,
    "subscriptions": {},
}
"""The fields, as in Pulsar, of ``TopicStats`` of a partitioned topic of which no partition exists."""


def total_stats(parts: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Returns ``TopicStats`` of all partitions of a topic together.

    Numbers are summed; producers, consumers and subscriptions of the same name count as one.
    """
    if not parts:
        return {**topic_json(TopicMetrics("", "")), **deepcopy(dict(_OF_NO_PARTITION))}
    total: dict[str, Any] = {}
    for stats in parts:
        _add(total, stats)
    _average_sizes(total)
    for publisher in total.get("publishers", ()):
        publisher["producerId"] = 0
        _average_sizes(publisher)
    oldest = max(parts, key=lambda stats: int(stats["oldestBacklogMessageAgeSeconds"]), default=None)
    if oldest is not None and "oldestBacklogMessageSubscriptionName" in oldest:
        name = oldest["oldestBacklogMessageSubscriptionName"]
        total["oldestBacklogMessageSubscriptionName"] = name
    return total


def _average_sizes(stats: dict[str, Any]) -> None:
    rate = stats.get("msgRateIn", 0.0)
    stats["averageMsgSize"] = stats["msgThroughputIn"] / rate if rate else 0.0


def _add(total: dict[str, Any], stats: Mapping[str, Any]) -> None:
    for key, value in stats.items():
        if key in _OF_ONE_PARTITION:
            continue
        if key in _OF_CLIENTS:
            total[key] = {**value, **total.get(key, {})}
        elif key in _BY_NAME:
            known = total.setdefault(key, {})
            for name, stats_of_it in value.items():
                _add(known.setdefault(name, {}), stats_of_it)
        elif isinstance(value, Mapping):
            inner = total.setdefault(key, {})
            _add(inner, value)
        elif key in _NAMES:
            _add_named(total.setdefault(key, []), value, _NAMES[key])
        elif key not in total:
            total[key] = list(value) if isinstance(value, list) else value
        else:
            total[key] = _together(key, total[key], value)


def _add_named(total: list[dict[str, object]], clients: Sequence[Mapping[str, object]], name: str) -> None:
    known = {each[name]: each for each in total}
    for client in clients:
        same = known.get(client[name])
        if same is None:
            same = known[client[name]] = {}
            total.append(same)
        _add(same, client)


def _together(key: str, known: Any, value: object) -> object:
    if key in _FIRST_KNOWN:
        return min(known, value) if known and value else known or value
    if key in _LARGEST:
        return max(known, value)
    if isinstance(value, bool):
        return known or value
    if isinstance(value, int | float):
        return known + value
    if isinstance(value, list):
        return [*known, *value]
    return value if known == "None" else known


def publisher_stats(producer: Producer, now: ProducerMetrics) -> Json:
    return {**stored_publisher_stats(producer, now), "msgDropRate": producer.drops.per_second}


def subscription_stats(subscription: NonPersistentSubscription, now: SubscriptionMetrics) -> Json:
    """Returns ``NonPersistentSubscriptionStats`` without the consumers."""
    dispatcher = subscription.dispatcher
    stats: Json = {
        **SUBSCRIPTION_ZEROES,
        **_NOTHING_WAITS,
        **subscription_json(now),
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


def stats_of_non_persistent(
    topic: NonPersistentTopic, owner: str, *, publishers: bool, consumers: bool
) -> Generator[None, None, Json]:
    """Returns ``NonPersistentTopicStats``; yields after each subscription, consumer and publisher.

    ``msgDropRate`` counts, for a publisher, messages dropped because too much was pending on its connection;
    for a subscription, messages that no consumer accepted; for the topic, both.

    :param owner: the broker's ``host:port``
    """
    taken, subscriptions = yield from subscriptions_stats(
        topic.subscriptions.values(), of_non_persistent_subscription, subscription_stats, consumers=consumers
    )
    now = of_non_persistent_topic(topic, taken)
    producers = list(zip(topic.producers.local(), now.producers, strict=True)) if publishers else []
    found: list[Json] = []
    stats: Json = {
        **TOPIC_ZEROES,
        **traffic_stats(topic, now),
        **NOTHING_STORED,
        "publishers": found,
        "subscriptions": subscriptions,
        "msgDropRate": topic.drops.per_second + sum(s.drop_rate for s in now.subscriptions),
        "replication": replication_stats(topic),
        "ownerBroker": owner,
    }
    for pair in producers:
        found.append(publisher_stats(*pair))
        yield
    return stats


def internal_stats_of_non_persistent(topic: NonPersistentTopic) -> Json:
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
