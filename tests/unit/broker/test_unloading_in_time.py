"""A bundle is given up in time, though a topic of it cannot be closed."""

from __future__ import annotations

from typing import Any

import pytest
from peers import TOPIC, Brokers, Peer, send_frame, subscribe_frame

from magnetar.broker.ownership.contract import Bundle, Owner
from magnetar.errors import ServiceNotReady
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

NAME = TopicName.parse(TOPIC)


class Case:
    """A broker that owns bundles one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = Brokers()
        self.broker = self.world.broker
        self.clock = self.broker.io.clock
        self.released: list[float] = []
        ownership = self.broker.ownership
        monkeypatch.setattr(ownership, "begin_release", lambda _bundle: True)
        monkeypatch.setattr(ownership, "release", self._release)
        monkeypatch.setattr(ownership, "is_current", self._is_current)
        self.bundle: Bundle = self.run(self.broker.bundles.of_topic(NAME))

    async def _release(self, _bundle: Bundle, _towards: str | None = None) -> None:
        self.released.append(self.clock.monotonic())

    def _is_current(self, _bundle: Bundle, _owner: Owner) -> bool:
        return not self.released

    def run(self, work: Any) -> Any:
        return self.world.world.run(work)

    def unload(self) -> float:
        """How long it took, in seconds."""
        began = self.clock.monotonic()
        self.run(self.broker.topics.unloads.unload(self.bundle))
        (released,) = self.released
        self.world.world.wait(0.1)
        return released - began


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


def test_what_waits_for_receipts_is_disowned_and_its_clients_come_back(case: Case) -> None:
    peer = Peer(case.world)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1)
    peer.connection.data_received(subscribe_frame(2, "s", 1))
    case.world.until(
        lambda: peer.count(BaseCommand.SUCCESS) == 1 and bool(peer.count(BaseCommand.PRODUCER_SUCCESS))
    )
    (topic,) = case.broker.topics.loaded.values()
    (producer,) = topic.producers.values()
    producer.pending += 1
    case.broker.topics.unloads.patience = lambda: 20.0
    assert 19 < case.unload() < 21
    assert topic.fenced
    assert peer.count(BaseCommand.CLOSE_PRODUCER) == peer.count(BaseCommand.CLOSE_CONSUMER) == 1
    peer.connection.data_received(send_frame(7))
    case.world.world.wait(0.1)
    assert not peer.count(BaseCommand.SEND_RECEIPT)


def test_without_anything_that_waits_it_takes_no_time(case: Case) -> None:
    case.world.publisher()
    assert case.unload() < 1


def test_what_is_being_loaded_for_long_is_not_served_then(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed, loop = case.world.world.managed, case.world.loop
    opened, bookies = managed.open, loop.create_future()

    async def slow(name: str, **how: Any) -> ManagedLedger:
        await bookies
        return await opened(name, **how)

    monkeypatch.setattr(managed, "open", slow)
    asking = loop.create_task(case.broker.topics.load(NAME, create=True))
    case.world.world.wait(1)
    assert 59 < case.unload() < 61
    with pytest.raises(ServiceNotReady, match="Failed to load"):
        case.run(asking)
    assert case.broker.topics.loading_count == 1
    bookies.set_result(None)
    case.world.world.wait(1)
    assert case.broker.topics.loading_count == 0
    assert not case.broker.topics.loaded
