"""The instruments of each metric: those of Pulsar 4 for OpenTelemetry, with its units.

An instrument may occur several times in a table, with different attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Generic, TypeVar

from magnetar.broker.stats.figures import (
    CompactionMetrics,
    ConsumerMetrics,
    DurationMetrics,
    MetricsSnapshot,
    ProducerMetrics,
    SubscriptionMetrics,
    TopicMetrics,
)
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.topic_name import TopicName

T = TypeVar("T")
Number = int | float
Attributes = Mapping[str, str | int]


class InstrumentKind(Enum):
    """How a collector interprets the values."""

    COUNTER = "counter"
    """Only grows, until the process or the topic starts again."""
    UP_DOWN = "up and down"
    """Values of several sources can be added."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Counts of values in buckets that only grow."""


@dataclass(frozen=True, slots=True)
class Instrument:
    name: str
    kind: InstrumentKind
    unit: str
    """In UCUM: ``By``, ``s``; names of counted things in braces."""


@dataclass(frozen=True, slots=True)
class Figure(Instrument, Generic[T]):
    """An instrument, and the source of its value."""

    of: Callable[[T], Number]
    attributes: Attributes = field(default_factory=dict)
    """Attributes in addition to those of the measured object."""


C, U, G = InstrumentKind.COUNTER, InstrumentKind.UP_DOWN, InstrumentKind.GAUGE

_TOPIC = "pulsar.broker.topic."
_STORAGE = "pulsar.broker.topic.storage."
_QUOTA = "pulsar.backlog.quota.type"

TOPIC: Sequence[Figure[TopicMetrics]] = (
    Figure(_TOPIC + "subscription.count", U, "{subscription}", lambda t: t.subscription_count),
    Figure(_TOPIC + "producer.count", U, "{producer}", lambda t: t.producer_count),
    Figure(_TOPIC + "consumer.count", U, "{consumer}", lambda t: t.consumer_count),
    Figure(_TOPIC + "message.incoming.count", C, "{message}", lambda t: t.messages_in),
    Figure(_TOPIC + "message.outgoing.count", C, "{message}", lambda t: t.messages_out),
    Figure(_TOPIC + "message.incoming.size", C, "By", lambda t: t.bytes_in),
    Figure(_TOPIC + "message.outgoing.size", C, "By", lambda t: t.bytes_out),
    Figure(_TOPIC + "publish.rate.limit.count", C, "{event}", lambda t: t.publish_rate_limited),
    Figure(
        _TOPIC + "subscription.delayed.entry.count",
        U,
        "{entry}",
        lambda t: sum(s.delayed for s in t.subscriptions),
    ),
    Figure(_STORAGE + "size", U, "By", lambda t: t.storage_size),
    Figure(_STORAGE + "logical.size", U, "By", lambda t: t.storage_logical_size),
    Figure(_STORAGE + "backlog.size", U, "By", lambda t: t.backlog_bytes),
    Figure(_STORAGE + "offloaded.size", U, "By", lambda t: t.offloaded_bytes),
    Figure(_STORAGE + "backlog.quota.limit.size", U, "By", lambda t: t.backlog_quota_bytes),
    Figure(_STORAGE + "backlog.quota.limit.time", G, "s", lambda t: t.backlog_quota_seconds),
    Figure(
        _STORAGE + "backlog.quota.eviction.count",
        C,
        "{eviction}",
        lambda t: t.evictions_by_size,
        {_QUOTA: "size"},
    ),
    Figure(
        _STORAGE + "backlog.quota.eviction.count",
        C,
        "{eviction}",
        lambda t: t.evictions_by_time,
        {_QUOTA: "time"},
    ),
    Figure(_STORAGE + "backlog.age", G, "s", lambda t: t.backlog_age_seconds),
    Figure(_STORAGE + "entry.outgoing.count", C, "{entry}", lambda t: t.entries_written),
    Figure(_STORAGE + "entry.incoming.count", C, "{entry}", lambda t: t.entries_read),
)

_COMPACTION = "pulsar.broker.topic.compaction."
_COMPACTED = "pulsar.compaction.status"

COMPACTION: Sequence[Figure[CompactionMetrics]] = (
    Figure(_COMPACTION + "removed.message.count", C, "{message}", lambda c: c.removed),
    Figure(_COMPACTION + "operation.count", C, "{operation}", lambda c: c.succeeded, {_COMPACTED: "success"}),
    Figure(_COMPACTION + "operation.count", C, "{operation}", lambda c: c.failed, {_COMPACTED: "failure"}),
    Figure(_COMPACTION + "duration", U, "s", lambda c: c.duration_ms / 1000),
    Figure(_COMPACTION + "incoming.size", C, "By", lambda c: c.read_bytes),
    Figure(_COMPACTION + "outgoing.size", C, "By", lambda c: c.written_bytes),
    # A counter as in Pulsar, although the value is that of the last compaction.
    Figure(_COMPACTION + "compacted.entry.count", C, "{entry}", lambda c: c.entries),
    Figure(_COMPACTION + "compacted.entry.size", C, "By", lambda c: c.size),
)

_CONSUMER = "pulsar.broker.consumer."

CONSUMER: Sequence[Figure[ConsumerMetrics]] = (
    Figure(_CONSUMER + "message.outgoing.count", C, "{message}", lambda c: c.messages_out),
    Figure(_CONSUMER + "message.outgoing.size", C, "By", lambda c: c.bytes_out),
    Figure(_CONSUMER + "message.ack.count", C, "{ack}", lambda c: c.acknowledged),
    Figure(_CONSUMER + "message.redeliver.count", C, "{message}", lambda c: c.redelivered),
    Figure(_CONSUMER + "message.unack.count", U, "{message}", lambda c: c.unacked_messages),
    Figure(_CONSUMER + "blocked", U, "1", lambda c: int(c.blocked_on_unacked)),
    Figure(_CONSUMER + "permit.count", U, "{permit}", lambda c: c.available_permits),
)

_PRODUCER = "pulsar.broker.producer."

PRODUCER: Sequence[Figure[ProducerMetrics]] = (
    Figure(_PRODUCER + "message.incoming.count", C, "{message}", lambda p: p.messages_in),
    Figure(_PRODUCER + "message.incoming.size", C, "By", lambda p: p.bytes_in),
    Figure(_PRODUCER + "message.drop.count", C, "{message}", lambda p: p.dropped),
)

_CONNECTION = "pulsar.broker.connection."
_STATUS = "pulsar.connection.status"
_CREATED = "pulsar.connection.create.operation.status"
_CACHE = "pulsar.broker.managed_ledger.cache."
_ENTRY = "pulsar.managed_ledger.cache.entry.status"
_ASKED = "pulsar.managed_ledger.cache.operation.status"

BROKER: Sequence[Figure[MetricsSnapshot]] = (
    Figure(_CONNECTION + "count", U, "{connection}", lambda b: b.connections.active, {_STATUS: "active"}),
    Figure(_CONNECTION + "count", U, "{connection}", lambda b: b.connections.created, {_STATUS: "open"}),
    Figure(_CONNECTION + "count", U, "{connection}", lambda b: b.connections.closed, {_STATUS: "close"}),
    Figure(
        _CONNECTION + "create.operation.count",
        U,
        "{operation}",
        lambda b: b.connections.handshakes_succeeded,
        {_CREATED: "success"},
    ),
    Figure(
        _CONNECTION + "create.operation.count",
        U,
        "{operation}",
        lambda b: b.connections.handshakes_failed,
        {_CREATED: "failure"},
    ),
    Figure(
        "pulsar.broker.request.topic.lookup.concurrent.usage", U, "{operation}", lambda b: b.lookups.pending
    ),
    Figure("pulsar.broker.topic.load.concurrent.usage", U, "{operation}", lambda b: b.topic_loads_pending),
    Figure("pulsar.broker.managed_ledger.count", U, "{managed_ledger}", lambda b: b.managed_ledger_count),
    Figure(_CACHE + "eviction.count", C, "{eviction}", lambda b: b.cache.evictions),
    Figure(_CACHE + "entry.count", U, "{entry}", lambda b: b.cache.entries, {_ENTRY: "active"}),
    Figure(_CACHE + "entry.count", U, "{entry}", lambda b: b.cache.inserted_total, {_ENTRY: "inserted"}),
    Figure(_CACHE + "entry.count", U, "{entry}", lambda b: b.cache.evicted_total, {_ENTRY: "evicted"}),
    Figure(_CACHE + "entry.size", U, "{By}", lambda b: b.cache.used_bytes),
    Figure(_CACHE + "operation.count", C, "{entry}", lambda b: b.cache.hits, {_ASKED: "hit"}),
    Figure(_CACHE + "operation.count", C, "{entry}", lambda b: b.cache.misses, {_ASKED: "miss"}),
    Figure(_CACHE + "operation.size", C, "{By}", lambda b: b.cache.hit_bytes, {_ASKED: "hit"}),
    Figure(_CACHE + "operation.size", C, "{By}", lambda b: b.cache.missed_bytes, {_ASKED: "miss"}),
)


def of_broker(snapshot: MetricsSnapshot) -> Iterator[tuple[Instrument, Attributes, Number]]:
    """Yields all metrics that do not belong to a topic."""
    for figure in BROKER:
        yield figure, figure.attributes, figure.of(snapshot)
    written = Instrument("pulsar.broker.metadata.store.outgoing.size", C, "{By}")
    for store in snapshot.metadata:
        yield written, {"pulsar.metadata.store.name": store.name}, store.put_bytes
    authentications = Instrument("pulsar.authentication.operation.count", C, "{operation}")
    for counts in snapshot.authentication_counts:
        by = {
            "pulsar.authentication.provider": counts.provider,
            "pulsar.authentication.method": counts.method,
        }
        yield authentications, {**by, "pulsar.authentication.result": "success"}, counts.succeeded
        yield authentications, {**by, "pulsar.authentication.result": "failure"}, counts.failed
    compared = Instrument(
        "pulsar.broker.operation.schema_registry.compatibility_check.count", C, "{operation}"
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
        yield Instrument(name, G, "1"), {}, value


_LOOKUPS = Instrument("pulsar.broker.request.topic.lookup.duration", InstrumentKind.HISTOGRAM, "s")
_SCHEMAS = Instrument("pulsar.broker.request.schema_registry.duration", InstrumentKind.HISTOGRAM, "s")


def durations_of(snapshot: MetricsSnapshot) -> Iterator[tuple[Instrument, Attributes, DurationMetrics]]:
    """Yields the durations of the broker's operations, without those that have not happened yet."""
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


def of_topic(topic: TopicMetrics) -> Attributes:
    """Returns the attributes of a topic's metrics; partitions also have the name of the partitioned topic."""
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
    """Returns the attributes of a consumer, in addition to those of the topic."""
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
    """Returns the attributes of a producer, in addition to those of the topic."""
    return {
        "pulsar.producer.name": producer.name,
        "pulsar.producer.id": producer.producer_id,
        "pulsar.producer.access_mode": _ACCESS_MODES[producer.access_mode],
    }
