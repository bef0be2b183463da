"""Shadow topics of a standalone broker (PIP-180), with the official client and ``pulsar-admin``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import httpx
import pulsar
import pytest
from polling import until
from server import Server

from magnetar.client import Client
from magnetar.client.exceptions import PulsarException

ADMIN = Path(sys.executable).with_name("pulsar-admin")
NUMBERS = count()
Id = tuple[int, int]


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server()


@pytest.fixture
def client(server: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(server.url)
    yield client
    client.close()


def admin(server: Server, *arguments: str) -> str:
    command = [str(ADMIN), "--admin-url", server.http_url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def make(server: Server, partitions: int = 0) -> tuple[str, str]:
    """A source, and its shadow."""
    number = next(NUMBERS)
    source, shadow = (f"persistent://public/default/{kind}-{number}" for kind in ("source", "shadow"))
    properties = {"PULSAR.SHADOW_SOURCE": source}
    if partitions:
        ask(server, "PUT", source, "/partitions", str(partitions))
        body = json.dumps({"partitions": partitions, "properties": properties})
        kind = "application/vnd.partitioned-topic-metadata+json"
        request = Request(server.http_url + path_of(shadow) + "/partitions", body.encode(), method="PUT")
        request.add_header("Content-Type", kind)
        urlopen(request, timeout=60).close()
    else:
        ask(server, "PUT", source)
        ask(server, "PUT", shadow, "", json.dumps(properties))
    ask(server, "PUT", source, "/shadowTopics", json.dumps([shadow]))
    return source, shadow


def ask(server: Server, method: str, topic: str, rest: str = "", body: str | None = None) -> bytes:
    status, answer = server.ask(method, path_of(topic) + rest, body)
    assert status < 300, (status, answer)
    return answer


def publish(client: pulsar.Client, topic: str, *contents: bytes) -> list[Id]:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [place(producer.send(each)) for each in contents]
    producer.close()
    return ids


def place(message_id: pulsar.MessageId) -> Id:
    return message_id.ledger_id(), message_id.entry_id()


def internal(server: Server, topic: str) -> Any:
    return json.loads(server.ask("GET", f"{path_of(topic)}/internalStats")[1])


def path_of(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"


def backlog(server: Server, source: str, shadow: str) -> int:
    found = json.loads(ask(server, "GET", source, "/stats"))["replication"]
    return int(found[shadow]["replicationBacklog"])


def connected(server: Server, source: str, shadow: str) -> bool:
    found = json.loads(ask(server, "GET", source, "/stats"))["replication"]
    return bool(found[shadow]["connected"])


def cursors(server: Server, topic: str) -> set[str]:
    return set(internal(server, topic)["cursors"])


def ledgers(server: Server, topic: str) -> list[int]:
    return [each["ledgerId"] for each in internal(server, topic)["ledgers"]]


def receive(consumer: pulsar.Consumer, number: int) -> list[tuple[Id, bytes]]:
    found = []
    for _ in range(number):
        message = consumer.receive(20_000)
        consumer.acknowledge(message)
        found.append((place(message.message_id()), message.data()))
    return found


def test_a_shadow_has_the_messages_of_its_source_with_their_ids(
    server: Server, client: pulsar.Client
) -> None:
    source, shadow = "persistent://public/default/orders", "persistent://public/default/orders-readers"
    admin(server, "topics", "create", source)
    admin(server, "topics", "create-shadow-topic", "-s", source, shadow)
    admin(server, "topics", "set-shadow-topics", "-t", shadow, source)
    assert admin(server, "topics", "get-shadow-source", shadow) == source
    assert shadow in admin(server, "topics", "get-shadow-topics", source)
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    contents = [b"%d" % number for number in range(10)]
    ids = publish(client, source, *contents)
    assert receive(consumer, 10) == list(zip(ids, contents, strict=True))
    until(lambda: backlog(server, source, shadow) == 0, "the source still waits for its shadow")
    inbound = json.loads(ask(server, "GET", shadow, "/stats"))["replication"]
    assert inbound[source]["msgInCount"] == 10
    assert (
        f"All messages have arrived in shadow topic {shadow}"
        in ask(server, "GET", source, "/explain").decode()
    )
    admin(server, "topics", "remove-shadow-topics", source)


def test_consumers_of_a_shadow_seek_and_unload_and_go_on(server: Server, client: pulsar.Client) -> None:
    source, shadow = make(server)
    ids = publish(client, source, *(b"%d" % number for number in range(5)))
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert [each for each, _ in receive(consumer, 5)] == ids
    consumer.seek(pulsar.MessageId(-1, ids[2][0], ids[2][1], -1))
    # The client leaves out the message that it names.
    assert [each for each, _ in receive(consumer, 2)] == ids[3:]
    for unloaded in (source, shadow):
        ask(server, "PUT", unloaded, "/unload")
        more = publish(client, source, b"more")
        # What was acknowledged last may come again: the client gathers acknowledgements.
        while receive(consumer, 1)[0][0] != more[0]:
            pass


def test_only_a_source_publishes_to_its_shadow(server: Server) -> None:
    _source, shadow = make(server)
    # The client in C++ connects again for ever after such a refusal.
    with Client(server.url) as client:
        producer = client.create_producer(shadow)
        with pytest.raises(PulsarException, match="Cannot send messages to a shadow topic"):
            producer.send(b"x")


def test_each_partition_has_its_own_shadow(server: Server, client: pulsar.Client) -> None:
    source, shadow = make(server, partitions=2)
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    ids = set(publish(client, source, *(b"%d" % number for number in range(6))))
    assert {each for each, _ in receive(consumer, 6)} == ids


def test_a_removed_shadow_hears_no_more_and_leaves_no_cursor(server: Server, client: pulsar.Client) -> None:
    source, shadow = make(server)
    first = publish(client, source, b"first")
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert receive(consumer, 1) == [(first[0], b"first")]
    name = f"pulsar.repl-{quote(shadow, safe='')}"
    assert name in cursors(server, source)
    ask(server, "DELETE", source, "/shadowTopics")
    until(lambda: name not in cursors(server, source), "the cursor is still there")
    publish(client, source, b"second")
    with pytest.raises(pulsar.Timeout):
        consumer.receive(500)


def test_what_a_shadow_cannot_be_is_refused(server: Server) -> None:
    source, shadow = make(server)

    def put(*names: str) -> int:
        return server.ask("PUT", f"{path_of(source)}/shadowTopics", json.dumps(names))[0]

    assert put(source) == put("persistent://public/default/none") == put() == 412
    assert put("non-persistent://public/default/x") == put("persistent://x") == 403
    other, _ = make(server)
    assert put(other) == 412
    assert put(shadow) == 204


def test_a_source_is_trimmed_and_deleted_whatever_its_shadow_has_read(
    server: Server, client: pulsar.Client
) -> None:
    source, shadow = make(server)
    publish(client, source, b"old")
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert receive(consumer, 1)[0][1] == b"old"
    consumer.close()
    ask(server, "PUT", shadow, "/subscription/kept")
    publish(client, source, b"old")
    ask(server, "PUT", source, "/unload")
    new = publish(client, source, b"new")
    until(lambda: new[0][0] in ledgers(server, shadow) and len(ledgers(server, shadow)) == 1, "not trimmed")
    consumer = client.subscribe(shadow, "s")
    assert receive(consumer, 1) == [(new[0], b"new")]
    consumer.close()
    ask(server, "DELETE", source, "?force=true")
    until(lambda: not ledgers(server, shadow), "the ledgers are still there")
    ask(server, "DELETE", shadow, "?force=true")


def test_deleting_a_shadow_leaves_its_source(server: Server, client: pulsar.Client) -> None:
    source, shadow = make(server)
    reader = client.create_reader(source, pulsar.MessageId.earliest)
    publish(client, source, b"x")
    assert reader.read_next(10_000).data() == b"x"
    ask(server, "DELETE", shadow, "?force=true")
    ask(server, "PUT", source, "/unload")
    again = client.create_reader(source, pulsar.MessageId.earliest)
    publish(client, source, b"y")
    assert again.read_next(10_000).data() in (b"x", b"y")


def test_a_terminated_source_ends_its_shadow(server: Server, client: pulsar.Client) -> None:
    source, shadow = make(server)
    publish(client, source, b"x")
    ask(server, "POST", source, "/terminate")
    until(lambda: internal(server, shadow)["state"] == "Terminated", "not ended")
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert receive(consumer, 1)[0][1] == b"x"
    # Only when all entries are announced does the cursor of the source let go of its ledgers.
    ask(server, "PUT", shadow, "/unload")
    until(lambda: connected(server, source, shadow), "the source does not announce its last entry again")
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(shadow)


def test_a_shadow_is_there_after_a_restart(server: Server) -> None:
    source, shadow = make(server)
    client = pulsar.Client(server.url)
    ids = publish(client, source, b"before", b"before")
    consumer = client.subscribe(shadow, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert [each for each, _ in receive(consumer, 1)] == ids[:1]
    client.close()
    server.restart(kill=False)
    client = pulsar.Client(server.url)
    consumer = client.subscribe(shadow, "s")
    assert [each for each, _ in receive(consumer, 1)] == ids[1:]
    after = publish(client, source, b"after")
    assert receive(consumer, 1) == [(after[0], b"after")]
    client.close()


def test_a_topic_with_messages_does_not_become_a_shadow(server: Server, client: pulsar.Client) -> None:
    source, shadow = make(server)
    topic = f"persistent://public/default/own-{next(NUMBERS)}"
    client.subscribe(topic, "keeps").close()
    [stored] = publish(client, topic, b"kept")
    path, shadow_path = (f"{server.http_url}/admin/v2/{each.replace('://', '/')}" for each in (topic, shadow))
    for url, value in ((path, source), (shadow_path, topic)):
        refused = httpx.put(f"{url}/properties", json={"PULSAR.SHADOW_SOURCE": value})
        assert refused.status_code == 412
        assert "cannot be changed" in refused.json()["reason"]
    shadow_path = f"{server.http_url}/admin/v2/{shadow.replace('://', '/')}"
    assert (
        httpx.delete(f"{shadow_path}/properties", params={"key": "PULSAR.SHADOW_SOURCE"}).status_code == 412
    )
    same = httpx.put(f"{shadow_path}/properties", json={"PULSAR.SHADOW_SOURCE": source, "a": "b"})
    assert same.status_code == 204
    admin(server, "topics", "unload", topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert place(reader.read_next(10_000).message_id()) == stored
    reader.close()


def test_metrics_of_a_source_tell_of_its_shadows(server: Server, client: pulsar.Client) -> None:
    source, shadow = make(server)
    consumer = client.subscribe(shadow, "s")
    publish(client, source, b"1", b"2")
    receive(consumer, 2)
    until(lambda: not backlog(server, source, shadow), "the shadow has confirmed everything")
    labels = f'cluster="standalone",namespace="public/default",topic="{source}",shadow_topic="{shadow}"'
    text = server.ask("GET", "/metrics")[1].decode()
    assert f"magnetar_shadow_backlog{{{labels}}} 0\n" in text
    assert f"magnetar_shadow_connected_count{{{labels}}} 1\n" in text
    assert f"magnetar_shadow_lag_seconds{{{labels}}} 0" in text
    consumer.close()
