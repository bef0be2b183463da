"""Transactions over two brokers: requests that another broker has to answer, and a coordinator whose broker
is killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from cluster_requests import asked

from magnetar.cli.pulsar_admin import main
from magnetar.client import (
    Client,
    Consumer,
    ConsumerType,
    InitialPosition,
    MessageId,
    Timeout,
    Transaction,
    TransactionNotFound,
)

NAMESPACE = "public/default"
COORDINATOR = "pulsar/system/transaction_coordinator_assign-partition-{}"
REST = "/admin/v3/transactions"
SETTINGS: dict[str, int | str] = {
    "transactionCoordinatorEnabled": "true",
    "transactionBufferClientOperationTimeoutInMills": 500,
}
SECONDS = 60.0


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Pair:
    """Two brokers, with a coordinator and a topic at each of them."""

    def __init__(self, one: BrokerProcess, other: BrokerProcess) -> None:
        self.all = (one, other)
        addresses = ",".join(each.url.removeprefix("pulsar://") for each in self.all)
        self.client = Client(f"pulsar://{addresses}")
        self.coordinators = self.placed([COORDINATOR.format(number) for number in range(16)])
        """The numbers of the coordinators."""
        topics = [f"{NAMESPACE}/t{number}" for number in range(20)]
        self.topics = [topics[number] for number in self.placed(topics)]

    def ask(self, broker: BrokerProcess, path: str, method: str = "GET", body: object = None) -> Any:
        """What a broker answers to a request that succeeds."""
        status, answer, _redirects = asked(method, broker.http_url + path, body)
        assert status < 300, (path, status, answer)
        return json.loads(answer) if answer[:1] in (b"{", b"[") else answer.decode()

    def placed(self, topics: list[str]) -> list[int]:
        """Has each broker serve a topic of its own; the numbers of these topics."""
        one, _other = self.all
        bundles = [self.ask(one, f"/lookup/v2/topic/persistent/{topic}/bundle") for topic in topics]
        numbers = [0, next(number for number, bundle in enumerate(bundles) if bundle != bundles[0])]
        for broker, number in zip(self.all, numbers, strict=True):
            lookup = f"/lookup/v2/topic/persistent/{topics[number]}"
            self.ask(one, lookup)
            namespace, target = topics[number].rpartition("/")[0], broker.http_url.removeprefix("http://")
            unload = f"/admin/v2/namespaces/{namespace}/{bundles[number]}/unload?destinationBroker={target}"
            self.ask(one, unload, "PUT")
            assert self.ask(one, lookup)["httpUrl"] == broker.http_url
        return numbers

    def begin(self, coordinator: int, seconds: float = 600.0) -> Transaction:
        """A transaction of a coordinator; clients take their coordinators in turn."""
        while True:
            found = self.client.transaction(timeout=seconds).begin()
            if found.id[0] == coordinator:
                return found
            found.abort()

    def subscribed(self) -> list[Consumer]:
        return [
            self.client.subscribe(
                topic, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
            )
            for topic in self.topics
        ]

    def published(self, payload: bytes, transaction: Transaction | None = None) -> list[MessageId]:
        """Sends a message to both topics."""
        found = []
        for topic in self.topics:
            producer = self.client.create_producer(topic, batching_enabled=False)
            found.append(producer.send(payload, transaction=transaction))
            producer.close()
        return found


@pytest.fixture
def pair(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[Pair]:
    brokers = [BrokerProcess(tmp_path / f"broker{n}", without_brokers, **SETTINGS) for n in range(2)]
    made: Pair | None = None
    try:
        for broker in brokers:
            broker.start()
        made = Pair(brokers[0], brokers[1])
        yield made
    finally:
        if made is not None:
            made.client.close()
        for broker in brokers:
            broker.close()


def received(consumer: Consumer, count: int) -> list[bytes]:
    """Receives messages and acknowledges them, and makes sure that no others follow."""
    found = []
    for _number in range(count):
        message = consumer.receive(int(SECONDS * 1000))
        consumer.acknowledge(message)
        found.append(message.data())
    with pytest.raises(Timeout):
        consumer.receive(500)
    return found


def same(pair: Pair, path: str, redirects: set[int], status: int = 200) -> Any:
    """What both brokers answer, and how often they send on; snapshots may be stored between the answers."""
    found: list[tuple[int, bytes, int]] = []
    deadline = time.monotonic() + SECONDS
    while not found or found[0][:2] != found[1][:2]:
        assert time.monotonic() < deadline, found
        found = [asked("GET", broker.http_url + path) for broker in pair.all]
    assert found[0][0] == status, (path, found)
    assert {each[2] for each in found} == redirects, (path, found)
    return json.loads(found[0][1])


def test_both_brokers_answer_alike_about_all_transactions(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    consumers = pair.subscribed()
    plain = pair.published(b"plain")
    messages = [consumer.receive(60_000) for consumer in consumers]
    transactions = [pair.begin(number) for number in pair.coordinators]
    begins = [pair.published(b"in %d" % n, each) for n, each in enumerate(transactions)]
    for consumer, message in zip(consumers, messages, strict=True):
        consumer.acknowledge(message, transaction=transactions[0])
    full = [f"persistent://{topic}" for topic in pair.topics]
    ids = [str(each.id) for each in transactions]

    coordinators = same(pair, f"{REST}/coordinators", {0})
    assert [each["id"] for each in coordinators] == list(range(16))
    for number, broker in zip(pair.coordinators, pair.all, strict=True):
        assert coordinators[number]["brokerServiceUrl"] == broker.url
    stats = same(pair, f"{REST}/coordinatorStats", {0})
    slow = same(pair, f"{REST}/slowTransactions/1", {0})
    assert set(slow) == set(ids)
    for (most, least), name, starts in zip((each.id for each in transactions), ids, begins, strict=True):
        assert same(pair, f"{REST}/coordinatorStats?coordinatorId={most}", {0, 1}) == stats[str(most)]
        assert stats[str(most)]["ongoingTxnSize"] == 1
        internal = same(pair, f"{REST}/coordinatorInternalStats/{most}?metadata=true", {0, 1})
        assert internal["transactionLogStats"]["managedLedgerName"].endswith(f"__transaction_log_{most}")
        assert same(pair, f"{REST}/slowTransactions/1?coordinatorId={most}", {0, 1}) == {name: slow[name]}
        metadata = same(pair, f"{REST}/transactionMetadata/{most}/{least}", {0, 1})
        assert metadata == slow[name]
        assert metadata["status"] == "OPEN"
        produced = metadata["producedPartitions"]
        positions = [f"{start.ledger_id()}:{start.entry_id()}" for start in starts]
        assert produced == {
            topic: {"startPosition": at, "aborted": False} for topic, at in zip(full, positions, strict=True)
        }
        for topic in pair.topics:
            of_topic = same(pair, f"{REST}/transactionInBufferStats/{topic}/{most}/{least}", {0, 1})
            assert of_topic == produced[f"persistent://{topic}"]
    assert slow[ids[0]]["ackedPartitions"] == {topic: {"s": {}} for topic in full}
    for topic, at in zip(pair.topics, plain, strict=True):
        buffer = same(pair, f"{REST}/transactionBufferStats/{topic}?lowWaterMarks=true", {0, 1})
        assert (buffer["state"], buffer["ongoingTxnSize"]) == ("Ready", 2)
        same(pair, f"{REST}/transactionBufferInternalStats/{topic}?metadata=true", {0, 1})
        pending = same(pair, f"{REST}/pendingAckStats/{topic}/s?lowWaterMarks=true", {0, 1})
        assert (pending["state"], pending["ongoingTxnSize"]) == ("Ready", 1)
        log = same(pair, f"{REST}/pendingAckInternalStats/{topic}/s?metadata=true", {0, 1})
        assert log["pendingAckLogStats"]["managedLedgerName"].endswith("s__transaction_pending_ack")
        most, least = transactions[0].id
        assert same(pair, f"{REST}/transactionInPendingAckStats/{topic}/s/{most}/{least}", {0, 1}) == {}
        where = f"{at.ledger_id()}/{at.entry_id()}"
        position = same(pair, f"{REST}/positionStatsInPendingAck/{topic}/s/{where}", {0, 1})
        assert position == {"state": "PendingAck"}
    for number in pair.coordinators:
        same(pair, f"{REST}/transactionMetadata/{number}/999", {0, 1}, status=404)
    for broker in pair.all:
        status, answer, _ = asked("GET", f"{broker.http_url}{REST}/coordinatorInternalStats/99")
        assert (status, json.loads(answer)["reason"]) == (
            404,
            "Transaction coordinator not found! coordinator id : 99",
        )

    # Each is aborted by a request to the other broker.
    for (most, least), broker in zip((each.id for each in transactions), reversed(pair.all), strict=True):
        status, _, redirects = asked("POST", f"{broker.http_url}{REST}/abortTransaction/{most}/{least}")
        assert (status, redirects) == (204, 1)
        same(pair, f"{REST}/transactionMetadata/{most}/{least}", {0, 1}, status=404)
    for transaction in transactions:
        with pytest.raises(TransactionNotFound):
            transaction.commit()
    assert same(pair, f"{REST}/slowTransactions/1", {0}) == {}
    for consumer in consumers:
        assert received(consumer, 1) == [b"plain"]

    scaled = ["transactions", "scale-transactionCoordinators", "-r", "18"]
    assert main(["--admin-url", pair.all[1].http_url, *scaled]) == 0
    assert len(same(pair, f"{REST}/coordinators", {0})) == 18
    capsys.readouterr()
    assert main(["--admin-url", pair.all[0].http_url, *scaled]) == 1
    assert "should be more than the current number" in capsys.readouterr().err


def test_another_broker_ends_the_transactions_of_a_coordinator_that_was_killed(pair: Pair) -> None:
    consumers = pair.subscribed()
    # The topics are where the coordinator is not.
    pair.topics = pair.topics[1:]
    killed, other = pair.all
    first = pair.begin(pair.coordinators[0])
    pair.published(b"first", first)
    # Connects the coordinator's broker to the other one.
    first.commit()
    decided, abandoned = pair.begin(pair.coordinators[0]), pair.begin(pair.coordinators[0], 15.0)
    goes_on = pair.begin(pair.coordinators[0])
    pair.published(b"decided", decided)
    pair.published(b"abandoned", abandoned)
    pair.published(b"goes on", goes_on)
    pair.published(b"plain")
    # The coordinator decides, and cannot tell the topic.
    other.signal(signal.SIGSTOP)
    committing = Thread(target=decided.commit)
    committing.start()
    until(lambda: "a participant of a transaction cannot be told its end yet" in killed.log, "it is decided")
    killed.kill()
    other.signal(signal.SIGCONT)
    began = time.monotonic()
    committing.join(SECONDS)
    assert not committing.is_alive()
    assert str(decided.state).endswith("COMMITTED")
    assert received(consumers[1], 2) == [b"first", b"decided"]
    until(lambda: abandoned_is_gone(other, abandoned), "it times out")
    goes_on.commit()
    assert received(consumers[1], 2) == [b"goes on", b"plain"]
    print(f"{time.monotonic() - began:.1f} s")


def abandoned_is_gone(broker: BrokerProcess, transaction: Transaction) -> bool:
    most, least = transaction.id
    status, _answer, _redirects = asked("GET", f"{broker.http_url}{REST}/transactionMetadata/{most}/{least}")
    return status == 404
