"""Two brokers of ours on Apache ZooKeeper and BookKeeper: one is busy, and the other one joins."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess

NAMESPACE = "public/load"
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(24)]
PATIENCE = 60.0
QUICK: dict[str, int | str] = {
    "statsUpdateFrequencyInSecs": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 500,
    "magnetarLoadSheddingIntervalSeconds": 1,
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder",
    "minUnloadMessage": 1,
    "maxUnloadPercentage": "0.5",
}


@pytest.fixture
def brokers(cluster: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    found = [BrokerProcess(tmp_path / f"broker{number}", cluster, **QUICK) for number in range(2)]
    yield found
    for process in found:
        process.close()


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> object:
    status, answer = broker.ask(method, f"/admin/v2/{path}", None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer else None


def report(broker: BrokerProcess) -> dict[str, dict[str, object]]:
    found = ask(broker, "GET", "broker-stats/load-report")
    assert isinstance(found, dict)
    return found


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


class Publishing:
    """Publishes to all topics until it is ended; what it was told of each message it remembers."""

    def __init__(self, client: pulsar.Client) -> None:
        self._producers = [client.create_producer(topic, send_timeout_millis=30_000) for topic in TOPICS]
        self._ending = Event()
        self.sent = 0
        self.errors: list[str] = []
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.02):
            for producer in self._producers:
                producer.send_async(b"x" * 100, self._told)

    def _told(self, result: pulsar.Result, _id: object) -> None:
        if result == pulsar.Result.Ok:
            self.sent += 1
        else:
            self.errors.append(str(result))

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        for producer in self._producers:
            producer.flush()


def explained(broker: BrokerProcess, bundle: str) -> str:
    command = [sys.executable, "-m", "magnetar.cli.magnetar", "explain-placement", bundle]
    told = subprocess.run(
        [*command, "--admin-url", broker.http_url], check=True, capture_output=True, text=True, timeout=60
    )
    return told.stdout


def test_a_broker_that_joins_is_given_bundles_under_load_and_says_why(brokers: list[BrokerProcess]) -> None:
    first, second = brokers
    first.start()
    ask(first, "PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 8}})
    client = pulsar.Client(first.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    publishing = Publishing(client)
    try:
        until(lambda: len(_bundles(first)) == 8, "the first one tells of its bundles")
        assert report(first)["cpu"].keys() == {"usage", "limit"}
        second.start()
        until(lambda: len(_bundles(second)) >= 2, "the second one serves some of them")
        moved = sorted(_bundles(second))[0]
        _, metrics = second.ask("GET", "/metrics")
        assert b"pulsar_lb_cpu_usage{" in metrics
        text = explained(second, moved)
        own = second.http_url.removeprefix("http://")
        assert text.startswith(f"{moved}: {own}")
        assert "UniformLoadShedder" in text or "moved for load of late" in text
    finally:
        publishing.end()
        client.close()
    assert not publishing.errors
    assert publishing.sent > 0


def _bundles(broker: BrokerProcess) -> set[str]:
    return {name for name in report(broker)["lastStats"] if name.startswith(f"{NAMESPACE}/")}
