"""Spark standalone and Spark Connect as servers of their own; slow: only with MAGNETAR_SPARK_MASTERS=1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import Server
from spark_masters import connect_server, standalone_cluster
from spark_world import Cluster

from magnetar.client import MessageId

COUNT = 3000

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("MAGNETAR_SPARK_MASTERS") != "1", reason="MAGNETAR_SPARK_MASTERS is not 1"
    ),
    pytest.mark.timeout(1800),
]
SOURCE = Path(__file__).parents[2] / "src"
HARNESS = Path(__file__).parents[1] / "harness"


@pytest.fixture(params=["spark", "sc"])
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    start = {"spark": standalone_cluster, "sc": connect_server}[request.param]
    with start(tmp_path) as url:
        yield url


def environment() -> dict[str, str]:
    """Of a driver: this interpreter, and this source."""
    path = os.pathsep.join([str(SOURCE), str(HARNESS)])
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


def test_topics_are_written_read_and_streamed(master: str, tmp_path: Path, topic: str) -> None:
    server = Server(tmp_path, {})
    server.start()
    try:
        cluster = Cluster(server.url, server.http_url)
        for each in (topic, f"{topic}-copy"):
            cluster.client.subscribe(each, "keep").close()
        conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings = {
            "master": master,
            "conf": {} if master.startswith("sc:") else {**conf, "spark.executorEnv.PYTHONPATH": str(SOURCE)},
            "count": COUNT,
            "options": cluster.options(),
            "first": topic,
            "second": f"{topic}-copy",
            "checkpoint": str(tmp_path / "checkpoint"),
        }
        script = Path(__file__).with_name("master_process.py")
        command = [sys.executable, str(script), json.dumps(settings)]
        ended = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=600, check=False
        )
        assert "DONE" in ended.stdout, ended.stderr[-3000:]
        reader = cluster.client.create_reader(f"{topic}-copy", MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(int(reader.read_next(120_000).data()))
        cluster.close()
    finally:
        server.close()
    assert sorted(found) == list(range(COUNT))


def test_pipelines_do_on_it_what_they_do_locally(master: str) -> None:
    """All of them, by the tests that they have."""
    tests = Path(__file__).with_name("test_pipelines_whole.py")
    more = {"MAGNETAR_PIPELINE_MASTER": master, "MAGNETAR_PIPELINE_KILLS": "0"}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(tests)],
        env=environment() | more,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:]
