"""Transactions over two brokers: requests that another broker has to answer, and a coordinator whose broker
is killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from bookkeeper_servers import BookKeeperServers
from client_programs import checks, go_command, java_command
from cluster_broker import BrokerProcess
from cluster_requests import asked
from polling import until
from running import running
from transacting_pair import REST, SECONDS, Pair, received

from magnetar.cli.pulsar_admin import main
from magnetar.client import TransactionNotFound

__all__ = ["go_command", "java_command"]

JAVA_FEATURES = "interop.TransactionFeatures"
SETTINGS: dict[str, int | str] = {
    "transactionCoordinatorEnabled": "true",
    "transactionBufferClientOperationTimeoutInMills": 500,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "delayedDeliveryTickTimeMillis": 50,
}


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    found = [BrokerProcess(tmp_path / f"broker{n}", without_brokers, **SETTINGS) for n in range(2)]
    with running(found):
        yield found


@pytest.fixture
def pair(brokers: list[BrokerProcess], request: pytest.FixtureRequest) -> Iterator[Pair]:
    one, other = brokers
    made = Pair(one, other, request.node.originalname)
    with closing(made.client):
        yield made


def test_both_brokers_answer_alike_about_all_transactions(
    brokers: list[BrokerProcess], pair: Pair, capsys: pytest.CaptureFixture[str]
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

    coordinators = pair.same(f"{REST}/coordinators", {0})
    count = len(coordinators)
    assert [each["id"] for each in coordinators] == list(range(count))
    for number, broker in zip(pair.coordinators, brokers, strict=True):
        assert coordinators[number]["brokerServiceUrl"] == broker.url
    stats = pair.same(f"{REST}/coordinatorStats", {0})
    slow = pair.same(f"{REST}/slowTransactions/1", {0})
    assert set(slow) == set(ids)
    for (most, least), name, starts in zip((each.id for each in transactions), ids, begins, strict=True):
        assert pair.same(f"{REST}/coordinatorStats?coordinatorId={most}", {0, 1}) == stats[str(most)]
        assert stats[str(most)]["ongoingTxnSize"] == 1
        internal = pair.same(f"{REST}/coordinatorInternalStats/{most}?metadata=true", {0, 1})
        assert internal["transactionLogStats"]["managedLedgerName"].endswith(f"__transaction_log_{most}")
        assert pair.same(f"{REST}/slowTransactions/1?coordinatorId={most}", {0, 1}) == {name: slow[name]}
        metadata = pair.same(f"{REST}/transactionMetadata/{most}/{least}", {0, 1})
        assert metadata == slow[name]
        assert metadata["status"] == "OPEN"
        produced = metadata["producedPartitions"]
        positions = [f"{start.ledger_id()}:{start.entry_id()}" for start in starts]
        assert produced == {
            topic: {"startPosition": at, "aborted": False} for topic, at in zip(full, positions, strict=True)
        }
        for topic in pair.topics:
            of_topic = pair.same(f"{REST}/transactionInBufferStats/{topic}/{most}/{least}", {0, 1})
            assert of_topic == produced[f"persistent://{topic}"]
    assert slow[ids[0]]["ackedPartitions"] == {topic: {"s": {}} for topic in full}
    for topic, at in zip(pair.topics, plain, strict=True):
        buffer = pair.same(f"{REST}/transactionBufferStats/{topic}?lowWaterMarks=true", {0, 1})
        assert (buffer["state"], buffer["ongoingTxnSize"]) == ("Ready", 2)
        pair.same(f"{REST}/transactionBufferInternalStats/{topic}?metadata=true", {0, 1})
        pending = pair.same(f"{REST}/pendingAckStats/{topic}/s?lowWaterMarks=true", {0, 1})
        assert (pending["state"], pending["ongoingTxnSize"]) == ("Ready", 1)
        log = pair.same(f"{REST}/pendingAckInternalStats/{topic}/s?metadata=true", {0, 1})
        assert log["pendingAckLogStats"]["managedLedgerName"].endswith("s__transaction_pending_ack")
        most, least = transactions[0].id
        assert pair.same(f"{REST}/transactionInPendingAckStats/{topic}/s/{most}/{least}", {0, 1}) == {}
        where = f"{at.ledger_id()}/{at.entry_id()}"
        position = pair.same(f"{REST}/positionStatsInPendingAck/{topic}/s/{where}", {0, 1})
        assert position == {"state": "PendingAck"}
    for number in pair.coordinators:
        pair.same(f"{REST}/transactionMetadata/{number}/999", {0, 1}, status=404)
    for broker in brokers:
        status, answer, _ = asked("GET", f"{broker.http_url}{REST}/coordinatorInternalStats/99")
        assert (status, json.loads(answer)["reason"]) == (
            404,
            "Transaction coordinator not found! coordinator id : 99",
        )

    # Each is aborted by a request to the other broker.
    for (most, least), broker in zip((each.id for each in transactions), reversed(brokers), strict=True):
        status, _, redirects = asked("POST", f"{broker.http_url}{REST}/abortTransaction/{most}/{least}")
        assert (status, redirects) == (204, 1)
        pair.same(f"{REST}/transactionMetadata/{most}/{least}", {0, 1}, status=404)
    for transaction in transactions:
        with pytest.raises(TransactionNotFound):
            transaction.commit()
    assert pair.same(f"{REST}/slowTransactions/1", {0}) == {}
    for consumer in consumers:
        assert received(consumer, 1) == [b"plain"]

    scaled = ["transactions", "scale-transactionCoordinators", "-r", str(count + 2)]
    assert main(["--admin-url", brokers[1].http_url, *scaled]) == 0
    assert len(pair.same(f"{REST}/coordinators", {0})) == count + 2
    capsys.readouterr()
    assert main(["--admin-url", brokers[0].http_url, *scaled]) == 1
    assert "should be more than the current number" in capsys.readouterr().err


def test_each_feature_of_the_clients_of_java_and_go(
    brokers: list[BrokerProcess], java_command: list[str], go_command: list[str]
) -> None:
    where = ["--url", brokers[0].url, "--http", brokers[0].http_url, "--prefix", "features"]
    go = [*go_command, "--url", brokers[1].url, "--prefix", "go", "--scenario", "transaction-features"]
    with ThreadPoolExecutor() as both:
        counts = both.map(len, both.map(checks, ([*java_command[:-1], JAVA_FEATURES, *where], go)))
        assert list(counts) == [31, 16]


def test_another_broker_ends_the_transactions_of_a_coordinator_that_was_killed(
    brokers: list[BrokerProcess], pair: Pair
) -> None:
    consumers = pair.subscribed()
    killed, other = brokers
    # The topics are where the coordinator is not.
    pair.topics = pair.topics[1:]
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
    until(
        lambda: "participants of a transaction could not be notified of its end" in killed.log,
        "it is decided",
        seconds=SECONDS,
    )
    killed.kill()
    other.signal(signal.SIGCONT)
    began = time.monotonic()
    committing.join(SECONDS)
    assert not committing.is_alive()
    assert str(decided.state).endswith("COMMITTED")
    assert received(consumers[1], 2) == [b"first", b"decided"]
    until(lambda: pair.gone(abandoned, asks=1), "it times out", seconds=SECONDS)
    goes_on.commit()
    assert received(consumers[1], 2) == [b"goes on", b"plain"]
    print(f"{time.monotonic() - began:.1f} s")
