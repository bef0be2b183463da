"""The OpenTelemetry instruments of each metric, with Pulsar 4's names and units. An instrument can occur
several times in a table, with different attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import cache

from magnetar.broker.stats.figure_table import figures_of
from magnetar.broker.stats.figures import (
    ConsumerMetrics,
    DurationMetrics,
    MetricsSnapshot,
    ProducerMetrics,
    SubscriptionMetrics,
    TopicMetrics,
)
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.topic_name import TopicName

Number = int | float
Attributes = Mapping[str, str | int]


class InstrumentKind(Enum):
    """The kind of an instrument, which tells a collector how to interpret values."""

    COUNTER = "counter"
    """A value that only grows, until the process or the topic restarts."""
    UP_DOWN = "up and down"
    """A value that can rise and fall; values of several sources can be added."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Counts of values in buckets; the counts only grow."""


@dataclass(frozen=True, slots=True)
class Instrument:
    name: str
    kind: InstrumentKind
    unit: str
    """A unit in UCUM, such as ``By`` and ``s``; names of counted things are in braces."""


@dataclass(frozen=True, slots=True)
class Figure(Instrument):
    """An instrument, and the source of its value."""

    of: Callable[[object], Number]
    attributes: Attributes = field(default_factory=dict)
    """Attributes in addition to those of the measured object."""


_G, _C = InstrumentKind.GAUGE, InstrumentKind.COUNTER


@cache
def instruments_of(kind: str) -> Sequence[Figure]:
    """Returns the instruments of a kind of object, such as ``topic``, ``compaction``, ``consumer`` or
    ``producer``.
    """
    return [
        Figure(row.otlp, InstrumentKind(row.instrument), row.unit, row.of, row.attributes)
        for row in figures_of(kind)
        if row.otlp
    ]


def of_broker(snapshot: MetricsSnapshot) -> Iterator[tuple[Instrument, Attributes, Number]]:
    """Yields all metrics of the broker as a whole, with attributes and value."""
    parts = {"connections": snapshot.connections, "broker": snapshot, "cache": snapshot.cache}
    for kind, part in parts.items():
        for figure in instruments_of(kind):
            yield figure, figure.attributes, figure.of(part)
    for coordinator in snapshot.coordinators:
        own = {"pulsar.transaction.coordinator.id": coordinator.number}
        for figure in instruments_of("coordinator"):
            yield figure, {**own, **figure.attributes}, figure.of(coordinator)
    written = Instrument("pulsar.broker.metadata.store.outgoing.size", _C, "{By}")
    for store in snapshot.metadata:
        yield written, {"pulsar.metadata.store.name": store.name}, store.put_bytes
    authentications = Instrument("pulsar.authentication.operation.count", _C, "{operation}")
    for counts in snapshot.authentication_counts:
        by = {
            "pulsar.authentication.provider": counts.provider,
            "pulsar.authentication.method": counts.method,
        }
        yield authentications, {**by, "pulsar.authentication.result": "success"}, counts.succeeded
        yield authentications, {**by, "pulsar.authentication.result": "failure"}, counts.failed
    compared = Instrument(
        "pulsar.broker.operation.schema_registry.compatibility_check.count", _C, "{operation}"
    )
    for schemas in snapshot.schemas:
        for response, count in (("compatible", schemas.compatible), ("incompatible", schemas.incompatible)):
            if count:
                by = {
                    "pulsar.namespace": schemas.namespace,
                    "pulsar.schema_registry.compatibility_check.response": response,
                }
                yield compared, by, count
    for name, value in snapshot.extra.items():
        yield Instrument(name, _G, "1"), {}, value


_LOOKUPS = Instrument("pulsar.broker.request.topic.lookup.duration", InstrumentKind.HISTOGRAM, "s")
_SCHEMAS = Instrument("pulsar.broker.request.schema_registry.duration", InstrumentKind.HISTOGRAM, "s")


def durations_of(snapshot: MetricsSnapshot) -> Iterator[tuple[Instrument, Attributes, DurationMetrics]]:
    """Yields the durations of the broker's operations that have occurred at least once."""
    for end, durations in snapshot.lookups.durations.items():
        if any(durations.counts):
            yield _LOOKUPS, {"pulsar.lookup.response": end}, durations
    for schemas in snapshot.schemas:
        for operation, succeeded, durations in schemas.operations:
            by = {
                "pulsar.namespace": schemas.namespace,
                "pulsar.schema_registry.request": operation,
                "pulsar.schema_registry.response": "success" if succeeded else "failure",
            }
            yield _SCHEMAS, by, durations


_ACKNOWLEDGING = Instrument(
    "pulsar.broker.transaction.pending.ack.store.transaction.count", _C, "{transaction}"
)


def transactions_of(
    subscription: SubscriptionMetrics,
) -> Iterator[tuple[Instrument, Attributes, Number]]:
    """Yields the numbers of ended transactions that acknowledged messages of a subscription; attributes are
    in addition to the attributes of the topic.
    """
    known = subscription.transactions
    if known is None:
        return
    for status, outcome, count in (
        ("committed", "success", known.committed),
        ("aborted", "success", known.aborted),
        ("committed", "failure", known.failed_commits),
        ("aborted", "failure", known.failed_aborts),
    ):
        if outcome == "failure" and not count:
            continue
        by = {
            "pulsar.subscription.name": subscription.name,
            "pulsar.transaction.status": status,
            "pulsar.transaction.pending.ack.store.operation.status": outcome,
        }
        yield _ACKNOWLEDGING, by, count


def of_topic(topic: TopicMetrics) -> Attributes:
    """Returns the attributes of a topic's metrics; for a partition, they include the name of the partitioned
    topic.
    """
    name = TopicName.parse(topic.name)
    found: dict[str, str | int] = {
        "pulsar.domain": name.domain.value,
        "pulsar.tenant": name.tenant,
        "pulsar.namespace": topic.namespace,
        "pulsar.topic": str(name.base),
    }
    if name.partition_index >= 0:
        found["pulsar.partition.index"] = name.partition_index
    return found


def of_consumer(subscription: SubscriptionMetrics, consumer: ConsumerMetrics) -> Attributes:
    """Returns the attributes of a consumer's metrics, in addition to the topic's attributes."""
    return {
        "pulsar.subscription.name": subscription.name,
        "pulsar.subscription.type": subscription.type,
        "pulsar.consumer.name": consumer.name,
        "pulsar.consumer.id": consumer.consumer_id,
    }


_ACCESS_MODES = {
    "Shared": "shared",
    "Exclusive": "exclusive",
    "WaitForExclusive": "wait_for_exclusive",
    "ExclusiveWithFencing": "exclusive_with_fencing",
}


def of_producer(producer: ProducerMetrics) -> Attributes:
    """Returns the attributes of a producer's metrics, in addition to the topic's attributes."""
    return {
        "pulsar.producer.name": producer.name,
        "pulsar.producer.id": producer.producer_id,
        "pulsar.producer.access_mode": _ACCESS_MODES[producer.access_mode],
    }
