"""Subscriptions, acknowledgement and publishing through the official Python client.

README.md of this folder says which test shows which part of what users rely on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from polling import until
from server import Server

pulsar = pytest.importorskip("pulsar")

SECONDS = 20.0
WAIT_MS = 10_000
QUIET_MS = 500
"""How long a consumer waits before it believes that nothing comes."""

SHARED = pulsar.ConsumerType.Shared
KEY_SHARED = pulsar.ConsumerType.KeyShared


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server(
        acknowledgmentAtBatchIndexLevelEnabled="true",
        maxUnackedMessagesPerConsumer=10,
        maxUnackedMessagesPerSubscription=14,
        magnetarMinLedgerRolloverSeconds=0,
        managedLedgerMaxEntriesPerLedger=7,
    )


def connect(server: Server) -> Any:
    return pulsar.Client(
        server.url, operation_timeout_seconds=10, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = connect(server)
    yield made
    made.close()


def publish(client: Any, topic: str, count: int, **options: Any) -> None:
    producer = client.create_producer(topic, batching_enabled=False, **options)
    for number in range(count):
        producer.send(b"%d" % number, partition_key=str(number))
    producer.close()


def publish_batch(client: Any, topic: str, count: int) -> None:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=count, batching_max_publish_delay_ms=60_000
    )
    for number in range(count):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    producer.close()


def receive(consumer: Any, count: int) -> list[Any]:
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def all_there_is(consumer: Any) -> list[Any]:
    """Everything that comes until nothing does."""
    found = []
    while True:
        try:
            found.append(consumer.receive(QUIET_MS))
        except pulsar.Timeout:
            return found


def numbers(messages: list[Any]) -> list[int]:
    return [int(message.data()) for message in messages]


def stats(server: Server, topic: str, subscription: str = "s") -> dict[str, Any]:
    status, body = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)["subscriptions"][subscription]
    return found


# Subscriptions


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_a_consumer_is_blocked_at_its_limit_and_goes_on_at_half(
    server: Server, client: Any, topic: str, kind: Any
) -> None:
    consumer = client.subscribe(topic, "s", kind)
    publish(client, topic, 25)
    held = all_there_is(consumer)
    assert numbers(held) == list(range(10))
    [found] = stats(server, topic)["consumers"]
    assert (found["blockedConsumerOnUnackedMsgs"], found["unackedMessages"]) == (True, 10)
    for message in held[:4]:
        consumer.acknowledge(message)
    assert all_there_is(consumer) == []
    consumer.acknowledge(held[4])
    assert numbers(all_there_is(consumer)) == list(range(10, 15))


def test_a_subscription_is_blocked_at_its_limit(server: Server, client: Any, topic: str) -> None:
    other = connect(server)
    consumers = [each.subscribe(topic, "s", SHARED) for each in (client, other)]
    publish(client, topic, 40)
    held = [all_there_is(consumer) for consumer in consumers]
    assert sum(len(each) for each in held) == 14
    assert stats(server, topic)["blockedSubscriptionOnUnackedMsgs"] is True
    for consumer, messages in zip(consumers, held, strict=True):
        for message in messages:
            consumer.acknowledge(message)
    got = numbers([message for each in held for message in each])
    while len(got) < 40:
        for consumer in consumers:
            for message in all_there_is(consumer):
                got.append(int(message.data()))
                consumer.acknowledge(message)
    assert sorted(got) == list(range(40))
    other.close()


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_what_a_consumer_that_leaves_held_goes_to_others(
    server: Server, client: Any, topic: str, kind: Any
) -> None:
    """Its redelivery count stays: nobody has said that it could not be processed."""
    other = connect(server)
    leaving = other.subscribe(topic, "s", kind)
    publish(client, topic, 6)
    held = receive(leaving, 6)
    leaving.acknowledge(held[2])
    until(lambda: stats(server, topic)["msgBacklog"] == 5, seconds=SECONDS)
    staying = client.subscribe(topic, "s", kind)
    other.close()
    found = receive(staying, 5)
    assert numbers(found) == [0, 1, 3, 4, 5]
    assert {message.redelivery_count() for message in found} == {0}


def test_consumers_of_a_subscription_share_its_messages(server: Server, client: Any, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", SHARED, receiver_queue_size=3) for _ in range(3)]
    publish(client, topic, 9)
    shares = [numbers(receive(consumer, 3)) for consumer in consumers]
    assert sorted(number for share in shares for number in share) == list(range(9))


def test_properties_of_a_subscription(server: Server, client: Any, topic: str) -> None:
    client.subscribe(topic, "s").close()
    path = f"/admin/v2/{topic.replace('://', '/')}/subscription/s/properties"
    assert server.ask("PUT", path, '{"team":"red"}')[0] == 204
    assert stats(server, topic)["subscriptionProperties"] == {"team": "red"}
    server.restart(kill=True)
    assert stats(server, topic)["subscriptionProperties"] == {"team": "red"}


# Acknowledgement


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_negative_acknowledgements_count_redeliveries(
    server: Server, client: Any, topic: str, kind: Any
) -> None:
    consumer = client.subscribe(topic, "s", kind, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, 3)
    consumer_messages = receive(consumer, 3)
    consumer.acknowledge(consumer_messages[0])
    consumer.acknowledge(consumer_messages[2])
    message = consumer_messages[1]
    for count in range(1, 4):
        consumer.negative_acknowledge(message)
        message = consumer.receive(WAIT_MS)
        assert (int(message.data()), message.redelivery_count()) == (1, count)
    consumer.acknowledge(message)
    assert all_there_is(consumer) == []


def test_an_acknowledgement_timeout_counts_redeliveries(server: Server, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED, unacked_messages_timeout_ms=10_000)
    publish(client, topic, 1)
    assert consumer.receive(WAIT_MS).redelivery_count() == 0
    again = consumer.receive(3 * WAIT_MS)
    assert again.redelivery_count() == 1
    consumer.acknowledge(again)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_in_order_types_deliver_everything_again(server: Server, client: Any, topic: str, kind: Any) -> None:
    """From the first message that is not acknowledged on, without those that are, and without counts."""
    consumer = client.subscribe(topic, "s", kind)
    publish(client, topic, 6)
    held = receive(consumer, 6)
    consumer.acknowledge(held[0])
    consumer.acknowledge(held[3])
    until(lambda: stats(server, topic)["msgBacklog"] == 4, seconds=SECONDS)
    consumer.redeliver_unacknowledged_messages()
    again = receive(consumer, 4)
    assert numbers(again) == [1, 2, 4, 5]
    assert {message.redelivery_count() for message in again} == {0}


def test_cumulative_is_refused_on_shared_types(server: Server, client: Any, topic: str) -> None:
    for number, kind in enumerate((SHARED, KEY_SHARED)):
        consumer = client.subscribe(topic, f"s{number}", kind)
        publish(client, topic, 1)
        with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
            consumer.acknowledge_cumulative(consumer.receive(WAIT_MS))
        consumer.close()


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_acknowledgements_outlive_the_broker(server: Server, client: Any, topic: str, kill: bool) -> None:
    """Single messages and single messages of batches."""
    consumer = client.subscribe(topic, "s", SHARED, batch_index_ack_enabled=True)
    publish(client, topic, 4)
    publish_batch(client, topic, 6)
    held = receive(consumer, 10)
    for index in (1, 3, 4, 7, 9):
        consumer.acknowledge(held[index])

    def left() -> bool:
        found = stats(server, topic)
        return (found["unackedMessages"], found["msgBacklog"]) == (5, 3)

    until(left, seconds=SECONDS)
    # A cursor is written within a tenth of a second, and at a clean stop in any case.
    if kill:
        path = f"/admin/v2/{topic.replace('://', '/')}/internalStats"
        until(
            lambda: json.loads(server.ask("GET", path)[1])["cursors"]["s"]["cursorLedger"] >= 0,
            seconds=SECONDS,
        )
        time.sleep(0.3)
    consumer.close()
    server.restart(kill=kill)
    again = client.subscribe(topic, "s", SHARED, batch_index_ack_enabled=True)
    assert sorted(m.data() for m in receive(again, 5)) == sorted(held[i].data() for i in (0, 2, 5, 6, 8))
    assert all_there_is(again) == []


def test_part_of_a_batch_on_a_cumulative_acknowledgement(server: Server, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    publish(client, topic, 2)
    publish_batch(client, topic, 5)
    held = receive(consumer, 7)
    consumer.acknowledge_cumulative(held[3])
    until(lambda: stats(server, topic)["msgBacklog"] == 1, seconds=SECONDS)
    consumer.close()
    again = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert numbers(receive(again, 3)) == [2, 3, 4]


# Publishing


def test_chunked_messages(server: Server, client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED)
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    large = bytes(range(256)) * (12 * 4096)
    producer.send(b"small")
    producer.send(large)
    producer.send(b"last")
    found = receive(consumer, 3)
    assert [message.data() for message in found] == [b"small", large, b"last"]
    for message in found:
        consumer.acknowledge(message)
    until(lambda: stats(server, topic)["msgBacklog"] == 0, seconds=SECONDS)


def test_chunked_messages_come_whole_to_one_of_several_consumers(
    server: Server, client: Any, topic: str
) -> None:
    clients = [connect(server) for _ in range(3)]
    consumers = [each.subscribe(topic, "s", SHARED, receiver_queue_size=1) for each in clients]
    producers = [
        client.create_producer(topic, batching_enabled=False, chunking_enabled=True) for _ in range(2)
    ]
    sent = [bytes([number]) * (11 << 20) for number in range(4)]
    for number in range(0, 4, 2):
        # Chunks of two messages, one behind the other and between them.
        for producer, content in zip(producers, sent[number:], strict=False):
            producer.send_async(content, lambda _result, _id: None)
            producer.send_async(b"small", lambda _result, _id: None)
    for producer in producers:
        producer.flush()
    found = []

    def received() -> bool:
        for consumer in consumers:
            try:
                message = consumer.receive(timeout_millis=100)
            except pulsar.Timeout:
                continue
            found.append(message.data())
            consumer.acknowledge(message)
        return len(found) == 8

    until(received, seconds=SECONDS)
    assert sorted(found) == sorted([*sent, *[b"small"] * 4])
    until(lambda: stats(server, topic)["msgBacklog"] == 0, seconds=SECONDS)
    for each in clients:
        each.close()


def test_chunked_messages_outlive_the_broker(server: Server, client: Any, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    large = bytes(range(256)) * (6 * 4096)
    producer.send(large)
    producer.close()
    server.restart(kill=True)
    consumer = client.subscribe(topic, "s")
    assert consumer.receive(WAIT_MS).data() == large
