"""Figures sent to an OpenTelemetry collector by a broker that its environment told to."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from otlp_collector import Collector, collecting
from prometheus_client.parser import text_string_to_metric_families
from server import Server

from magnetar.client import InitialPosition
from magnetar.client.blocking import Client

TOPIC = "persistent://public/default/told"
PARTITION = "persistent://public/default/parts-partition-1"
OF_TOPIC = {
    "pulsar.domain": "persistent",
    "pulsar.tenant": "public",
    "pulsar.namespace": "public/default",
    "pulsar.topic": TOPIC,
}
SAME = {
    "pulsar.broker.topic.subscription.count": "pulsar_subscriptions_count",
    "pulsar.broker.topic.producer.count": "pulsar_producers_count",
    "pulsar.broker.topic.consumer.count": "pulsar_consumers_count",
    "pulsar.broker.topic.message.incoming.count": "pulsar_in_messages_total",
    "pulsar.broker.topic.message.incoming.size": "pulsar_in_bytes_total",
    "pulsar.broker.topic.storage.size": "pulsar_storage_size",
    "pulsar.broker.topic.storage.logical.size": "pulsar_storage_logical_size",
    "pulsar.broker.topic.storage.backlog.size": "pulsar_storage_backlog_size",
    "pulsar.broker.topic.storage.backlog.quota.limit.size": "pulsar_storage_backlog_quota_limit",
    "pulsar.broker.topic.storage.backlog.quota.limit.time": "pulsar_storage_backlog_quota_limit_time",
    "pulsar.broker.topic.publish.rate.limit.count": "pulsar_publish_rate_limit_times",
}
OF_SUBSCRIPTION = {
    "pulsar.broker.topic.message.outgoing.count": "pulsar_out_messages_total",
    "pulsar.broker.topic.message.outgoing.size": "pulsar_out_bytes_total",
}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server], collector: Collector) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_SDK_DISABLED", "false")
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20secret-of-mine")
        patch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1000")
        server = start_server(
            clusterName="told",
            exposeConsumerLevelMetricsInPrometheus="true",
            transactionCoordinatorEnabled="true",
        )
    client = pulsar.Client(server.url)
    assert server.ask("PUT", "/admin/v2/persistent/public/default/parts/partitions", "2")[0] == 204
    consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared, consumer_name="who")
    producer = client.create_producer(TOPIC, producer_name="from")
    parts = client.create_producer("parts")
    for number in range(10):
        producer.send(b"x" * number)
        parts.send(b"y")
    for _ in range(4):
        consumer.acknowledge(consumer.receive(10_000))
    yield server
    client.close()


def key(
    name: str, attributes: dict[str, str] | dict[str, str | int]
) -> tuple[str, frozenset[tuple[str, str | int]]]:
    return name, frozenset(attributes.items())


def scraped(server: Server) -> dict[tuple[str, str, str], float]:
    """By name, topic and subscription, of whole topics and subscriptions."""
    with urllib.request.urlopen(f"{server.http_url}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (each.name, each.labels["topic"], each.labels.get("subscription", "")): each.value
        for family in families
        for each in family.samples
        if "topic" in each.labels and "consumer_name" not in each.labels
    }


def test_values_are_those_that_metrics_print(served: Server, collector: Collector) -> None:
    acknowledged = key(
        "pulsar.broker.consumer.message.ack.count",
        {
            **OF_TOPIC,
            "pulsar.subscription.name": "s",
            "pulsar.subscription.type": "Shared",
            "pulsar.consumer.name": "who",
            "pulsar.consumer.id": 0,
        },
    )
    outgoing = key("pulsar.broker.topic.message.outgoing.count", OF_TOPIC)
    collector.wait(lambda: collector.points.get(acknowledged) == 4 and collector.points[outgoing] == 10)
    points, printed = collector.points, scraped(served)
    for name, of_metrics in SAME.items():
        assert points[key(name, OF_TOPIC)] == printed[of_metrics, TOPIC, ""], name
    for name, of_metrics in OF_SUBSCRIPTION.items():
        assert points[key(name, OF_TOPIC)] == printed[of_metrics, TOPIC, "s"], name
    assert points[key("pulsar.broker.topic.message.incoming.count", OF_TOPIC)] == 10
    unacknowledged = (acknowledged[0].replace("ack", "unack"), acknowledged[1])
    assert points[unacknowledged] == 6 == printed["pulsar_subscription_unacked_messages", TOPIC, "s"]
    by_producer = {
        **OF_TOPIC,
        "pulsar.producer.name": "from",
        "pulsar.producer.id": 0,
        "pulsar.producer.access_mode": "shared",
    }
    assert points[key("pulsar.broker.producer.message.incoming.count", by_producer)] == 10


def test_transactions_of_coordinators_topics_and_subscriptions(served: Server, collector: Collector) -> None:
    topic = f"{TOPIC}-in-transactions"
    with Client(served.url) as client:
        consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        producer = client.create_producer(topic)
        for _ in range(3):
            producer.send(b"to acknowledge")
            with client.transaction() as committed:
                producer.send(b"committed", transaction=committed)
                consumer.acknowledge(consumer.receive(10_000), transaction=committed)
        aborted, kept = client.transaction().begin(), client.transaction().begin()
        for each in (aborted, kept):
            producer.send(b"never seen", transaction=each)
        aborted.abort()
        status = "pulsar.transaction.status"
        for name, own, wanted in (
            (
                "pulsar.broker.transaction.coordinator.transaction.count",
                {"pulsar.transaction.coordinator.id": 0},
                {"active": 1, "committed": 3, "aborted": 1, "created": 5, "timeout": 0},
            ),
            (
                "pulsar.broker.topic.transaction.count",
                {**OF_TOPIC, "pulsar.topic": topic},
                {"active": 1, "committed": 3, "aborted": 1},
            ),
            (
                "pulsar.broker.transaction.pending.ack.store.transaction.count",
                {
                    **OF_TOPIC,
                    "pulsar.topic": topic,
                    "pulsar.subscription.name": "s",
                    "pulsar.transaction.pending.ack.store.operation.status": "success",
                },
                {"committed": 3, "aborted": 0},
            ),
        ):
            points = {key(name, {**own, status: which}): count for which, count in wanted.items()}
            collector.wait(lambda points=points: points.items() <= collector.points.items())
        appended = key(
            "pulsar.broker.transaction.coordinator.append.log.count", {"pulsar.transaction.coordinator.id": 0}
        )
        assert collector.points[appended] >= 5 + 3 + 3 + 1 + 1
        kept.abort()


def test_lookups_are_told_by_how_they_ended(served: Server, collector: Collector) -> None:
    name = "pulsar.broker.request.topic.lookup.duration"
    answered = key(name, {"pulsar.lookup.response": "broker"})
    status, text = served.ask("GET", "/metrics")
    assert status == 200
    found = re.search(r"^pulsar_broker_lookup_answers_total\{[^}]*\} (\S+)$", text.decode(), re.MULTILINE)
    assert found is not None
    assert float(found[1]) >= 4
    collector.wait(lambda: collector.points.get(answered, 0) >= float(found[1]))
    assert served.ask("GET", "/lookup/v2/topic/persistent/public/nowhere/t")[0] == 404
    failed = key(name, {"pulsar.lookup.response": "failure"})
    collector.wait(lambda: collector.points.get(failed, 0) >= 1)


def test_partitions_have_the_name_of_their_topic_and_an_index(served: Server, collector: Collector) -> None:
    whole = {**OF_TOPIC, "pulsar.topic": "persistent://public/default/parts"}
    names = [
        key("pulsar.broker.topic.message.incoming.count", {**whole, "pulsar.partition.index": index})
        for index in (0, 1)
    ]
    collector.wait(lambda: sum(collector.points.get(name, 0) for name in names) == 10)
    printed = scraped(served)
    assert collector.points[names[1]] == printed["pulsar_in_messages_total", PARTITION, ""]


def test_requests_say_whose_they_are_and_of_what_kind(served: Server, collector: Collector) -> None:
    collector.wait(lambda: bool(collector.requests))
    heads = collector.heads[-1]
    assert heads["path"] == "/v1/metrics"
    assert heads["Content-Type"] == "application/x-protobuf"
    assert heads["Authorization"] == "Bearer secret-of-mine"
    (found,) = collector.requests[-1].resource_metrics
    said = {pair.key: pair.value.string_value for pair in found.resource.attributes}
    assert said.pop("service.instance.id").endswith(served.http_url.rpartition(":")[2])
    assert said.pop("service.version")
    assert said == {
        "service.name": "pulsar-broker",
        "pulsar.cluster": "told",
        "deployment.environment": "test",
    }
    metrics = collector.metrics
    assert metrics["pulsar.broker.topic.message.incoming.size"].unit == "By"
    assert metrics["pulsar.broker.topic.message.incoming.size"].sum.is_monotonic
    assert not metrics["pulsar.broker.topic.storage.size"].sum.is_monotonic
    assert metrics["pulsar.broker.topic.storage.backlog.age"].HasField("gauge")
    point = metrics["pulsar.broker.topic.message.incoming.size"].sum.data_points[0]
    assert 0 < point.start_time_unix_nano < point.time_unix_nano


def test_what_changes_nothing_is_named_and_no_secret_is(served: Server) -> None:
    assert "environment variable ignored variable=OTEL_BSP_SCHEDULE_DELAY" in served.log
    assert "secret-of-mine" not in served.log


def counted(server: Server, name: str) -> float:
    status, text = server.ask("GET", "/metrics")
    assert status == 200
    found = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text.decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_a_collector_that_refuses_is_told_of_once_and_counted(served: Server, collector: Collector) -> None:
    collector.status = 503
    try:
        before = len(collector.heads)
        collector.wait(lambda: len(collector.heads) > before + 3)
        assert counted(served, "magnetar_telemetry_failed") >= 2
    finally:
        collector.status = 200
    taken = len(collector.requests)
    collector.wait(lambda: len(collector.requests) > taken + 6)
    collector.rejected = 5
    try:
        before = len(collector.heads)
        collector.wait(lambda: len(collector.heads) > before + 6)
    finally:
        collector.rejected = 0
    assert counted(served, "magnetar_telemetry_delivered") >= 1
    assert served.log.count("cannot deliver telemetry to the collector") == 2
    assert "status 503" in served.log
    assert "5 data points were rejected: no room" in served.log


@pytest.fixture
def seldom(start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Server]:
    """Starts a server that sends to an address once an hour, and gives a request half a second."""

    def start(url: str) -> Server:
        monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
        return start_server()

    return start


def test_an_orderly_end_sends_what_was_counted(seldom: Callable[[str], Server]) -> None:
    with collecting() as collector:
        server = seldom(collector.url)
        client = pulsar.Client(server.url)
        producer = client.create_producer(TOPIC)
        for _ in range(7):
            producer.send(b"x")
        client.close()
        assert collector.points == {}
        server.stop()
        assert collector.points[key("pulsar.broker.topic.message.incoming.count", OF_TOPIC)] == 7


def test_a_collector_that_does_not_answer_holds_up_no_end(seldom: Callable[[str], Server]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = seldom(f"http://127.0.0.1:{silent.getsockname()[1]}")
        server.stop()
        silent.settimeout(5)
        asked, _ = silent.accept()
        asked.close()
    assert "cannot deliver telemetry to the collector" in server.log


def test_what_cannot_be_done_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported" in refusal(tmp_path)


def test_a_broker_without_the_extra_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the same name that cannot be loaded stands before the one that is installed."""
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
    assert "install the extra otlp: pip install '.[otlp]' in a clone" in refusal(tmp_path / "data")


def refusal(folder: Path) -> str:
    ports = ["--binary-port", "0", "--http-port", "0"]
    command = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(folder), *ports]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    return done.stderr
