"""The external names of metrics: ``figures.tsv`` declares each metric once, with all of its names.

Columns: the kind of object that has the metric; the attribute in :mod:`magnetar.broker.stats.figures` (empty:
the metric is always zero, because Magnetar lacks the feature); ``whole`` or ``real``, the type of its
numbers; the name in the JSON of statistics (after a change run ``python tools/generate_statistics.py``); the
name in ``/metrics``, and whether it is reported there for topics, for sums of namespaces or for both; the
name of the sum over all topics; the name in OpenTelemetry, the kind of instrument, the unit (UCUM) and
additional attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path

from magnetar.broker.stats.figures import (
    CacheMetrics,
    CompactionMetrics,
    ConnectionMetrics,
    ConsumerMetrics,
    CoordinatorMetrics,
    ManagedLedgerMetrics,
    MetricsSnapshot,
    OffloadMetrics,
    ProducerMetrics,
    SubscriptionMetrics,
    TopicMetrics,
)
from magnetar.lazy_dataclass import dataclass

__all__ = [
    "KINDS",
    "FigureRow",
    "consumer_json",
    "figures_of",
    "producer_json",
    "subscription_json",
    "topic_json",
]

Number = int | float
KINDS: Mapping[str, type] = {
    "topic": TopicMetrics,
    "subscription": SubscriptionMetrics,
    "consumer": ConsumerMetrics,
    "producer": ProducerMetrics,
    "compaction": CompactionMetrics,
    "offload": OffloadMetrics,
    "managed ledger": ManagedLedgerMetrics,
    "cache": CacheMetrics,
    "connections": ConnectionMetrics,
    "coordinator": CoordinatorMetrics,
    "broker": MetricsSnapshot,
}
"""The kinds of objects that have metrics."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A row of the table. A name is empty if the metric is not reported in that form."""

    figure: str
    of: Callable[[object], Number]
    """Returns the metric's value for an object."""
    prometheus: str
    level: str
    """The level at which ``/metrics`` reports a topic's metric: ``topic``, ``namespace`` or ``both``."""
    sum: str
    otlp: str
    instrument: str
    unit: str
    attributes: Mapping[str, str]


@cache
def figures_of(kind: str) -> tuple[FigureRow, ...]:
    """Returns the metrics of the kind ``topic``, ``subscription``, ``managed ledger``, …, in the table's
    order."""
    rows = []
    for line in Path(__file__).with_name("figures.tsv").read_text("utf-8").splitlines()[1:]:
        of, figure, number, _json, prometheus, level, total, otlp, instrument, unit, attributes = line.split(
            "\t"
        )
        if of == kind:
            pairs = (pair.split("=") for pair in attributes.split(",") if pair)
            names = (prometheus, level, total, otlp, instrument, unit)
            rows.append(FigureRow(figure, _getter(figure, number), *names, dict(pairs)))
    return tuple(rows)


def _getter(figure: str, number: str) -> Callable[[object], Number]:
    if not figure:
        return lambda _object: 0
    get = attrgetter(figure)
    make = float if number == "real" else int
    return lambda measured: make(get(measured))


# Written by tools/generate_statistics.py: the figures of an object in JSON, as literals because thousands of
# consumers have them.


def topic_json(now: TopicMetrics) -> dict[str, object]:
    return {
        "msgRateIn": now.rate_in,
        "msgRateOut": now.rate_out,
        "msgThroughputIn": now.throughput_in,
        "msgThroughputOut": now.throughput_out,
        "bytesInCounter": now.bytes_in,
        "msgInCounter": now.messages_in,
        "storageSize": now.storage_size,
        "backlogSize": now.backlog_bytes,
        "offloadedStorageSize": now.offloaded_bytes,
        "delayedMessageIndexSizeInBytes": now.delay_index_bytes,
        "ongoingTxnCount": now.open_transactions,
        "abortedTxnCount": now.aborted_transactions,
        "committedTxnCount": now.committed_transactions,
        "averageMsgSize": now.average_message_size,
        "backlogQuotaLimitSize": now.backlog_quota_bytes,
        "backlogQuotaLimitTime": now.backlog_quota_seconds,
        "publishRateLimitedTimes": now.publish_rate_limited,
        "msgOutCounter": now.messages_out,
        "bytesOutCounter": now.bytes_out,
    }


def subscription_json(now: SubscriptionMetrics) -> dict[str, object]:
    return {
        "msgBacklog": now.backlog,
        "msgBacklogNoDelayed": now.backlog_no_delayed,
        "msgDelayed": now.delayed,
        "msgInReplay": now.in_replay,
        "msgRateRedeliver": now.rate_redeliver,
        "unackedMessages": now.unacked_messages,
        "blockedSubscriptionOnUnackedMsgs": now.blocked_on_unacked,
        "msgRateOut": now.rate_out,
        "messageAckRate": now.ack_rate,
        "msgThroughputOut": now.throughput_out,
        "bytesOutCounter": now.bytes_out,
        "msgOutCounter": now.messages_out,
        "lastExpireTimestamp": now.last_expire_ms,
        "lastAckedTimestamp": now.last_acked_ms,
        "lastConsumedFlowTimestamp": now.last_consumed_flow_ms,
        "lastConsumedTimestamp": now.last_consumed_ms,
        "lastMarkDeleteAdvancedTimestamp": now.last_mark_delete_advanced_ms,
        "msgRateExpired": now.rate_expired,
        "totalMsgExpired": now.total_expired,
        "delayedMessageIndexSizeInBytes": now.delay_index_bytes,
        "filterProcessedMsgCount": now.filter_processed,
        "filterAcceptedMsgCount": now.filter_accepted,
        "filterRejectedMsgCount": now.filter_rejected,
        "filterRescheduledMsgCount": now.filter_rescheduled,
    }


def consumer_json(now: ConsumerMetrics) -> dict[str, object]:
    return {
        "msgRateRedeliver": now.rate_redeliver,
        "unackedMessages": now.unacked_messages,
        "blockedConsumerOnUnackedMsgs": now.blocked_on_unacked,
        "msgRateOut": now.rate_out,
        "messageAckRate": now.ack_rate,
        "msgThroughputOut": now.throughput_out,
        "availablePermits": now.available_permits,
        "bytesOutCounter": now.bytes_out,
        "msgOutCounter": now.messages_out,
    }


def producer_json(now: ProducerMetrics) -> dict[str, object]:
    return {
        "msgRateIn": now.rate_in,
        "msgThroughputIn": now.throughput_in,
        "averageMsgSize": now.average_message_size,
    }
