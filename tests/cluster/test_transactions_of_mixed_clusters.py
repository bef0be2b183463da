"""Transactions over a broker of Apache Pulsar and one of ours, which serve one cluster at the same time.

The abort of a transaction can deadlock a subscription of Apache Pulsar 4.0.8. The thread that aborts its
acknowledgements holds the lock of ``PendingAckHandleImpl`` and waits for the dispatcher's lock
(``redeliverUnacknowledgedMessages``). The dispatcher holds its own lock, acknowledges the marker of the
abort, and waits for the first lock (``clearIndividualPosition``). Only a restart of that broker ends this. On
a busy machine, about one run in ten meets the deadlock; if the JVM reports one, the test starts again with
new brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
from apache_broker import ApacheBroker
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from polling import until
from raw_client import Client as RawClient
from raw_client import entry_of
from raw_transactions import transactional
from running import running
from transacting_pair import COORDINATOR, NAMESPACE, REST, SECONDS, Pair, arrived, received

from magnetar.client import Timeout, Transaction
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

SNAPSHOTS = f"{NAMESPACE}/__transaction_buffer_snapshot"
SETTINGS = {"transactionCoordinatorEnabled": "true"}
_TRIES = 4


class Mixed:
    """The first broker of the pair is ours, the other is Apache's."""

    def __init__(self, ours: BrokerProcess, apaches: ApacheBroker, name: str) -> None:
        self.ours = ours
        self.pair = Pair(ours, apaches, name)
        self.consumers = self.pair.subscribed()
        self.reading = pulsar.Client(ours.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self.readers = [
            self.reading.create_reader(topic, pulsar.MessageId.earliest) for topic in self.pair.topics
        ]
        self.older: list[Transaction] = []
        """Stay open while others, of the same coordinator, end."""

    def close(self) -> None:
        self.reading.close()
        self.pair.client.close()

    def inputs(self, name: bytes) -> None:
        """A message of each topic that a transaction may acknowledge."""
        self.pair.published(name)
        self.visible(name)

    def visible(self, *payloads: bytes) -> None:
        """What the official client reads next, of each topic, and nothing else."""
        for reader in self.readers:
            assert [reader.read_next(int(SECONDS * 1000)).data() for _ in payloads] == list(payloads)
        for reader in self.readers:
            with pytest.raises(pulsar.Timeout):
                reader.read_next(200)

    def processed(self, coordinator: int, name: bytes) -> Transaction:
        """An open transaction that has read a message of each topic and published one to each."""
        self.inputs(name + b" input")
        transaction = self.pair.begin(coordinator)
        for consumer in self.consumers:
            [message] = arrived(consumer, 1)
            assert message.data() == name + b" input"
            consumer.acknowledge(message, transaction=transaction)
        self.pair.published(name, transaction)
        self.visible()
        return transaction

    def late(self, coordinator: int) -> pulsar.Reader:
        """Sends a message of a transaction after its end to a topic that was not told the end, and a message
        that belongs to no transaction behind it.

        :param coordinator: the transaction is of another one, of the same bundle
        :returns: what waits for the messages
        """
        pair = self.pair
        bundle = pair.bundle(COORDINATOR.format(coordinator))
        other = next(
            number
            for number in range(16)
            if number != coordinator and pair.bundle(COORDINATOR.format(number)) == bundle
        )
        own = {pair.bundle(topic) for topic in (*pair.topics, SNAPSHOTS)}
        topic = next(name for name in pair.names[coordinator::2] if pair.bundle(name) not in own)
        pair.move(topic, pair.all[0])
        self.older.append(pair.begin(other))
        transaction = pair.begin(other)
        transaction.abort()
        most, least = transaction.id
        client = RawClient(self.ours.port)
        producer = client.produce(f"persistent://{topic}")[0]
        entry = transactional(b"late", transaction.id)
        client.publish(producer, 0, entry, txnid_most_bits=most, txnid_least_bits=least)
        client.take(BaseCommand.SEND_RECEIPT, producer_id=producer, sequence_id=0)
        client.publish(producer, 1, entry_of(b"plain", 1))
        client.take(BaseCommand.SEND_RECEIPT, producer_id=producer, sequence_id=1)
        client.close()
        reader = self.reading.create_reader(topic, pulsar.MessageId.earliest)
        assert not reader.has_message_available()
        return reader

    def committed(self, transaction: Transaction, name: bytes) -> None:
        transaction.commit()
        self.visible(name)
        for consumer in self.consumers:
            assert received(consumer, 1) == [name]

    def aborted(self, transaction: Transaction, name: bytes) -> None:
        transaction.abort()
        self.visible()
        for consumer in self.consumers:
            assert received(consumer, 1) == [name + b" input"]


Story = Callable[[Mixed], None]


def play(story: Story, servers: BookKeeperServers, folder: Path, *, ours_leads: bool) -> None:
    """Starts a broker of each kind and plays a story, with new brokers if Apache's one is in a deadlock.

    :param ours_leads: whether our broker starts first, and leads
    """
    for number in range(_TRIES):
        name = f"{story.__name__}-{number}"
        servers.remove_registrations()
        ours = BrokerProcess(folder / f"ours{number}", servers, **SETTINGS)
        apaches = ApacheBroker(folder / f"apaches{number}", servers, **SETTINGS)
        with (
            running((ours, apaches) if ours_leads else (apaches, ours)),
            closing(Mixed(ours, apaches, name)) as mixed,
        ):
            try:
                story(mixed)
            except (AssertionError, Timeout, pulsar.Timeout):
                if not apaches.deadlocked():
                    raise
                # Nothing can be closed there any more.
                apaches.kill()
            else:
                return
    pytest.fail(f"Apache Pulsar's broker ended in a deadlock {_TRIES} times")


def test_a_transaction_reaches_brokers_of_both_kinds(cluster: BookKeeperServers, tmp_path: Path) -> None:
    play(both_kinds, cluster, tmp_path, ours_leads=False)


def both_kinds(mixed: Mixed) -> None:
    pair = mixed.pair
    for broker in pair.all:
        pair.move(SNAPSHOTS, broker)
        for number in pair.coordinators:
            name = b"%d %s" % (number, type(broker).__name__.encode())
            committed = mixed.processed(number, name + b" committed")
            most, least = committed.id
            metadata = pair.same(f"{REST}/transactionMetadata/{most}/{least}", {0, 1})
            assert set(metadata["producedPartitions"]) == {f"persistent://{each}" for each in pair.topics}
            mixed.committed(committed, name + b" committed")
            mixed.aborted(mixed.processed(number, name + b" aborted"), name + b" aborted")

    # Nobody asks the coordinator after its move to ours, and the leader does not look after it either.
    abandoned = pair.begin(pair.coordinators[1], 4.0)
    pair.published(b"abandoned", abandoned)
    pair.published(b"plain")
    pair.move(COORDINATOR.format(pair.coordinators[1]), pair.all[0])
    mixed.visible(b"plain")
    until(lambda: pair.gone(abandoned), "it times out", seconds=SECONDS)


def test_open_transactions_survive_moves_to_brokers_of_the_other_kind(
    cluster: BookKeeperServers, tmp_path: Path
) -> None:
    play(moves, cluster, tmp_path, ours_leads=True)


def moves(mixed: Mixed) -> None:
    pair = mixed.pair
    ours, apaches = pair.all
    late = [mixed.late(number) for number in pair.coordinators]
    for number in range(4):
        pair.published(b"in %d" % number)
    inputs = [arrived(consumer, 4) for consumer in mixed.consumers]
    # Two of each coordinator.
    transactions = [pair.begin(pair.coordinators[number % 2]) for number in range(4)]
    for number, transaction in enumerate(transactions):
        for consumer, messages in zip(mixed.consumers, inputs, strict=True):
            consumer.acknowledge(messages[number], transaction=transaction)
        pair.published(b"out %d" % number, transaction)
    mixed.visible(*(b"in %d" % number for number in range(4)))

    for number, target in zip(pair.coordinators, (apaches, ours), strict=True):
        pair.move(COORDINATOR.format(number), target)
    transactions[1].abort()
    transactions[0].commit()
    mixed.visible(b"out 0")
    for consumer in mixed.consumers:
        assert set(received(consumer, 2)) == {b"in 1", b"out 0"}
    for most, least in (transaction.id for transaction in transactions[2:]):
        described = pair.same(f"{REST}/transactionMetadata/{most}/{least}", {0, 1})
        assert described["status"] == "OPEN"
        assert set(described["ackedPartitions"]) == {f"persistent://{each}" for each in pair.topics}
        stats = pair.same(f"{REST}/coordinatorStats?coordinatorId={most}", {0, 1})
        assert (stats["ongoingTxnSize"], stats["lowWaterMark"]) == (1, least - 1)

    for topic, target in zip(pair.topics, (apaches, ours), strict=True):
        pair.move(topic, target)
    mixed.visible()
    for consumer in mixed.consumers:
        assert arrived(consumer, 0) == []
    for reader in late:
        assert reader.read_next(int(SECONDS * 1000)).data() == b"plain"
    for transaction in mixed.older:
        assert not pair.gone(transaction)
        transaction.abort()
    transactions[3].abort()
    transactions[2].commit()
    mixed.visible(b"out 2")
    for consumer in mixed.consumers:
        assert set(received(consumer, 2)) == {b"in 3", b"out 2"}
