"""Figures in OTLP's protobuf: an instrument is used in one way, and large brokers make several requests."""

from __future__ import annotations

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from magnetar.broker.stats.figures import (
    CacheMetrics,
    CompactionMetrics,
    DurationMetrics,
    LookupMetrics,
    MetadataMetrics,
    MetricsSnapshot,
    TopicMetrics,
)
from magnetar.security.authentication import AuthenticationCounts
from magnetar.telemetry.encoding import TOPICS_A_REQUEST, RequestEncoder
from magnetar.telemetry.instruments import instruments_of


def topic(number: int = 0, compaction: CompactionMetrics | None = None) -> TopicMetrics:
    name = f"persistent://public/default/t{number}"
    return TopicMetrics(name=name, namespace="public/default", compaction=compaction)


def decoded(snapshot: MetricsSnapshot) -> list[ExportMetricsServiceRequest]:
    encoder = RequestEncoder({"service.name": "pulsar-broker"}, "1")
    return [ExportMetricsServiceRequest.FromString(each) for each in encoder.requests(snapshot, 2_000)]


def values(snapshot: MetricsSnapshot) -> dict[str, dict[tuple[str, ...], float]]:
    """By metric and by the texts of its attributes, without those of topics."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for request in decoded(snapshot):
        for metric in request.resource_metrics[0].scope_metrics[0].metrics:
            points = metric.gauge if metric.HasField("gauge") else metric.sum
            for point in points.data_points:
                named = tuple(
                    pair.value.string_value
                    for pair in point.attributes
                    if pair.key not in ("pulsar.domain", "pulsar.tenant", "pulsar.namespace", "pulsar.topic")
                )
                value = point.as_double if point.HasField("as_double") else point.as_int
                assert named not in found.setdefault(metric.name, {}), "told twice"
                found[metric.name][named] = value
    return found


def test_an_instrument_is_of_one_kind_and_unit() -> None:
    known: dict[str, tuple[object, str]] = {}
    kinds = ("topic", "compaction", "consumer", "producer", "broker", "connections", "cache", "coordinator")
    for figure in (each for kind in kinds for each in instruments_of(kind)):
        assert known.setdefault(figure.name, (figure.kind, figure.unit)) == (figure.kind, figure.unit)


def test_topics_are_told_in_requests_of_bounded_size() -> None:
    requests = decoded(MetricsSnapshot("c", "b", topics=[topic(n) for n in range(2 * TOPICS_A_REQUEST + 1)]))
    told = []
    for request in requests[1:]:
        (metrics,) = request.resource_metrics[0].scope_metrics
        (incoming,) = (m for m in metrics.metrics if m.name == "pulsar.broker.topic.message.incoming.count")
        told.append(len(incoming.sum.data_points))
    assert told == [TOPICS_A_REQUEST, TOPICS_A_REQUEST, 1]
    assert [r.resource_metrics[0].resource.attributes[0].value.string_value for r in requests] == [
        "pulsar-broker"
    ] * 4


def test_compaction_is_told_of_topics_that_had_one() -> None:
    compaction = CompactionMetrics(
        removed=9,
        succeeded=2,
        failed=1,
        duration_ms=1500,
        read_bytes=70,
        written_bytes=30,
        entries=4,
        size=20,
    )
    found = values(MetricsSnapshot("c", "b", topics=[topic(0, compaction)]))
    assert "pulsar.broker.topic.compaction.duration" not in values(
        MetricsSnapshot("c", "b", topics=[topic()])
    )
    about = "pulsar.broker.topic.compaction."
    assert {name.removeprefix(about): told for name, told in found.items() if name.startswith(about)} == {
        "removed.message.count": {(): 9},
        "operation.count": {("success",): 2, ("failure",): 1},
        "duration": {(): 1.5},
        "incoming.size": {(): 70},
        "outgoing.size": {(): 30},
        "compacted.entry.count": {(): 4},
        "compacted.entry.size": {(): 20},
    }


def test_lookups_are_told_in_buckets() -> None:
    bounds = (0.001, 0.5)
    durations = {
        "broker": DurationMetrics(bounds, (3, 1, 2), 4.25),
        "redirect": DurationMetrics(bounds, (0, 0, 0), 0.0),
        "failure": DurationMetrics(bounds, (1, 0, 0), 0.0005),
    }
    (request,) = decoded(MetricsSnapshot("c", "b", lookups=LookupMetrics(durations=durations)))
    (metric,) = (
        each
        for each in request.resource_metrics[0].scope_metrics[0].metrics
        if each.name == "pulsar.broker.request.topic.lookup.duration"
    )
    assert (metric.unit, metric.histogram.aggregation_temporality) == (
        "s",
        AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    points = {point.attributes[0].value.string_value: point for point in metric.histogram.data_points}
    assert list(points) == ["broker", "failure"], "what has not happened has no point"
    found = points["broker"]
    assert found.attributes[0].key == "pulsar.lookup.response"
    assert (list(found.explicit_bounds), list(found.bucket_counts)) == ([0.001, 0.5], [3, 1, 2])
    assert (found.count, found.sum, found.time_unix_nano) == (6, 4.25, 2_000_000_000)


def test_what_is_of_no_topic_is_told_once() -> None:
    snapshot = MetricsSnapshot(
        "c",
        "b",
        cache=CacheMetrics(hits=7, misses=2, hit_bytes=700, missed_bytes=200, entries=3),
        authentication_counts=[AuthenticationCounts("AuthenticationProviderToken", "token", 3, 1)],
        metadata=[MetadataMetrics("store", (), (), 55)],
        extra={"magnetar_unsent_bytes": 4.5},
    )
    found = values(snapshot)
    assert found["pulsar.broker.managed_ledger.cache.operation.count"] == {("hit",): 7, ("miss",): 2}
    assert found["pulsar.broker.managed_ledger.cache.operation.size"] == {("hit",): 700, ("miss",): 200}
    by = ("AuthenticationProviderToken", "token")
    assert found["pulsar.authentication.operation.count"] == {(*by, "success"): 3, (*by, "failure"): 1}
    assert found["pulsar.broker.metadata.store.outgoing.size"] == {("store",): 55}
    assert found["magnetar_unsent_bytes"] == {(): 4.5}
