"""The cluster that ``make cluster`` starts: used through its proxy, also when a broker is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest

TOOL = Path(__file__).parents[2] / "tools" / "cluster.py"
TOPICS = 24


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Its folder, and what was said when it had started."""
    folder = tmp_path_factory.mktemp("made") / "cluster"
    said = run("up", str(folder), "--binary-port", "0", "--http-port", "0")
    pids = processes(folder)
    assert len(pids) == 8
    try:
        yield folder, said
    finally:
        run("down", str(folder))
    assert not folder.exists()
    assert not [name for name, pid in pids.items() if lives(pid)]


def processes(folder: Path) -> dict[str, int]:
    """Their ids; of bookies, which have one name, by place."""
    known = json.loads((folder / "cluster.json").read_text())
    return {f"{number} {each['name']}": each["pid"] for number, each in enumerate(known)}


def lives(pid: int) -> bool:
    """Whoever has ended may wait for somebody who asks how."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def url(said: str, line: str, scheme: str) -> str:
    found = re.search(rf"^{line}: .*?({scheme}://\S+)", said, re.MULTILINE)
    assert found is not None, said
    return found[1]


def asked(address: str, path: str) -> object:
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return json.loads(body)
    finally:
        connection.close()


def test_topics_of_all_brokers_are_used_through_the_proxy_and_go_on_when_one_is_lost(
    cluster: tuple[Path, str],
) -> None:
    folder, said = cluster
    web = url(said, "through the proxy", "http")
    assert len(asked(web, "/admin/v2/brokers/lab")) == 3  # type: ignore[arg-type]
    names = [f"persistent://public/default/made-{number}" for number in range(TOPICS)]
    client = pulsar.Client(url(said, "through the proxy", "pulsar"), operation_timeout_seconds=60)
    try:
        producers = [client.create_producer(name, send_timeout_millis=90_000) for name in names]
        consumers = [client.subscribe(name, "s") for name in names]
        for producer in producers:
            producer.send(b"before")
        told = asked(web, "/proxy-stats/connections")
        assert isinstance(told, list)
        assert len({each["brokerAddress"] for each in told}) == 3
        for name in names:
            # The owner answers, whichever broker the proxy asks first.
            stats = asked(web, f"/admin/v2/{name.replace('://', '/')}/stats")
            assert isinstance(stats, dict)
            assert len(stats["publishers"]) == 1
        lost = next(pid for name, pid in processes(folder).items() if name.endswith("broker 2"))
        os.kill(lost, signal.SIGKILL)
        for producer in producers:
            producer.send(b"after")
        for consumer in consumers:
            received = set()
            while received != {b"before", b"after"}:
                message = consumer.receive(60_000)
                received.add(message.data())
                consumer.acknowledge(message)
    finally:
        client.close()


def test_another_one_is_not_started_in_the_same_folder(cluster: tuple[Path, str]) -> None:
    again = subprocess.run(
        [sys.executable, str(TOOL), "up", str(cluster[0])], capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert "a cluster runs" in again.stderr
