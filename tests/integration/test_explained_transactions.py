"""``explain`` of subscriptions that wait for a transaction, or whose messages one has acknowledged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from explained import administer, shown, side_of, told
from polling import until_wanted
from raw_transactions import Transactions
from server import Server

from magnetar.managed_ledger.position import format_position
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

KINDS = (CommandSubscribe.Exclusive, CommandSubscribe.Shared, CommandSubscribe.Key_Shared)


@pytest.fixture(scope="module")
def serving(start_server: Callable[..., Server]) -> Server:
    return start_server(transactionCoordinatorEnabled="true")


@pytest.fixture
def talk(serving: Server) -> Iterator[Transactions]:
    found = Transactions(serving.port)
    yield found
    found.client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_it_names_the_transaction_that_messages_wait_for(
    serving: Server, talk: Transactions, topic: str, kind: CommandSubscribe.SubType.ValueType
) -> None:
    producer, _ = talk.client.produce(topic)
    consumer = talk.client.subscribe(topic, "s", kind, permits=100)
    talk.send(producer, b"before", 0, None)
    talk.client.take(BaseCommand.MESSAGE, consumer_id=consumer)
    least, later = talk.begin(milliseconds=60_000), talk.begin()
    for each in (least, later):
        talk.add(each, topic)
    first = talk.send(producer, b"inside", 1, least)
    talk.send(producer, b"behind", 2, None)
    talk.send(producer, b"inside another", 3, later)
    found = told(serving, topic, "open_transaction")
    assert f"3 entries wait for the end of transaction (0,{least})" in found["sentence"]
    assert f"first message is at {format_position(first)}" in found["sentence"]
    figures = found["figures"]
    assert figures["timesOut"] - figures["opened"] == 60_000
    assert (figures["status"], figures["hidden"], figures["openTransactions"]) == ("OPEN", 3, 2)
    text = " ".join(shown(serving, topic).split())
    assert re.search(r"It has been open since 2\d{3}-\S+Z, and times out at 2\d{3}-\S+Z\.", text)
    assert found["try"] == f"pulsar-admin transactions abort-transaction -m 0 -l {least}"
    administer(serving, found["look"])
    administer(serving, found["try"])
    assert told(serving, topic, "open_transaction")["figures"]["transaction"] == f"(0,{later})"
    talk.end(later, commit=True)
    assert side_of(serving, topic)["reason"] == "at_end"


def test_a_transaction_that_its_coordinator_does_not_know(
    serving: Server, talk: Transactions, topic: str
) -> None:
    """Its messages came after its end, or the client never told the coordinator."""
    producer, _ = talk.client.produce(topic)
    talk.client.subscribe(topic, "s", permits=100)
    talk.send(producer, b"lost", 0, 999_999)
    found = told(serving, topic, "open_transaction")
    assert "Coordinator 0 does not know the transaction" in found["sentence"]
    assert found["figures"]["transaction"] == "(0,999999)"
    assert "try" not in found


def test_it_names_transactions_that_have_acknowledged_messages(
    serving: Server, talk: Transactions, topic: str
) -> None:
    producer, _ = talk.client.produce(topic)
    consumer = talk.client.subscribe(topic, "s", permits=100)
    for number in range(2):
        talk.send(producer, b"input", number, None)
    ids = [talk.client.take(BaseCommand.MESSAGE, consumer_id=consumer).message_id for _ in range(2)]
    least = talk.begin()
    talk.add(least, topic, "s")
    talk.acknowledge(consumer, ids[:1], least)
    found = until_wanted(lambda: side_of(serving, topic), lambda side: "pendingEntries" in side["figures"])
    assert found["reason"] == "at_end"
    assert f"Open transactions have acknowledged 1 entry ((0,{least}))" in found["sentence"]
    talk.end(least, commit=True)
    after = side_of(serving, topic)
    assert "pendingEntries" not in after["figures"]
    assert after["figures"]["backlog"] == 1
