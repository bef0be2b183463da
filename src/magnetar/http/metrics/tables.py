"""Maps figures of topics, subscriptions, consumers and producers to Pulsar's metrics, and sums them.

Metrics of features that do not exist (offload, transactions) are printed as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from magnetar.broker.stats.figures import (
    CompactionMetrics,
    ConsumerMetrics,
    Histogram,
    ManagedLedgerMetrics,
    ProducerMetrics,
    SubscriptionMetrics,
    TopicMetrics,
)
from magnetar.http.metrics.exposition import Number

_LATENCY_SUFFIXES = ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000")
_SIZE_SUFFIXES = ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb")
TopicTable = Sequence[tuple[str, Callable[[TopicMetrics], Number]]]
SubscriptionTable = Sequence[tuple[str, Callable[[SubscriptionMetrics], Number]]]
ConsumerTable = Sequence[tuple[str, Callable[[ConsumerMetrics], Number]]]
ProducerTable = Sequence[tuple[str, Callable[[ProducerMetrics], Number]]]
LedgerTable = Sequence[tuple[str, Callable[[ManagedLedgerMetrics], Number]]]
TOPIC_AND_NAMESPACE: TopicTable = (
    ("pulsar_subscriptions_count", lambda t: t.subscription_count),
    ("pulsar_producers_count", lambda t: t.producer_count),
    ("pulsar_consumers_count", lambda t: t.consumer_count),
    ("pulsar_rate_in", lambda t: float(t.rate_in)),
    ("pulsar_rate_out", lambda t: float(t.rate_out)),
    ("pulsar_throughput_in", lambda t: float(t.throughput_in)),
    ("pulsar_throughput_out", lambda t: float(t.throughput_out)),
    ("pulsar_in_bytes_total", lambda t: t.bytes_in),
    ("pulsar_in_messages_total", lambda t: t.messages_in),
    ("pulsar_storage_size", lambda t: t.storage_size),
    ("pulsar_storage_logical_size", lambda t: t.storage_logical_size),
    ("pulsar_storage_backlog_size", lambda t: t.backlog_bytes),
    ("pulsar_storage_offloaded_size", lambda t: t.offloaded_bytes),
    ("pulsar_storage_write_rate", lambda t: float(t.write_rate)),
    ("pulsar_storage_read_rate", lambda t: float(t.read_rate)),
    ("pulsar_storage_read_cache_misses_rate", lambda t: float(t.read_cache_misses_rate)),
    ("pulsar_delayed_message_index_size_bytes", lambda t: sum(s.delay_index_bytes for s in t.subscriptions)),
    ("pulsar_txn_tb_active_total", lambda t: 0),
    ("pulsar_txn_tb_aborted_total", lambda t: 0),
    ("pulsar_txn_tb_committed_total", lambda t: 0),
)
TOPIC_ONLY: TopicTable = (
    ("pulsar_average_msg_size", lambda t: float(t.average_message_size)),
    ("pulsar_msg_backlog", lambda t: t.backlog),
    ("pulsar_storage_backlog_quota_limit", lambda t: t.backlog_quota_bytes),
    ("pulsar_storage_backlog_quota_limit_time", lambda t: t.backlog_quota_seconds),
    ("pulsar_storage_backlog_age_seconds", lambda t: t.backlog_age_seconds),
    ("pulsar_publish_rate_limit_times", lambda t: t.publish_rate_limited),
)
NAMESPACE_ONLY: TopicTable = (
    ("pulsar_out_bytes_total", lambda t: sum(s.bytes_out for s in t.subscriptions)),
    ("pulsar_out_messages_total", lambda t: sum(s.messages_out for s in t.subscriptions)),
    ("pulsar_consumer_msg_ack_rate", lambda t: float(sum(s.ack_rate for s in t.subscriptions))),
    ("pulsar_subscription_delayed", lambda t: sum(s.delayed for s in t.subscriptions)),
    ("pulsar_subscription_in_replay", lambda t: sum(s.in_replay for s in t.subscriptions)),
)
SUBSCRIPTION: SubscriptionTable = (
    ("pulsar_subscription_back_log", lambda s: s.backlog),
    ("pulsar_subscription_back_log_no_delayed", lambda s: s.backlog_no_delayed),
    ("pulsar_subscription_delayed", lambda s: s.delayed),
    ("pulsar_subscription_in_replay", lambda s: s.in_replay),
    ("pulsar_subscription_msg_rate_redeliver", lambda s: float(s.rate_redeliver)),
    ("pulsar_subscription_unacked_messages", lambda s: s.unacked_messages),
    ("pulsar_subscription_blocked_on_unacked_messages", lambda s: int(s.blocked_on_unacked)),
    ("pulsar_subscription_msg_rate_out", lambda s: float(s.rate_out)),
    ("pulsar_subscription_msg_ack_rate", lambda s: float(s.ack_rate)),
    ("pulsar_subscription_msg_throughput_out", lambda s: float(s.throughput_out)),
    ("pulsar_out_bytes_total", lambda s: s.bytes_out),
    ("pulsar_out_messages_total", lambda s: s.messages_out),
    ("pulsar_subscription_last_expire_timestamp", lambda s: s.last_expire_ms),
    ("pulsar_subscription_last_acked_timestamp", lambda s: s.last_acked_ms),
    ("pulsar_subscription_last_consumed_flow_timestamp", lambda s: s.last_consumed_flow_ms),
    ("pulsar_subscription_last_consumed_timestamp", lambda s: s.last_consumed_ms),
    ("pulsar_subscription_last_mark_delete_advanced_timestamp", lambda s: s.last_mark_delete_advanced_ms),
    ("pulsar_subscription_msg_rate_expired", lambda s: float(s.rate_expired)),
    ("pulsar_subscription_total_msg_expired", lambda s: s.total_expired),
    ("pulsar_subscription_msg_drop_rate", lambda s: float(s.drop_rate)),
    ("pulsar_subscription_consumers_count", lambda s: s.consumer_count),
    ("pulsar_subscription_delayed_message_index_size_bytes", lambda s: s.delay_index_bytes),
    ("pulsar_subscription_filter_processed_msg_count", lambda s: s.filter_processed),
    ("pulsar_subscription_filter_accepted_msg_count", lambda s: s.filter_accepted),
    ("pulsar_subscription_filter_rejected_msg_count", lambda s: s.filter_rejected),
    ("pulsar_subscription_filter_rescheduled_msg_count", lambda s: s.filter_rescheduled),
)
CONSUMER: ConsumerTable = (
    ("pulsar_consumer_msg_rate_redeliver", lambda c: float(c.rate_redeliver)),
    ("pulsar_consumer_unacked_messages", lambda c: c.unacked_messages),
    ("pulsar_consumer_blocked_on_unacked_messages", lambda c: int(c.blocked_on_unacked)),
    ("pulsar_consumer_msg_rate_out", lambda c: float(c.rate_out)),
    ("pulsar_consumer_msg_ack_rate", lambda c: float(c.ack_rate)),
    ("pulsar_consumer_msg_throughput_out", lambda c: float(c.throughput_out)),
    ("pulsar_consumer_available_permits", lambda c: c.available_permits),
)
CONSUMER_TOTALS: ConsumerTable = (
    ("pulsar_out_bytes_total", lambda c: c.bytes_out),
    ("pulsar_out_messages_total", lambda c: c.messages_out),
)
PRODUCER: ProducerTable = (
    ("pulsar_producer_msg_rate_in", lambda p: float(p.rate_in)),
    ("pulsar_producer_msg_throughput_in", lambda p: float(p.throughput_in)),
    ("pulsar_producer_msg_average_Size", lambda p: float(p.average_message_size)),
)
MANAGED_LEDGER: LedgerTable = (
    ("pulsar_ml_AddEntryBytesRate", lambda m: float(m.add_entry_bytes_rate)),
    ("pulsar_ml_AddEntryWithReplicasBytesRate", lambda m: float(m.add_entry_bytes_rate)),
    ("pulsar_ml_AddEntryErrors", lambda m: float(m.add_entry_errors)),
    ("pulsar_ml_AddEntryMessagesRate", lambda m: float(m.add_entry_rate)),
    ("pulsar_ml_AddEntrySucceed", lambda m: float(m.add_entry_succeeded)),
    ("pulsar_ml_MarkDeleteRate", lambda m: float(m.mark_delete_rate)),
    ("pulsar_ml_NumberOfMessagesInBacklog", lambda m: float(m.backlog)),
    ("pulsar_ml_ReadEntriesBytesRate", lambda m: float(m.read_entries_bytes_rate)),
    ("pulsar_ml_ReadEntriesErrors", lambda m: float(m.read_entries_errors)),
    ("pulsar_ml_ReadEntriesOpsCacheMissesRate", lambda m: float(m.read_cache_misses_rate)),
    ("pulsar_ml_ReadEntriesRate", lambda m: float(m.read_entries_rate)),
    ("pulsar_ml_ReadEntriesSucceeded", lambda m: float(m.read_entries_succeeded)),
    ("pulsar_ml_StoredMessagesSize", lambda m: float(m.stored_bytes)),
)
HistogramTable = Sequence[tuple[str, tuple[str, ...], Callable[[TopicMetrics], Histogram | None]]]
HISTOGRAMS: HistogramTable = (
    ("pulsar_storage_write_latency", _LATENCY_SUFFIXES, lambda t: t.write_latency_ms),
    ("pulsar_storage_ledger_write_latency", _LATENCY_SUFFIXES, lambda t: t.ledger_write_latency_ms),
    (
        "pulsar_compaction_latency",
        _LATENCY_SUFFIXES,
        lambda t: t.compaction.write_latency_ms if t.compaction is not None else None,
    ),
    ("pulsar_entry_size", _SIZE_SUFFIXES, lambda t: t.entry_size_bytes),
)
COMPACTION: Sequence[tuple[str, Callable[[CompactionMetrics], Number]]] = (
    ("pulsar_compaction_removed_event_count", lambda c: c.removed),
    ("pulsar_compaction_succeed_count", lambda c: c.succeeded),
    ("pulsar_compaction_failed_count", lambda c: c.failed),
    ("pulsar_compaction_duration_time_in_mills", lambda c: c.duration_ms),
    ("pulsar_compaction_read_throughput", lambda c: float(c.read_throughput)),
    ("pulsar_compaction_write_throughput", lambda c: float(c.write_throughput)),
    ("pulsar_compaction_compacted_entries_count", lambda c: c.entries),
    ("pulsar_compaction_compacted_entries_size", lambda c: c.size),
)
_MERGED = ("write_latency_ms", "ledger_write_latency_ms", "entry_size_bytes")
_SUMMED = (
    "producer_count",
    "consumer_count",
    "rate_in",
    "rate_out",
    "throughput_in",
    "throughput_out",
    "bytes_in",
    "messages_in",
    "storage_size",
    "storage_logical_size",
    "backlog",
    "backlog_bytes",
    "offloaded_bytes",
    "write_rate",
    "read_rate",
    "read_cache_misses_rate",
    "evictions_by_size",
    "evictions_by_time",
)


def namespace_totals(topics: Sequence[TopicMetrics]) -> list[TopicMetrics]:
    """Returns one sum per namespace, in order of appearance, with the subscriptions of all its topics."""
    members: dict[str, list[TopicMetrics]] = {}
    for topic in topics:
        members.setdefault(topic.namespace, []).append(topic)
    return [_sum(namespace, of_one) for namespace, of_one in members.items()]


def _sum(namespace: str, topics: Sequence[TopicMetrics]) -> TopicMetrics:
    total = TopicMetrics(
        name=namespace,
        namespace=namespace,
        subscriptions=[sub for topic in topics for sub in topic.subscriptions],
    )
    for attribute in _SUMMED:
        setattr(total, attribute, sum(getattr(topic, attribute) for topic in topics))
    for attribute in _MERGED:
        setattr(total, attribute, _merge([getattr(topic, attribute) for topic in topics]))
    return total


def _merge(histograms: Sequence[Histogram | None]) -> Histogram | None:
    known = [histogram for histogram in histograms if histogram is not None]
    if not known:
        return None
    counts = [sum(column) for column in zip(*(histogram.counts for histogram in known), strict=True)]
    return Histogram(counts, sum(histogram.total for histogram in known))


def broker_totals(topics: Sequence[TopicMetrics]) -> Iterator[tuple[str, Number]]:
    """Yields the ``pulsar_broker_...`` sums."""
    yield "pulsar_broker_topics_count", len(topics)
    for name, attribute in (
        ("subscriptions_count", "subscription_count"),
        ("producers_count", "producer_count"),
        ("consumers_count", "consumer_count"),
        ("rate_in", "rate_in"),
        ("rate_out", "rate_out"),
        ("throughput_in", "throughput_in"),
        ("throughput_out", "throughput_out"),
        ("storage_size", "storage_size"),
        ("storage_logical_size", "storage_logical_size"),
        ("storage_write_rate", "write_rate"),
        ("storage_read_rate", "read_rate"),
        ("storage_read_cache_misses_rate", "read_cache_misses_rate"),
        ("msg_backlog", "backlog"),
    ):
        yield f"pulsar_broker_{name}", sum(getattr(topic, attribute) for topic in topics)
