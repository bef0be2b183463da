"""Topics that come, go and grow, through the official clients; where each of them puts keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pulsar
import pytest
from client_programs import go_command, java_command  # noqa: F401 - fixtures
from server import MINIATURE, Server
from test_clients import run_program

from magnetar.client.blocking import Client
from magnetar.naming.hashes import java_string_hash, murmur3_positive

PREFIX = "topics"
KEYS = [f"key-{number}" for number in range(40)]
PARTITIONS = 5
HASHES: dict[str, Callable[[str], int]] = {
    "JavaStringHash": java_string_hash,
    "Murmur3_32Hash": lambda key: murmur3_positive(key.encode()),
}
WANTED = [
    "pattern",
    "pattern-all",
    "pattern-look-ahead",
    "routing",
    "list",
    "single-partition",
    "custom-router",
    "growing",
    "marks",
    "read-compacted",
    "delayed",
    "reader-ranges",
]


def ask(server: Server, method: str, local: str, more: str = "", body: Any = None) -> Any:
    path = f"/admin/v2/persistent/public/default/{PREFIX}-{local}{more}"
    status, answer = server.ask(method, path, None if body is None else json.dumps(body))
    assert status < 300, (path, status, answer)
    return json.loads(answer) if answer else None


@pytest.fixture(scope="module", params=["default", "miniature"])
def server(request: pytest.FixtureRequest, start_server: Any) -> Server:
    settings: dict[str, int | str] = MINIATURE if request.param == "miniature" else {}
    started: Server = start_server(**settings)
    for scheme in HASHES:
        ask(started, "PUT", scheme, "/partitions", PARTITIONS)
        # What is published is kept for it.
        ask(started, "PUT", scheme, "/subscription/all")
    ask(started, "PUT", "growing", "/partitions", 2)
    ask(started, "PUT", "list-p", "/partitions", 2)
    for name in ("single", "custom"):
        ask(started, "PUT", name, "/partitions", 4)
    return started


@pytest.fixture
def client(server: Server) -> Iterator[pulsar.Client]:
    made = pulsar.Client(server.url)
    yield made
    made.close()


def operator(server: Server) -> Iterator[None]:
    """What an operator does, each time the program asks."""
    for name in ("watched", "polled", "ahead"):
        ask(server, "DELETE", f"{name}-b", "?force=true")
        yield ask(server, "PUT", f"{name}-p", "/partitions", 2)
    yield ask(server, "POST", "growing", "/partitions", 4)
    yield server.restart(kill=True)


@dataclass(frozen=True)
class Ran:
    """What a client's program did; the messages that it left are read by other tests."""

    checks: list[dict[str, Any]]
    text: str


@pytest.fixture(scope="module")
def java(server: Server, java_command: list[str]) -> Ran:  # noqa: F811
    actions = operator(server)
    command = [*java_command[:-1], "interop.Topics"]
    return Ran(*run_program(command, server, "topics", PREFIX, lambda: next(actions)))


@pytest.fixture(scope="module")
def go(server: Server, go_command: list[str]) -> Ran:  # noqa: F811
    return Ran(*run_program(go_command, server, "routing", PREFIX, lambda: None))


def test_java(server: Server, java: Ran) -> None:
    assert [check["check"] for check in java.checks] == WANTED, java.text
    marks = ask(server, "GET", "marks", "/stats")["subscriptions"]["s"]
    assert marks["subscriptionProperties"] == {"a": "1", "b": "2"}
    assert marks["isReplicated"]


def test_go(go: Ran) -> None:
    assert [check["check"] for check in go.checks] == ["routing"], go.text


def placed(reader: pulsar.Client, topic: str, count: int) -> dict[str, dict[str, set[int]]]:
    """In which partitions each client's messages of a key are."""
    consumer = reader.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
    found: dict[str, dict[str, set[int]]] = {}
    for _ in range(count):
        message = consumer.receive(10_000)
        where = int(message.topic_name().rpartition("-")[2])
        found.setdefault(message.data().decode(), {}).setdefault(message.partition_key(), set()).add(where)
    consumer.close()
    return found


def is_negative(key: str) -> bool:
    """Whether Java's hash of a text is."""
    value = 0
    for character in key:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return value >= 1 << 31


@pytest.mark.usefixtures("java", "go")
@pytest.mark.parametrize("scheme", HASHES)
def test_all_put_keys_where_the_others_do(server: Server, client: pulsar.Client, scheme: str) -> None:
    """As far as they do: Go's Java hash keeps the sign, and the Python client has a hash of its own.
    Each keeps to one partition a key."""
    topic = f"persistent://public/default/{PREFIX}-{scheme}"
    producer = client.create_producer(topic)
    for key in KEYS * 2:
        producer.send(b"python", partition_key=key)
    with Client(server.url) as own:
        for key in KEYS:
            own.create_producer(topic).send(b"magnetar", partition_key=key)
    found = placed(client, topic, 5 * len(KEYS))
    expected = {key: {HASHES[scheme](key) % PARTITIONS} for key in KEYS}
    assert found["java"] == expected
    assert all(len(partitions) == 1 for partitions in found["go"].values())
    without_sign = {key for key in KEYS if scheme != "JavaStringHash" or not is_negative(key)}
    assert without_sign
    assert {key: found["go"][key] for key in without_sign} == {key: expected[key] for key in without_sign}
    assert all(len(partitions) == 1 for partitions in found["python"].values())
    if scheme == "JavaStringHash":
        assert found["magnetar"] == expected


def test_a_pattern_of_the_python_client(client: pulsar.Client) -> None:
    """It asks for the list; topics of the system are not in it."""
    for name in ("python-a", "python-b", "other"):
        client.create_producer(f"{PREFIX}-{name}").send(name.encode())
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/({PREFIX}-python-|__).*"),
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert {consumer.receive(10_000).data() for _ in range(2)} == {b"python-a", b"python-b"}
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    consumer.close()
