"""Shared subscriptions: what happens to the messages of consumers that go, alone or all at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from raw_client import Client, id_of, position
from server import Server

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

SHARED = CommandSubscribe.Shared


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.port)
    yield made
    made.close()


def test_consumers_closed_by_a_seek_get_nothing_of_each_other(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    # Somebody who is behind: what was read stays at hand.
    client.subscribe(topic, "behind", SHARED)
    first = client.subscribe(topic, "s", SHARED, 3)
    where = client.published(producer, [b"1", b"2", b"3"])
    client.messages(first, 3)
    second = client.subscribe(topic, "s", SHARED, 100)
    client.ask(BaseCommand.SEEK, BaseCommand.SUCCESS, consumer_id=first, message_id=id_of(where[0]))
    for consumer in (first, second):
        client.take(BaseCommand.CLOSE_CONSUMER, consumer_id=consumer)
    assert not client.count_kept(BaseCommand.MESSAGE)
    again = client.subscribe(topic, "s", SHARED, 100)
    assert [position(found.message_id) for found, _payload in client.messages(again, 3)] == where


def test_what_a_lost_consumer_held_goes_to_the_others(client: Client, server: Server, topic: str) -> None:
    producer, _ = client.produce(topic)
    lost = Client(server.port)
    first = lost.subscribe(topic, "s", SHARED, 100)
    where = client.published(producer, [b"1", b"2", b"3"])
    lost.messages(first, 3)
    lost.acknowledge(first, [id_of(where[1])])
    second = client.subscribe(topic, "s", SHARED, 100)
    lost.close()
    found = client.messages(second, 2)
    assert [position(message.message_id) for message, _payload in found] == [where[0], where[2]]
    assert not client.count_kept(BaseCommand.MESSAGE)
