"""Transactions that are open while their topics migrate to another cluster (PIP-188)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client_programs import go_command, java_command
from polling import until
from raw_transactions import Sender, Transactions
from replicated_sites import Site, connect, make_namespace
from server import Server

from magnetar.client import Client, Consumer, InitialPosition
from magnetar.client.exceptions import InvalidTxnStatusError, TransactionHasOperationFailed
from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

__all__ = ["go_command", "java_command"]

Two = tuple[Site[Server], Site[Server]]
WAIT = 20_000
ON: dict[str, str] = {"transactionCoordinatorEnabled": "true", "clusterMigrationCheckDurationSeconds": "1"}


@pytest.fixture(scope="module")
def green(start_server: Callable[..., Server]) -> Iterator[Site[Server]]:
    site = Site("green", start_server(clusterName="green", **ON))
    yield site
    site.client.close()


@pytest.fixture
def two(start_server: Callable[..., Server], green: Site[Server]) -> Iterator[Two]:
    """The cluster that is left, made for each test, and the one that clients go to."""
    more = {"clusterMigrationAutoResourceCreation": "true"}
    blue = Site("blue", start_server(clusterName="blue", **ON, **more))
    connect(blue, green)
    yield blue, green
    blue.client.close()
    blue.server.close()


def migrate(blue: Site[Server], green: Site[Server]) -> None:
    urls = {"serviceUrl": green.server.http_url, "brokerServiceUrl": green.server.url}
    blue.ask("POST", "/clusters/blue/migrate?migrated=true", urls)


def moves(blue: Site[Server], topic: str) -> None:
    """Returns when the topic takes no more producers."""
    until(lambda: explained(blue, topic)["reason"] == "migrated", f"{topic} migrates")


def explained(site: Site[Server], topic: str) -> Any:
    return json.loads(site.ask("GET", f"/{topic.replace('://', '/')}/explain"))["producers"]


def contents(consumer: Consumer, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT)
        consumer.acknowledge(message)
        found.append(message.data())
    return found


def test_what_was_published_is_committed_here_and_producers_go_after_it(two: Two) -> None:
    blue, green = two
    namespace = make_namespace("commits", blue, clusters=["blue"])
    inputs, outputs = (f"persistent://{namespace}/{name}" for name in ("in", "out"))
    with Client(blue.server.url) as client:
        consumer = client.subscribe(inputs, "s")
        reader = client.subscribe(outputs, "s")
        client.create_producer(inputs).send(b"input")
        producer = client.create_producer(outputs)
        message = consumer.receive(WAIT)
        transaction = client.transaction(timeout=600).begin()
        producer.send(b"output", transaction=transaction)
        consumer.acknowledge(message, transaction=transaction)
        migrate(blue, green)
        moves(blue, outputs)
        told = explained(blue, outputs)["sentence"]
        assert "producers are redirected when its open transactions have ended: (0,0)." in told
        transaction.commit()
        assert contents(reader, 1) == [b"output"]
        producer.send(b"later")
        assert contents(reader, 1) == [b"later"]
        client.create_producer(inputs).send(b"next")
        assert contents(consumer, 1) == [b"next"]
        for topic in (inputs, outputs):
            assert green.stats(topic.removeprefix("persistent://"))["msgInCounter"] == 1
        # Transactions of the cluster that was left publish nothing more there.
        other = client.transaction(timeout=600).begin()
        with pytest.raises(InvalidTxnStatusError, match="has migrated to another cluster"):
            producer.send(b"lost", transaction=other)
        with pytest.raises(TransactionHasOperationFailed):
            other.commit()
        producer.send(b"last")
        assert contents(reader, 1) == [b"last"]


def test_an_interrupted_transaction_leaves_nothing_and_gives_its_inputs_back(two: Two) -> None:
    """A message that waits for the other cluster does not arrive there: it would hide what follows."""
    blue, green = two
    namespace = make_namespace("aborts", blue, clusters=["blue"])
    inputs, outputs = (f"persistent://{namespace}/{name}" for name in ("in", "out"))
    with Client(blue.server.url) as client:
        consumer = client.subscribe(inputs, "s", initial_position=InitialPosition.Earliest)
        reader = client.subscribe(outputs, "s")
        client.create_producer(inputs).send(b"input")
        producer = client.create_producer(outputs)
        message = consumer.receive(WAIT)
        transaction = client.transaction(timeout=4).begin()
        producer.send(b"output", transaction=transaction)
        consumer.acknowledge(message, transaction=transaction)
        migrate(blue, green)
        moves(blue, outputs)
        outcome: list[object] = []
        producer.send_async(b"more", lambda *result: outcome.append(result), transaction=transaction)
        with pytest.raises(InvalidTxnStatusError):
            transaction.commit()
        until(lambda: bool(outcome), "the message fails")
        assert contents(consumer, 1) == [b"input"]
        producer.send(b"later")
        assert contents(reader, 1) == [b"later"]
        assert green.stats(outputs.removeprefix("persistent://"))["msgInCounter"] == 1


def test_a_coordinator_adds_no_topic_that_has_migrated(two: Two) -> None:
    blue, green = two
    topic = f"persistent://{make_namespace('refused', blue, clusters=['blue'])}/t"
    talk = Transactions(blue.server.port)
    least = talk.begin()
    talk.add(least, topic)
    sender = Sender(talk.client, topic)
    migrate(blue, green)
    talk.client.take(BaseCommand.CLOSE_PRODUCER, WAIT / 1000, producer_id=sender.number)
    until(lambda: blue.internal(topic.removeprefix("persistent://"))["state"] == "Terminated", "it has ended")
    answer = talk.client.ask(
        BaseCommand.ADD_PARTITION_TO_TXN,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        partitions=[topic],
        txnid_least_bits=least,
        txnid_most_bits=0,
    )
    assert answer.error == ServerErrorCode.NOT_ALLOWED
    assert f"has migrated to {green.server.url}" in answer.message
    talk.add(least, "persistent://pulsar/system/another")
    talk.end(least, commit=True)
    talk.client.close()


def test_a_consumer_acknowledges_nothing_in_the_other_cluster(two: Two) -> None:
    blue, green = two
    topic = f"persistent://{make_namespace('acks', blue, clusters=['blue'])}/t"

    def backlog() -> int:
        return int(green.stats(topic.removeprefix("persistent://"))["subscriptions"]["s"]["msgBacklog"])

    with Client(blue.server.url) as client:
        consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        producer = client.create_producer(topic)
        migrate(blue, green)
        moves(blue, topic)
        for cumulative in (False, True):
            producer.send(b"there")
            message = consumer.receive(WAIT)
            transaction = client.transaction(timeout=600).begin()
            acknowledge = consumer.acknowledge_cumulative if cumulative else consumer.acknowledge
            with pytest.raises(InvalidTxnStatusError, match="has migrated to another cluster"):
                acknowledge(message, transaction=transaction)
            with pytest.raises(TransactionHasOperationFailed):
                transaction.commit()
            assert backlog() == 1
            consumer.acknowledge(message)
            until(lambda: backlog() == 0, "it is acknowledged")


@pytest.mark.parametrize(
    "language",
    [
        "java",
        # This client waits for its operation time-out, and its back-off, before it uses the other cluster.
        pytest.param(
            "go", marks=pytest.mark.skipif("MAGNETAR_MOVED_GO" not in os.environ, reason="tools/soak does so")
        ),
    ],
)
def test_clients(two: Two, language: str, request: pytest.FixtureRequest) -> None:
    """One transaction is committed after the migration, and one times out: its message stays hidden, and its
    input comes back. A new transaction is refused: its commit would succeed without its message."""
    blue, green = two
    topic = f"persistent://{make_namespace(language, blue, clusters=['blue'])}/t"
    program: list[str] = request.getfixturevalue(f"{language}_command")
    if language == "java":
        command = [*program[:-1], "interop.MovedTransactions", blue.server.url, topic]
    else:
        command = [*program, "--url", blue.server.url, "--scenario", "moved-transactions", "--prefix", topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == "step migrate\n"
            migrate(blue, green)
            moves(blue, topic)
            process.stdin.write("\n")
            process.stdin.flush()
            said = process.stdout.read().splitlines()
            assert process.wait(60) == 0
        finally:
            process.kill()
    [refused] = [each for each in said if each.startswith("refused")]
    # Go's client keeps the broker's reason to itself.
    assert ("has migrated to" if language == "java" else "NotAllowedError") in refused
    said.remove(refused)
    assert sorted(said[:2]) == ["received committed 0", "received given back 1"]
    if language == "java":
        assert said[2:] == ["received there", "not committed", "received last"]
        assert green.stats(topic.removeprefix("persistent://"))["msgInCounter"] == 2
    else:
        assert (said[2], said[-1]) == ("received there", "received last")
    with Client(green.server.url) as client:
        reader = client.subscribe(topic, "all", initial_position=InitialPosition.Earliest)
        while (found := reader.receive(WAIT).data()) != b"last":
            assert found == b"there"
