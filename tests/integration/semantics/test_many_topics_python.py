"""Lists of topics, routing, dead letters and HTTP addresses, with the official Python client."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

WAIT_MS = 10_000
QUIET_MS = 500
EARLIEST = pulsar.InitialPosition.Earliest
_numbers = count()


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server()


@pytest.fixture(params=["binary", "http"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    url = server.url if request.param == "binary" else server.http_url
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(url, operation_timeout_seconds=10, logger=quiet)
    yield made
    made.close()


def new(kind: str) -> str:
    return f"persistent://public/default/many-{kind}{next(_numbers)}"


def partitioned(server: Server, kind: str, partitions: int = 4) -> str:
    topic = new(kind)
    path = topic.replace("://", "/")
    assert server.ask("PUT", f"/admin/v2/{path}/partitions", str(partitions))[0] == 204
    return topic


def publish(client: Any, topic: str, texts: list[str], **options: Any) -> None:
    producer = client.create_producer(topic, **options)
    for text in texts:
        producer.send(text.encode())
    producer.close()


def received(consumer: Any, number: int) -> list[tuple[str, str]]:
    """Topic and text of each."""
    found = []
    for _ in range(number):
        message = consumer.receive(WAIT_MS)
        consumer.acknowledge(message)
        found.append((message.topic_name(), message.data().decode()))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)
    return found


def test_a_topic_is_found_by_either_address(client: Any) -> None:
    topic = new("address")
    consumer = client.subscribe(topic, "s")
    publish(client, topic, ["a", "b"])
    assert received(consumer, 2) == [(topic, "a"), (topic, "b")]
    assert client.get_topic_partitions(topic) == [topic]


def test_partitions_and_patterns_are_found_by_either_address(client: Any, server: Server) -> None:
    topic = partitioned(server, "pattern", 3)
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{index}" for index in range(3)]
    publish(client, topic, ["a", "b", "c"])
    consumer = client.subscribe(re.compile(re.escape(topic)), "s", initial_position=EARLIEST)
    assert consumer.topic() == re.escape(topic)
    assert sorted(text for _, text in received(consumer, 3)) == ["a", "b", "c"]


def test_a_list_of_topics(client: Any, server: Server) -> None:
    topics = [new("list"), new("list"), partitioned(server, "list", 2)]
    consumer = client.subscribe(topics, "s", initial_position=EARLIEST)
    for topic in topics:
        publish(client, topic, ["1", "2", "3"])
    found = received(consumer, 9)
    # In the order of each topic, or partition; none over them.
    assert [text for name, text in found if name == topics[0]] == ["1", "2", "3"]
    by_topic = Counter(name.partition("-partition-")[0] for name, _ in found)
    assert by_topic == dict.fromkeys(topics, 3)


def test_a_list_of_topics_of_several_namespaces(client: Any, server: Server) -> None:
    namespace = f"public/many{next(_numbers)}"
    assert server.ask("PUT", f"/admin/v2/namespaces/{namespace}", "{}")[0] == 204
    topics = [new("list"), f"persistent://{namespace}/t"]
    consumer = client.subscribe(topics, "s", initial_position=EARLIEST)
    for topic in topics:
        publish(client, topic, [topic])
    assert sorted(received(consumer, 2)) == sorted((topic, topic) for topic in topics)


def test_a_single_partition_takes_all_without_keys(client: Any, server: Server) -> None:
    topic = partitioned(server, "single")
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    texts = [str(number) for number in range(20)]
    publish(client, topic, texts, message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition)
    found = received(consumer, 20)
    assert len({name for name, _ in found}) == 1
    assert [text for _, text in found] == texts


def test_a_router_of_the_application_decides(client: Any, server: Server) -> None:
    topic = partitioned(server, "custom")
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)

    def last_but(message: Any, partitions: int) -> int:
        return partitions - 1 - int(message.data()) % 2

    publish(
        client,
        topic,
        [str(number) for number in range(10)],
        message_routing_mode=pulsar.PartitionsRoutingMode.CustomPartition,
        message_router=last_but,
    )
    for name, text in received(consumer, 10):
        assert name == f"{topic}-partition-{3 - int(text) % 2}"


@pytest.mark.parametrize("own", [False, True])
def test_dead_letters(client: Any, own: bool) -> None:
    topic = new("letters")
    dead_topic = new("dead") if own else f"{topic}-s-DLQ"
    policy = pulsar.ConsumerDeadLetterPolicy(
        2, dead_letter_topic=dead_topic if own else None, initial_subscription_name="kept"
    )
    consumer = client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
    )
    publish(client, topic, ["bad"])
    for times in range(3):
        message = consumer.receive(WAIT_MS)
        assert message.redelivery_count() == times
        consumer.negative_acknowledge(message)
    # The subscription was made with the producer of dead letters: nobody had to be there before.
    with pytest.raises(pulsar.Timeout):
        consumer.receive(2_000)
    dead = client.subscribe(dead_topic, "kept")
    letter = dead.receive(WAIT_MS)
    assert letter.data() == b"bad"
    assert letter.properties()["REAL_TOPIC"] == topic
    dead.acknowledge(letter)
