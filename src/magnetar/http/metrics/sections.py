"""Sections of the metrics: metadata stores, backlog quotas, waiting messages, and replication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from magnetar.broker.stats.figures import (
    MetadataMetrics,
    OffloadDeletionMetrics,
    OffloadMetrics,
    QuotaMetrics,
    ReplicationMetrics,
    SnapshotMetrics,
    TimingMetrics,
    TopicMetrics,
)
from magnetar.http.metrics import exposition
from magnetar.http.metrics.exposition import (
    Number,
    counter,
    family,
    histogram_samples,
    labels_text,
    summary,
    summary_samples,
)

_LATENCY = "pulsar_metadata_store_ops_latency_ms"
_PUT_BYTES = "pulsar_metadata_store_put_bytes"
_EVICTIONS = "storage_backlog_quota_exceeded_evictions_total"
_CHECKS = "pulsar_storage_backlog_quota_check_duration_seconds"
_WAITING = "magnetar_subscription_waiting_seconds"
_REFUSED = "magnetar_topic_refused"
_TOPICS_A_PIECE = 100
_Figures = Sequence[tuple[str, Callable[[ReplicationMetrics], Number]]]
_FIGURES: _Figures = (
    ("pulsar_replication_rate_in", lambda it: it.rate_in),
    ("pulsar_replication_rate_out", lambda it: it.rate_out),
    ("pulsar_replication_throughput_in", lambda it: it.throughput_in),
    ("pulsar_replication_throughput_out", lambda it: it.throughput_out),
    ("pulsar_replication_rate_expired", lambda it: it.rate_expired),
    ("pulsar_replication_backlog", lambda it: it.backlog),
    ("pulsar_replication_connected_count", lambda it: int(it.connected)),
    ("pulsar_replication_disconnected_count", lambda it: int(not it.connected)),
    ("pulsar_replication_delay_in_seconds", lambda it: it.delay_seconds),
    ("magnetar_replication_lag_seconds", lambda it: it.lag_seconds),
    ("magnetar_replication_unreplicated_total", lambda it: it.unreplicated),
)
_OF_SHADOWS: _Figures = (
    ("magnetar_shadow_rate_out", lambda it: it.rate_out),
    ("magnetar_shadow_throughput_out", lambda it: it.throughput_out),
    ("magnetar_shadow_backlog", lambda it: it.backlog),
    ("magnetar_shadow_connected_count", lambda it: int(it.connected)),
    ("magnetar_shadow_disconnected_count", lambda it: int(not it.connected)),
    ("magnetar_shadow_delay_in_seconds", lambda it: it.delay_seconds),
    ("magnetar_shadow_lag_seconds", lambda it: it.lag_seconds),
)
"""Metrics of shadow topics. They have names of their own, because alerts about remote clusters must not
include them.
"""


_OFFLOAD_TIMES: Sequence[tuple[str, Callable[[OffloadMetrics], TimingMetrics | None]]] = (
    ("brk_ledgeroffloader_read_ledger_latency", lambda it: it.ledger_reads),
    ("brk_ledgeroffloader_read_offload_index_latency", lambda it: it.index_reads),
    ("brk_ledgeroffloader_read_offload_data_latency", lambda it: it.data_reads),
)


def metadata_stores(stores: Sequence[MetadataMetrics], cluster: str, started_seconds: float) -> Iterator[str]:
    """Yields the durations of operations on metadata stores, and the numbers of bytes written to the stores.

    :param cluster: the name of the cluster
    """
    if not stores:
        return
    lines = [f"# TYPE {_LATENCY} histogram\n"]
    for store in stores:
        for kind, status, counts, total in store.operations:
            if any(counts):
                labels = labels_text({"cluster": cluster, "name": store.name, "type": kind, "status": status})
                lines += histogram_samples(_LATENCY, labels, store.bounds_ms, counts, total, started_seconds)
    yield "".join(lines)
    lines = [f"# TYPE {_PUT_BYTES} counter\n"]
    for store in stores:
        labels = labels_text({"cluster": cluster, "name": store.name})
        lines.append(f"{_PUT_BYTES}_total{{{labels}}} {float(store.put_bytes)!r}\n")
        lines.append(f"{_PUT_BYTES}_created{{{labels}}} {started_seconds!r}\n")
    yield "".join(lines)


def offload_times(rows: Sequence[tuple[str, TopicMetrics]]) -> Iterator[str]:
    """Yields the durations of access to tiered storage, in microseconds as in Pulsar.

    :param rows: the labels and the metrics of each topic
    """
    using = [(labels, topic.offload) for labels, topic in rows if topic.offload is not None]
    for name, of in _OFFLOAD_TIMES:
        lines = [f"# TYPE {name} summary\n"]
        for labels, offload in using:
            times = of(offload)
            if times is not None:
                by_quantile = {quantile: 1000 * each for quantile, each in times.quantiles.items()}
                lines += summary_samples(name, labels, by_quantile, times.count, 1000 * times.total_ms)
        if len(lines) > 1:
            yield "".join(lines)


def offload_deletions(found: Sequence[OffloadDeletionMetrics], cluster: str) -> Iterator[str]:
    """Yields the numbers of successful and failed deletions of offloaded ledgers.

    :param cluster: the name of the cluster
    """
    samples = [
        (
            labels_text(
                {"cluster": cluster, "namespace": each.namespace, "topic": each.topic, "status": status}
            ),
            count,
        )
        for each in found
        for status, count in (("succeed", each.succeeded), ("failed", each.failed))
        if count
    ]
    if samples:
        yield from family("brk_ledgeroffloader_delete_offload_ops_total", "counter", samples)


def evictions(rows: Sequence[tuple[str, TopicMetrics]]) -> Iterator[str]:
    """Yields the number of backlog quota evictions, for each kind of quota.

    :param rows: the labels and the metrics of each topic, or of each sum over topics
    """
    samples = (
        (f'{labels},quota_type="{kind}"', count)
        for labels, topic in rows
        for kind, count in (("size", topic.evictions_by_size), ("time", topic.evictions_by_time))
    )
    yield from family(f"pulsar_{_EVICTIONS}", "gauge", samples)


def quota_checks(quotas: QuotaMetrics, cluster: str, started_seconds: float) -> Iterator[str]:
    """Yields the evictions of all topics together, and the number and the durations of backlog quota checks.

    :param cluster: the label with the name of the cluster
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


def waiting_topics(rows: Sequence[tuple[str, TopicMetrics]]) -> Iterator[str]:
    """Yields metrics of the reasons why messages wait, which only Magnetar has.

    Also yields empty pieces at regular intervals, so that the caller can pause. Only a subscription that
    waits has a sample, so the number of samples is the number of waiting subscriptions. A topic has one
    sample for each reason why messages were refused.

    :param rows: the labels and the metrics of each topic
    """
    waiting: list[tuple[str, Number]] = []
    refused: list[tuple[str, Number]] = []
    for number, (labels, topic) in enumerate(rows):
        if not number % _TOPICS_A_PIECE:
            yield ""
        for sub in topic.subscriptions:
            if sub.waits_for:
                own = labels_text({"subscription": sub.name, "reason": sub.waits_for})
                waiting.append((f"{labels},{own}", sub.waits_seconds))
        refused += [(f'{labels},reason="{reason}"', times) for reason, times in topic.refused.items()]
    yield from family(_WAITING, "gauge", waiting)
    yield from family(_REFUSED, "gauge", refused)


def replicated_topics(rows: Sequence[tuple[str, TopicMetrics]]) -> Iterator[str]:
    """Yields metrics of topics with replication or shadow topics.

    Also yields an empty piece after every 100 topics, so that the caller can pause.

    :param rows: the labels and the metrics of each topic
    """
    known: list[tuple[str, ReplicationMetrics]] = []
    shadows: list[tuple[str, ReplicationMetrics]] = []
    for number, (labels, topic) in enumerate(rows):
        if not number % _TOPICS_A_PIECE:
            yield ""
        for each in topic.replication:
            known.append((f"{labels},{labels_text({'remote_cluster': each.remote})}", each))
        for each in topic.shadows:
            shadows.append((f"{labels},{labels_text({'shadow_topic': each.remote})}", each))
    yield from _families(_FIGURES, known)
    yield from _families(_OF_SHADOWS, shadows)


def replicated_namespaces(cluster: str, topics: Sequence[TopicMetrics]) -> Iterator[str]:
    """Like :func:`replicated_topics`, but with one sample for each namespace and remote cluster, and one for
    the shadow topics of each namespace. A sample is the sum over the topics or, for ages, the maximum.
    """
    sums: dict[tuple[str, str], list[ReplicationMetrics]] = {}
    shadows: dict[str, list[ReplicationMetrics]] = {}
    for number, topic in enumerate(topics):
        if not number % _TOPICS_A_PIECE:
            yield ""
        for each in topic.replication:
            sums.setdefault((topic.namespace, each.remote), []).append(each)
        if topic.shadows:
            shadows.setdefault(topic.namespace, []).extend(topic.shadows)
    clusters = [
        (labels_text({"cluster": cluster, "namespace": namespace, "remote_cluster": remote}), of_one)
        for (namespace, remote), of_one in sums.items()
    ]
    yield from _combined(_FIGURES, clusters)
    namespaces = [
        (labels_text({"cluster": cluster, "namespace": namespace}), of_one)
        for namespace, of_one in shadows.items()
    ]
    yield from _combined(_OF_SHADOWS, namespaces)


def _combined(figures: _Figures, known: Sequence[tuple[str, Sequence[ReplicationMetrics]]]) -> Iterator[str]:
    for name, figure in figures if known else ():
        combine = max if name.endswith("_seconds") else sum
        samples = [(labels, combine([figure(each) for each in of_one])) for labels, of_one in known]
        yield from family(name, "gauge", samples)


def subscription_snapshots(known: SnapshotMetrics, cluster: str, started: float) -> Iterator[str]:
    """Yields metrics of snapshots for replicated subscriptions.

    :param cluster: the label with the name of the cluster
    :param started: start of the broker, in seconds since 1970
    """
    name = "pulsar_replicated_subscriptions"
    yield from family(f"{name}_pending_snapshots", "gauge", [(cluster, known.pending)])
    yield from counter(f"{name}_timedout_snapshots", cluster, known.timed_out, started)
    taken = known.taken
    yield from summary(f"{name}_snapshot_ms", cluster, taken.quantiles, taken.count, taken.total_ms)


def _families(figures: _Figures, known: Sequence[tuple[str, ReplicationMetrics]]) -> Iterator[str]:
    for name, figure in figures if known else ():
        yield from family(name, "gauge", ((labels, figure(each)) for labels, each in known))
