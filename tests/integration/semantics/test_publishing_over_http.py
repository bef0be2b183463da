"""What requests publish, taken by the official Python client; and the command of docs/admin-rest.md."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from documented_steps import steps_of
from pulsar import schema
from server import Server

from magnetar.client import blocking

PAGE = Path(__file__).parents[3] / "docs" / "admin-rest.md"


class Word(schema.Record):  # type: ignore[misc]
    text = schema.String()
    count = schema.Integer(required=True)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    client = pulsar.Client(server.url)
    yield client
    client.close()


def published(server: Server, topic: str, *messages: dict[str, Any], **form: Any) -> list[dict[str, Any]]:
    path = topic.replace("persistent://", "/topics/persistent/")
    status, answer = server.ask("POST", path, json.dumps({"messages": messages, **form}))
    assert status == 200, answer
    told: list[dict[str, Any]] = json.loads(answer)["messagePublishResults"]
    assert [each["errorCode"] for each in told] == [0] * len(messages)
    return told


def subscribed(client: Any, topic: str, kind: Any) -> Any:
    return client.subscribe(topic, "s", schema=kind, initial_position=pulsar.InitialPosition.Earliest)


def info(kind: Any) -> str:
    declared = kind.schema_info()
    return json.dumps(
        {
            "name": declared.name(),
            "type": "JSON" if isinstance(kind, schema.JsonSchema) else "AVRO",
            "schema": base64.b64encode(declared.schema().encode()).decode(),
            "properties": {},
        }
    )


def test_text_with_all_that_a_message_carries(server: Server, client: Any, topic: str) -> None:
    consumer = subscribed(client, topic, schema.StringSchema())
    told = published(
        server,
        topic,
        {"payload": "one", "key": "k", "properties": {"p": "1"}, "eventTime": "1700000000000"},
        {"payload": "two", "sequenceId": 9},
        producerName="me",
    )
    one, two = consumer.receive(20_000), consumer.receive(20_000)
    assert (one.value(), one.partition_key(), one.properties()) == ("one", "k", {"p": "1"})
    assert (one.event_timestamp(), one.producer_name()) == (1700000000000, "me")
    ids = [f"{each.message_id().ledger_id()}:{each.message_id().entry_id()}:-1" for each in (one, two)]
    assert ids == [each["messageId"] for each in told]
    assert two.value() == "two"


@pytest.mark.parametrize(
    ("make", "content"),
    [
        (schema.JsonSchema, '{"text": "a", "count": 1}'),
        (schema.AvroSchema, '{"text": {"string": "a"}, "count": 1}'),
    ],
    ids=["json", "avro"],
)
def test_records(server: Server, client: Any, topic: str, make: Any, content: str) -> None:
    consumer = subscribed(client, topic, make(Word))
    published(server, topic, {"payload": content}, valueSchema=info(make(Word)))
    published(server, topic, {"payload": content}, schemaVersion=0)
    for _ in range(2):
        value = consumer.receive(20_000).value()
        assert (value.text, value.count) == ("a", 1)


def test_partitions_have_what_the_client_would_send_there(server: Server, client: Any, topic: str) -> None:
    server.ask("PUT", topic.replace("persistent://", "/admin/v2/persistent/") + "/partitions", "4")
    consumer = subscribed(client, topic, schema.StringSchema())
    keys = [f"key-{number}" for number in range(8)]
    # The official Python client hashes keys as no other one does.
    with blocking.Client(server.url) as other:
        producer = other.create_producer(topic)
        for key in keys:
            producer.send(b"client", partition_key=key)
    published(server, topic, *[{"payload": "request", "key": key} for key in keys])
    places: dict[str, set[int]] = {}
    for _ in range(2 * len(keys)):
        message = consumer.receive(20_000)
        places.setdefault(message.partition_key(), set()).add(message.message_id().partition())
    assert [len(places[key]) for key in keys] == [1] * len(keys)


def test_the_documents_command(server: Server) -> None:
    found = dict(steps_of(PAGE))
    assert found
    server.ask("PUT", "/admin/v2/persistent/public/default/words")
    for command, printed in found.items():
        here = command.replace("http://localhost:8080", server.http_url)
        ran = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=60, check=False)
        told = json.loads(ran.stdout)
        shown = json.loads(printed)
        for each in (*told["messagePublishResults"], *shown["messagePublishResults"]):
            each["messageId"] = each["messageId"].partition(":")[2]
        assert told == shown, command
