"""Sums of topic metrics over a namespace and over the broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.broker.stats.figures import Histogram, TopicMetrics
from magnetar.http.metrics.exposition import Number

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
_MERGED = ("write_latency_ms", "ledger_write_latency_ms", "entry_size_bytes")


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
