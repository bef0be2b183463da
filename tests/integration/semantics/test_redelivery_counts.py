"""What counts as a redelivery: what a consumer asks for again, and not that another one has gone."""

from __future__ import annotations

import pytest
from raw_client import Client
from server import Server

from magnetar.protocol.pulsar_api_pb2 import CommandSubscribe

Kind = CommandSubscribe.SubType.ValueType
TYPES: dict[str, Kind] = {
    "Exclusive": CommandSubscribe.Exclusive,
    "Shared": CommandSubscribe.Shared,
    "Failover": CommandSubscribe.Failover,
    "Key_Shared": CommandSubscribe.Key_Shared,
}
SHARED = ("Shared", "Key_Shared")


def counts(client: Client, consumer: int) -> list[int]:
    return [found.redelivery_count for found, _payload in client.messages(consumer, 3)]


def leave(client: Client, consumer: int, *, cleanly: bool) -> None:
    if cleanly:
        client.close_consumer(consumer)
    client.close()


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_a_consumer_that_goes_raises_no_count(server: Server, topic: str, kind: str, cleanly: bool) -> None:
    first = Client(server.port)
    consumer = first.subscribe(topic, "s", TYPES[kind], 100)
    producer, _ = first.produce(topic)
    first.published(producer, [b"1", b"2", b"3"])
    assert counts(first, consumer) == [0, 0, 0]
    leave(first, consumer, cleanly=cleanly)
    second = Client(server.port)
    again = second.subscribe(topic, "s", TYPES[kind], 100)
    assert counts(second, again) == [0, 0, 0]
    second.close()


@pytest.mark.parametrize("kind", SHARED)
def test_what_goes_to_others_keeps_its_count(server: Server, topic: str, kind: str) -> None:
    """Counts last as long as there is a consumer; with the last one they are forgotten."""
    first, second = Client(server.port), Client(server.port)
    consumer = first.subscribe(topic, "s", TYPES[kind], 100)
    producer, _ = second.produce(topic)
    second.published(producer, [b"1", b"2", b"3"])
    found = first.messages(consumer, 3)
    first.redeliver(consumer, [message.message_id for message, _payload in found])
    assert counts(first, consumer) == [1, 1, 1]
    other = second.subscribe(topic, "s", TYPES[kind], 100)
    leave(first, consumer, cleanly=False)
    assert counts(second, other) == [1, 1, 1]
    leave(second, other, cleanly=False)
    third = Client(server.port)
    last = third.subscribe(topic, "s", TYPES[kind], 100)
    assert counts(third, last) == [0, 0, 0]
    third.close()
