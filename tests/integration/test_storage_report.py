"""``magnetar storage report`` tells where the space is: as text, JSON and a page with plots."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree
from array import array
from pathlib import Path
from typing import Any

import pytest
from server import Server

from magnetar.io.real import real_io
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.orphans import SET_ASIDE_ROOT
from magnetar.server.embedded_stores import EmbeddedStores

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
    assert "and 1 smaller topics" in words

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


async def make_orphans(server: Server, found_ms: list[int]) -> list[int]:
    """Two ledgers that no record names; answers their ids.

    :param found_ms: when an earlier start has found the first ones
    """
    stores = EmbeddedStores(real_io(asyncio.get_running_loop(), server.folder / "data"), EmbeddedSettings())
    made = []
    try:
        await stores.open()
        for _ in range(2):
            writer = await stores.ledgers.create(Quorums(), custom_metadata("public/default/persistent/lost"))
            writer.append(b"onetwo", array("q", (0, 3)), array("q", (3, 6)), 0, 2)
            await writer.close()
            made.append(writer.ledger_id)
        for ledger_id, found in zip(made, found_ms, strict=False):
            owner = "topic public/default/persistent/lost"
            note = {"foundMs": found, "madeMs": found, "owner": owner, "entries": 2, "bytes": 6}
            await stores.metadata.put(f"{SET_ASIDE_ROOT}/{ledger_id}", json.dumps(note).encode())
    finally:
        await stores.close()
    return made


def test_orphaned_ledgers_are_listed_and_kept_for_their_retention(start_server) -> None:  # type: ignore[no-untyped-def]
    server: Server = start_server()
    server.stop()
    now = time.time_ns() // 1_000_000
    old, new = asyncio.run(make_orphans(server, [now - 73 * 3_600_000]))
    server.start()
    try:
        deadline = time.monotonic() + 30
        while not (listed := figures(server)["orphanedLedgers"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        [orphan] = listed
        assert (orphan["ledger"], orphan["entries"], orphan["bytes"]) == (new, 2, 6)
        assert orphan["owner"] == "topic public/default/persistent/lost"
        assert orphan["deletedMs"] - orphan["foundMs"] == 72 * 3_600_000
        assert orphan["foundMs"] >= now
        text = report(server)
        assert "1 ledgers that no metadata record refers to: 2 entries, 6 B" in text
        assert (
            f"{new}, created for topic public/default/persistent/lost: 2 entries, 6 B, deleted after" in text
        )
        metrics = server.ask("GET", "/metrics")[1].decode()
        assert re.search(r"^magnetar_storage_orphaned_ledgers{.*} 1$", metrics, re.MULTILINE)
        warnings = [
            line for line in server.log.splitlines() if "WARNING" in line and "orphaned ledger" in line
        ]
        deleted, set_aside = warnings
        assert "deleted an orphaned ledger" in deleted
        assert f"ledger={old}" in deleted
        assert "set an orphaned ledger aside" in set_aside
        assert f"ledger={new}" in set_aside
        found_first = orphan["foundMs"]
        server.restart(kill=False)
        while not (listed := figures(server)["orphanedLedgers"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [(each["ledger"], each["foundMs"]) for each in listed] == [(new, found_first)]
    finally:
        server.close()


@pytest.mark.parametrize("hours", [0, 23])
def test_orphaned_ledgers_are_kept_for_a_day_at_least(tmp_path: Path, hours: int) -> None:
    config = tmp_path / "standalone.conf"
    config.write_text(f"magnetarOrphanedLedgerRetentionHours={hours}\n", encoding="utf-8")
    command = [sys.executable, "-m", "magnetar", "standalone", "--config", str(config)]
    command += ["--data-dir", str(tmp_path / "data"), "--binary-port", "0", "--http-port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert "magnetarOrphanedLedgerRetentionHours" in refused.stderr
    assert not (tmp_path / "data").exists()


def test_no_broker_is_an_error_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "magnetar", "storage", "report", "--admin-url", "http://127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("magnetar: no report from http://127.0.0.1:1")
    assert "Traceback" not in ended.stderr
