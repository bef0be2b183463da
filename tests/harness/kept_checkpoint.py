"""A kept checkpoint of Spark: an archive that was killed in mid-stream, and the data directory it reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kept_data
from process_groups import kill, processes_of
from server import Server

NAME = "spark-checkpoint-1.tar.gz"
TOPIC = "persistent://public/default/archived"
MESSAGES = 160
_ROWS_PER_BATCH = 20
_SECONDS = 300.0


def write(server: Server) -> None:
    """Publishes, and kills an archive with its JVM and workers while it writes the fourth batch."""
    client = kept_data.connected(server)
    try:
        client.subscribe(TOPIC, "keeps").close()
        publish(client, 0, MESSAGES)
    finally:
        client.close()
    process = _archive(server, None)
    until = time.monotonic() + _SECONDS
    while not (server.folder / "archive" / "_checkpoint" / "offsets" / "3").exists():
        assert process.poll() is None, "the archive ended before it was killed"
        assert time.monotonic() < until
        time.sleep(0.01)
    for each in processes_of(process.pid):
        kill(each)
    process.wait()


def publish(client: Any, first: int, count: int) -> None:
    """Publishes messages ``first`` and on, whose content is their number."""
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(first, first + count):
        producer.send(b"%d" % number)
    producer.close()


def archive(server: Server, source: Path | None = None) -> None:
    """Runs the archive to its end, with the package in ``source`` instead of the present one."""
    process = _archive(server, source)
    assert process.stderr is not None
    told = process.stderr.read()
    assert process.wait(_SECONDS) == 0, told


def _archive(server: Server, source: Path | None) -> subprocess.Popen[str]:
    config = server.folder / "archive.json"
    sections = {
        "cluster": {"service_url": server.url, "admin_url": server.http_url},
        "spark": {"master": "local[1]"},
        "archive": {"topic": TOPIC, "path": "archive", "max_rows_per_batch": _ROWS_PER_BATCH},
    }
    config.write_text(json.dumps(sections))
    command = [sys.executable, "-m", "magnetar", "pipeline", "archive", "--config", str(config)]
    environment = dict(os.environ) if source is None else {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.Popen(
        command, cwd=server.folder, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    )
