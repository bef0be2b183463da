"""Encodes metrics as OTLP requests, with OpenTelemetry's protobuf definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from magnetar.broker.stats.figures import DurationMetrics, MetricsSnapshot, TopicMetrics
from magnetar.telemetry.instruments import (
    Attributes,
    Figure,
    Instrument,
    InstrumentKind,
    Number,
    durations_of,
    instruments_of,
    of_broker,
    of_consumer,
    of_producer,
    of_topic,
    transactions_of,
)

SCOPE = "org.apache.pulsar.broker"
"""Pulsar's name for the metrics of its broker."""
TOPICS_A_REQUEST = 50
"""Number of topics per request, which makes requests of some hundred kilobytes; topics with many consumers
make larger requests.
"""
_NANOSECONDS_A_MS = 1_000_000


class RequestEncoder:
    """Creates OTLP requests from the metrics of one process."""

    def __init__(self, resource: Mapping[str, str], version: str) -> None:
        """:param resource: attributes of the process
        :param version: the version of Magnetar
        """
        self._resource = Resource(attributes=_key_values(resource))
        self._scope = InstrumentationScope(name=SCOPE, version=version)

    def requests(self, snapshot: MetricsSnapshot, now_ms: int) -> Iterator[bytes]:
        """Yields the requests for all metrics, created on demand."""
        times = _Times(int(snapshot.started_seconds * 1000) * _NANOSECONDS_A_MS, now_ms * _NANOSECONDS_A_MS)
        broker = _Gathered(times)
        for instrument, attributes, value in of_broker(snapshot):
            broker.add(instrument, attributes, value)
        for instrument, attributes, durations in durations_of(snapshot):
            broker.add_durations(instrument, attributes, durations)
        yield self._request(broker)
        topics = iter(snapshot.topics)
        while some := list(islice(topics, TOPICS_A_REQUEST)):
            yield self._request(_of_topics(some, times))

    def _request(self, gathered: _Gathered) -> bytes:
        scope = ScopeMetrics(scope=self._scope, metrics=gathered.metrics())
        whole = ResourceMetrics(resource=self._resource, scope_metrics=[scope])
        return ExportMetricsServiceRequest(resource_metrics=[whole]).SerializeToString()


class _Times:
    """The start of counting and the time of measurement, in nanoseconds since 1970."""

    def __init__(self, start: int, now: int) -> None:
        self.start = start
        self.now = now


class _Gathered:
    """The data points of one request, by instrument."""

    def __init__(self, times: _Times) -> None:
        self._times = times
        self._metrics: dict[str, Metric] = {}

    def add(self, instrument: Instrument, attributes: Attributes, value: Number) -> None:
        self._append(instrument, self._point(_key_values(attributes)), value)

    def add_row(self, figures: Sequence[Figure], of: object, attributes: Sequence[KeyValue]) -> None:
        """Adds the data points of all metrics of one object."""
        point = self._point(attributes)
        for figure in figures:
            if figure.attributes:
                more = self._point([*attributes, *_key_values(figure.attributes)])
                self._append(figure, more, figure.of(of))
            else:
                self._append(figure, point, figure.of(of))

    def add_durations(
        self, instrument: Instrument, attributes: Attributes, durations: DurationMetrics
    ) -> None:
        point = HistogramDataPoint(
            start_time_unix_nano=self._times.start,
            time_unix_nano=self._times.now,
            attributes=_key_values(attributes),
            count=sum(durations.counts),
            sum=durations.seconds,
            bucket_counts=durations.counts,
            explicit_bounds=durations.bounds,
        )
        self._metric(instrument).histogram.data_points.append(point)

    def metrics(self) -> Iterable[Metric]:
        return self._metrics.values()

    def _point(self, attributes: Iterable[KeyValue]) -> NumberDataPoint:
        times = self._times
        return NumberDataPoint(
            start_time_unix_nano=times.start, time_unix_nano=times.now, attributes=attributes
        )

    def _append(self, instrument: Instrument, point: NumberDataPoint, value: Number) -> None:
        metric = self._metric(instrument)
        if isinstance(value, float):
            point.as_double = value
        else:
            point.as_int = value
        # The point is copied, so it can be reused.
        points = metric.gauge if instrument.kind is InstrumentKind.GAUGE else metric.sum
        points.data_points.append(point)

    def _metric(self, instrument: Instrument) -> Metric:
        metric = self._metrics.get(instrument.name)
        if metric is None:
            metric = self._metrics[instrument.name] = _metric(instrument)
        return metric


def _of_topics(topics: Iterable[TopicMetrics], times: _Times) -> _Gathered:
    gathered = _Gathered(times)
    for topic in topics:
        own_topic = of_topic(topic)
        attributes = _key_values(own_topic)
        gathered.add_row(instruments_of("topic"), topic, attributes)
        if topic.compaction is not None:
            gathered.add_row(instruments_of("compaction"), topic.compaction, attributes)
        for producer in topic.producers:
            own = _key_values(of_producer(producer))
            gathered.add_row(instruments_of("producer"), producer, [*attributes, *own])
        for subscription in topic.subscriptions:
            for instrument, by, count in transactions_of(subscription):
                gathered.add(instrument, {**own_topic, **by}, count)
            for consumer in subscription.consumers:
                own = _key_values(of_consumer(subscription, consumer))
                gathered.add_row(instruments_of("consumer"), consumer, [*attributes, *own])
    return gathered


def _metric(instrument: Instrument) -> Metric:
    metric = Metric(name=instrument.name, unit=instrument.unit)
    if instrument.kind is InstrumentKind.HISTOGRAM:
        metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    elif instrument.kind is not InstrumentKind.GAUGE:
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = instrument.kind is InstrumentKind.COUNTER
    return metric


def _key_values(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: str | int) -> AnyValue:
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
