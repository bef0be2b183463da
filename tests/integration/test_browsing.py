"""Looking at messages over HTTP: by position, time and key, decoded, and only for roles that may consume."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from secured import SUPERUSER, SecuredServer, token
from server import Server

pulsar = pytest.importorskip("pulsar")
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String  # noqa: E402

KEYS = Path(__file__).parent / "semantics" / "keys"


class Order(Record):  # type: ignore[misc]
    name = String()
    amount = Integer()


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    made = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def path_of(topic: str) -> str:
    return f"/admin/v2/magnetar/messages/{topic.replace('://', '/')}"


def browse(server: Server, topic: str, **query: object) -> dict[str, Any]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    status, body = server.ask("GET", f"{path_of(topic)}?{asked}")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def contents(found: dict[str, Any]) -> list[str]:
    return [each["content"] for each in found["messages"]]


def test_the_last_ones_and_those_from_a_position_on(server: Server, client: Any, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number, partition_key=f"k{number % 2}") for number in range(10)]
    assert contents(browse(server, topic)) == [str(number) for number in range(10)]
    last = browse(server, topic, count=3)
    assert contents(last) == ["7", "8", "9"]
    assert last["next"] is None
    places = [f"{each.ledger_id()}:{each.entry_id()}" for each in ids]
    assert (last["first"], last["last"]) == (places[0], places[9])
    page = browse(server, topic, position=places[2], count=4)
    assert contents(page) == ["2", "3", "4", "5"]
    assert page["next"] == places[6]
    assert contents(browse(server, topic, position=page["next"])) == ["6", "7", "8", "9"]
    assert contents(browse(server, topic, key="k1")) == ["1", "3", "5", "7", "9"]
    assert contents(browse(server, topic, key="k1", count=2)) == ["1", "3"]
    assert contents(browse(server, topic, key="none")) == []
    assert contents(browse(server, topic, position="0:0", count=1)) == ["0"], "the next one that there is"


def test_those_from_a_time_on(server: Server, client: Any, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"before")
    time.sleep(0.01)
    now = time.time_ns() // 1_000_000
    producer.send(b"after")
    assert contents(browse(server, topic, time=now)) == ["after"]
    assert contents(browse(server, topic, time=now + 60_000)) == []
    assert contents(browse(server, topic, time=0)) == ["before", "after"]


def test_a_batch_is_shown_message_by_message(server: Server, client: Any, topic: str) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=5000,
        compression_type=pulsar.CompressionType.ZSTD,
    )
    for number in range(5):
        producer.send_async(
            b"%d" % number, lambda *_: None, properties={"n": str(number)}, event_timestamp=number + 1
        )
    producer.flush()
    found = browse(server, topic)
    assert found["entriesRead"] == 1
    assert contents(found) == ["0", "1", "2", "3", "4"]
    third = found["messages"][2]
    assert third["id"].endswith(":0:-1:2")
    assert (third["properties"], third["eventTime"], third["bytes"]) == ({"n": "2"}, 3, 1)
    assert third["producerName"]


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_contents_are_decoded_by_their_schemas(
    server: Server, client: Any, topic: str, schema: Callable[..., Any]
) -> None:
    producer = client.create_producer(topic, schema=schema(Order))
    producer.send(Order(name="tea", amount=2))
    [message] = browse(server, topic)["messages"]
    assert (message["schema"], message["value"]) == (
        schema.__name__.removesuffix("Schema").upper(),
        {"name": "tea", "amount": 2},
    )


def test_what_is_no_text_is_shown_in_hexadecimal(server: Server, client: Any, topic: str) -> None:
    client.create_producer(topic).send(b"\xff\x00")
    assert browse(server, topic)["messages"][0]["hex"] == "ff00"


def test_long_contents_are_cut(server: Server, client: Any, topic: str) -> None:
    client.create_producer(topic).send(b"x" * 100_000)
    [message] = browse(server, topic)["messages"]
    assert (message["content"], message["truncated"], message["bytes"]) == ("x" * 16_384, True, 100_000)


@pytest.mark.parametrize("kind", ["NONE", "LZ4", "ZSTD", "ZLib"])
def test_contents_above_a_mebibyte_are_not_uncompressed_and_say_so(
    server: Server, client: Any, topic: str, kind: str
) -> None:
    compression = getattr(pulsar.CompressionType, kind)
    producer = client.create_producer(topic, compression_type=compression, batching_enabled=False)
    producer.send(b"x" * (1 << 20))
    producer.send(b"x" * ((1 << 20) + 1))
    opened, large = browse(server, topic)["messages"]
    assert (opened["bytes"], opened["content"][:3], "unopened" in opened) == (1 << 20, "xxx", False)
    if kind == "NONE":
        assert (large["bytes"], large["content"][:3], "unopened" in large) == ((1 << 20) + 1, "xxx", False)
        return
    assert (large["unopened"], large["compression"]) == (True, kind.upper())
    assert large["uncompressedBytes"] == (1 << 20) + 1
    assert large["bytes"] < 1 << 16
    assert "value" not in large


def test_a_large_batch_is_not_opened_and_says_how_many_messages_it_has(
    server: Server, client: Any, topic: str
) -> None:
    producer = client.create_producer(
        topic,
        schema=pulsar.schema.StringSchema(),
        compression_type=pulsar.CompressionType.ZSTD,
        batching_enabled=True,
        batching_max_allowed_size_in_bytes=4 << 20,
        batching_max_publish_delay_ms=10_000,
    )
    for _ in range(30):
        producer.send_async("x" * 50_000, lambda _result, _id: None)
    producer.flush()
    found = browse(server, topic)["messages"]
    assert [each.get("unopened") for each in found] == [True], [(each["id"], each["bytes"]) for each in found]
    assert (found[0]["compression"], found[0]["batchSize"]) == ("ZSTD", 30)
    assert "value" not in found[0]


def test_encrypted_contents_are_not_opened(server: Server, client: Any, topic: str) -> None:
    reader = pulsar.CryptoKeyReader(str(KEYS / "public.pem"), str(KEYS / "private.pem"))
    producer = client.create_producer(topic, encryption_key="k", crypto_key_reader=reader)
    producer.send(b"secret", properties={"open": "1"})
    [message] = browse(server, topic)["messages"]
    assert message["encrypted"] is True
    assert "secret" not in json.dumps(message)


def test_one_partition_at_a_time(server: Server, topic: str) -> None:
    status, _ = server.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", "2")
    assert status == 204
    status, body = server.ask("GET", path_of(topic))
    assert status == 405
    assert b"is partitioned: look at the messages of one partition" in body
    assert browse(server, f"{topic}-partition-1")["messages"] == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("count=0", "count must be a whole number from 1 to 100, not '0'"),
        ("count=101", "count must be a whole number from 1 to 100, not '101'"),
        ("position=7", "position must be LEDGER:ENTRY, not '7'"),
        ("time=soon", "time must be a whole number from 0"),
    ],
)
def test_wrong_questions(server: Server, topic: str, query: str, words: str) -> None:
    status, body = server.ask("GET", f"{path_of(topic)}?{query}")
    assert status == 400
    assert words in body.decode()
    status, _ = server.ask("GET", path_of(topic))
    assert status == 404


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path)
    server.start()
    yield server
    server.stop()


def test_a_look_needs_the_permission_to_consume_and_is_in_the_audit_log(
    secured: SecuredServer, topic: str
) -> None:
    path, name = path_of(topic), f"/admin/v2/{topic.replace('://', '/')}"
    assert asked(secured, "PUT", name, SUPERUSER) == 204
    for role in ("produce", "consume"):
        body = json.dumps([role]).encode()
        assert asked(secured, "POST", f"{name}/permissions/may-{role}", SUPERUSER, body) == 204
    assert asked(secured, "GET", path, "may-produce") == 401
    assert asked(secured, "GET", path, "may-consume") == 200
    audited = [line for line in secured.log.splitlines() if "magnetar.audit" in line and path in line]
    assert sum("role=may-consume" in line and "status=200" in line for line in audited) == 1
    assert sum("role=may-produce" in line and "status=401" in line for line in audited) == 1


def asked(server: SecuredServer, method: str, path: str, role: str, body: bytes | None = None) -> int:
    """Returns the status for a role."""
    headers = {"Authorization": f"Bearer {token(role)}", "Content-Type": "application/json"}
    request = urllib.request.Request(server.http_url + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
