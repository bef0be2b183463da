"""Deduplication by producer name and sequence id, seen by the official Python client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from server import VARIANTS, Server

pulsar = pytest.importorskip("pulsar")

NOT_STORED = (-1, -1)


@pytest.fixture(scope="module", params=list(VARIANTS))
def server(request: pytest.FixtureRequest, start_server: Any) -> Server:
    settings = {"brokerDeduplicationEnabled": "true", "brokerDeduplicationEntriesInterval": 10}
    return start_server(**VARIANTS[request.param], **settings)  # type: ignore[no-any-return]


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    made = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def send(producer: Any, sequence_id: int, **options: Any) -> tuple[int, int]:
    found = producer.send(f"m{sequence_id}".encode(), sequence_id=sequence_id, **options)
    return found.ledger_id(), found.entry_id()


@pytest.fixture
def topic(server: Server, topic: str) -> str:
    """One with a subscription that keeps all its messages."""
    made = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    made.subscribe(topic, "keep")
    made.close()
    return topic


def contents(client: Any, topic: str, count: int) -> list[bytes]:
    """All messages of a topic, of which there are ``count``."""
    consumer = client.subscribe(topic, "keep")
    found = [consumer.receive(10_000).data() for _ in range(count)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    consumer.close()
    return found


def test_a_sequence_id_that_was_stored_is_not_stored_again(client: Any, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="one", batching_enabled=False)
    first = [send(producer, number) for number in (3, 4, 9)]
    assert NOT_STORED not in first
    assert [send(producer, number) for number in (3, 8, 9)] == [NOT_STORED] * 3
    assert send(producer, 10) != NOT_STORED
    assert producer.last_sequence_id() == 10
    assert contents(client, topic, 4) == [b"m3", b"m4", b"m9", b"m10"]


def test_producers_are_told_apart_by_name(client: Any, topic: str) -> None:
    one = client.create_producer(topic, producer_name="one", batching_enabled=False)
    two = client.create_producer(topic, producer_name="two", batching_enabled=False)
    assert send(one, 5) != NOT_STORED
    assert send(two, 5) != NOT_STORED
    assert send(two, 5) == NOT_STORED


@pytest.mark.parametrize("sent", [7, 25])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_sequence_ids_outlive_the_broker(server: Server, topic: str, end: str, sent: int) -> None:
    """With 25 there were snapshots, with 7 none; what a snapshot lacks is read from the topic."""
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, producer_name="one", batching_enabled=False)
    for number in range(1, sent):
        send(producer, number)
    client.close()
    getattr(server, end)()
    server.start()
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, producer_name="one", batching_enabled=False)
    assert producer.last_sequence_id() == sent - 1
    assert send(producer, sent - 1) == NOT_STORED
    assert send(producer, sent) != NOT_STORED
    assert len(contents(client, topic, sent)) == sent
    client.close()


def test_a_snapshot_without_room_for_all_keeps_who_is_connected(start_server: Any) -> None:
    """The producer that has been there for longest, though others published later."""
    server: Server = start_server(
        brokerDeduplicationEnabled="true",
        brokerDeduplicationEntriesInterval=10,
        brokerDeduplicationMaxNumberOfProducers=3,
    )
    topic = "persistent://public/default/many-producers"
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.url, logger=quiet)
    client.subscribe(topic, "keep").close()
    oldest = client.create_producer(topic, producer_name="oldest", batching_enabled=False)
    assert send(oldest, 5) != NOT_STORED
    for index in range(8):
        other = client.create_producer(topic, producer_name=f"other-{index}", batching_enabled=False)
        for number in range(1, 11):
            assert send(other, number) != NOT_STORED
        other.close()
    server.kill()
    server.start()
    client.close()
    client = pulsar.Client(server.url, logger=quiet)
    oldest = client.create_producer(topic, producer_name="oldest", batching_enabled=False)
    assert oldest.last_sequence_id() == 5
    assert send(oldest, 5) == NOT_STORED
    assert send(oldest, 6) != NOT_STORED
    client.close()


def test_chunks_of_one_message_share_their_sequence_id(client: Any, topic: str) -> None:
    options = {"batching_enabled": False, "chunking_enabled": True}
    producer = client.create_producer(topic, producer_name="one", **options)
    large = bytes(range(256)) * 4 * 10_240
    producer.send(large, sequence_id=1)
    producer.send(b"small", sequence_id=2)
    producer.send(large, sequence_id=1)
    assert contents(client, topic, 2) == [large, b"small"]


def test_receipts_of_duplicates_come_in_order(client: Any, topic: str) -> None:
    """A client gives up its connection over a receipt that comes before those of earlier messages."""
    producer = client.create_producer(topic, producer_name="one", batching_enabled=False)
    send(producer, 1)
    answers: list[tuple[Any, int]] = []
    for number in (5, 6, 1, 7, 8):
        producer.send_async(
            b"m%d" % number,
            lambda result, found: answers.append((result, found.entry_id())),
            sequence_id=number,
        )
    producer.flush()
    assert contents(client, topic, 5) == [b"m1", b"m5", b"m6", b"m7", b"m8"]
    assert [entry for result, entry in answers if result != pulsar.Result.Ok] == []
    assert [entry == -1 for _, entry in answers] == [False, False, True, False, False]


def test_statistics_say_whether_it_is_on(server: Server, client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    status, body = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
    assert (status, json.loads(body)["deduplicationStatus"]) == (200, "Enabled")
    assert list(json.loads(body)["subscriptions"]) == ["keep"]
    producer.close()
