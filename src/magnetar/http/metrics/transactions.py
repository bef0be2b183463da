"""Metrics of transactions that are not a single number of a topic, subscription or coordinator, such as
latencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from magnetar.broker.flow.rates import TRANSACTION_BOUNDS_MS
from magnetar.broker.stats.figures import (
    AckTransactionMetrics,
    CoordinatorMetrics,
    MetricsSnapshot,
    TimingMetrics,
    TransactionEndMetrics,
)
from magnetar.http.metrics.exposition import counter, family, histogram, labels_text
from magnetar.naming.topic_name import TopicName

_NANOSECONDS, _MICROSECONDS = 1e6, 1e3
"""Number of nanoseconds and of microseconds in a millisecond."""


def latencies(rows: Sequence[tuple[str, CoordinatorMetrics]]) -> Iterator[str]:
    """Yields, for each coordinator, a histogram of the durations for which transactions were open.

    :param rows: the labels and the metrics of each coordinator
    """
    for index, bound in enumerate((*TRANSACTION_BOUNDS_MS, "overflow")):
        counts = ((labels, each.latency_counts[index]) for labels, each in rows)
        yield from family(f"pulsar_txn_execution_latency_le_{bound}", "gauge", counts)


def ends(snapshot: MetricsSnapshot, *, topic_level: bool) -> Iterator[str]:
    """Yields the metrics of ending transactions on topics and subscriptions: durations and failures.

    :param topic_level: whether each topic gets a series; otherwise each namespace gets one, without quantiles
    """
    pending = snapshot.transaction_ends_pending or 0
    cluster = {"cluster": snapshot.cluster}
    yield from family("pulsar_txn_tb_client_pending_requests", "gauge", [(labels_text(cluster), pending)])
    for commit, action in ((True, "commit"), (False, "abort")):
        told = _by_labels(
            cluster, [each for each in snapshot.transaction_ends if each.commit == commit], topic_level
        )
        name = f"pulsar_txn_tb_client_{action}"
        failed = [(labels, each.failed) for labels, each in told if each.failed]
        yield from family(f"{name}_failed_total", "counter", failed)
        took = [(labels, each.took) for labels, each in told if each.took.count]
        yield from _summaries(f"{name}_latency", took, _NANOSECONDS)


def _by_labels(
    cluster: Mapping[str, str], told: Sequence[TransactionEndMetrics], topic_level: bool
) -> list[tuple[str, TransactionEndMetrics]]:
    if topic_level:
        return [
            (labels_text({**cluster, "namespace": _namespace(each.topic), "topic": each.topic}), each)
            for each in told
        ]
    namespaces: dict[str, TransactionEndMetrics] = {}
    for each in told:
        name = _namespace(each.topic)
        known = namespaces.get(name)
        failed, took = each.failed, TimingMetrics(each.took.count, each.took.total_ms)
        if known is not None:
            failed += known.failed
            took.count += known.took.count
            took.total_ms += known.took.total_ms
        namespaces[name] = TransactionEndMetrics(name, each.commit, failed, took)
    return [(labels_text({**cluster, "namespace": name}), each) for name, each in namespaces.items()]


def _namespace(topic: str) -> str:
    return str(TopicName.parse(topic).namespace_name)


def log_batches(snapshot: MetricsSnapshot) -> Iterator[str]:
    """Yields the sizes and the durations of the batches that were written to transaction logs."""
    labels = labels_text({"cluster": snapshot.cluster, "broker": snapshot.broker})
    for each in snapshot.log_batches:
        name = f"pulsar_txn_{each.kind}_bufferedwriter"
        for why, count in each.flushes.items():
            yield from counter(f"{name}_flush_trigger_{why}", labels, count, snapshot.started_seconds)
        for what, bounds, counts, total in each.distributions:
            yield from histogram(f"{name}_{what}", labels, bounds, counts, total, snapshot.started_seconds)


def of_subscriptions(rows: Sequence[tuple[str, AckTransactionMetrics]]) -> Iterator[str]:
    """Yields, for each subscription, how many transactions that acknowledged its messages were committed and
    aborted, and how long commits took.

    :param rows: the labels and the metrics of each subscription
    """
    for name, known in (
        ("committed", [(labels, each.committed, each.failed_commits) for labels, each in rows]),
        ("aborted", [(labels, each.aborted, each.failed_aborts) for labels, each in rows]),
    ):
        counts = [(f'{labels},status="succeed"', count) for labels, count, _failed in known]
        counts += [(f'{labels},status="failed"', failed) for labels, _count, failed in known if failed]
        yield from family(f"pulsar_txn_tp_{name}_count_total", "counter", counts)
    took = [(labels, each.commit_latency) for labels, each in rows if each.commit_latency.count]
    yield from _summaries("pulsar_txn_tp_commit_latency", took, _MICROSECONDS)


def _summaries(name: str, rows: Sequence[tuple[str, TimingMetrics]], unit: float) -> Iterator[str]:
    """Yields a summary of durations for each row.

    :param rows: the labels and the durations of each summary
    :param unit: the unit of the printed durations, as the number of units in a millisecond
    """
    lines = [f"# TYPE {name} summary\n"]
    for labels, took in rows:
        lines += [
            f'{name}{{{labels},quantile="{quantile!r}"}} {round(value * unit, 3)!r}\n'
            for quantile, value in sorted(took.quantiles.items())
        ]
        lines.append(f"{name}_count{{{labels}}} {float(took.count)!r}\n")
        lines.append(f"{name}_sum{{{labels}}} {round(took.total_ms * unit, 3)!r}\n")
    yield "".join(lines)
