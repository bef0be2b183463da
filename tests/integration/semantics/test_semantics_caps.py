"""How many producers, consumers, subscriptions and topics there may be, how fast a broker is published to."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

SHARED = pulsar.ConsumerType.Shared


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    running = start_server(
        maxProducersPerTopic=2,
        maxConsumersPerTopic=4,
        maxConsumersPerSubscription=2,
        maxSubscriptionsPerTopic=3,
    )
    assert running.ask("PUT", "/admin/v2/namespaces/public/few")[0] == 204
    return running


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = pulsar.Client(
        server.url, operation_timeout_seconds=3, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    yield made
    made.close()


def test_producers_of_a_topic(client: Any, topic: str) -> None:
    first, _second = client.create_producer(topic), client.create_producer(topic)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    first.close()
    client.create_producer(topic).send(b"m")


def test_consumers_of_a_subscription_and_of_a_topic(client: Any, topic: str) -> None:
    consumers = [client.subscribe(topic, "a", SHARED) for _ in range(2)]
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "a", SHARED)
    consumers += [client.subscribe(topic, "b", SHARED) for _ in range(2)]
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "c", SHARED)
    consumers[0].close()
    client.subscribe(topic, "c", SHARED)


def test_subscriptions_of_a_topic(client: Any, topic: str) -> None:
    for name in "abc":
        client.subscribe(topic, name).close()
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "d")
    client.subscribe(topic, "c").unsubscribe()
    client.subscribe(topic, "d")


def test_topics_of_a_namespace(server: Server, client: Any) -> None:
    assert server.ask("POST", "/admin/v2/namespaces/public/few/maxTopicsPerNamespace", "2")[0] == 204
    for name in "ab":
        client.create_producer(f"persistent://public/few/{name}")
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/few/c")
    client.create_producer("persistent://public/few/a")


@pytest.fixture(scope="module")
def bounded(start_server: Callable[..., Server]) -> Server:
    return start_server(
        magnetarMaxTopicsPerTenant=6,
        magnetarMaxSubscriptionsPerTopic=2,
        magnetarMaxPartitionsPerTopic=3,
        magnetarMetricsMaxSeries=3,
    )


def test_limits_of_magnetar_s_own(bounded: Server) -> None:
    made = pulsar.Client(
        bounded.url, operation_timeout_seconds=3, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    base = "/admin/v2/persistent/public/default"
    try:
        assert bounded.ask("PUT", f"{base}/wide/partitions", "4")[0] == 406
        assert bounded.ask("PUT", f"{base}/wide/partitions", "3")[0] == 204
        for name in "ab":
            made.subscribe("persistent://public/default/one", name)
        with pytest.raises(pulsar.PulsarException):
            made.subscribe("persistent://public/default/one", "c")
        made.create_producer("persistent://public/default/two")
        made.create_producer("non-persistent://public/default/three")
        with pytest.raises(pulsar.PulsarException):
            made.create_producer("persistent://public/default/four")
        assert bounded.ask("PUT", f"{base}/four")[0] == 412
        made.create_producer("persistent://sample/standalone/ns1/of-another-tenant")
        figures = bounded.ask("GET", "/metrics/")[1].decode()
    finally:
        made.close()
    found = dict(re.findall(r"^(magnetar_refused_\w+){[^}]*} (\d+)$", figures, re.MULTILINE))
    assert found["magnetar_refused_partitions"] == "1"
    assert found["magnetar_refused_subscriptions"] == "1"
    assert found["magnetar_refused_topics"] == "2"
    left_out = re.findall(
        r'^magnetar_metrics_topics_left_out{.*tenant="public".*} (\d+)$', figures, re.MULTILINE
    )
    assert [int(count) >= 3 for count in left_out] == [True], figures[:3000]
    assert 'topic="persistent://sample/standalone/ns1/of-another-tenant"' in figures


def test_the_rate_of_admin_requests(start_server: Callable[..., Server]) -> None:
    running = start_server(magnetarMaxAdminRequestsPerSecondPerRole=1)
    with ThreadPoolExecutor(30) as pool:
        answers = [pool.submit(running.ask, "GET", "/admin/v2/clusters") for _ in range(30)]
        # Five at once, those of the next five seconds wait, and the others are refused.
        statuses = Counter(answer.result()[0] for answer in answers)
    assert statuses.keys() == {200, 429}, statuses
    assert running.ask("GET", "/metrics/")[0] == 200


def test_the_broker_is_published_to_no_faster_than_it_may_be(start_server: Callable[..., Server]) -> None:
    """Nothing is lost; what goes beyond the rate waits, so that it was published in later seconds."""
    running = start_server(brokerPublisherThrottlingMaxMessageRate=50)
    made = pulsar.Client(running.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    topic = "persistent://public/default/throttled"
    consumer = made.subscribe(topic, "s")
    producer = made.create_producer(topic, batching_enabled=False)
    began = time.monotonic()
    for number in range(150):
        producer.send(b"%d" % number)
    took = time.monotonic() - began
    messages = [consumer.receive(10_000) for _ in range(150)]
    assert [int(message.data()) for message in messages] == list(range(150))
    # At the most a second's worth is let through at once before the rest has to wait.
    assert took >= 0.9
    made.close()


def test_a_publisher_in_debt_is_not_taken_for_dead(start_server: Callable[..., Server]) -> None:
    """The broker does not read it for several times as long as it bears a silent client."""
    running = start_server(keepAliveIntervalSeconds=1)
    rate = '{"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 0}'
    assert running.ask("POST", "/admin/v2/namespaces/public/default/publishRate", rate)[0] == 204
    topic = "persistent://public/default/in-debt"
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made, other = (pulsar.Client(running.url, logger=quiet) for _ in range(2))
    try:
        producer = made.create_producer(
            topic, producer_name="orders", batching_enabled=True, batching_max_publish_delay_ms=50
        )
        before = publisher(running, topic)
        for number in range(80):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        # It waits for the end of the debt, and nobody with the same name comes in meanwhile.
        producer.send_async(b"80", None)
        with pytest.raises(pulsar.ProducerBusy):
            other.create_producer(topic, producer_name="orders")
        producer.flush()
        after = publisher(running, topic)
        assert (after["connectedSince"], after["address"]) == (before["connectedSince"], before["address"])
    finally:
        made.close()
        other.close()


def publisher(server: Server, topic: str) -> Any:
    status, body = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
    assert status == 200
    [found] = json.loads(body)["publishers"]
    return found


def test_key_shared_can_be_switched_off(start_server: Callable[..., Server], topic: str) -> None:
    server = start_server(subscriptionKeySharedEnable="false")
    client = pulsar.Client(
        server.url, operation_timeout_seconds=3, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        with pytest.raises(pulsar.PulsarException):
            client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared)
        client.subscribe(topic, "s", SHARED)
    finally:
        client.close()
