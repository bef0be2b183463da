"""Statistics of a topic, including those that are not in memory: times of messages, ledgers of schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.broker.stats import non_persistent_stats
from magnetar.broker.stats.topic_stats import compacted_ledger, internal_stats, schema_ledger, topic_stats
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

Json = dict[str, Any]

_SLICES = "statistics"
_MANY = 100
"""From this number of subscriptions on, statistics yield to other tasks."""

NO_TIME = 0
"""Stands for the publish time of a subscription without a backlog."""


@dataclass(frozen=True, slots=True)
class StatsSelection:
    """What to put into the statistics of a topic; the defaults are Pulsar's."""

    backlog_size: bool = True
    earliest_time: bool = False
    publishers: bool = True
    consumers: bool = True

    def query(self) -> dict[str, str]:
        """The same selection as the query of a request to another broker."""
        truths = {
            "getPreciseBacklog": False,
            "subscriptionBacklogSize": self.backlog_size,
            "getEarliestTimeInBacklog": self.earliest_time,
            "excludePublishers": not self.publishers,
            "excludeConsumers": not self.consumers,
        }
        return {name: "true" if value else "false" for name, value in truths.items()}


async def stats_of(io: Io, topic: AnyTopic, owner: str, wanted: StatsSelection) -> Json:
    """Returns ``TopicStats``, or ``NonPersistentTopicStats``; works in slices.

    :param owner: the broker's ``host:port``
    :raises LedgerError: an entry whose publish time is requested (``earliest_time``) cannot be read
    """
    if isinstance(topic, NonPersistentTopic):
        work = non_persistent_stats.topic_stats(
            topic, owner, publishers=wanted.publishers, consumers=wanted.consumers
        )
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
    """Returns the earliest of the known times, else :data:`NO_TIME`."""
    return min((time_ms for time_ms in times if time_ms != NO_TIME), default=NO_TIME)


async def internal_stats_of(io: Io, topic: AnyTopic, schemas: SchemaStorage, *, metadata: bool) -> Json:
    """Returns ``PersistentTopicInternalStats``, with the metadata of each ledger if ``metadata`` is true;
    works in slices.

    :raises LedgerError: the metadata of a ledger cannot be read
    """
    if isinstance(topic, NonPersistentTopic):
        return non_persistent_stats.internal_stats(topic)
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
    """Returns the publish time of the first message that a subscription has not consumed."""
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
