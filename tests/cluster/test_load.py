"""Busy and idle brokers on Apache ZooKeeper and BookKeeper: of ours, and Apache's own beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import count, pairwise
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import pulsar
import pytest
from apache_broker import ApacheBroker
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from polling import until

Broker = BrokerProcess | ApacheBroker
NAMES = [f"t{number}" for number in range(24)]
"""They lie in eight bundles of eight."""
PATIENCE = 60.0
_TRIES = 8
_ARRIVES_SECONDS = 3.0
_numbers = count()
_LONG = "MAGNETAR_APACHE_LEADS" in os.environ
UNIFORM = "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder"
QUICK: dict[str, int | str] = {
    "statsUpdateFrequencyInSecs": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 500,
    "magnetarLoadSheddingIntervalSeconds": 1,
    "loadBalancerLoadSheddingStrategy": UNIFORM,
    "minUnloadMessage": 1,
    "maxUnloadPercentage": "0.5",
}


@pytest.fixture
def brokers(cluster: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    found = [BrokerProcess(tmp_path / f"broker{number}", cluster, **QUICK) for number in range(2)]
    yield found
    for process in found:
        process.close()


def ask(broker: Broker, method: str, path: str, body: object = None) -> object:
    status, answer = broker.ask(method, f"/admin/v2/{path}", None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer else None


def report(broker: Broker) -> dict[str, dict[str, object]]:
    found = ask(broker, "GET", "broker-stats/load-report")
    assert isinstance(found, dict)
    return found


class Publishing:
    """Publishes to all topics until it is ended; what it was told of each message it remembers."""

    def __init__(self, client: pulsar.Client, namespace: str) -> None:
        topics = [f"persistent://{namespace}/{name}" for name in NAMES]
        self._producers = [client.create_producer(topic, send_timeout_millis=30_000) for topic in topics]
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


def client_of(broker: Broker) -> pulsar.Client:
    return pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def bundles(broker: Broker, namespace: str) -> set[str]:
    return {name for name in report(broker)["lastStats"] if name.startswith(f"{namespace}/")}


def http_id(broker: Broker) -> str:
    if isinstance(broker, ApacheBroker):
        return f"127.0.0.1:{broker.http_port}"
    return broker.http_url.removeprefix("http://")


def test_a_broker_that_joins_is_given_bundles_under_load_and_says_why(brokers: list[BrokerProcess]) -> None:
    namespace = "public/joins"
    first, second = brokers
    first.start()
    ask(first, "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 8}})
    client = client_of(first)
    publishing = Publishing(client, namespace)
    try:
        until(
            lambda: len(bundles(first, namespace)) == 8,
            "the first one tells of its bundles",
            every=1.0,
            seconds=PATIENCE,
        )
        assert report(first)["cpu"].keys() == {"usage", "limit"}
        second.start()
        until(
            lambda: len(bundles(second, namespace)) >= 2,
            "the second one serves some of them",
            every=1.0,
            seconds=PATIENCE,
        )
        moved = sorted(bundles(second, namespace))[0]
        _, metrics = second.ask("GET", "/metrics")
        assert b"pulsar_lb_cpu_usage{" in metrics
        text = explained(second, moved)
        assert text.startswith(f"{moved}: {http_id(second)}")
        assert "UniformLoadShedder" in text or "moved recently because of load" in text
    finally:
        publishing.end()
        client.close()
    assert not publishing.errors
    assert publishing.sent > 0


@pytest.fixture
def theirs(cluster: BookKeeperServers, tmp_path: Path) -> Iterator[ApacheBroker]:
    """One of Apache's, which tells its load as often as ours do."""
    settings = {key: value for key, value in QUICK.items() if not key.startswith("magnetar")}
    broker = ApacheBroker(
        tmp_path / "apache",
        cluster,
        **settings,
        loadBalancerReportUpdateThresholdPercentage=1,
        loadBalancerSheddingIntervalMinutes=1,
    )
    yield broker
    broker.close()


def relieved(leading: Broker, busy: Broker, idle: Broker, begin: Callable[[], None], seconds: float) -> None:
    """The busy one has all bundles and a publisher; from ``begin`` on some of them go to the idle one."""
    namespace = f"public/mixed{next(_numbers)}"
    ask(leading, "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 8}})
    client = client_of(busy)
    publishing = Publishing(client, namespace)
    try:
        move_to(busy, leading, namespace)
        begin()
        until(lambda: len(bundles(idle, namespace)) >= 2, "the idle one has some of them", seconds, every=1.0)
    finally:
        publishing.end()
        client.close()
    assert not publishing.errors
    assert publishing.sent > 0


def move_to(busy: Broker, leading: Broker, namespace: str) -> None:
    """What the busy one does not serve is unloaded, to go there; then it tells that it has all."""
    found = ask(leading, "GET", f"namespaces/{namespace}/bundles")
    assert isinstance(found, dict)
    every = {f"{namespace}/{lower}_{upper}" for lower, upper in pairwise(found["boundaries"])}
    for _ in range(_TRIES):
        elsewhere = {
            bundle_of(leading, namespace, name) for name in NAMES if not serves(busy, namespace, name)
        }
        for bundle in sorted(elsewhere):
            unload(leading, f"/admin/v2/namespaces/{bundle}/unload?destinationBroker={http_id(busy)}")
        if not elsewhere:
            break
        time.sleep(_ARRIVES_SECONDS)
    until(lambda: bundles(busy, namespace) == every, "the busy one has all", every=1.0, seconds=PATIENCE)


def serves(broker: Broker, namespace: str, name: str) -> bool:
    """Whether it says so itself; reports tell some time later."""
    status, answer = broker.ask("GET", f"/lookup/v2/topic/persistent/{namespace}/{name}")
    return status == 200 and json.loads(answer)["brokerUrl"] == broker.url


def bundle_of(broker: Broker, namespace: str, name: str) -> str:
    _, answer = broker.ask("GET", f"/lookup/v2/topic/persistent/{namespace}/{name}/bundle")
    return f"{namespace}/{answer.decode()}"


def unload(leading: Broker, path: str) -> None:
    """Through whatever redirects; what nobody serves is on its way already."""
    url = f"http://{http_id(leading)}{path}"
    for _ in range(5):
        connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
        try:
            connection.request("PUT", url.partition(urlsplit(url).netloc)[2])
            response = connection.getresponse()
            response.read()
        finally:
            connection.close()
        if response.status != 307:
            return
        url = response.headers["Location"]


def test_our_leader_relieves_a_busy_broker_of_apaches(
    brokers: list[BrokerProcess], theirs: ApacheBroker
) -> None:
    ours, _ = brokers
    ours.start()
    ask(ours, "POST", "brokers/configuration/loadBalancerSheddingEnabled/false")
    theirs.start()

    def begin() -> None:
        ask(ours, "POST", "brokers/configuration/loadBalancerSheddingEnabled/true")

    try:
        relieved(ours, theirs, ours, begin, PATIENCE)
    finally:
        ask(ours, "DELETE", "brokers/configuration/loadBalancerSheddingEnabled")


@pytest.mark.skipif(not _LONG, reason="Apache's leader looks once a minute; tools/soak does so")
def test_apaches_leader_relieves_a_busy_broker_of_ours(
    brokers: list[BrokerProcess], theirs: ApacheBroker
) -> None:
    ours, _ = brokers
    theirs.start()
    ours.start()
    relieved(theirs, ours, theirs, lambda: None, 200)
