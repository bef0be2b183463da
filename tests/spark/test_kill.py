"""Queries that are killed at random moments, and a broker that is: what arrives is what went in, once.

``MAGNETAR_SPARK_KILLS`` says how often (5), ``MAGNETAR_FIRST_SEED`` replays.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process_groups import arguments, kill, processes_of
from server import MINIATURE, Server
from spark_world import Cluster

from magnetar.client import InitialPosition, MessageId

KILLS = int(os.environ.get("MAGNETAR_SPARK_KILLS", "5"))
SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "1"))
FILES = 8
"""More of them for each life, and a batch for each."""
ROWS = 300
"""In each file."""
TRIES = 10 * KILLS + 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Ledgers of seven entries, gone as soon as they are read."""
    running = Server(tmp_path, dict(MINIATURE))
    running.start()
    try:
        yield running
    finally:
        running.close()


class Query:
    """One life of the query's process, with the JVM and the Python workers that it starts."""

    def __init__(self, settings: dict[str, Any], log: Path) -> None:
        script = Path(__file__).with_name("query_process.py")
        path = os.pathsep.join([str(script.parent), str(script.parents[1] / "harness")])
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(script), json.dumps(settings)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        self.running = threading.Event()
        self._done = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "RUNNING":
                self.running.set()
            self._done = self._done or line.strip() == "DONE"
        self.running.set()

    def kill_worker(self, random_: random.Random) -> None:
        """Kills one of the processes that run tasks and commits, if there is one."""
        workers = [
            pid for pid in processes_of(self._process.pid) if pid != self._process.pid and _is_worker(pid)
        ]
        if workers:
            kill(random_.choice(workers))

    def kill(self) -> None:
        """Kills all of it."""
        for pid in processes_of(self._process.pid):
            kill(pid)
        self.end()

    def end(self) -> bool:
        """Waits for the end; whether all was done."""
        self._process.wait(240)
        for pid in processes_of(self._process.pid):
            kill(pid)
        self._reader.join()
        return self._done


def _is_worker(pid: int) -> bool:
    command = arguments(pid)
    return any(b"pyspark" in each for each in command) and b"java" not in command[0]


def drain(cluster: Cluster, topic: str, found: dict[MessageId, str]) -> None:
    """Takes and acknowledges all that is there, so that its ledgers are trimmed."""
    consumer = cluster.client.subscribe(topic, "check", initial_position=InitialPosition.Earliest)
    last = consumer.get_last_message_id()
    while last.entry_id() >= 0 and not (found and _is_at_end(max(found), last)):
        message = consumer.receive(30_000)
        key = message.data().decode().split(":")[0]
        assert message.partition_key() == key
        found[message.message_id()] = key
        consumer.acknowledge_cumulative(message)
    consumer.close()


def _is_at_end(read: MessageId, last: MessageId) -> bool:
    whole = read.batch_index() == read.batch_size() - 1 or read.batch_size() == 0
    return read.position >= last.position and whole


def add_input(folder: Path, life: int) -> list[str]:
    """Files with new ids."""
    added = []
    for number in range(FILES):
        ids = [f"{life}.{number}.{row}" for row in range(ROWS)]
        draft = folder.with_name("draft")
        draft.write_text("\n".join(ids) + "\n")
        draft.rename(folder / f"{life:05}-{number}.txt")
        added += ids
    return added


@pytest.mark.timeout(600 + 120 * KILLS)
def test_every_row_is_written_once_whatever_is_killed(server: Server, tmp_path: Path, topic: str) -> None:
    random_ = random.Random(SEED)
    folder = tmp_path / "input"
    folder.mkdir()
    expected: Counter[str] = Counter()
    cluster = Cluster(server.url, server.http_url)
    found: dict[MessageId, str] = {}
    drain(cluster, topic, found)
    kills: Counter[str] = Counter()
    for life in range(TRIES):
        if kills.total() < KILLS:
            expected.update(add_input(folder, life))
        settings = {
            "cores": random_.randrange(1, 4),
            "partitions": random_.randrange(1, 5),
            "folder": str(tmp_path / "spark"),
            "source": "files",
            "input": str(folder),
            "topic": topic,
            "checkpoint": str(tmp_path / "checkpoint"),
            "write": cluster.options(**{"pulsar.producer.batchingMaxMessages": "20"}),
        }
        query = Query(settings, tmp_path / "query.log")
        try:
            query.running.wait(200)
            if kills.total() < KILLS:
                time.sleep(random_.uniform(0, 10))
                victim = random_.choice(["driver", "driver", "worker", "broker"])
                kills[victim] += 1
                if victim == "driver":
                    query.kill()
                elif victim == "worker":
                    query.kill_worker(random_)
                else:
                    server.restart(kill=True)
            done = query.end()
        except BaseException:
            query.kill()
            raise
        drain(cluster, topic, found)
        assert len(set(found.values())) == len(found), f"seed {SEED}, {kills}"
        if done and kills.total() >= KILLS:
            break
    else:
        pytest.fail(f"the query never ended:\n{(tmp_path / 'query.log').read_text()[-3000:]}")
    ledgers = cluster.admin.topic_internal_stats(topic)["ledgers"]
    cluster.close()
    assert Counter(found.values()) == expected, f"seed {SEED}, {kills}"
    assert int(ledgers[0]["ledgerId"]) > 0
    print(f"{kills}, {len(ledgers)} ledgers are left")
