"""Clients of a bundle that goes to a known broker are told where it is, once it is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from peers import TOPIC, Brokers, Peer, send_frame, subscribe_frame
from simulated_io import simulated_io

from magnetar.broker.flow.connection import Assigned
from magnetar.broker.ownership.brokers import BrokerRecord
from magnetar.broker.ownership.contract import Addresses, Bundle
from magnetar.broker.ownership.peers import Beside, PeerAnswer, PeerRefused
from magnetar.broker.serving.unloading import HandingOver
from magnetar.broker.settings import BrokerSettings
from magnetar.errors import ServiceNotReady
from magnetar.io.waiting import sleep
from magnetar.metadata.interface import MetadataUnavailable
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

NAME = TopicName.parse(TOPIC)
THERE = Assigned("pulsar://there:6650", "pulsar+ssl://there:6651")


class Case:
    """A broker that owns bundles one by one, with a producer and a consumer of a topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = Brokers()
        self.happened: list[Any] = []
        self.assigned: Assigned | None = THERE
        self.refuses = False
        broker = self.broker = self.world.broker
        monkeypatch.setattr(broker.ownership, "begin_release", lambda _bundle: True)
        monkeypatch.setattr(broker.ownership, "release", self._release)
        broker.topics.unloads.handing_over = cast(HandingOver, self)
        self.peer = Peer(self.world)
        self.peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1)
        self.peer.connection.data_received(subscribe_frame(2, "s", 1))
        self.world.until(lambda: self.peer.count(BaseCommand.SUCCESS) == 1 and bool(self.producers))
        self.bundle: Bundle = self.world.world.run(broker.bundles.of_topic(NAME))

    @property
    def producers(self) -> list[BaseCommand]:
        return self.peer.received(BaseCommand.PRODUCER_SUCCESS)

    def closed(self) -> list[tuple[str, str]]:
        """Where the client was told to go."""
        producers = [each.close_producer for each in self.peer.received(BaseCommand.CLOSE_PRODUCER)]
        consumers = [each.close_consumer for each in self.peer.received(BaseCommand.CLOSE_CONSUMER)]
        return [
            (each.assignedBrokerServiceUrl, each.assignedBrokerServiceUrlTls)
            for each in [*producers, *consumers]
        ]

    def target(self, broker_id: str | None) -> BrokerRecord | None:
        return cast(BrokerRecord, object()) if broker_id == "there:8080" else None

    async def _release(self, _bundle: Bundle, towards: str | None = None) -> None:
        self.happened.append(("released", towards, self.closed(), str(NAME) in self.broker.topics.loaded))
        if self.refuses:
            raise MetadataUnavailable("the store is gone")

    async def take(self, _target: BrokerRecord, topic: TopicName) -> Assigned | None:
        self.happened.append(("taken", topic, self.closed()))
        self.peer.connection.data_received(send_frame(7))
        return self.assigned

    def unload(self, towards: str | None = "there:8080") -> None:
        self.world.world.run(self.broker.topics.unloads.unload(self.bundle, towards))
        self.world.world.wait(0.1)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


def test_they_are_told_after_the_bundle_was_given_up_and_taken(case: Case) -> None:
    case.unload()
    assert case.happened == [("released", "there:8080", [], False), ("taken", NAME, [])]
    assert case.closed() == [tuple(THERE)] * 2
    assert not case.peer.connection.session.producers
    assert not case.peer.connection.session.consumers


def test_what_they_send_meanwhile_is_theirs_to_send_again(case: Case) -> None:
    case.unload()
    assert not case.peer.received(BaseCommand.SEND_RECEIPT)
    assert not case.peer.received(BaseCommand.SEND_ERROR)
    assert not case.peer.closed


@pytest.mark.parametrize("towards", [None, "gone:8080"])
def test_where_the_target_is_not_known_they_look_up(case: Case, towards: str | None) -> None:
    case.unload(towards)
    assert case.closed() == [("", "")] * 2
    assert [each[0] for each in case.happened] == ["released"]


def test_a_target_that_does_not_take_it_is_not_named(case: Case) -> None:
    case.assigned = None
    case.unload()
    assert case.closed() == [("", "")] * 2


def test_a_bundle_that_cannot_be_given_up_lets_its_clients_come_back(case: Case) -> None:
    case.refuses = True
    with pytest.raises(MetadataUnavailable):
        case.unload()
    assert case.closed() == [("", "")] * 2


def test_without_clients_nobody_is_asked_to_take_anything(case: Case) -> None:
    case.peer.connection.connection_lost(None)
    case.unload()
    assert [each[0] for each in case.happened] == ["released"]


def test_who_went_meanwhile_is_told_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(_target: BrokerRecord, _topic: TopicName) -> Assigned | None:
        case.peer.connection.connection_lost(None)
        return THERE

    monkeypatch.setattr(case, "take", take)
    case.unload()
    assert case.closed() == []


class Others:
    """What a broker knows of others, and how they answer."""

    def __init__(self, *answers: Any, listeners: int = 0, tls: bool = False) -> None:
        """:param tls: the broker has listeners with TLS alone"""
        self.asked: list[Any] = []
        self.answers = list(answers)
        self.admin = self.brokers = self
        self.loop = simulated_io(1).loop
        own = SimpleNamespace(
            broker_id="here:8080",
            service_url="" if tls else "pulsar://here:6650",
            service_url_tls="pulsar+ssl://here:6651" if tls else "",
            listeners={str(number): Addresses(None) for number in range(listeners)},
        )
        self.handing_over = HandingOver(self.loop, cast(Beside, self), lambda: cast(BrokerSettings, own))

    def get(self, broker_id: str) -> BrokerRecord | None:
        return cast(BrokerRecord, SimpleNamespace(broker_id=broker_id)) if broker_id == "there:8080" else None

    async def call(self, broker: Any, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        self.asked.append((broker.broker_id, method, path, query))
        answer = self.answers.pop()
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await sleep(self.loop, 60)
        return PeerAnswer(200, answer)

    def take(self, name: TopicName = NAME) -> Assigned | None:
        target = self.handing_over.target("there:8080")
        assert target is not None
        return self.loop.run_until(self.handing_over.take(target, name))


def test_the_target_is_asked_to_take_it_as_a_lookup_asks() -> None:
    others = Others(
        b'{"brokerUrl": "pulsar://there:6650", "brokerUrlTls": "", "httpUrl": "http://there:8080"}'
    )
    assert others.take(TopicName.parse("persistent://public/default/a b")) == Assigned(
        "pulsar://there:6650", ""
    )
    path = "/lookup/v2/topic/persistent/public/default/a%20b"
    assert others.asked == [("there:8080", "GET", path, {"authoritative": "true"})]


@pytest.mark.parametrize(
    "answer",
    [b"", b"nothing", b"[]", b'{"brokerUrl": 1}', b"{}", None, ServiceNotReady("no"), PeerRefused(307, "")],
)
def test_whatever_else_it_answers_clients_look_up(answer: Any) -> None:
    assert Others(answer).take() is None


def test_a_target_that_has_not_heard_yet_is_asked_again() -> None:
    still, taken = b'{"brokerUrl": "pulsar://here:6650"}', b'{"brokerUrl": "pulsar://there:6650"}'
    others = Others(taken, still, still)
    assert others.take() == Assigned("pulsar://there:6650", "")
    assert len(others.asked) == 3
    assert Others(*[still] * 100).take() is None
    still, taken = (
        b'{"brokerUrlTls": "pulsar+ssl://here:6651"}',
        b'{"brokerUrlTls": "pulsar+ssl://there:6651"}',
    )
    assert Others(taken, still, tls=True).take() == Assigned("", "pulsar+ssl://there:6651")


def test_clients_are_sent_to_live_brokers_only_and_to_no_listener_that_may_not_be_theirs() -> None:
    others = Others()
    for nobody in (None, "here:8080", "gone:8080"):
        assert others.handing_over.target(nobody) is None
    assert Others(listeners=1).handing_over.target("there:8080") is not None
    assert Others(listeners=2).handing_over.target("there:8080") is None
