"""Schemas through the official Python client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from pulsar import schema
from server import Server


class First(schema.Record):  # type: ignore[misc]
    name = schema.String()
    count = schema.Integer()


class Second(schema.Record):  # type: ignore[misc]
    name = schema.String()
    count = schema.Integer()
    more = schema.Long(required_default=True)


class Required(schema.Record):  # type: ignore[misc]
    name = schema.String()
    amount = schema.Double(required=True)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    client = pulsar.Client(server.url)
    yield client
    client.close()


def receive(consumer: Any) -> Any:
    message = consumer.receive(20_000)
    consumer.acknowledge(message)
    return message


def subscribed(client: Any, topic: str, kind: Any) -> Any:
    return client.subscribe(topic, "s", schema=kind, initial_position=pulsar.InitialPosition.Earliest)


def test_text(client: Any, topic: str) -> None:
    consumer = subscribed(client, topic, schema.StringSchema())
    client.create_producer(topic, schema=schema.StringSchema()).send("text")
    assert receive(consumer).value() == "text"


@pytest.mark.parametrize("kind", [schema.JsonSchema, schema.AvroSchema])
def test_records(server: Server, client: Any, topic: str, kind: Any) -> None:
    consumer = subscribed(client, topic, kind(First))
    producer = client.create_producer(topic, schema=kind(First))
    producer.send(First(name="a", count=1))
    message = receive(consumer)
    assert (message.value().name, message.value().count) == ("a", 1)
    later = client.create_producer(topic, schema=kind(Second))
    later.send(Second(name="b", count=2, more=3))
    message = receive(consumer)
    assert (message.value().name, message.value().count) == ("b", 2)
    for attempt in (
        lambda: client.create_producer(topic, schema=kind(Required)),
        lambda: client.subscribe(topic, "other", schema=kind(Required)),
        lambda: client.create_producer(topic, schema=schema.StringSchema()),
    ):
        with pytest.raises(pulsar.IncompatibleSchema):
            attempt()
    for each in (producer, later, consumer):
        each.close()
    # What the schema is, is known after a new start too.
    server.restart(kill=False)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=kind(Required))
    client.create_producer(topic, schema=kind(First)).send(First(name="c", count=3))
    assert receive(subscribed(client, topic, kind(First))).value().name == "c"


def test_bytes_need_no_schema(client: Any, topic: str) -> None:
    consumer = subscribed(client, topic, schema.AvroSchema(First))
    client.create_producer(topic).send(schema.AvroSchema(First).encode(First(name="raw", count=1)))
    assert receive(consumer).value().name == "raw"
