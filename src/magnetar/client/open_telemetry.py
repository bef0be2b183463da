"""Metrics and traces of clients for OpenTelemetry; requires ``magnetar[opentelemetry]``.

Names and attributes are those of the Java client. Only programs import this module; the client itself does
not, because this module requires the extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple, TypeVar

try:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
    from opentelemetry.propagate import get_global_textmap
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import (
        Span,
        SpanKind,
        StatusCode,
        TracerProvider,
        get_tracer_provider,
        set_span_in_context,
        use_span,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "magnetar.client.open_telemetry requires the package opentelemetry-api; install "
        "magnetar[opentelemetry]"
    ) from error

from magnetar.client.attachment import Attached
from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import PulsarException
from magnetar.client.interceptors import ConsumerInterceptor, OutgoingMessage, ProducerInterceptor
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.observing import Observer
from magnetar.client.producer import Producer
from magnetar.client.receiving import Position
from magnetar.io.interfaces import Loop
from magnetar.naming.topic_name import TopicName

_SCOPE = "org.apache.pulsar.client"
_ACK_TYPE = "messaging.pulsar.acknowledgment.type"
_MOST_SPANS = 10_000
"""Maximum number of open spans of a consumer; when there are more, the oldest span is ended."""
Kind = TypeVar("Kind", Producer, Consumer)
_Labels = tuple[tuple[str, str], ...]
_SENT = {
    "pulsar.client.producer.message.send.size": (
        "By",
        "Bytes of published contents, before compression",
        "bytes",
    ),
}
_RECEIVED = {
    "pulsar.client.consumer.message.received.count": (
        "{message}",
        "Messages that the program received",
        "messages",
    ),
    "pulsar.client.consumer.message.received.size": (
        "By",
        "Bytes of the entries with these messages",
        "bytes",
    ),
    "pulsar.client.consumer.message.ack": ("{message}", "Acknowledged messages", "acks"),
    "pulsar.client.consumer.message.nack": ("{message}", "Negatively acknowledged messages", "refused"),
    "pulsar.client.consumer.message.dlq": ("{message}", "Messages sent to the dead letter topic", "dead"),
    "pulsar.client.consumer.message.ack.timeout": (
        "{message}",
        "Entries that were not acknowledged in time, and are delivered again",
        "late",
    ),
}
_PRODUCERS: Mapping[str, tuple[str, str, Callable[[Producer], int]]] = {
    "pulsar.client.producer.message.pending.count": (
        "{message}",
        "Messages without a receipt",
        lambda producer: producer.pending_messages,
    ),
    "pulsar.client.producer.message.pending.size": (
        "By",
        "Bytes of the sent messages without a receipt",
        lambda producer: producer.pending_bytes,
    ),
}
_CONSUMERS: Mapping[str, tuple[str, str, Callable[[Consumer], int]]] = {
    "pulsar.client.consumer.receive_queue.count": (
        "{message}",
        "Messages in the receiver queue",
        lambda consumer: consumer.stats.msg_num_in_receiver_queue,
    ),
    "pulsar.client.consumer.receive_queue.size": (
        "By",
        "Bytes of the entries in the receiver queue",
        lambda consumer: consumer.queued_bytes,
    ),
}


class OpenTelemetry:
    """The metrics and traces of one or several clients: ``Client(url, open_telemetry=OpenTelemetry())``.

    Create one object for all clients of a process.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        *,
        metrics: bool = True,
        tracing: bool = True,
    ) -> None:
        """:param meter_provider: the source of meters; None: the global provider of the process

        :param tracer_provider: the source of tracers; None: the global provider of the process
        :param propagator: writes the trace context into properties of messages, and reads it; None: the
            global propagator, by default W3C's (``traceparent``, ``tracestate``)
        """
        self._tracer = (tracer_provider or get_tracer_provider()).get_tracer(_SCOPE) if tracing else None
        self._propagator = propagator or get_global_textmap()
        self.observer = _Metrics(meter_provider or get_meter_provider()) if metrics else None

    def context_of(self, message: Message) -> Context:
        """Returns the trace context in the properties of a message."""
        return self._propagator.extract(message.properties())

    def producer_interceptor(self, loop: Loop) -> ProducerInterceptor:
        """Returns the interceptor that measures and traces the messages of a producer."""
        return _Sending(self, loop)

    def consumer_interceptor(self) -> _Processing:
        """Returns the interceptor that traces a consumer's messages."""
        return _Processing(self)

    def start_sending(self, topic: str, message: OutgoingMessage) -> Span | None:
        """Starts the span of a message, and writes the trace context into the message's properties; returns
        None if tracing is off.
        """
        if self._tracer is None:
            return None
        attributes = {
            "messaging.system": "pulsar",
            "messaging.destination.name": topic,
            "messaging.operation.name": "send",
        }
        span = self._tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        written: dict[str, str] = {}
        self._propagator.inject(written, set_span_in_context(span))
        for name, value in written.items():
            message.set_property(name, value)
        return span

    def sent(self, topic: str, seconds: float, *, succeeded: bool) -> None:
        """Records the seconds from the ``send`` call of a message to its receipt or failure."""
        if self.observer is not None:
            self.observer.sent(topic, seconds, succeeded=succeeded)

    def start_processing(self, subscription: str, message: Message) -> Span | None:
        """Starts the span of a received message; returns None if tracing is off."""
        if self._tracer is None:
            return None
        topic = message.topic_name()
        attributes = {
            "messaging.system": "pulsar",
            "messaging.destination.name": topic,
            "messaging.destination.subscription.name": subscription,
            "messaging.operation.name": "process",
            "messaging.message.id": str(message.message_id()),
        }
        return self._tracer.start_span(
            f"process {topic}", self.context_of(message), SpanKind.CONSUMER, attributes=attributes
        )


def _end(span: Span, error: PulsarException | None = None, ack_type: str = "") -> None:
    if ack_type and error is None:
        span.set_attribute(_ACK_TYPE, ack_type)
    if error is None:
        span.set_status(StatusCode.OK)
    else:
        span.set_status(StatusCode.ERROR, str(error))
        span.record_exception(error)
    span.end()


class _Begun(NamedTuple):
    span: Span | None
    at: float
    """When the message was sent, in the event loop's time, in seconds."""


class _Sending(ProducerInterceptor):
    def __init__(self, telemetry: OpenTelemetry, loop: Loop) -> None:
        self._telemetry = telemetry
        self._loop = loop

    def before_send(self, producer: Producer, message: OutgoingMessage) -> OutgoingMessage:
        span = self._telemetry.start_sending(producer.topic(), message)
        message.notes[self] = _Begun(span, self._loop.time())
        return message

    def on_send_acknowledgement(
        self,
        producer: Producer,
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: PulsarException | None,
    ) -> None:
        begun = message.notes.pop(self, None)
        if not isinstance(begun, _Begun):
            return
        self._telemetry.sent(producer.topic(), self._loop.time() - begun.at, succeeded=error is None)
        if begun.span is not None:
            if message_id is not None:
                begun.span.set_attribute("messaging.message.id", str(message_id))
            _end(begun.span, error)


class _Processing(ConsumerInterceptor):
    """Keeps a span for each message, from the moment the program receives it until it is acknowledged or its
    redelivery is requested.
    """

    def __init__(self, telemetry: OpenTelemetry) -> None:
        self._telemetry = telemetry
        self._spans: dict[tuple[str, MessageId], Span] = {}
        """Spans that have not ended, in the order of their start."""

    def before_consume(self, consumer: Consumer, message: Message) -> Message:
        span = self._telemetry.start_processing(consumer.subscription_name(), message)
        if span is not None:
            key = (consumer.topic(), message.message_id())
            self._end_all([key])
            self._spans[key] = span
            if len(self._spans) > _MOST_SPANS:
                self._end_all([next(iter(self._spans))])
        return message

    @contextmanager
    def processing(self, message: Message) -> Iterator[None]:
        """Makes the message's span the current span within the ``with`` statement."""
        span = self._spans.get((message.topic_name(), message.message_id()))
        if span is None:
            yield
        else:
            with use_span(span, end_on_exit=False):
                yield

    def _end_all(
        self, keys: Iterable[tuple[str, MessageId]], error: PulsarException | None = None, ack_type: str = ""
    ) -> None:
        for key in keys:
            span = self._spans.pop(key, None)
            if span is not None:
                _end(span, error, ack_type)

    def _end_positions(self, topic: str, message_ids: Iterable[MessageId], ack_type: str) -> None:
        positions: set[Position] = {message_id.position for message_id in message_ids}
        self._end_all(
            [key for key in self._spans if key[0] == topic and key[1].position in positions],
            ack_type=ack_type,
        )

    def on_acknowledge(
        self, consumer: Consumer, message_id: MessageId, error: PulsarException | None
    ) -> None:
        self._end_all([(consumer.topic(), message_id)], error, "acknowledge")

    def on_acknowledge_cumulative(
        self, consumer: Consumer, message_id: MessageId, error: PulsarException | None
    ) -> None:
        topic = consumer.topic()
        keys = [key for key in self._spans if key[0] == topic and key[1] <= message_id]
        self._end_all(keys, error, "cumulative_acknowledge")

    def on_negative_acks_send(self, consumer: Consumer, message_ids: Iterable[MessageId]) -> None:
        self._end_positions(consumer.topic(), message_ids, "negative_acknowledge")

    def on_ack_timeout_send(self, consumer: Consumer, message_ids: Iterable[MessageId]) -> None:
        self._end_positions(consumer.topic(), message_ids, "ack_timeout")

    def close(self) -> None:
        self._end_all(list(self._spans))


class _Metrics(Observer):
    """The metric instruments, which all clients share. Most instruments are observable: they read totals when
    metrics are collected, and cost nothing per message.
    """

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter(_SCOPE)
        self._parts: dict[Producer | Consumer, _Labels] = {}
        self._ended: dict[tuple[str, _Labels], int] = {}
        """Totals of producers and consumers that were closed, by metric and labels."""
        for name, (unit, text, total) in _SENT.items():
            meter.create_observable_counter(name, [self._totals(name, Producer, total)], unit, text)
        for name, (unit, text, total) in _RECEIVED.items():
            meter.create_observable_counter(name, [self._totals(name, Consumer, total)], unit, text)
        for name, (unit, text, of_producer) in _PRODUCERS.items():
            meter.create_observable_up_down_counter(name, [self._present(Producer, of_producer)], unit, text)
        for name, (unit, text, of_consumer) in _CONSUMERS.items():
            meter.create_observable_up_down_counter(name, [self._present(Consumer, of_consumer)], unit, text)
        self._duration = meter.create_histogram(
            "pulsar.client.producer.message.send.duration",
            "s",
            "Time from sending a message to its receipt, with its time in a batch",
        )
        self._answers = meter.create_histogram(
            "pulsar.client.producer.rpc.send.duration",
            "s",
            "Time from sending a message to the broker to its receipt, without its time in a batch",
        )
        self._lookups = meter.create_histogram("pulsar.client.lookup.duration", "s", "Duration of lookups")
        opened, closed = "The number of {} sessions opened", "The number of {} sessions closed"
        self._opened, self._closed = (
            {
                kind: meter.create_counter(f"pulsar.client.{kind}.{what}", "{session}", text.format(kind))
                for kind in ("producer", "consumer")
            }
            for what, text in (("opened", opened), ("closed", closed))
        )
        self._connections = {
            what: meter.create_counter(f"pulsar.client.connection.{what}", "{connection}", text)
            for what, text in (
                ("opened", "Connections that were opened"),
                ("closed", "Connections that were closed"),
                ("failed", "Connections that could not be opened"),
            )
        }

    def _totals(
        self, name: str, kind: type[Producer | Consumer], total: str
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Returns a callback that reports a total of all producers or consumers, open or closed. The callback
        runs on another thread, so it copies the totals in one step.

        :param name: the name of the metric
        :param total: the name of the total among the statistics of a producer or a consumer
        """

        def read(_options: CallbackOptions) -> Iterable[Observation]:
            sums = {labels: value for (of, labels), value in self._ended.copy().items() if of == name}
            for part, labels in self._parts.copy().items():
                if isinstance(part, kind):
                    sums[labels] = sums.get(labels, 0) + _total(part, total)
            return [Observation(value, dict(labels)) for labels, value in sums.items()]

        return read

    def _present(
        self, kind: type[Kind], value: Callable[[Kind], int]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Returns a callback that reports the present value of each open producer or consumer."""

        def read(_options: CallbackOptions) -> Iterable[Observation]:
            sums: dict[_Labels, int] = {}
            for part, labels in self._parts.copy().items():
                if isinstance(part, kind):
                    sums[labels] = sums.get(labels, 0) + value(part)
            return [Observation(found, dict(labels)) for labels, found in sums.items()]

        return read

    def opened(self, part: Attached) -> None:
        if not isinstance(part, Producer | Consumer):
            return
        self._parts[part] = labels = _labels(part)
        self._opened[_kind(part)].add(1, dict(labels))

    def closed(self, part: Attached) -> None:
        if not isinstance(part, Producer | Consumer):
            return
        labels = self._parts[part]
        for name, (_, _, total) in (_SENT if isinstance(part, Producer) else _RECEIVED).items():
            key = (name, labels)
            self._ended[key] = self._ended.get(key, 0) + _total(part, total)
        del self._parts[part]
        self._closed[_kind(part)].add(1, dict(labels))

    def answered(self, part: Attached, seconds: float, count: int, *, stored: bool) -> None:
        labels = {**dict(_topic_labels(part.topic())), "pulsar.response.status": _status(stored)}
        for _ in range(count):
            self._answers.record(seconds, labels)

    def connected(self) -> None:
        self._connections["opened"].add(1)

    def disconnected(self) -> None:
        self._connections["closed"].add(1)

    def not_connected(self) -> None:
        self._connections["failed"].add(1)

    def looked_up(self, kind: str, seconds: float, *, answered: bool) -> None:
        labels = {
            "pulsar.lookup.transport-type": "binary",
            "pulsar.lookup.type": kind,
            "pulsar.response.status": _status(answered),
        }
        self._lookups.record(seconds, labels)

    def sent(self, topic: str, seconds: float, *, succeeded: bool) -> None:
        """Records the seconds from the ``send`` call of a message to its receipt or failure."""
        labels = {**dict(_topic_labels(topic)), "pulsar.response.status": _status(succeeded)}
        self._duration.record(seconds, labels)


def _status(succeeded: bool) -> str:
    return "success" if succeeded else "failed"


def _kind(part: Producer | Consumer) -> str:
    return "producer" if isinstance(part, Producer) else "consumer"


def _total(part: Producer | Consumer, name: str) -> int:
    found: int = getattr(part.intervals.totals(), name)
    return found


@lru_cache(1000)
def _topic_labels(topic: str) -> _Labels:
    name = TopicName.parse(topic)
    labels = {
        "pulsar.tenant": name.tenant,
        "pulsar.namespace": name.namespace,
        "pulsar.topic": str(name.base),
    }
    if name.partition_index >= 0:
        labels["pulsar.partition.index"] = str(name.partition_index)
    return tuple(labels.items())


def _labels(part: Producer | Consumer) -> _Labels:
    labels = _topic_labels(part.topic())
    if isinstance(part, Consumer):
        labels += (("pulsar.subscription", part.subscription_name()),)
    return labels
