"""Non-persistent topics through the official Python client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import pulsar
import pytest
from polling import until_wanted
from server import Server

_names = count()
MILLISECONDS = 30_000


@pytest.fixture(scope="module")
def broker(start_server: Any) -> Server:
    server: Server = start_server(statsUpdateFrequencyInSecs=1, exposeConsumerLevelMetricsInPrometheus="true")
    return server


@pytest.fixture(scope="module")
def client(broker: Server) -> Iterator[pulsar.Client]:
    made = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"non-persistent://public/default/py{next(_names)}"


def stats(broker: Server, topic: str, what: str = "stats") -> Any:
    status, body = broker.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/{what}")
    assert status == 200, body
    return json.loads(body)


def received(consumer: pulsar.Consumer, wanted: int) -> list[str]:
    found = []
    for _ in range(wanted):
        message = consumer.receive(MILLISECONDS)
        consumer.acknowledge(message)
        found.append(message.data().decode())
    return found


def nothing_more(*consumers: pulsar.Consumer) -> None:
    for consumer in consumers:
        with pytest.raises(pulsar.Timeout):
            consumer.receive(200)


SENT = [str(number) for number in range(100)]


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_one_consumer_gets_all_in_order(client: pulsar.Client, topic: str, kind: str) -> None:
    consumer = client.subscribe(topic, "s", getattr(pulsar.ConsumerType, kind))
    producer = client.create_producer(topic, batching_enabled=False)
    for text in SENT:
        producer.send_async(text.encode(), None)
    producer.flush()
    assert received(consumer, 100) == SENT
    nothing_more(consumer)


@pytest.mark.parametrize("kind", ["Shared", "KeyShared"])
def test_consumers_share_what_is_published(client: pulsar.Client, topic: str, kind: str) -> None:
    consumers = [client.subscribe(topic, "s", getattr(pulsar.ConsumerType, kind)) for _ in range(2)]
    producer = client.create_producer(topic, batching_enabled=False)
    for text in SENT:
        producer.send(text.encode(), partition_key=f"key-{int(text) % 10}")
    parts: list[list[str]] = []
    for consumer in consumers:
        part: list[str] = []
        while True:
            try:
                part.append(consumer.receive(500).data().decode())
            except pulsar.Timeout:
                break
        parts.append(part)
    assert sorted(parts[0] + parts[1], key=int) == SENT
    if kind == "Shared":
        assert [len(part) for part in parts] == [50, 50]
        return
    keys = [{int(text) % 10 for text in part} for part in parts]
    assert not keys[0] & keys[1]
    for part in parts:
        assert part == sorted(part, key=int)


def test_batches_and_their_order(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=10)
    for text in SENT:
        producer.send_async(text.encode(), None)
    producer.flush()
    assert received(consumer, 100) == SENT


def test_what_was_published_before_is_gone(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"before")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    producer.send(b"now")
    assert received(consumer, 1) == ["now"]
    assert reader.read_next(MILLISECONDS).data() == b"now"
    nothing_more(consumer)


def test_a_small_queue_loses_messages_and_they_are_counted(
    client: pulsar.Client, topic: str, broker: Server
) -> None:
    slow = client.subscribe(topic, "slow", receiver_queue_size=5)
    quick = client.subscribe(topic, "quick", receiver_queue_size=1000)
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    for text in SENT:
        producer.send(text.encode())
    assert received(quick, 100) == SENT
    found = until_wanted(
        lambda: stats(broker, topic), lambda s: s["subscriptions"]["slow"]["msgDropRate"] > 0, seconds=15
    )
    assert found["subscriptions"]["quick"]["msgDropRate"] == 0
    assert found["msgDropRate"] == found["subscriptions"]["slow"]["msgDropRate"]
    assert found["publishers"][0]["msgDropRate"] == 0
    assert found["subscriptions"]["slow"]["msgOutCounter"] == 5
    assert (found["storageSize"], found["backlogSize"]) == (0, 0)
    assert stats(broker, topic, "internalStats")["entriesAddedCounter"] == 100
    metrics = broker.ask("GET", "/metrics")[1].decode()
    dropped = [
        line
        for line in metrics.splitlines()
        if line.startswith("pulsar_subscription_msg_drop_rate") and f'topic="{topic}"' in line
    ]
    assert len(dropped) == 2
    assert any(not line.endswith(" 0.0") and 'subscription="slow"' in line for line in dropped)
    assert received(slow, 5) == SENT[:5]


def test_beyond_the_cap_receipts_say_so(start_server: Any) -> None:
    broker: Server = start_server(
        maxConcurrentNonPersistentMessagePerConnection=1, statsUpdateFrequencyInSecs=1
    )
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    topic = "non-persistent://public/default/capped"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    told: list[tuple[int, int]] = []

    def confirmed(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        assert result == pulsar.Result.Ok
        told.append((message_id.ledger_id(), message_id.entry_id()))

    for _ in range(20):
        for text in SENT:
            producer.send_async(text.encode(), confirmed)
        producer.flush()
        if (-1, -1) in told:
            break
    assert set(told) == {(0, 0), (-1, -1)}
    received(consumer, told.count((0, 0)))
    nothing_more(consumer)
    found = until_wanted(
        lambda: stats(broker, topic), lambda s: s["publishers"][0]["msgDropRate"] > 0, seconds=15
    )
    assert found["subscriptions"]["s"]["msgDropRate"] == 0
    client.close()


def test_partitions(client: pulsar.Client, topic: str, broker: Server) -> None:
    path = f"/admin/v2/{topic.replace('://', '/')}/partitions"
    assert broker.ask("PUT", path, "3")[0] == 204
    assert broker.ask("PUT", path, "3")[0] == 409
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(
        topic,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        batching_enabled=False,
    )
    for text in SENT:
        producer.send(text.encode())
    assert sorted(received(consumer, 100), key=int) == SENT
    found = stats(broker, topic, "partitioned-stats")
    assert found["metadata"]["partitions"] == 3
    assert found["msgInCounter"] == 100
    assert sorted(found["partitions"]) == [f"{topic}-partition-{index}" for index in range(3)]
    assert broker.ask("POST", path, "5")[0] == 204
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{index}" for index in range(5)]
    consumer.close()
    producer.close()
    assert broker.ask("DELETE", path)[0] == 204
    assert broker.ask("GET", path + "?checkAllowAutoCreation=false")[0] == 404


def test_patterns_take_one_kind_or_both(client: pulsar.Client, topic: str) -> None:
    stored = topic.replace("non-persistent", "persistent")
    for each in (topic, stored):
        client.create_producer(each).send(b"there")

    pattern = re.compile("public/default/" + topic.rpartition("/")[2] + ".*")
    modes = pulsar.RegexSubscriptionMode
    for mode, wanted in (
        (modes.PersistentOnly, {stored}),
        (modes.NonPersistentOnly, {topic}),
        (modes.AllTopics, {stored, topic}),
    ):
        consumer = client.subscribe(
            pattern, f"s-{mode.name}", pulsar.ConsumerType.Shared, regex_subscription_mode=mode
        )
        for each in (topic, stored):
            client.create_producer(each).send(each.encode())
        assert set(received(consumer, len(wanted))) == wanted
        nothing_more(consumer)
        consumer.close()


def test_schemas_are_checked(client: pulsar.Client, topic: str) -> None:
    class First(pulsar.schema.Record):  # type: ignore[misc]
        a = pulsar.schema.Integer()

    class Other(pulsar.schema.Record):  # type: ignore[misc]
        a = pulsar.schema.String(required=True)

    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(First))
    consumer = client.subscribe(topic, "s", schema=pulsar.schema.AvroSchema(First))
    producer.send(First(a=7))
    assert consumer.receive(MILLISECONDS).value().a == 7
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.AvroSchema(Other))


def test_a_restart_brings_clients_back_and_nothing_else(start_server: Any) -> None:
    broker: Server = start_server()
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    topic = "non-persistent://public/default/again"
    gone = client.subscribe(topic, "gone")
    gone.close()
    consumer = client.subscribe(topic, "stays")
    producer = client.create_producer(topic)
    producer.send(b"1")
    assert consumer.receive(MILLISECONDS).data() == b"1"
    broker.restart(kill=True)
    # A consumer that has not asked for messages yet gets none: they are stored nowhere.
    back = until_wanted(
        lambda: stats_or_none(broker, topic), lambda found: permits(found.get("stays")) > 0, seconds=15
    )
    assert list(back) == ["stays"]
    producer.send(b"2")
    assert consumer.receive(MILLISECONDS).data() == b"2"
    client.close()


def permits(subscription: Any) -> int:
    """Messages that its consumers have asked for."""
    return sum(each["availablePermits"] for each in (subscription or {}).get("consumers", ()))


def stats_or_none(broker: Server, topic: str) -> Any:
    status, body = broker.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
    return json.loads(body)["subscriptions"] if status == 200 else {}


@pytest.mark.parametrize("served", ["persistent", "non-persistent"])
def test_a_broker_may_serve_one_kind_only(start_server: Any, served: str) -> None:
    other = "non-persistent" if served == "persistent" else "persistent"
    switch = "enableNonPersistentTopics" if served == "persistent" else "enablePersistentTopics"
    server = start_server(**{switch: "false"})
    client = pulsar.Client(
        server.url, operation_timeout_seconds=3, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        consumer = client.subscribe(f"{served}://public/default/t", "s")
        client.create_producer(f"{served}://public/default/t").send(b"m")
        assert received(consumer, 1) == ["m"]
        for attach in (client.create_producer, lambda name: client.subscribe(name, "s")):
            with pytest.raises(pulsar.PulsarException):
                attach(f"{other}://public/default/t")
        status, body = server.ask("GET", f"/lookup/v2/topic/{other}/public/default/t")
        assert status >= 400, body
        assert server.ask("GET", f"/lookup/v2/topic/{served}/public/default/t")[0] == 200
    finally:
        client.close()
