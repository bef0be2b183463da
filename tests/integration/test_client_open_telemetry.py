"""Metrics and traces of clients for OpenTelemetry, with its SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span
from server import Server

from magnetar.client import (
    Client,
    Consumer,
    ConsumerType,
    DeadLetterPolicy,
    InitialPosition,
    Message,
    Result,
    aio,
)
from magnetar.client.exceptions import ConnectError, PulsarException, Timeout
from magnetar.client.open_telemetry import OpenTelemetry

WAIT = 20_000
EARLIEST = {"initial_position": InitialPosition.Earliest}


class Recorded:
    """What a program would export."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader])
        self._spans = InMemorySpanExporter()
        self._tracers = TracerProvider()
        self._tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.telemetry = OpenTelemetry(self._meters, self._tracers)
        self.tracer = self._tracers.get_tracer("test")

    def metrics(self) -> dict[str, dict[tuple[tuple[str, object], ...], float]]:
        """Values, or counts of histograms, by name and labels; all topics together."""
        found: dict[str, dict[tuple[tuple[str, object], ...], float]] = {}
        data = self._reader.get_metrics_data()
        assert data is not None
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    values = found.setdefault(metric.name.removeprefix("pulsar.client."), {})
                    for point in metric.data.data_points:
                        count = point.count if isinstance(point, HistogramDataPoint) else point.value
                        labels = _labels(point.attributes or {})
                        values[labels] = values.get(labels, 0) + count
        return found

    def spans(self, begin: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(begin)]

    def close(self) -> None:
        self._meters.shutdown()
        self._tracers.shutdown()


def _labels(attributes: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    hidden = ("pulsar.tenant", "pulsar.namespace", "pulsar.topic", "pulsar.lookup.transport-type")
    return tuple(
        (name.removeprefix("pulsar."), value)
        for name, value in sorted(attributes.items())
        if name not in hidden
    )


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    made = Recorded()
    yield made
    made.close()


OK = (("response.status", "success"),)
SUBSCRIBED = (("subscription", "s"),)


def test_metrics(server: Server, topic: str, recorded: Recorded) -> None:
    with Client(server.url, open_telemetry=recorded.telemetry) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=20,
            dead_letter_policy=DeadLetterPolicy(1, initial_subscription_name="dead"),
            **EARLIEST,
        )
        for index in range(4):
            producer.send(b"%d" % index)
        with pytest.raises(PulsarException):
            producer.send(b"x", sequence_id=-1)
        messages = [consumer.receive(WAIT) for _ in range(4)]
        for message in messages[:3]:
            consumer.acknowledge(message)
        consumer.negative_acknowledge(messages[3])
        consumer.negative_acknowledge(consumer.receive(WAIT))
        dead = client.subscribe(f"{topic}-s-DLQ", "dead")
        assert dead.receive(WAIT).data() == b"3"
        found = recorded.metrics()
        # The dead letter is in a batch, with its properties.
        assert (size := found["producer.message.send.size"][()]) > 5
        assert found["producer.message.send.duration"] == {OK: 5, (("response.status", "failed"),): 1}
        assert found["producer.rpc.send.duration"] == {OK: 5}
        assert found["producer.message.pending.count"][()] == 0
        assert found["producer.message.pending.size"][()] == 0
        assert found["producer.opened"] == {(): 2}
        assert found["consumer.opened"][SUBSCRIBED] == 1
        assert found["consumer.message.received.count"][SUBSCRIBED] == 5
        assert found["consumer.message.received.size"][SUBSCRIBED] > 5
        assert found["consumer.message.ack"][SUBSCRIBED] == 4
        assert found["consumer.message.nack"][SUBSCRIBED] == 2
        assert found["consumer.message.dlq"][SUBSCRIBED] == 1
        assert found["consumer.message.ack.timeout"][SUBSCRIBED] == 0
        assert found["consumer.receive_queue.count"][SUBSCRIBED] == 0
        assert found["consumer.receive_queue.size"][SUBSCRIBED] == 0
        assert found["connection.opened"] == {(): 1}
        assert found["lookup.duration"][(("lookup.type", "topic"), *OK)] >= 3
        assert found["lookup.duration"][(("lookup.type", "metadata"), *OK)] >= 3
    found = recorded.metrics()
    # What has ended still counts.
    assert found["producer.message.send.size"][()] == size
    assert found["consumer.message.received.count"][SUBSCRIBED] == 5
    assert found["producer.closed"] == {(): 2}
    assert found["consumer.closed"][SUBSCRIBED] == 1
    assert found["connection.closed"] == {(): 1}
    with (
        Client(
            "pulsar://127.0.0.1:1", operation_timeout_seconds=0.1, open_telemetry=recorded.telemetry
        ) as client,
        pytest.raises(ConnectError),
    ):
        client.create_producer(topic)
    assert recorded.metrics()["connection.failed"][()] >= 1


def test_a_message_without_a_receipt(
    start_server: Callable[..., Server], topic: str, recorded: Recorded
) -> None:
    server = start_server()
    with Client(server.url, open_telemetry=recorded.telemetry) as client:
        producer = client.create_producer(topic, send_timeout_millis=100)
        server.kill()
        with pytest.raises(Timeout):
            producer.send(b"x")
        failed = {(("response.status", "failed"),): 1}
        found = recorded.metrics()
        assert found["producer.rpc.send.duration"] == found["producer.message.send.duration"] == failed
        server.start()


def test_a_trace_from_sender_to_receiver(server: Server, topic: str, recorded: Recorded) -> None:
    async def work() -> None:
        async with aio.Client(server.url, open_telemetry=recorded.telemetry) as client:
            consumer = await client.subscribe(topic, "s", **EARLIEST)
            producer = await client.create_producer(topic)
            with recorded.tracer.start_as_current_span("program"):
                message_id = await producer.send(b"x", properties={"own": "1"})
            message = await consumer.receive(WAIT)
            assert message.properties().keys() == {"own", "traceparent"}
            assert not recorded.spans("process")
            await consumer.acknowledge(message)
            [program], [send], [process] = (recorded.spans(name) for name in ("program", "send", "process"))
            assert send.name == f"send {topic}"
            assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
            assert send.parent is not None
            assert process.parent is not None
            assert send.parent.span_id == program.context.span_id
            assert process.parent.span_id == send.context.span_id
            assert send.status.status_code is process.status.status_code is StatusCode.OK
            assert send.attributes == {
                "messaging.system": "pulsar",
                "messaging.destination.name": topic,
                "messaging.operation.name": "send",
                "messaging.message.id": str(message_id),
            }
            assert process.attributes == {
                "messaging.system": "pulsar",
                "messaging.destination.name": topic,
                "messaging.destination.subscription.name": "s",
                "messaging.operation.name": "process",
                "messaging.message.id": str(message_id),
                "messaging.pulsar.acknowledgment.type": "acknowledge",
            }
            context = recorded.telemetry.context_of(message)
            assert get_current_span(context).get_span_context().span_id == send.context.span_id

    asyncio.run(work())


def test_ends_of_spans(server: Server, topic: str, recorded: Recorded) -> None:
    async def work() -> None:
        async with aio.Client(server.url, open_telemetry=recorded.telemetry) as client:
            producer = await client.create_producer(topic)
            for index in range(4):
                await producer.send(b"%d" % index)
            with pytest.raises(PulsarException):
                await producer.send(b"x", sequence_id=-1)
            assert recorded.spans("send")[-1].status.status_code is StatusCode.ERROR
            consumer = await client.subscribe(topic, "s", **EARLIEST)
            messages = [await consumer.receive(WAIT) for _ in range(4)]
            await consumer.acknowledge_cumulative(messages[1])
            assert _ack_types(recorded) == ["cumulative_acknowledge"] * 2
            await consumer.close()
            assert len(recorded.spans("process")) == 4
            shared = await client.subscribe(
                topic,
                "s",
                consumer_type=ConsumerType.Shared,
                negative_ack_redelivery_delay_ms=20,
                unacked_messages_timeout_ms=100,
            )
            shared.negative_acknowledge(await shared.receive(WAIT))
            for _ in range(3):
                await shared.receive(WAIT)
            assert set(_ack_types(recorded)[4:]) == {"negative_acknowledge", "ack_timeout"}

    asyncio.run(work())


def _ack_types(recorded: Recorded) -> list[object]:
    name = "messaging.pulsar.acknowledgment.type"
    return [(span.attributes or {}).get(name) for span in recorded.spans("process")]


@pytest.mark.parametrize("blocked", [False, True])
def test_threads_keep_the_context(server: Server, topic: str, recorded: Recorded, blocked: bool) -> None:
    handled = threading.Event()

    def listener(consumer: Consumer, message: Message) -> None:
        with recorded.tracer.start_as_current_span("handled"):
            consumer.acknowledge(message)
        if message.data() == b"4":
            handled.set()

    results: list[Result] = []
    limit = {"max_pending_messages": 1} if blocked else {}
    with Client(server.url, open_telemetry=recorded.telemetry) as client:
        client.subscribe(topic, "s", message_listener=listener)
        producer = client.create_producer(topic, block_if_queue_full=True, **limit)
        for index in range(5):
            with recorded.tracer.start_as_current_span(f"program {index}"):
                producer.send_async(b"%d" % index, lambda result, _id: results.append(result))
        producer.flush()
        assert handled.wait(WAIT / 1000)
    programs = {span.context.span_id for span in recorded.spans("program")}
    sends = recorded.spans("send")
    assert {span.parent.span_id for span in sends if span.parent is not None} == programs
    processes = {span.context.span_id for span in recorded.spans("process")}
    assert len(processes) == 5
    assert {span.parent.span_id for span in recorded.spans("handled") if span.parent is not None} == processes


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    program = (
        "import sys, magnetar.client.aio, magnetar.client.blocking; print('opentelemetry' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
