"""Three brokers of ours on Apache ZooKeeper and BookKeeper, with the official client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import count
from urllib.parse import urlsplit

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess

_numbers = count()
PATIENCE = 60.0


@pytest.fixture(scope="module")
def started(
    started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[BrokerProcess]]:
    with ExitStack() as ends:
        found = []
        for number in range(3):
            process = BrokerProcess(tmp_path_factory.mktemp(f"broker{number}"), started_cluster)
            ends.callback(process.close)
            found.append(process)
        yield found


@pytest.fixture
def brokers(cluster: BookKeeperServers, started: list[BrokerProcess]) -> list[BrokerProcess]:
    """Three that serve; started again where a test has ended one."""
    for process in started:
        if not process.runs:
            process.start()
    until(lambda: len(get(started[0], "brokers/lab")) == 3, "three brokers know each other")
    return started


@pytest.fixture
def namespace(brokers: list[BrokerProcess]) -> str:
    """A new one with eight bundles, which nobody owns."""
    name = f"public/many{next(_numbers)}"
    ask(brokers[0], "PUT", f"namespaces/{name}", {"bundles": {"numBundles": 8}})
    return name


@pytest.fixture
def client(brokers: list[BrokerProcess]) -> Iterator[pulsar.Client]:
    client = client_of(*brokers)
    yield client
    client.close()


def client_of(*brokers: BrokerProcess) -> pulsar.Client:
    hosts = ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
    return pulsar.Client(
        f"pulsar://{hosts}",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        operation_timeout_seconds=60,
    )


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> object:
    status, answer = broker.ask(method, f"/admin/v2/{path}", None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer else None


def get(broker: BrokerProcess, path: str) -> list[str]:
    found = ask(broker, "GET", path)
    assert isinstance(found, list)
    return found


def looked_up(broker: BrokerProcess, topic: str) -> tuple[str, int]:
    """The URL of whoever serves a topic, as a broker tells by HTTP; and the number of redirects."""
    path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
    url, redirects = f"{broker.http_url}{path}", 0
    while True:
        connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        try:
            connection.request("GET", url.partition(urlsplit(url).netloc)[2])
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 307:
            assert response.status == 200, body
            return json.loads(body)["brokerUrl"], redirects
        url = response.headers["Location"]
        redirects += 1


def test_all_brokers_tell_the_same_owner_within_three_redirects(
    brokers: list[BrokerProcess], namespace: str
) -> None:
    owners = set()
    for number in range(24):
        topic = f"persistent://{namespace}/t{number}"
        found = [looked_up(broker, topic) for broker in brokers]
        assert len({url for url, _ in found}) == 1
        assert max(redirects for _, redirects in found) <= 2
        # Whoever asks first is sent about, and then everybody knows.
        assert [redirects for _, redirects in found[1:]] == [0, 0]
        owners.add(found[0][0])
    assert owners == {broker.url for broker in brokers}


def test_topics_of_all_brokers_are_reached_through_any(brokers: list[BrokerProcess], namespace: str) -> None:
    topics = [f"persistent://{namespace}/t{number}" for number in range(12)]
    publishing, consuming = client_of(brokers[0]), client_of(brokers[2])
    try:
        consumers = [consuming.subscribe(topic, "s") for topic in topics]
        for number, topic in enumerate(topics):
            producer = publishing.create_producer(topic)
            for body in range(10):
                producer.send(b"%d of %d" % (body, number))
        for number, consumer in enumerate(consumers):
            for body in range(10):
                message = consumer.receive(timeout_millis=30_000)
                assert message.data() == b"%d of %d" % (body, number)
                consumer.acknowledge(message)
    finally:
        publishing.close()
        consuming.close()


def test_one_leads_and_then_another(brokers: list[BrokerProcess]) -> None:
    def leader(broker: BrokerProcess) -> object:
        found = ask(broker, "GET", "brokers/leaderBroker")
        assert isinstance(found, dict)
        return found["serviceUrl"]

    told = {leader(broker) for broker in brokers}
    assert len(told) == 1
    leading = next(broker for broker in brokers if broker.http_url in told)
    leading.stop()
    others = [broker for broker in brokers if broker is not leading]
    until(
        lambda: (
            len({leader(broker) for broker in others} - told) == 1
            and {leader(broker) for broker in others} < {broker.http_url for broker in others}
        ),
        "another one leads",
    )
