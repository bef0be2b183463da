"""Pipelines check the cluster and this machine before they start Spark, and report problems in one line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.client import Client

pytest.importorskip("pyspark")
NO_JAVA = {"JAVA_HOME": "/nonexistent"}
"""With this, no pipeline can start Spark."""


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def pipeline(
    folder: Path,
    server: Server,
    name: str,
    *flags: str,
    cluster: dict[str, str] | None = None,
    **section: object,
) -> subprocess.CompletedProcess[str]:
    addresses = {"service_url": server.url, "admin_url": server.http_url, **(cluster or {})}
    config = folder / "pipeline.json"
    config.write_text(json.dumps({"cluster": addresses, name.replace("-", "_"): section}))
    return subprocess.run(
        [sys.executable, "-m", "magnetar", "pipeline", name, "--config", str(config), *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **NO_JAVA},
    )


def line_of(ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the only line with an error."""
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("magnetar: ")]
    assert "Traceback" not in ended.stderr
    assert "starting Spark" not in ended.stderr
    return line


SECTIONS: dict[str, dict[str, object]] = {
    "archive": {"path": "lake"},
    "dlq-report": {},
    "dlq-redrive": {"work": "work"},
    "window-aggregate": {"path": "windows"},
}


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
@pytest.mark.parametrize("name", SECTIONS)
def test_a_missing_topic(
    server: Server, topic: str, tmp_path: Path, name: str, flags: tuple[str, ...]
) -> None:
    missing = f"{topic}-mistyped"
    ended = pipeline(tmp_path, server, name, *flags, topic=missing, **SECTIONS[name])
    assert line_of(ended).startswith(f"magnetar: {name}: topic {missing} does not exist at service_url ")
    assert missing not in AdminClient(server.http_url).topics("public/default")


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_missing_topic_of_a_table(server: Server, topic: str, tmp_path: Path, form: str) -> None:
    missing = f"{topic}-mistyped"
    ended = pipeline(tmp_path, server, "table", topics=[missing], path="tables", format=form)
    assert line_of(ended).startswith(f"magnetar: table: topic {missing} does not exist at service_url ")
    ended = pipeline(tmp_path, server, "table", topics=["public/mistyped"], path="tables", format=form)
    assert "namespace public/mistyped at admin_url" in line_of(ended)


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ({"topics": ["{topic}"]}, ["{topic}"]),
        ({"topics": ["{topic}", "public/default"]}, ["{topic}", "{topic}-more"]),
        ({"topics": [], "pattern": "{topic}-m.*"}, ["{topic}-more"]),
    ],
)
def test_topics_of_tables(
    server: Server, topic: str, tmp_path: Path, section: dict[str, object], wanted: list[str]
) -> None:
    with Client(server.url) as client:
        for name in (topic, f"{topic}-more"):
            client.create_producer(name).send(b"x")
    given = json.loads(json.dumps(section).replace("{topic}", topic))
    ended = pipeline(tmp_path, server, "table", "--dry-run", path="tables", **given)
    assert ended.returncode == 0, ended
    found = [line.split()[3] for line in ended.stdout.splitlines() if topic in line]
    assert found == [each.replace("{topic}", topic) for each in wanted]
    assert "does not exist yet" in ended.stdout
    assert "__" not in ended.stdout
    given["format"] = "iceberg"
    assert pipeline(tmp_path, server, "table", "--dry-run", path="tables", **given).stdout == ended.stdout
    assert not (tmp_path / "tables").exists(), "a dry run changes nothing"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"mode": "overwrite"}, "table.mode: must be one of append, upsert, not 'overwrite'"),
        ({"format": "hudi"}, "table.format: must be one of delta, iceberg, not 'hudi'"),
        ({"on_error": "skip"}, "table.on_error: must be one of stop, quarantine, not 'skip'"),
        ({"mode": "upsert", "partition_by": ["a"]}, "table: partition_by requires mode = 'append'"),
        ({"on_error": "quarantine", "options": {"mode": "FAILFAST"}}, "table: options: mode has no effect"),
        ({"trigger": "soon"}, "table: trigger must be a time such as"),
        ({"partition_by": ["week(a)"]}, "table: partition_by must have elements like"),
        ({"path": "gs://bucket/tables"}, "table.path: must be s3://BUCKET/PATH, or a path"),
        (
            {"path": "s3://lake/t", "format": "iceberg"},
            "table: catalog is required for Iceberg tables at s3://",
        ),
        ({"storage": {"secret": "x"}, "path": "s3://lake/t"}, "table: storage has no option 'secret'"),
        ({"catalog": "catalog.db"}, "table: catalog requires format = 'iceberg'"),
        (
            {"catalog": "https://user:word@host/", "format": "iceberg"},
            "table.catalog: must be a file that the driver can access, or the address of a REST catalog",
        ),
        (
            {"catalog_options": {"token": "x"}, "format": "iceberg"},
            "table: catalog_options requires a REST catalog",
        ),
        (
            {"catalog": "http://host", "catalog_options": {"uri": "x"}, "format": "iceberg"},
            "table: catalog_options has no option 'uri'; use warehouse, prefix, token",
        ),
        ({"orphan_age": "71 min"}, """table: orphan_age must be at least "72 min", not '71 min'"""),
        ({"orphan_age": "3 days"}, "table: orphan_age must be a time such as"),
        (
            {"orphan_days": 5.0},
            'table.orphan_days: this key does not exist any more; write orphan_age = "5.0 d"',
        ),
    ],
)
def test_tables_that_are_refused(
    server: Server, topic: str, tmp_path: Path, section: dict[str, object], words: str
) -> None:
    ended = pipeline(tmp_path, server, "table", **{"topics": [topic], "path": "tables", **section})
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not (tmp_path / "tables").exists()


def test_a_missing_side_of_a_mirror(server: Server, topic: str, tmp_path: Path) -> None:
    with Client(server.url) as client:
        client.create_producer(topic).send(b"x")
    ended = pipeline(tmp_path, server, "mirror-verify", left=topic, right=f"{topic}-mistyped")
    assert f"topic {topic}-mistyped does not exist" in line_of(ended)
    ended = pipeline(tmp_path, server, "mirror-verify", left="public/default", right="public/mistyped")
    assert "namespace public/mistyped at admin_url" in line_of(ended)


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
@pytest.mark.parametrize(("key", "scheme"), [("admin_url", "http"), ("service_url", "pulsar")])
def test_a_broker_that_is_not_there(
    server: Server,
    topic: str,
    tmp_path: Path,
    unused_port: int,
    flags: tuple[str, ...],
    key: str,
    scheme: str,
) -> None:
    away = {key: f"{scheme}://127.0.0.1:{unused_port}"}
    ended = pipeline(tmp_path, server, "generate", *flags, cluster=away, topic=topic)
    line = line_of(ended)
    assert f"127.0.0.1:{unused_port}" in line
    assert key in line
    assert line.endswith("check the section [cluster], and that the broker runs")


def test_no_java(server: Server, topic: str, tmp_path: Path) -> None:
    ended = pipeline(tmp_path, server, "generate", topic=topic)
    assert ended.returncode == 1
    assert "Spark requires Java 17, but JAVA_HOME=/nonexistent has no bin/java" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_capacity_is_reported_without_java(server: Server, topic: str, tmp_path: Path) -> None:
    with Client(server.url) as client:
        client.create_producer(topic).send(b"x")
    ended = pipeline(tmp_path, server, "capacity-report", history=str(tmp_path / "history.jsonl"))
    assert ended.returncode == 0, ended
    [page] = (tmp_path / "reports").glob("*.json")
    assert [topic] == [row[0] for row in json.loads(page.read_text())["tables"][1]["rows"] if row[0] == topic]


def test_a_dry_run_that_reads_nothing_needs_no_java(server: Server, topic: str, tmp_path: Path) -> None:
    ended = pipeline(tmp_path, server, "generate", "--dry-run", topic=topic, messages=5)
    assert (ended.returncode, ended.stdout) == (0, f"would publish 5 orders to {topic}\n")
