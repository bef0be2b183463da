"""Statistics of one topic in Pulsar's JSON (``TopicStats``, ``PersistentTopicInternalStats``)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from magnetar.broker.compaction.compactor import CompactionFigures
from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.key_shared.consumer import KeyedConsumer
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.publishing.producer import Producer
from magnetar.broker.stats.figure_table import consumer_json, producer_json, subscription_json, topic_json
from magnetar.broker.stats.figures import ConsumerMetrics, ProducerMetrics, SubscriptionMetrics, TopicMetrics
from magnetar.broker.stats.taken import of_subscription, of_topic, replication_stats
from magnetar.broker.subscriptions.base import AnyDispatcher, BaseSubscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.entries import iso_time
from magnetar.broker.topics.persistent import Topic
from magnetar.ledger.interface import LedgerMetadata
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import format_position
from magnetar.managed_ledger.records import LedgerSummary

if TYPE_CHECKING:
    from magnetar.managed_ledger.offloading import Offloader

Json = dict[str, Any]

SUBSCRIPTION_ZEROES: Json = {
    "chunkedMessageRate": 0.0,
    "type": "None",
    "earliestMsgPublishTimeInBacklog": 0,
    "isReplicated": False,
    "replicated": False,
    "allowOutOfOrderDelivery": False,
    "consumersAfterMarkDeletePosition": {},
    "drainingHashesCount": 0,
    "drainingHashesClearedTotal": 0,
    "drainingHashesUnackedMessages": 0,
    "dispatchThrottledMsgEventsBySubscriptionLimit": 0,
    "dispatchThrottledBytesEventsBySubscriptionLimit": 0,
    "dispatchThrottledMsgEventsByTopicLimit": 0,
    "dispatchThrottledBytesEventsByTopicLimit": 0,
    "dispatchThrottledMsgEventsByBrokerLimit": 0,
    "dispatchThrottledBytesEventsByBrokerLimit": 0,
}
"""The initial statistics of a subscription: zeroes, as in Pulsar, for what is not used or not offered."""

_LIMITS = ("Subscription", "Topic", "Broker")
"""The owners of limits in Pulsar's statistics; resource groups are not among them."""


def offload_stats(offloader: Offloader | None) -> Json:
    """Returns the ledger and the time of the last successful offload, and the time of the last failed
    offload, since the topic was loaded; 0 if there was no such offload.
    """
    return {
        "lastOffloadLedgerId": 0 if offloader is None else offloader.last_ledger_id,
        "lastOffloadSuccessTimeStamp": 0 if offloader is None else offloader.last_success_ms,
        "lastOffloadFailureTimeStamp": 0 if offloader is None else offloader.last_failure_ms,
    }


TOPIC_ZEROES: Json = {
    "systemTopicBytesInCounter": 0,
    "bytesOutInternalCounter": 0,
    "oldestBacklogMessageAgeSeconds": -1,
    "earliestMsgPublishTimeInBacklogs": 0,
    **offload_stats(None),
    "replication": {},
    "compaction": {
        "lastCompactionRemovedEventCount": 0,
        "lastCompactionSucceedTimestamp": 0,
        "lastCompactionFailedTimestamp": 0,
        "lastCompactionDurationTimeInMills": 0,
    },
}


def publisher_stats(producer: Producer, now: ProducerMetrics) -> Json:
    return {
        "accessMode": producer.access_mode.name,
        **producer_json(now),
        "chunkedMessageRate": producer.chunks.per_second,
        "producerId": producer.producer_id,
        "supportsPartialProducer": producer.partial_producer,
        "producerName": producer.name,
        "address": f"/{producer.address}",
        "connectedSince": iso_time(producer.connected_ms),
        "clientVersion": producer.client_version,
        "metadata": producer.metadata,
    }


def _key_shared_consumer(consumer: AnyConsumer, dispatcher: AnyDispatcher | None) -> Json:
    """Returns the ranges of hashes of a Key_Shared consumer, and the hashes that it still drains; zeroes for
    a consumer of another type."""
    stats: Json = {
        "drainingHashesCount": 0,
        "drainingHashesClearedTotal": 0,
        "drainingHashesUnackedMessages": 0,
    }
    if isinstance(consumer, KeyedConsumer) and isinstance(dispatcher, KeySharedDispatcher):
        draining = dispatcher.draining.of(consumer)
        stats["drainingHashesCount"] = len(draining)
        stats["drainingHashesClearedTotal"] = consumer.slots_drained
        stats["drainingHashesUnackedMessages"] = sum(entries for _slot, entries, _attempts in draining)
        if not dispatcher.division.policy.allow_out_of_order:
            stats["drainingHashes"] = [
                {"hash": slot, "unackMsgs": entries, "blockedAttempts": attempts}
                for slot, entries, attempts in draining
            ]
        stats["keyHashRangeArrays"] = [list(each) for each in dispatcher.ranges_of(consumer)]
    return stats


def _key_shared_subscription(dispatcher: object) -> Json:
    if not isinstance(dispatcher, KeySharedDispatcher):
        return {}
    return {
        "allowOutOfOrderDelivery": dispatcher.division.policy.allow_out_of_order,
        "keySharedMode": dispatcher.division.policy.mode.name,
        "drainingHashesCount": dispatcher.draining.count,
        "drainingHashesClearedTotal": dispatcher.draining.cleared,
        "drainingHashesUnackedMessages": dispatcher.draining.entries(),
    }


def consumer_stats(consumer: AnyConsumer, now: ConsumerMetrics, dispatcher: AnyDispatcher | None) -> Json:
    """Returns ``ConsumerStats``: the statistics of a consumer.

    :param now: the metrics of the consumer
    :param dispatcher: the dispatcher of the consumer's subscription
    """
    return {
        **consumer_json(now),
        "chunkedMessageRate": 0.0,
        "consumerName": consumer.name,
        "avgMessagesPerEntry": consumer.average_messages_per_entry(),
        **_key_shared_consumer(consumer, dispatcher),
        "address": f"/{consumer.address}",
        "connectedSince": iso_time(consumer.connected_ms),
        "clientVersion": consumer.client_version,
        "lastAckedTimestamp": consumer.last_acked_ms,
        "lastConsumedTimestamp": consumer.last_consumed_ms,
        "lastConsumedFlowTimestamp": consumer.last_consumed_flow_ms,
        "metadata": consumer.metadata,
        "lastAckedTime": iso_time(consumer.last_acked_ms),
        "lastConsumedTime": iso_time(consumer.last_consumed_ms),
    }


S = TypeVar("S", bound=BaseSubscription)


def subscriptions_stats(
    subscriptions: Iterable[S],
    taken_of: Callable[[S], SubscriptionMetrics],
    stats_of: Callable[[S, SubscriptionMetrics], Json],
    *,
    consumers: bool,
) -> Generator[None, None, tuple[list[SubscriptionMetrics], dict[str, Json]]]:
    """Returns the metrics of all subscriptions, and their statistics by the subscription's name.
    The generator yields after each subscription and each consumer, because thousands of them take longer than
    clients of other topics should wait. So the values may be of different moments.

    :param taken_of: returns the metrics of a subscription
    :param stats_of: returns the statistics of a subscription without its consumers
    :param consumers: whether to include the consumers
    """
    taken: list[SubscriptionMetrics] = []
    found: dict[str, Json] = {}
    for subscription in list(subscriptions):
        now = taken_of(subscription)
        stats = stats_of(subscription, now)
        pairs = list(zip(subscription.consumers, now.consumers, strict=True)) if consumers else []
        for pair in pairs:
            stats["consumers"].append(consumer_stats(*pair, subscription.dispatcher))
            yield
        taken.append(now)
        found[subscription.name] = stats
        yield
    return taken, found


def subscription_stats(subscription: Subscription, now: SubscriptionMetrics, *, backlog_size: bool) -> Json:
    """Returns ``SubscriptionStats`` without the consumers."""
    dispatcher = subscription.dispatcher
    cursor = subscription.cursor
    ranges = cursor.state.range_count()
    persisted = subscription.topic.managed_ledger.settings.max_unacked_ranges_to_persist
    stats: Json = {
        **SUBSCRIPTION_ZEROES,
        **subscription_json(now),
        "backlogSize": cursor.backlog_bytes() if backlog_size else -1,
        "consumers": [],
        "isDurable": subscription.durable,
        "durable": subscription.durable,
        "nonContiguousDeletedMessagesRanges": ranges,
        "nonContiguousDeletedMessagesRangesSerializedSize": cursor.state.ranges_size(persisted),
        "subscriptionProperties": subscription.properties,
        "isReplicated": subscription.replicated,
        "replicated": subscription.replicated,
        **{
            f"dispatchThrottled{'Msg' if messages else 'Bytes'}EventsBy{whose}Limit": count
            for (whose, messages), count in now.held_back.items()
            if whose in _LIMITS
        },
        **_key_shared_subscription(dispatcher),
    }
    if subscription.type is not None:
        stats["type"] = subscription.type.name
    if dispatcher is not None and dispatcher.active is not None:
        stats["activeConsumerName"] = dispatcher.active.name
    return stats


def traffic_stats(topic: AnyTopic, now: TopicMetrics) -> Json:
    """Returns the statistics that persistent and non-persistent topics have in common, including the number
    of producers that wait for exclusive access."""
    return {
        **topic_json(now),
        "msgChunkPublished": topic.producers.chunks_published
        or any(p.chunks.messages for p in topic.producers.values()),
        "waitingPublishers": topic.access.waiting,
        **({"topicEpoch": topic.access.epoch} if topic.access.epoch is not None else {}),
    }


def topic_stats(
    topic: Topic, owner: str, *, backlog_size: bool, publishers: bool, consumers: bool
) -> Generator[None, None, Json]:
    """Returns ``TopicStats``, the statistics of a topic; yields often, like :func:`subscriptions_stats`.

    :param owner: the broker's ``host:port``
    """
    taken, subscriptions = yield from subscriptions_stats(
        topic.subscriptions.values(),
        of_subscription,
        partial(subscription_stats, backlog_size=backlog_size),
        consumers=consumers,
    )
    now = of_topic(topic, taken)
    producers = list(zip(topic.producers.local(), now.producers, strict=True)) if publishers else []
    stats = {
        **TOPIC_ZEROES,
        **traffic_stats(topic, now),
        **offload_stats(topic.managed_ledger.offloader),
        "publishers": list[Json](),
        "deduplicationStatus": "Disabled" if topic.deduplication is None else "Enabled",
        "subscriptions": subscriptions,
        "nonContiguousDeletedMessagesRanges": sum(
            s["nonContiguousDeletedMessagesRanges"] for s in subscriptions.values()
        ),
        "nonContiguousDeletedMessagesRangesSerializedSize": sum(
            s["nonContiguousDeletedMessagesRangesSerializedSize"] for s in subscriptions.values()
        ),
        "ownerBroker": owner,
        "replication": replication_stats(topic),
        "compaction": _compaction_stats(topic.compaction.figures),
    }
    for pair in producers:
        stats["publishers"].append(publisher_stats(*pair))
        yield
    return stats


def _compaction_stats(figures: CompactionFigures | None) -> Json:
    if figures is None:
        return dict(TOPIC_ZEROES["compaction"])
    return {
        "lastCompactionRemovedEventCount": figures.removed,
        "lastCompactionSucceedTimestamp": figures.succeeded_ms,
        "lastCompactionFailedTimestamp": figures.failed_ms,
        "lastCompactionDurationTimeInMills": figures.duration_ms,
    }


def compacted_ledger(ledger_id: int, entries: int, size: int) -> Json:
    """Returns ``LedgerInfo`` of a compacted ledger; the numbers are -1 if there is no compacted ledger."""
    return {
        "ledgerId": ledger_id,
        "entries": entries,
        "size": size,
        "offloaded": False,
        "underReplicated": False,
    }


def _cursor_stats(cursor: Cursor, subscription: Subscription | None) -> Json:
    storage = cursor.storage
    dispatcher = subscription.dispatcher if subscription is not None else None
    waiting = dispatcher is not None and dispatcher.is_waiting
    reading = dispatcher is not None and dispatcher.is_reading
    return {
        "markDeletePosition": format_position(cursor.mark_delete),
        "readPosition": format_position(cursor.read_position),
        "waitingReadOp": waiting,
        "pendingReadOps": int(reading),
        "messagesConsumedCounter": cursor.messages_consumed,
        "cursorLedger": storage.ledger_id if storage is not None else -1,
        "cursorLedgerLastEntry": storage.entries_in_ledger - 1 if storage is not None else -1,
        "individuallyDeletedMessages": cursor.state.describe_ranges(),
        "lastLedgerSwitchTimestamp": iso_time(cursor.created_ms),
        "state": "Open" if storage is not None and storage.ledger_id >= 0 else "NoLedger",
        "active": cursor.active,
        "numberOfEntriesSinceFirstNotAckedMessage": cursor.entries_read_ahead() + 1,
        "totalNonContiguousDeletedMessagesRange": cursor.state.range_count(),
        "subscriptionHavePendingRead": waiting or reading,
        "subscriptionHavePendingReplayRead": dispatcher is not None and dispatcher.is_reading_again,
        "properties": cursor.describe_properties(),
    }


def schema_ledger(ledger: LedgerMetadata) -> Json:
    """Returns ``LedgerInfo`` of a ledger that stores a version of a schema."""
    return {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.last_entry_id + 1,
        "size": ledger.length,
        "offloaded": False,
        "underReplicated": False,
    }


def _describe_ledger(ledger: ManagedLedger, summary: LedgerSummary) -> str:
    """Returns a ledger's metadata as text in BookKeeper's form, with the fields that Magnetar's ledgers
    have."""
    quorums = ledger.settings.quorums
    custom = ", ".join(
        f"{key}=base64:{b64encode(value).decode()}" for key, value in custom_metadata(ledger.name).items()
    )
    state = "CLOSED" if summary.closed_ms else "OPEN"
    return (
        f"LedgerMetadata{{ensembleSize={quorums.ensemble}, writeQuorumSize={quorums.write}, "
        f"ackQuorumSize={quorums.ack}, state={state}, length={summary.size}, "
        f"lastEntryId={summary.entries - 1}, digestType=CRC32C, customMetadata={{{custom}}}}}"
    )


def internal_stats(topic: Topic, *, metadata: bool) -> Generator[None, None, Json]:
    """Returns ``PersistentTopicInternalStats``; yields after each cursor and each ledger.

    :param metadata: whether to add the metadata of each ledger
    """
    found = yield from ledger_stats(topic.managed_ledger, topic.subscriptions, metadata=metadata)
    return {**found, "schemaLedgers": [], "compactedLedger": compacted_ledger(-1, -1, -1)}


def ledger_stats(
    ledger: ManagedLedger, subscriptions: Mapping[str, Subscription], *, metadata: bool
) -> Generator[None, None, Json]:
    """Returns ``ManagedLedgerInternalStats``; yields after each cursor and each ledger.

    :param subscriptions: the subscriptions of the ledger's cursors, by name
    :param metadata: whether to add the metadata of each ledger
    """
    cursors: dict[str, Json] = {}
    for name, cursor in list(ledger.cursors.items()):
        cursors[name] = _cursor_stats(cursor, subscriptions.get(name))
        yield
    ledgers = []
    for summary in list(ledger.ledgers):
        line: Json = {
            "ledgerId": summary.ledger_id,
            "entries": summary.entries if summary.closed_ms else 0,
            "size": summary.size if summary.closed_ms else 0,
            "offloaded": summary.offload is not None and summary.offload.complete,
            "underReplicated": False,
        }
        if metadata:
            line["metadata"] = _describe_ledger(ledger, summary)
        ledgers.append(line)
        yield
    current = ledger.current_ledger
    return {
        "entriesAddedCounter": ledger.entries_added,
        "numberOfEntries": ledger.ledgers.total_entries(),
        "totalSize": ledger.ledgers.total_size(),
        "currentLedgerEntries": current.entries if current is not None else 0,
        "currentLedgerSize": current.size if current is not None else 0,
        "lastLedgerCreatedTimestamp": iso_time(ledger.last_ledger_made_ms),
        **(
            {"lastLedgerCreationFailureTimestamp": iso_time(ledger.rolling.last_failed_ms)}
            if ledger.rolling.last_failed_ms
            else {}
        ),
        "waitingCursorsCount": sum(cursor["waitingReadOp"] for cursor in cursors.values()),
        "pendingAddEntriesCount": len(ledger.appends),
        "lastConfirmedEntry": format_position(ledger.last_confirmed),
        # An addition: readers that plan with these ledgers must not go further.
        **(
            {}
            if ledger.max_read_position == ledger.last_confirmed
            else {"maxReadPosition": format_position(ledger.max_read_position)}
        ),
        "state": ledger.state.value,
        "ledgers": ledgers,
        "cursors": cursors,
    }
