"""Metrics of backlog quotas: evictions, and the duration of checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.broker.stats.figures import QuotaMetrics, TopicMetrics
from magnetar.http.metrics import exposition
from magnetar.http.metrics.exposition import family

_EVICTIONS = "storage_backlog_quota_exceeded_evictions_total"
_CHECKS = "pulsar_storage_backlog_quota_check_duration_seconds"


def evictions(rows: Sequence[tuple[str, TopicMetrics]]) -> Iterator[str]:
    """Yields the number of evictions, by the exceeded quota.

    :param rows: label texts and topics, or sums of topics
    """
    samples = (
        (f'{labels},quota_type="{kind}"', count)
        for labels, topic in rows
        for kind, count in (("size", topic.evictions_by_size), ("time", topic.evictions_by_time))
    )
    yield from family(f"pulsar_{_EVICTIONS}", "gauge", samples)


def of_broker(quotas: QuotaMetrics, cluster: str, started_seconds: float) -> Iterator[str]:
    """Yields the evictions of all topics, and the checks.

    :param cluster: label text
    """
    yield from family(
        f"pulsar_broker_{_EVICTIONS}",
        "gauge",
        [
            (f'{cluster},quota_type="size"', quotas.evictions_by_size),
            (f'{cluster},quota_type="time"', quotas.evictions_by_time),
        ],
    )
    yield from exposition.histogram(
        _CHECKS, cluster, quotas.check_bounds, quotas.check_counts, quotas.check_seconds, started_seconds
    )
