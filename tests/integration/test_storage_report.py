"""``magnetar storage report`` tells where the space is: as text, JSON and a page with plots."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")


def report(server: Server, *arguments: str) -> str:
    command = [sys.executable, "-m", "magnetar", "storage", "report", "--admin-url", server.http_url]
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def figures(server: Server, *arguments: str) -> dict[str, Any]:
    found = json.loads(report(server, "--json", *arguments))
    assert isinstance(found, dict)
    return found


@pytest.fixture
def server(start_server) -> Server:  # type: ignore[no-untyped-def]
    found: Server = start_server(
        managedLedgerMaxEntriesPerLedger=10,
        magnetarMinLedgerRolloverSeconds=0,
        defaultRetentionTimeInMinutes=60,
        defaultRetentionSizeInMB=100,
        statsUpdateFrequencyInSecs=1,
    )
    return found


def test_the_report(server: Server, tmp_path: Path) -> None:
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    large, small = "persistent://public/default/large", "persistent://public/default/small"
    consumers = {topic: client.subscribe(topic, "s") for topic in (large, small)}
    for topic, count in ((large, 60), (small, 20)):
        producer = client.create_producer(topic, batching_enabled=False)
        for _ in range(count):
            producer.send(bytes(5000))
    for _ in range(40):
        message = consumers[large].receive(10_000)
    consumers[large].acknowledge_cumulative(message)
    deadline = time.monotonic() + 20
    found = figures(server)
    while found["topics"][0]["backlogBytes"] > 110_000 and time.monotonic() < deadline:
        found = figures(server)
    first, second = found["topics"][:2]
    assert (first["topic"], second["topic"]) == (large, small)
    assert 300_000 < first["storedBytes"] < 310_000
    assert 100_000 < first["backlogBytes"] < 103_000
    parts = ("backlogBytes", "retainedBytes", "openLedgerBytes", "reclaimableBytes")
    assert sum(first[part] for part in parts) == first["storedBytes"]
    assert first["retainedBytes"] > 100_000
    assert found["notLoaded"] == 0
    assert second["backlogBytes"] == second["storedBytes"] > 100_000
    assert first["oldestClosedMs"] > 1_700_000_000_000
    assert first["forecastBytes"] >= first["backlogBytes"]
    namespace = next(each for each in found["namespaces"] if each["namespace"] == "public/default")
    assert namespace["topics"] == 2
    assert namespace["storedBytes"] == first["storedBytes"] + second["storedBytes"]
    store, disk = found["store"], found["disk"]
    assert store["wantedBytes"] > namespace["storedBytes"]
    assert store["storedBytes"] >= store["wantedBytes"]
    assert disk["state"] == "room"
    assert 0 < disk["freeBytes"] < disk["totalBytes"]
    assert server.ask("PUT", "/admin/v2/namespaces/public/empty")[0] == 204
    assert figures(server, "--namespace", "public/empty")["topics"] == []

    words = report(server, "--top", "1")
    assert re.search(rf"^{re.escape(large)}\s+29\d KiB\s+98\.\d KiB", words, re.MULTILINE), words
    assert small not in words
    assert "and 1 smaller ones" in words

    page = tmp_path / "storage.html"
    report(server, "--html", str(page))
    shapes = re.findall(r"<svg.*?</svg>", page.read_text())
    assert len(shapes) == 4
    for shape in shapes:
        xml.etree.ElementTree.fromstring(shape)
    assert large in page.read_text()

    status, metrics = server.ask("GET", "/metrics")
    assert status == 200
    for name in ("disk_free_bytes", "stored_bytes", "compaction_reclaimed_bytes", "disk_state"):
        assert re.search(rf"^magnetar_storage_{name}{{.*}} \d", metrics.decode(), re.MULTILINE), name
    client.close()


def test_topics_that_are_not_loaded_are_counted(start_server) -> None:  # type: ignore[no-untyped-def]
    server: Server = start_server(brokerDeleteInactiveTopicsEnabled=False)
    for name in ("used", "idle", "asleep"):
        assert server.ask("PUT", f"/admin/v2/persistent/public/default/{name}")[0] == 204
    server.restart(kill=False)
    assert server.ask("GET", "/admin/v2/persistent/public/default/used/stats")[0] == 200
    found = figures(server, "--namespace", "public/default")
    assert [row["topic"] for row in found["topics"]] == ["persistent://public/default/used"]
    assert found["notLoaded"] == 2
    assert "2 topics are not loaded" in report(server, "--namespace", "public/default")


def test_no_broker_is_an_error_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "magnetar", "storage", "report", "--admin-url", "http://127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("magnetar: no report from http://127.0.0.1:1")
    assert "Traceback" not in ended.stderr
