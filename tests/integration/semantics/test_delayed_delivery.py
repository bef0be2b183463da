"""Messages with a delivery time, through the official Python client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

SHARED = pulsar.ConsumerType.Shared
KEY_SHARED = pulsar.ConsumerType.KeyShared
WAIT_MS = 10_000


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server(delayedDeliveryTickTimeMillis=100, magnetarDelayedMessagesInMemory=50)


def connect(server: Server) -> Any:
    return pulsar.Client(
        server.url, operation_timeout_seconds=10, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = connect(server)
    yield made
    made.close()


def subscribe(client: Any, topic: str, kind: Any, name: str = "s", **options: Any) -> Any:
    return client.subscribe(topic, name, kind, initial_position=pulsar.InitialPosition.Earliest, **options)


def statistics(server: Server, topic: str, name: str = "s") -> dict[str, Any]:
    status, body = server.ask("GET", f"/admin/v2/persistent/public/default/{topic.rsplit('/')[-1]}/stats")
    assert status == 200
    found: dict[str, Any] = json.loads(body)["subscriptions"][name]
    return found


def take(consumer: Any, count: int) -> list[tuple[bytes, int]]:
    """Payloads and when they came, in ms."""
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        found.append((message.data(), int(time.time() * 1000)))
        consumer.acknowledge(message)
    return found


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_each_comes_at_its_time(client: Any, server: Server, topic: str, kind: Any) -> None:
    consumer = subscribe(client, topic, kind)
    producer = client.create_producer(topic)
    began = int(time.time() * 1000)
    producer.send(b"late", deliver_at=began + 900, partition_key="a")
    producer.send(b"later", deliver_after=timedelta(milliseconds=1200), partition_key="a")
    producer.send(b"now", partition_key="a")
    producer.send(b"soon", deliver_after=timedelta(milliseconds=600), partition_key="b")
    assert take(consumer, 1)[0][0] == b"now"
    figures = statistics(server, topic)
    assert figures["msgDelayed"] == 3
    assert figures["msgBacklogNoDelayed"] == figures["msgBacklog"] - 3
    assert figures["delayedMessageIndexSizeInBytes"] > 0
    found = take(consumer, 3)
    assert [payload for payload, _came in found] == [b"soon", b"late", b"later"]
    for (_payload, came), due in zip(found, (600, 900, 1200), strict=True):
        assert came >= began + due
    assert statistics(server, topic)["msgDelayed"] == 0
    consumer.close()


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_at_once_and_in_order_on_other_types(client: Any, topic: str, kind: Any) -> None:
    consumer = subscribe(client, topic, kind)
    producer = client.create_producer(topic)
    producer.send(b"1", deliver_after=timedelta(hours=1))
    producer.send(b"2")
    assert [payload for payload, _came in take(consumer, 2)] == [b"1", b"2"]


def test_a_negative_acknowledgement_of_one_whose_time_has_come(client: Any, topic: str) -> None:
    consumer = subscribe(client, topic, SHARED, negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic).send(b"1", deliver_after=timedelta(milliseconds=300))
    message = consumer.receive(WAIT_MS)
    consumer.negative_acknowledge(message)
    again = consumer.receive(WAIT_MS)
    assert (again.data(), again.redelivery_count()) == (b"1", 1)


def test_beyond_memory_and_through_a_kill(client: Any, server: Server, topic: str) -> None:
    consumer = subscribe(client, topic, SHARED, receiver_queue_size=1000)
    producer = client.create_producer(topic, max_pending_messages=1000)
    due = int(time.time() * 1000) + 3000
    for number in range(400):
        producer.send_async(b"%d" % number, lambda *_: None, deliver_at=due + number)
    for number in range(400, 500):
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    assert {payload for payload, _came in take(consumer, 100)} == {b"%d" % n for n in range(400, 500)}
    assert statistics(server, topic)["msgDelayed"] == 400
    server.restart(kill=True)
    delayed: dict[bytes, int] = {}
    while len(delayed) < 400:
        # What was acknowledged within the last tenth of a second may come once more.
        delayed |= {payload: came for payload, came in take(consumer, 1) if int(payload) < 400}
    for payload, came in delayed.items():
        assert came >= due + int(payload)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)


def test_a_longer_delay_than_the_topic_allows_is_refused(client: Any, server: Server, topic: str) -> None:
    producer = client.create_producer(topic)
    name = topic.rsplit("/")[-1]
    policy = json.dumps({"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 2000})
    path = f"/admin/v2/persistent/public/default/{name}"
    assert server.ask("POST", f"{path}/delayedDelivery", policy)[0] == 204
    producer.send(b"1", deliver_after=timedelta(seconds=1))
    # The library closes its connection at each refusal and sends again, now and then for ever.
    told: list[Any] = []
    stubborn = connect(server)
    try:
        late = stubborn.create_producer(topic, send_timeout_millis=1000)
        late.send_async(b"2", lambda result, _id: told.append(result), deliver_after=timedelta(seconds=5))
        deadline = time.monotonic() + 3
        while not told and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        stubborn.close()
    assert pulsar.Result.Ok not in told
    producer.send(b"3", deliver_after=timedelta(seconds=1))
    assert json.loads(server.ask("GET", f"{path}/stats")[1])["msgInCounter"] == 2


def test_a_namespace_may_switch_it_off(client: Any, server: Server) -> None:
    assert server.ask("PUT", "/admin/v2/namespaces/public/undelayed")[0] == 204
    policy = json.dumps({"active": False, "tickTime": 1000})
    assert server.ask("POST", "/admin/v2/namespaces/public/undelayed/delayedDelivery", policy)[0] == 204
    topic = "persistent://public/undelayed/t"
    consumer = subscribe(client, topic, SHARED)
    client.create_producer(topic).send(b"1", deliver_after=timedelta(hours=1))
    assert take(consumer, 1)[0][0] == b"1"
