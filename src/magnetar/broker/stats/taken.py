"""The current values of topics, their subscriptions, clients and replication, for statistics and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.broker.compaction.compactor import CompactionFigures
from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.waiting import AT_END
from magnetar.broker.flow.rates import Distribution
from magnetar.broker.publishing.producer import Producer
from magnetar.broker.stats.figures import (
    AckTransactionMetrics,
    CompactionMetrics,
    ConsumerMetrics,
    Histogram,
    OffloadMetrics,
    ProducerMetrics,
    ReplicationMetrics,
    SubscriptionMetrics,
    TimingMetrics,
    TopicMetrics,
)
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.subscriptions.cursor_kinds import SUBSCRIPTION
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.base import AnyReplicating
from magnetar.broker.topics.entries import iso_time
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.managed_ledger.measures import Timings

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator


Json = dict[str, object]
_COMMIT_QUANTILES = (0.5, 0.9, 0.99, 0.999)


def of_consumer(consumer: AnyConsumer) -> ConsumerMetrics:
    return ConsumerMetrics(
        name=consumer.name,
        consumer_id=consumer.consumer_id,
        rate_out=consumer.rate_out.per_second,
        throughput_out=consumer.rate_out.bytes_per_second,
        rate_redeliver=consumer.redelivered.per_second,
        ack_rate=consumer.acks.per_second,
        unacked_messages=consumer.unacked,
        blocked_on_unacked=consumer.blocked,
        available_permits=consumer.permits,
        bytes_out=consumer.rate_out.bytes,
        messages_out=consumer.rate_out.messages,
        acknowledged=consumer.acks.messages,
        redelivered=consumer.redelivered.messages,
    )


def of_producer(producer: Producer) -> ProducerMetrics:
    return ProducerMetrics(
        name=producer.name,
        producer_id=producer.producer_id,
        access_mode=producer.access_mode.name,
        rate_in=producer.rate_in.per_second,
        throughput_in=producer.rate_in.bytes_per_second,
        average_message_size=producer.rate_in.average_size(),
        bytes_in=producer.rate_in.bytes,
        messages_in=producer.rate_in.messages,
        dropped=producer.drops.messages,
    )


def _seconds_since(subscription: BaseSubscription) -> float:
    return max(0, subscription.topic.clock.wall_ms() - subscription.waits_since_ms()) / 1000


def _of_any_subscription(subscription: BaseSubscription) -> SubscriptionMetrics:
    """Returns the metrics that persistent and non-persistent subscriptions have in common."""
    consumers = [of_consumer(c) for c in subscription.consumers]
    reason = subscription.why_not()
    waits = reason is not AT_END and subscription.kind is SUBSCRIPTION
    return SubscriptionMetrics(
        name=subscription.name,
        type="" if subscription.type is None else subscription.type.name,
        ack_rate=subscription.acks.per_second,
        rate_out=subscription.rate_out.per_second,
        throughput_out=subscription.rate_out.bytes_per_second,
        bytes_out=subscription.rate_out.bytes,
        messages_out=subscription.rate_out.messages,
        last_acked_ms=subscription.last_acked_ms,
        last_consumed_flow_ms=subscription.last_consumed_flow_ms,
        last_consumed_ms=subscription.last_consumed_ms,
        waits_for=reason.value if waits else "",
        waits_seconds=_seconds_since(subscription) if waits else 0.0,
        consumer_count=len(consumers),
        consumers=consumers,
    )


def of_subscription(subscription: Subscription) -> SubscriptionMetrics:
    now = _of_any_subscription(subscription)
    dispatcher, filters = subscription.dispatcher, subscription.filters
    now.backlog = now.backlog_no_delayed = subscription.backlog()
    now.rate_redeliver = sum((c.rate_redeliver for c in now.consumers), 0.0)
    now.unacked_messages = subscription.unacked_messages()
    if isinstance(dispatcher, ManyConsumersDispatcher):
        now.in_replay = len(dispatcher.replay)
        now.blocked_on_unacked = dispatcher.blocked
        if dispatcher.delays is not None:
            now.delayed = len(dispatcher.delays)
            now.delay_index_bytes = dispatcher.delays.size()
            now.backlog_no_delayed = max(0, now.backlog - now.delayed)
    pending = subscription.pending
    if pending is not None:
        latency = pending.commit_latency
        now.transactions = AckTransactionMetrics(
            pending.committed_count,
            pending.aborted_count,
            pending.failed_commits,
            pending.failed_aborts,
            TimingMetrics(latency.count, latency.total_ms, latency.quantiles(_COMMIT_QUANTILES)),
        )
    if filters is not None:
        now.filter_processed = filters.processed
        now.filter_accepted = filters.accepted
        now.filter_rejected = filters.rejected
        now.filter_rescheduled = filters.rescheduled
    if subscription.throttle is not None:
        held_back = subscription.throttle.held_back.items()
        now.held_back = {(kind.value, messages): count for (kind, messages), count in held_back}
    now.last_mark_delete_advanced_ms = subscription.last_mark_delete_ms
    now.last_expire_ms = subscription.last_expire_ms
    now.rate_expired = subscription.expired.per_second
    now.total_expired = subscription.expired.messages
    return now


def of_non_persistent_subscription(subscription: NonPersistentSubscription) -> SubscriptionMetrics:
    now = _of_any_subscription(subscription)
    now.drop_rate = subscription.drops.per_second
    return now


def _of_any_topic(topic: AnyTopic, subscriptions: list[SubscriptionMetrics]) -> TopicMetrics:
    """Returns the metrics that persistent and non-persistent topics have in common."""
    return TopicMetrics(
        name=topic.full_name,
        namespace=str(topic.name.namespace_name),
        subscriptions=subscriptions,
        producer_count=len(topic.producers.local()),
        consumer_count=topic.subscriptions.consumer_count(),
        rate_in=topic.rate_in.per_second,
        rate_out=topic.rate_out.per_second,
        throughput_in=topic.rate_in.bytes_per_second,
        throughput_out=topic.rate_out.bytes_per_second,
        average_message_size=topic.rate_in.average_size(),
        bytes_in=topic.rate_in.bytes,
        messages_in=topic.rate_in.messages,
        bytes_out=topic.rate_out.bytes,
        messages_out=topic.rate_out.messages,
        publish_rate_limited=0 if topic.publish_limiter is None else topic.publish_limiter.exceeded,
        producers=[of_producer(p) for p in topic.producers.local()],
        refused={kind.value: each.times for kind, each in topic.refusals.known.items()}
        if topic.refusals is not None
        else {},
    )


def of_non_persistent_topic(
    topic: NonPersistentTopic, subscriptions: list[SubscriptionMetrics] | None = None
) -> TopicMetrics:
    """Returns the metrics of a non-persistent topic.

    :param subscriptions: as for :func:`of_topic`
    """
    if subscriptions is None:
        subscriptions = [of_non_persistent_subscription(s) for s in topic.subscriptions.values()]
    now = _of_any_topic(topic, subscriptions)
    if topic.replicators:
        now.replication = replication_metrics(topic)
    return now


_OFFLOAD_QUANTILES = (0.5, 0.95, 0.99)


def _timing(timings: Timings) -> TimingMetrics | None:
    """Returns the metrics of durations; None if no duration was measured."""
    if not timings.count:
        return None
    return TimingMetrics(timings.count, timings.total_ms, timings.quantiles(_OFFLOAD_QUANTILES))


def of_topic(topic: Topic, subscriptions: list[SubscriptionMetrics] | None = None) -> TopicMetrics:
    """Returns all metrics of a topic except those of backlog quotas.

    :param subscriptions: the metrics of the topic's subscriptions, taken before; None: they are taken now
    """
    if subscriptions is None:
        subscriptions = [of_subscription(s) for s in topic.subscriptions.values()]
    now = _of_any_topic(topic, subscriptions)
    now.storage_size = now.storage_logical_size = topic.managed_ledger.ledgers.total_size()
    offloader, reads = topic.managed_ledger.offloader, topic.managed_ledger.reader.tiered_reads
    transactions = topic.transactions
    if transactions is not None:
        now.open_transactions = len(transactions.open)
        now.aborted_transactions = transactions.aborted_count
        now.committed_transactions = transactions.committed_count
    if offloader is not None:
        now.offloaded_bytes = offloader.bytes
    if offloader is not None or reads is not None:
        now.offload = found = OffloadMetrics()
        seconds = topic.clock.monotonic()
        if offloader is not None:
            found.written_bytes, found.write_errors = offloader.written_bytes, offloader.failures
            found.write_rate, found.store_errors = (
                offloader.recent.per_second(seconds),
                offloader.store_failures,
            )
            found.ledger_reads = _timing(offloader.read_times)
        if reads is not None:
            found.read_bytes, found.read_errors = reads.bytes, reads.errors
            found.read_rate = reads.recent.per_second(seconds)
            found.index_reads, found.data_reads = _timing(reads.index_times), _timing(reads.data_times)
    now.backlog = sum(s.backlog for s in now.subscriptions)
    durable = [s.cursor.backlog_bytes() for s in topic.subscriptions.values() if s.durable]
    now.backlog_bytes = max(durable, default=0)
    now.backlog_quota_bytes = topic.policies.storage_quota.limit_bytes
    now.backlog_quota_seconds = topic.policies.age_quota.limit_seconds
    now.write_rate = topic.writes.per_second
    now.read_rate = topic.reads.per_second
    now.entries_written = topic.managed_ledger.entries_added
    now.entries_read = topic.managed_ledger.reader.entries_read
    now.read_cache_misses_rate = topic.misses.per_second
    now.write_latency_ms = now.ledger_write_latency_ms = _histogram(topic.write_latency, 1000)
    now.entry_size_bytes = _histogram(topic.entry_sizes, 1)
    if topic.replicators:
        now.replication = replication_metrics(topic)
    if topic.shadow_replicators:
        now.shadows = shadow_metrics(topic)
    if topic.compaction.figures is not None:
        now.compaction = _of_compaction(topic.compaction.figures)
    return now


def _of_compaction(figures: CompactionFigures) -> CompactionMetrics:
    seconds = figures.busy_seconds
    return CompactionMetrics(
        removed=figures.removed_total,
        succeeded=figures.succeeded,
        failed=figures.failed,
        duration_ms=figures.duration_ms,
        read_throughput=figures.read_bytes / seconds if seconds else 0.0,
        write_throughput=figures.written_bytes / seconds if seconds else 0.0,
        read_bytes=figures.read_bytes,
        written_bytes=figures.written_bytes,
        entries=figures.entries,
        size=figures.size,
        write_latency_ms=_histogram(figures.write_latency, 1000),
    )


def _histogram(distribution: Distribution, scale: float) -> Histogram:
    return Histogram(list(distribution.counts), int(distribution.total * scale))


def replication_stats(topic: AnyTopic) -> Json:
    """Returns the statistics of replication to and from each remote cluster, by the cluster's name, and to
    each shadow topic, by its full name. The result is empty if the topic is not replicated. Non-persistent
    topics also have ``msgDropRate`` and ``msgDropCount``.
    """
    inbound = _inbound(topic)
    names = sorted(_replicators(topic).keys() | inbound.keys())
    return {name: _of_cluster(topic, name, inbound.get(name)) for name in names}


def _replicators(topic: AnyTopic) -> Mapping[str, AnyReplicating]:
    if isinstance(topic, NonPersistentTopic):
        return topic.replicators
    return (
        {**topic.replicators, **topic.shadow_replicators} if topic.shadow_replicators else topic.replicators
    )


def replication_metrics(topic: AnyTopic) -> list[ReplicationMetrics]:
    """Returns the metrics of replication, one object for each remote cluster."""
    inbound = _inbound(topic) if topic.replicators else {}
    if isinstance(topic, NonPersistentTopic):
        return [
            replace(_sent(name, each, inbound.get(name)), unreplicated=each.dropped.messages)
            for name, each in topic.replicators.items()
        ]
    return [_stored(name, each, inbound.get(name)) for name, each in topic.replicators.items()]


def shadow_metrics(topic: Topic) -> list[ReplicationMetrics]:
    """Returns the metrics of the replication to each shadow topic."""
    return [_stored(name, each, None) for name, each in topic.shadow_replicators.items()]


def _stored(name: str, replicator: Replicator, producer: Producer | None) -> ReplicationMetrics:
    return replace(
        _sent(name, replicator, producer),
        rate_expired=replicator.expired.per_second,
        backlog=replicator.cursor.backlog(),
        lag_seconds=replicator.lag_seconds(),
        unreplicated=replicator.expired.messages + replicator.skipped,
    )


def _sent(name: str, replicator: AnyReplicating, producer: Producer | None) -> ReplicationMetrics:
    return ReplicationMetrics(
        name,
        rate_in=producer.rate_in.per_second if producer is not None else 0.0,
        throughput_in=producer.rate_in.bytes_per_second if producer is not None else 0.0,
        rate_out=replicator.sent.per_second,
        throughput_out=replicator.sent.bytes_per_second,
        connected=replicator.connected,
        delay_seconds=replicator.delay_seconds(),
    )


def _inbound(topic: AnyTopic) -> dict[str, Producer]:
    """Returns the producers of other clusters' replicators, by cluster."""
    if not topic.producers.remote:
        return {}
    return {p.remote_cluster: p for p in topic.producers.values() if p.remote_cluster is not None}


def _of_cluster(topic: AnyTopic, name: str, inbound: Producer | None) -> Json:
    replicator: AnyReplicating | None = _replicators(topic).get(name)
    stats: Json = {
        "msgRateIn": inbound.rate_in.per_second if inbound is not None else 0.0,
        "msgInCount": inbound.rate_in.messages if inbound is not None else 0,
        "msgThroughputIn": inbound.rate_in.bytes_per_second if inbound is not None else 0.0,
        "bytesInCount": inbound.rate_in.bytes if inbound is not None else 0,
        "msgRateOut": replicator.sent.per_second if replicator is not None else 0.0,
        "msgOutCount": replicator.sent.messages if replicator is not None else 0,
        "msgThroughputOut": replicator.sent.bytes_per_second if replicator is not None else 0.0,
        "bytesOutCount": replicator.sent.bytes if replicator is not None else 0,
        **_not_sent(topic, name),
        "connected": replicator is not None and replicator.connected,
        "replicationDelayInSeconds": int(replicator.delay_seconds()) if replicator is not None else 0,
    }
    if inbound is not None:
        stats["inboundConnection"] = f"/{inbound.connection.address}"
        stats["inboundConnectedSince"] = iso_time(inbound.connected_ms)
    link = replicator.link() if replicator is not None else None
    if replicator is not None and link is not None:
        stats["outboundConnection"] = f"[L:/{link[0]} - R:{link[1]}]"
        stats["outboundConnectedSince"] = iso_time(replicator.connected_ms)
    if replicator is not None and replicator.hindrance:
        stats["magnetarHindrance"] = replicator.hindrance
    return stats


def _not_sent(topic: AnyTopic, name: str) -> Json:
    """Returns the statistics of messages that were not sent to a cluster: expired, still to be sent and, for
    non-persistent topics, dropped."""
    stats: Json = {"msgRateExpired": 0.0, "msgExpiredCount": 0, "replicationBacklog": 0}
    if isinstance(topic, NonPersistentTopic):
        passing = topic.replicators.get(name)
        stats["msgDropRate"] = passing.dropped.per_second if passing is not None else 0.0
        stats["msgDropCount"] = passing.dropped.messages if passing is not None else 0
    elif (replicator := topic.replicators.get(name) or topic.shadow_replicators.get(name)) is not None:
        stats["msgRateExpired"] = replicator.expired.per_second
        stats["msgExpiredCount"] = replicator.expired.messages
        stats["replicationBacklog"] = replicator.cursor.backlog()
    return stats
