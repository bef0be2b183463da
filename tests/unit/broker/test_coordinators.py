"""The coordinators of a broker: when they are loaded and leave, whom they tell, and who may ask them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peers import Brokers, Peer, frame
from raw_connection import sub_message
from secured import Secured
from simulated_io import SimulatedDisk

from magnetar.broker.coordination import participants
from magnetar.broker.coordination.coordinators import ASSIGN, Coordinators, ended_up_to
from magnetar.broker.coordination.transaction import Participant
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.base import TopicSettings
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.transactions import TransactionSettings, TxnId
from magnetar.errors import (
    PersistenceFailure,
    ServerErrorCode,
    ServiceNotReady,
    TransactionCoordinatorNotFound,
)
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, TxnAction
from magnetar.security.authentication import Principal

VECTORS = Path(__file__).parents[2] / "vectors" / "transactions"
TOPIC = "persistent://public/default/t"


def on(settings: TransactionSettings | None = None) -> TopicSettings:
    return TopicSettings(DispatchSettings(), transactions=settings or TransactionSettings())


class Coordinating(Brokers):
    """A broker with transactions, whose coordinators have started."""

    def __init__(
        self, disk: SimulatedDisk | None = None, settings: TransactionSettings | None = None
    ) -> None:
        super().__init__(disk=disk, topic=on(settings))
        self.run(self.coordinators.start())

    @property
    def coordinators(self) -> Coordinators:
        assert self.broker.coordinators is not None
        return self.broker.coordinators

    def run(self, work: Any) -> Any:
        return self.world.run(work)

    def begin(self, *topics: str) -> int:
        coordinator = self.run(self.coordinators.connect(0))
        least = int(self.run(coordinator.begin(600_000, None))[1])
        if topics:
            self.run(coordinator.add_partitions(least, topics))
        return least

    def bundle(self) -> Bundle:
        found: Bundle = self.run(self.broker.bundles.of_topic(ASSIGN.partition(0)))
        return found

    def stop(self) -> SimulatedDisk:
        self.run(self.broker.stop())
        return self.world.stop()


def test_the_metadata_are_those_of_apache_pulsar() -> None:
    broker = Coordinating()
    rows = [json.loads(line) for line in (VECTORS / "system_topics.jsonl").read_text().splitlines()]
    seen = 0
    for row in rows:
        if row.get("value"):
            node = broker.run(broker.world.metadata.get(row["path"]))
            told, expected = json.loads(node.value), json.loads(row["value"])
            # Other fields of policies are those of every namespace of ours.
            common = told.keys() & expected.keys()
            assert {"partitions", "adminRoles", "bundles"} & common
            for field in ("partitions", "deleted", "adminRoles", "allowedClusters", "bundles"):
                assert told.get(field) == expected.get(field)
            seen += 1
    assert seen == 3
    broker.run(broker.broker.namespaces.change_partitioned(ASSIGN, partitions=3))
    broker = Coordinating(broker.world.crash())
    assert broker.run(broker.coordinators.count()) == 3


def test_statistics_of_a_coordinator_say_which_transactions_have_ended() -> None:
    def ended(state: str, last: int, mark: int, ongoing: int) -> int:
        stats = {"state": state, "leastSigBits": last, "lowWaterMark": mark, "ongoingTxnSize": ongoing}
        return ended_up_to(stats)

    assert ended("Ready", 7, 4, 1) == 4
    assert ended("Ready", 7, 7, 0) == 7
    # Apache Pulsar's broker says 0 while nothing is open.
    assert ended("Ready", 7, 0, 0) == 7
    assert ended("Ready", 0, 0, 0) == 0
    assert ended("Ready", 0, -1, 1) == -1
    assert ended("Initializing", 7, 0, 0) == -1
    assert ended("Ready", -1, -1, 0) == -1
    assert ended_up_to({}) == -1


def test_a_coordinator_is_loaded_when_a_client_connects_and_only_once() -> None:
    broker = Coordinating()
    broker.world.wait(60)
    assert broker.coordinators.loaded == {}
    with pytest.raises(TransactionCoordinatorNotFound):
        broker.coordinators.get(0)
    loads = [broker.loop.create_task(broker.coordinators.connect(0)) for _ in range(3)]
    assert len({id(broker.run(load)) for load in loads}) == 1
    for number in (-1, 1, 99):
        with pytest.raises(TransactionCoordinatorNotFound, match=f"with id {number} not found!"):
            broker.run(broker.coordinators.connect(number))


def test_what_was_ending_goes_on_after_a_crash_although_no_client_comes() -> None:
    broker = Coordinating()
    least = broker.begin(TOPIC)
    _refuse_loads(broker)
    broker.coordinators.get(0).end(least, commit=True)
    broker.world.wait(5)
    assert broker.coordinators.get(0).transactions
    broker = Coordinating(broker.world.crash())
    broker.world.wait(1)
    assert broker.coordinators.get(0).transactions == {}
    assert broker.coordinators.get(0).counts.committed == 1


def _refuse_loads(broker: Coordinating) -> list[TopicName]:
    """Lets no topic be loaded; what was wanted."""
    wanted: list[TopicName] = []

    async def load(name: TopicName, **_how: Any) -> Topic:
        wanted.append(name)
        raise ServiceNotReady("away")

    broker.broker.topics.load = load  # type: ignore[method-assign, assignment]
    return wanted


def test_a_bundle_that_is_unloaded_takes_its_coordinator_along() -> None:
    broker = Coordinating()
    least = broker.begin(TOPIC)
    held = broker.coordinators.get(0)
    broker.run(broker.broker.topics.unloads.unload(broker.bundle()))
    assert held.closed
    with pytest.raises(TransactionCoordinatorNotFound):
        broker.coordinators.get(0)
    again = broker.run(broker.coordinators.connect(0))
    assert list(again.transactions) == [least]
    broker.run(again.end(least, commit=False))


def test_a_coordinator_that_cannot_be_closed_in_time_is_disowned(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Coordinating()
    broker.begin(TOPIC)
    held = broker.coordinators.get(0)

    async def hang() -> None:
        await broker.loop.create_future()

    monkeypatch.setattr(held.log, "close", hang)
    broker.broker.topics.unloads.patience = lambda: 5.0
    began = broker.loop.time()
    broker.run(broker.broker.topics.unloads.unload(broker.bundle()))
    assert 4.9 < broker.loop.time() - began < 6
    assert held.log.lost


def test_a_lost_session_stops_the_coordinator_at_once() -> None:
    broker = Coordinating()
    least = broker.begin(TOPIC)
    held = broker.coordinators.get(0)
    wanted = _refuse_loads(broker)
    answer = held.end(least, commit=True)
    broker.world.wait(1)
    tries = len(wanted)
    assert tries
    broker.coordinators._lost(None)
    broker.world.wait(30)
    assert isinstance(answer.exception(), TransactionCoordinatorNotFound)
    assert held.closed
    assert held.log.lost
    again = broker.run(broker.coordinators.connect(0))
    assert again is not held
    assert list(again.transactions) == [least]


def test_a_stop_closes_the_coordinator_and_the_next_start_knows_everything() -> None:
    broker = Coordinating()
    least = broker.begin(TOPIC)
    broker = Coordinating(broker.stop())
    broker.world.wait(1)
    assert list(broker.coordinators.get(0).transactions) == [least]


def test_participants_that_are_gone_or_can_have_no_transactions_have_nothing_to_end() -> None:
    broker = Coordinating()
    broker.run(broker.broker.topics.load(TopicName.parse(TOPIC), create=True))
    broker.run(broker.broker.namespaces.create_partitioned(TopicName.parse(f"{TOPIC}-parted"), 2, {}))
    least = broker.begin(
        TOPIC,
        f"{TOPIC}-never",
        f"{TOPIC}-parted",
        "persistent://no/such/topic",
        "non-persistent://public/default/n",
        "persistent://public/default/__change_events",
        "persistent://pulsar/system/t",
        "nothing://at all",
        "",
    )
    coordinator = broker.coordinators.get(0)
    subscriptions = [(TOPIC, "never"), (f"{TOPIC}-never", "s"), ("", "")]
    broker.run(coordinator.add_subscriptions(least, subscriptions))
    broker.run(coordinator.end(least, commit=True))
    assert coordinator.counts.committed == 1


def test_topics_and_subscriptions_are_told_and_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Coordinating()
    least = broker.begin(TOPIC)
    coordinator = broker.coordinators.get(0)
    topic = broker.run(broker.broker.topics.load(TopicName.parse(TOPIC), create=True))
    broker.subscribed("s", topic=TOPIC)
    broker.run(coordinator.add_subscriptions(least, [(TOPIC, "s")]))
    told: list[tuple[str, TxnId, bool, int]] = []
    failures = [PersistenceFailure("not now")] * 2

    async def end_topic(txn: TxnId, *, commit: bool, low_water: int) -> None:
        told.append(("topic", txn, commit, low_water))
        if failures:
            raise failures.pop()

    async def end_subscription(found: Subscription, txn: TxnId, *, commit: bool, low_water: int) -> None:
        told.append((f"subscription {found.name}", txn, commit, low_water))

    topic.end_transaction = end_topic
    monkeypatch.setattr(participants, "end_acks", end_subscription)
    answer = coordinator.end(least, commit=False)
    broker.world.wait(0.05)
    assert coordinator.transactions[least].unreached == {Participant(TOPIC): "not now"}
    broker.run(answer)
    assert told == [
        ("subscription s", (0, least), False, -1),
        *[("topic", (0, least), False, -1)] * 3,
    ]


def test_what_keeps_a_transaction_from_ending_is_named() -> None:
    broker = Coordinating()
    least = broker.begin(TOPIC)
    assert broker.run(broker.coordinators.described((0, least + 1))) is None
    told = broker.run(broker.coordinators.described((0, least)))
    assert told["status"] == "OPEN"
    assert "unreached" not in told
    _refuse_loads(broker)
    broker.coordinators.get(0).end(least, commit=True)
    broker.world.wait(1)
    told = broker.run(broker.coordinators.described((0, least)))
    assert told["status"] == "COMMITTING"
    assert told["unreached"] == {TOPIC: "away"}


# Who may


def request(peer: Peer, kind: BaseCommand.Type.ValueType, name: str, **fields: Any) -> Any:
    """The response, or the ERROR."""
    peer.forget()
    peer.send(kind, name, request_id=7, **fields)
    peer.world.until(lambda: bool(peer.told()))
    (answer,) = peer.told()
    return sub_message(answer)[1]


def end(peer: Peer, least: int) -> tuple[int, str]:
    answer = request(
        peer,
        BaseCommand.END_TXN,
        "endTxn",
        txnid_most_bits=0,
        txnid_least_bits=least,
        txn_action=TxnAction.ABORT,
    )
    return answer.error, answer.message


def begin(peer: Peer) -> int:
    request(peer, BaseCommand.TC_CLIENT_CONNECT_REQUEST, "tcClientConnectRequest", tc_id=0)
    answer = request(peer, BaseCommand.NEW_TXN, "newTxn", tc_id=0, txn_ttl_seconds=600_000)
    assert not answer.HasField("error")
    return int(answer.txnid_least_bits)


def proxied(world: Secured, role: str) -> Peer:
    """A client of that role behind a proxy."""
    peer = world.peer("proxy")
    peer.connection.session.principal = Principal("proxy", "word", role)
    return peer


def test_a_transaction_belongs_to_the_role_that_began_it() -> None:
    world = Secured(topic=on())
    assert world.broker.coordinators is not None
    world.world.run(world.broker.coordinators.start())
    alice = world.peer("alice")
    least = begin(alice)
    assert world.broker.coordinators.get(0).owner_of(least) == "alice"
    bob = world.peer("bob")
    assert end(bob, least) == (
        ServerErrorCode.TRANSACTION_NOT_FOUND,
        "Client (bob) is neither the owner of the transaction (0,0) nor a super user",
    )
    for kind, name in (
        (BaseCommand.ADD_PARTITION_TO_TXN, "addPartitionToTxn"),
        (BaseCommand.ADD_SUBSCRIPTION_TO_TXN, "addSubscriptionToTxn"),
    ):
        answer = request(bob, kind, name, txnid_most_bits=0, txnid_least_bits=least)
        assert answer.error == ServerErrorCode.TRANSACTION_NOT_FOUND
    # Another connection of the same role, behind a proxy.
    assert end(proxied(world, "alice"), least) == (0, "")
    # What has ended is not told to others either.
    assert end(bob, least)[0] == ServerErrorCode.TRANSACTION_NOT_FOUND
    assert end(alice, least) == (0, "")


def test_superusers_may_end_transactions_of_others_but_not_through_proxies() -> None:
    world = Secured(topic=on())
    assert world.broker.coordinators is not None
    world.world.run(world.broker.coordinators.start())
    alice = world.peer("alice")
    first, second = begin(alice), begin(alice)
    assert end(proxied(world, "admin"), first)[0] == ServerErrorCode.TRANSACTION_NOT_FOUND
    assert end(world.peer("admin"), first) == (0, "")
    assert end(alice, second) == (0, "")


def test_who_began_it_is_known_after_a_crash() -> None:
    world = Secured(topic=on())
    assert world.broker.coordinators is not None
    world.world.run(world.broker.coordinators.start())
    least = begin(world.peer("alice"))
    world = Secured(topic=on(), disk=world.world.crash())
    assert world.broker.coordinators is not None
    coordinator = world.world.run(world.broker.coordinators.connect(0))
    assert coordinator.owner_of(least) == "alice"


def test_clients_that_wait_for_room_do_not_keep_their_own_requests_from_being_read() -> None:
    """More beginnings than a connection may have in progress, and then the end that makes room for one."""
    broker = Coordinating(settings=replace(TransactionSettings(), max_active=1))
    peer = Peer(broker)
    least = begin(peer)
    peer.forget()
    frames = [
        frame(BaseCommand.NEW_TXN, "newTxn", request_id=100 + n, tc_id=0, txn_ttl_seconds=600_000)
        for n in range(600)
    ]
    peer.connection.data_received(b"".join(frames))
    broker.world.wait(1)
    assert peer.reading
    peer.send(
        BaseCommand.END_TXN,
        "endTxn",
        request_id=7,
        txnid_most_bits=0,
        txnid_least_bits=least,
        txn_action=TxnAction.COMMIT,
    )
    broker.world.wait(1)
    assert peer.count(BaseCommand.END_TXN_RESPONSE) == 1
    (begun,) = peer.received(BaseCommand.NEW_TXN_RESPONSE)
    assert begun.newTxnResponse.request_id == 100
    broker.world.wait(25)
    refused = peer.received(BaseCommand.NEW_TXN_RESPONSE)[1:]
    assert len(refused) == 599
    assert {each.newTxnResponse.error for each in refused} == {ServerErrorCode.TOO_MANY_REQUESTS}


def test_requests_that_wait_for_an_end_do_not_keep_others_from_being_read() -> None:
    broker = Coordinating()
    peer = Peer(broker)
    begin(peer)
    coordinator = broker.coordinators.get(0)
    ids = [broker.begin(TOPIC) for _ in range(300)]
    _refuse_loads(broker)
    ends = [
        frame(
            BaseCommand.END_TXN,
            "endTxn",
            request_id=1000 + least,
            txnid_most_bits=0,
            txnid_least_bits=least,
            txn_action=TxnAction.COMMIT,
        )
        for least in ids
    ]
    peer.connection.data_received(b"".join(ends))
    broker.world.wait(5)
    assert peer.reading
    assert len(coordinator.transactions) == 301
    assert begin(peer) == 301
