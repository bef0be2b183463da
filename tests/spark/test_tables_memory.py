"""The pipelines ``table`` and ``table-maintain`` as commands: how much memory they take at most.

Only in ``make soak``. ``MAGNETAR_TABLE_LARGE`` (200) says how many messages of 5 MB there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pipeline_process import PipelineProcess, Pipelines, Result
from server import Server
from table_readers import duck

LARGE = int(os.environ.get("MAGNETAR_TABLE_LARGE", "200"))
PARTITIONS = 1000
MESSAGES = 200_000
KEYS = 50_000
"""Of the topic with messages that have no key: every second one."""
SIZE = 5_000_000
MOST = 1_000_000_000
"""Bytes of the driver's Python, and of each worker's."""

pytestmark = [
    pytest.mark.skipif("MAGNETAR_PIPELINE_MESSAGES" not in os.environ, reason="set by make soak"),
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"), {})
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def large(server: Server) -> str:
    """A topic with messages of 5 MB, which cannot be compressed, and eight keys."""
    topic = "persistent://public/default/large"
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(topic, "keep").close()
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(LARGE):
        producer.send(os.urandom(SIZE), partition_key=f"k{number % 8}")
    client.close()
    return topic


@pytest.fixture(scope="module")
def many(server: Server) -> str:
    """A topic with 1,000 partitions."""
    topic = "persistent://public/default/many"
    assert server.ask("PUT", "/admin/v2/persistent/public/default/many/partitions", str(PARTITIONS))[0] == 204
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(topic, "keep").close()
    producer = client.create_producer(topic, block_if_queue_full=True, batching_max_messages=100)
    for number in range(MESSAGES):
        producer.send_async(b"x" * 100, lambda result, _: None, partition_key=f"k{number}")
    producer.flush()
    client.close()
    return topic


@pytest.fixture(scope="module")
def half_keyless(server: Server) -> str:
    """A topic with 1,000 partitions; every second message has no key, which an upserted table cannot hold."""
    topic = "persistent://public/default/half"
    assert server.ask("PUT", "/admin/v2/persistent/public/default/half/partitions", str(PARTITIONS))[0] == 204
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(topic, "keep").close()
    options: dict[str, Any] = {"block_if_queue_full": True, "batching_max_messages": 100}
    # One producer for each kind: a batch has the key of its first message.
    keyed, keyless = (client.create_producer(topic, **options) for _ in range(2))
    for number in range(MESSAGES // 2):
        keyed.send_async(b"x" * 100, lambda result, _: None, partition_key=f"k{number % KEYS}")
        keyless.send_async(b"y" * 100, lambda result, _: None)
    for producer in (keyed, keyless):
        producer.flush()
    client.close()
    return topic


def ran(server: Server, folder: Path, name: str, **section: Any) -> Result:
    addresses = {"service_url": server.url, "admin_url": server.http_url}
    result = PipelineProcess(
        name, Pipelines(folder, addresses, "local[2]", 1).configured(name, section)
    ).end()
    assert result.code == 0, result.report.get("error")
    shown = {kind: f"{size / 1e6:,.0f} MB" for kind, size in sorted(result.peaks.items())}
    print(f"{name} {folder.name}: {result.whole_seconds:.0f} s, {shown}")
    return result


def check(result: Result) -> None:
    assert {kind for kind in ("driver", "worker") if result.peaks[kind] > MOST} == set()


def rows(result: Result, which: int = 0) -> int:
    """:param which: 0: the table of the topic, 1: its quarantine table"""
    lines = [row[2] for row in result.report["tables"][1]["rows"] if row[1] == "DuckDB"]
    return duck(lines[which].replace("*", "__key", 1)).num_rows


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_messages_of_five_megabytes(server: Server, large: str, tmp_path: Path, form: str, mode: str) -> None:
    section = {"topics": [large], "path": str(tmp_path / "tables"), "format": form}
    wanted = LARGE if mode == "append" else 8
    settings = {**section, "mode": mode, "buckets": 2, "max_rows_per_batch": LARGE // 2}
    result = ran(server, tmp_path, "table", **settings)
    maintained = ran(server, tmp_path, "table-maintain", **section, file_mb=100_000)
    assert rows(result) == wanted
    for each in (result, maintained):
        check(each)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_topic_and_a_table_with_a_thousand_partitions(
    server: Server, many: str, tmp_path: Path, form: str
) -> None:
    section = {"topics": [many], "path": str(tmp_path / "tables"), "format": form}
    settings = {**section, "partition_by": [f"bucket({PARTITIONS}, __key)"]}
    result = ran(server, tmp_path, "table", **settings, max_rows_per_batch=MESSAGES // 2)
    maintained = ran(server, tmp_path, "table-maintain", **section)
    assert rows(result) == MESSAGES
    for each in (result, maintained):
        check(each)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_upserts_and_quarantine_of_a_thousand_partitions(
    server: Server, half_keyless: str, tmp_path: Path, form: str
) -> None:
    section = {"topics": [half_keyless], "path": str(tmp_path / "tables"), "format": form}
    settings = {**section, "mode": "upsert", "on_error": "quarantine", "buckets": PARTITIONS}
    result = ran(server, tmp_path, "table", **settings, max_rows_per_batch=MESSAGES // 2)
    assert (rows(result), rows(result, 1)) == (KEYS, MESSAGES // 2)
    check(result)
