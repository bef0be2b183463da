"""Deduplication of a topic in a simulated world: commits of several producers, failures, crashes."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from faulty_ledgers import FaultyLedgerStore
from simulated_io import SimulatedDisk
from world import World

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.admission import JudgedPart, Verdict
from magnetar.broker.publishing.deduplication import DeduplicationSettings
from magnetar.broker.publishing.producer import AccessMode, Producer, Publish
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.persistent import Topic, TopicSettings
from magnetar.errors import BrokerError, ServerErrorCode
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import LedgerStore
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

NAME = TopicName.parse("persistent://public/default/once")
LARGE = ManagedLedgerSettings()


class Client:
    """The connection of one producer; remembers what it was told."""

    address = "client"
    client_version = "test"
    supports_partial_producer = False

    def __init__(self, topic: Topic, name: str) -> None:
        self.stored: list[int] = []
        self.failed: list[int] = []
        self.errors: list[BrokerError] = []
        self.duplicates: list[int] = []
        self.undecided: list[int] = []
        self._topic = topic
        connection: Any = self
        self.publishing = connection
        self.producer = Producer(
            topic,
            connection,
            1,
            name,
            user_provided_name=True,
            epoch=0,
            access_mode=AccessMode.Shared,
            topic_epoch=None,
            metadata={},
            connected_ms=0,
        )

    def send(self, *sequence_ids: int, padding: int = 0) -> None:
        """Publishes entries as one run."""
        metadata = MessageMetadata(producer_name=self.producer.name, publish_time=1)
        entries = []
        for number in sequence_ids:
            metadata.sequence_id = number
            entries.append(build_entry(metadata, b"x" + bytes(padding)))
        ends = array("q")
        for entry in entries:
            ends.append((ends[-1] if ends else 0) + len(entry))
        starts = array("q", [0, *ends[:-1]])
        none = array("q", [-1] * len(entries))
        ids, contents = array("q", sequence_ids), b"".join(entries)
        assert self._topic.admission is not None
        parts = self._topic.admission.judge(
            self.producer.name, ids, none, contents, starts, ends, chunked=False
        )
        for part in [JudgedPart(0, len(ids), Verdict.STORE)] if parts is None else parts:
            some = slice(part.first, part.end)
            if part.verdict is Verdict.DUPLICATE:
                self.duplicates += ids[some]
            elif part.verdict is Verdict.STORE:
                publish = Publish(self.producer, ids[some], none[some], part.end - part.first, 0.0)
                size = ends[part.end - 1] - starts[part.first]
                self._topic.publish(publish, contents, starts[some], ends[some], size)
            else:
                self.undecided += ids[some]

    def on_durable(
        self, producer: Producer, publish: Publish, ledger_id: int, entry_id: int, *part: int
    ) -> None:
        first, count, _size = part
        self.stored += publish.sequence_ids[first : first + count]

    def on_failed(self, producer: Producer, publish: Publish, *rest: Any) -> None:
        first, count = rest[:2]
        self.errors.append(rest[3])
        self.failed += publish.sequence_ids[first : first + count]


class Once:
    """One life of a broker that deduplicates."""

    def __init__(
        self, disk: SimulatedDisk | None = None, ledgers: ManagedLedgerSettings = LARGE, entries: int = 1000
    ) -> None:
        self.store: FaultyLedgerStore

        def faulty(inner: LedgerStore, loop: Any) -> LedgerStore:
            self.store = FaultyLedgerStore(inner, loop)
            return self.store

        self.world = World(disk, ledgers, wrap=faulty)
        io = self.world.simulation.io
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        if disk is None:
            self.world.run(bootstrap(self.world.metadata, "standalone", *urls, 4))
        topic = TopicSettings(DispatchSettings(), deduplication=DeduplicationSettings(entries))
        policies = EffectivePolicies(deduplication=True)
        known = BrokerSettings("standalone", urls[1], urls[0], topic, policies=policies)
        self.broker = BrokerService(io, TimerWheel(io.loop), self.world.metadata, self.world.managed, known)
        self.topic: Topic = self.world.run(self.broker.topics.load(NAME, create=True))


def test_a_snapshot_holds_all_of_a_commit_that_filled_it() -> None:
    """It was taken in the middle of one, and its place was the end: after a crash the rest was unknown."""
    once = Once(entries=1000)
    first, second = Client(once.topic, "a"), Client(once.topic, "b")
    first.send(*range(1000))
    second.send(*range(900))
    once.world.wait(5.0)
    assert second.stored == list(range(900))
    again = Once(once.world.crash(), entries=1000)
    assert again.topic.last_sequence_id("a") == 999
    assert again.topic.last_sequence_id("b") == 899
    second = Client(again.topic, "b")
    second.send(898, 899, 900)
    again.world.wait(5.0)
    assert second.duplicates == [898, 899]
    assert second.stored == [900]


def test_what_is_still_on_its_way_when_later_entries_fail_is_not_stored_again() -> None:
    once = Once(ledgers=ManagedLedgerSettings(max_entries_per_ledger=2, min_rollover_ms=0))
    client = Client(once.topic, "a")
    once.store.fail_next("create")
    client.send(1, 2, 3)
    other = Client(once.topic, "b")
    other.send(7)
    while not client.failed:
        assert not client.stored
        once.world.wait(0.00001)
    assert not client.stored
    assert (client.failed, other.failed) == ([3], [7])
    client.send(1, 2, 3)
    other.send(7)
    once.world.wait(5.0)
    assert client.stored == [1, 2, 3]
    assert client.undecided == [1, 2]
    assert other.stored == [7]


def test_a_message_that_the_ledger_store_finds_too_large_is_refused_alone() -> None:
    once = Once()
    client, other = Client(once.topic, "a"), Client(once.topic, "b")
    once.topic.producers["a"] = client.producer
    client.send(1, 2)
    client.send(3, padding=1000)
    other.send(7)
    client.send(4)
    once.store.max_entry_bytes = 500
    # What was appended before goes through: the store was told its limit afterwards.
    client.send(5, padding=1000)
    client.send(6)
    once.world.wait(5.0)
    assert client.stored == [1, 2, 3, 4, 6]
    assert other.stored == [7]
    assert client.failed == [5]
    [error] = client.errors
    assert error.code is ServerErrorCode.NOT_ALLOWED
    assert "Exceed maximum message size" in str(error)
    assert once.topic.producers["a"] is client.producer, "it is not disconnected"
    assert once.topic.last_sequence_id("a") == 6
    client.send(5)
    once.world.wait(5.0)
    assert client.duplicates == [5]


@pytest.mark.parametrize("entries", range(6, 40, 3))
def test_a_crash_behind_trimming_forgets_nothing(entries: int) -> None:
    """Ledgers went before the snapshot that they were behind of was written: neither told what was stored."""
    once = Once(ledgers=ManagedLedgerSettings(max_entries_per_ledger=3, min_rollover_ms=0), entries=2)
    clients = [Client(once.topic, "a"), Client(once.topic, "b")]
    for number in range(entries):
        client = clients[number % 5 == 0]
        client.send(number)
        while not client.stored or client.stored[-1] != number:
            once.world.wait(0.001)
    assert len(list(once.topic.managed_ledger.ledgers)) < entries // 3
    again = Once(once.world.crash())
    for client, name in zip(clients, "ab", strict=True):
        assert again.topic.last_sequence_id(name) == client.stored[-1]
