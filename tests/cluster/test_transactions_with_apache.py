"""Transactions go from Apache Pulsar's broker to ours and back, on the same bookies.

What is open stays open, what was aborted stays hidden, pending acknowledgements hold their messages back, and
no id is given twice. The commands are said frame by frame, which both brokers understand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from apache_broker import ApacheBroker
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from raw_client import Client

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandLookupTopicResponse,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    Subscription,
    TxnAction,
)

COORDINATOR = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
TIMEOUT_MS = 600_000
SECONDS = 60.0
"""An answer of Apache Pulsar's broker that has just started may take half a minute."""
Broker = BrokerProcess | ApacheBroker
Txn = tuple[int, int]


class Talk:
    """A client of one broker, with a producer and a consumer on the topic."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic = topic
        self._client = Client(broker.port)
        for name in (COORDINATOR, topic):
            self._look_up(name)
        self._ask(BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tc_id=0)
        self._producer = self._client.produce(topic)[0]
        self._sequences = count()

    def _look_up(self, topic: str) -> None:
        """Has the broker own the topic's bundle.

        The broker may redirect to the one before it until ZooKeeper has dropped that one's session.
        """
        authoritative = False
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._client.ask(
                BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=topic, authoritative=authoritative
            )
            if answer.response == CommandLookupTopicResponse.Connect:
                return
            assert time.monotonic() < deadline, f"{topic} has no owner: {answer}"
            authoritative = answer.authoritative
            time.sleep(0.2)

    def _ask(self, kind: int, answer: int, **fields: Any) -> Any:
        request_id = self._client.begin(kind, **fields)
        found = self._client.take(answer, SECONDS, request_id=request_id)
        assert not found.HasField("error"), found
        return found

    def close(self) -> None:
        self._client.close()

    def begin(self) -> Txn:
        found = self._ask(
            BaseCommand.NEW_TXN, BaseCommand.NEW_TXN_RESPONSE, tc_id=0, txn_ttl_seconds=TIMEOUT_MS
        )
        return found.txnid_most_bits, found.txnid_least_bits

    def send(self, payload: bytes, txn: Txn | None = None) -> None:
        number = next(self._sequences)
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        ids: dict[str, int] = {}
        if txn is not None:
            ids = {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}
            metadata.txnid_most_bits, metadata.txnid_least_bits = txn
            self._ask(
                BaseCommand.ADD_PARTITION_TO_TXN,
                BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
                partitions=[self._topic],
                **ids,
            )
        self._client.publish(self._producer, number, build_entry(metadata, payload), **ids)
        self._client.take(BaseCommand.SEND_RECEIPT, SECONDS, producer_id=self._producer, sequence_id=number)

    def subscribe(self) -> int:
        return self._client.subscribe(self._topic, "s", CommandSubscribe.Shared, permits=100)

    def leave(self, consumer: int) -> None:
        self._client.close_consumer(consumer)

    def received(self, consumer: int, wanted: int) -> dict[bytes, MessageIdData]:
        """Receives messages, and makes sure that no others follow."""
        found = {}
        for _number in range(wanted):
            message, payload = self._client.message(consumer, SECONDS)
            found[payload] = message.message_id
        with pytest.raises(TimeoutError):
            self._client.message(consumer, 1.0)
        return found

    def acknowledge(self, consumer: int, message_id: MessageIdData, txn: Txn | None = None) -> None:
        ids: dict[str, int] = {}
        if txn is not None:
            ids = {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}
            self._ask(
                BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
                BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
                subscription=[Subscription(topic=self._topic, subscription="s")],
                **ids,
            )
        self._ask(
            BaseCommand.ACK,
            BaseCommand.ACK_RESPONSE,
            consumer_id=consumer,
            ack_type=CommandAck.Individual,
            message_id=[message_id],
            **ids,
        )

    def end(self, txn: Txn, *, commit: bool) -> None:
        self._ask(
            BaseCommand.END_TXN,
            BaseCommand.END_TXN_RESPONSE,
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
            txn_action=TxnAction.COMMIT if commit else TxnAction.ABORT,
        )


@contextmanager
def serving(broker: Broker, topic: str) -> Iterator[Talk]:
    broker.start()
    try:
        talk = Talk(broker, topic)
        yield talk
        talk.close()
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("segmented", "batched"),
    [
        ("false", "false"),
        pytest.param(
            "true",
            "true",
            marks=pytest.mark.skipif("MAGNETAR_TURNS" not in os.environ, reason="tools/soak does so"),
        ),
    ],
)
def test_transactions_go_from_one_broker_to_the_other_and_back(
    without_brokers: BookKeeperServers, tmp_path: Path, segmented: str, batched: str
) -> None:
    topic = f"persistent://public/default/txn-turns-{segmented}-{batched}"
    settings = {
        "transactionCoordinatorEnabled": "true",
        "transactionBufferSegmentedSnapshotEnabled": segmented,
        "transactionBufferSnapshotSegmentSize": "60",
        "transactionLogBatchedWriteEnabled": batched,
        "transactionPendingAckBatchedWriteEnabled": batched,
    }
    apaches = ApacheBroker(tmp_path / "apaches", without_brokers, **settings)
    ours = BrokerProcess(tmp_path / "ours", without_brokers, **settings)
    given: list[Txn] = []
    left: set[bytes] = set()
    """What the subscription has not acknowledged, and may receive."""
    still_open: Txn | None = None
    held: Txn | None = None
    try:
        for turn in range(3):
            name = b"%d " % turn
            with serving(ours if turn % 2 else apaches, topic) as talk:
                consumer = talk.subscribe()
                if still_open is not None and held is not None:
                    # Of the broker before: a message that is hidden, and one that a transaction acknowledged.
                    talk.received(consumer, len(left))
                    talk.end(held, commit=False)
                    left.add(b"held")
                    talk.end(still_open, commit=True)
                    left |= {b"open", b"behind"}
                    found = talk.received(consumer, 3)
                    assert set(found) == {b"held", b"open", b"behind"}
                    for message_id in found.values():
                        talk.acknowledge(consumer, message_id)
                    left -= set(found)
                committed, aborted, acknowledging = talk.begin(), talk.begin(), talk.begin()
                given += [committed, aborted, acknowledging]
                for _number in range(30):
                    # Enough for several segments.
                    another = talk.begin()
                    given.append(another)
                    talk.send(b"gone", another)
                    talk.end(another, commit=False)
                talk.send(name + b"plain")
                talk.send(name + b"committed", committed)
                talk.send(name + b"aborted", aborted)
                talk.send(b"held")
                talk.end(aborted, commit=False)
                talk.end(committed, commit=True)
                found = talk.received(consumer, 3)
                assert set(found) == {name + b"plain", name + b"committed", b"held"}
                talk.acknowledge(consumer, found[name + b"plain"], acknowledging)
                talk.end(acknowledging, commit=True)
                left.add(name + b"committed")
                still_open, held = talk.begin(), talk.begin()
                given += [still_open, held]
                talk.acknowledge(consumer, found[b"held"], held)
                talk.send(b"open", still_open)
                talk.send(b"behind")
                talk.leave(consumer)
                consumer = talk.subscribe()
                assert set(talk.received(consumer, len(left))) == left
        assert len(set(given)) == len(given)
        assert given == sorted(given)
    finally:
        apaches.close()
        ours.close()
