"""Metrics as scrapers read them: each is described, in the form and as small as was asked for."""

from __future__ import annotations

import gzip
import re
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pulsar
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain
from server import Server


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Iterator[Server]:
    server = start_server(
        exposeConsumerLevelMetricsInPrometheus="true", exposeProducerLevelMetricsInPrometheus="true"
    )
    client = pulsar.Client(server.url)
    consumer = client.subscribe("described", "s")
    producer = client.create_producer("described")
    producer.send(b"x")
    consumer.acknowledge(consumer.receive(10_000))
    yield server
    client.close()


def scraped(server: Server, **headers: str) -> tuple[bytes, dict[str, str]]:
    asked = urllib.request.Request(
        f"{server.http_url}/metrics",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    with urllib.request.urlopen(asked) as answer:
        return answer.read(), dict(answer.headers)


def test_all_of_them_say_what_they_mean(served: Server) -> None:
    text, headers = scraped(served)
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert list(plain(text.decode()))
    lines = text.decode().splitlines()
    typed = [(before, line) for before, line in pairwise(lines) if line.startswith("# TYPE ")]
    assert len(typed) > 150
    for before, line in typed:
        assert before.startswith(f"# HELP {line.split(' ')[2]} "), line


def test_open_metrics_are_those_of_the_standard(served: Server) -> None:
    text, headers = scraped(served, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith(b"# EOF\n")
    families = {family.name: family for family in open_metrics(text.decode())}
    assert families["pulsar_broker_lookup_answers"].type == "counter"
    assert [name for name, family in families.items() if not family.documentation] == []


_ELSEWHERE = {
    "magnetar_bookkeeper_writable_bookies",
    "magnetar_replication_lag_seconds",
    "magnetar_replication_unreplicated_total",
    "pulsar_authentication_failures_total",
    "pulsar_lb_bundles_split_total",
    "pulsar_lb_unload_bundle_total",
    "pulsar_replication_backlog",
    "pulsar_replication_disconnected_count",
}
"""What only brokers of a cluster, those that authenticate clients, or those that replicate topics print."""


def test_the_dashboard_and_the_alerts_ask_for_what_is_printed(served: Server) -> None:
    text, _ = scraped(served)
    printed = set(re.findall(r"^(?:# TYPE )?(\w+)[{ ]", text.decode(), re.MULTILINE))
    monitoring = Path(__file__).parents[2] / "deploy" / "monitoring"
    asked = set()
    for file in ("dashboard.json", "alerts.yaml"):
        asked |= set(re.findall(r"\b((?:pulsar|magnetar)_\w+)", (monitoring / file).read_text()))
    assert asked - printed == _ELSEWHERE


@pytest.mark.parametrize("offered", ["gzip", "deflate, GZIP;q=0.5"])
def test_they_are_compressed_where_that_is_wanted(served: Server, offered: str) -> None:
    text, headers = scraped(served, Accept_Encoding=offered)
    assert headers["Content-Encoding"] == "gzip"
    assert b"# TYPE pulsar_version_info gauge\n" in gzip.decompress(text)


@pytest.mark.parametrize("offered", ["identity", "gzip;q=0", "br"])
def test_and_not_where_it_is_not(served: Server, offered: str) -> None:
    text, headers = scraped(served, Accept_Encoding=offered)
    assert "Content-Encoding" not in headers
    assert b"# TYPE pulsar_version_info gauge\n" in text
