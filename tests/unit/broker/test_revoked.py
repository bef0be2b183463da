"""Permissions and proofs that are gone: what rests on them ends, whatever it is doing just then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from peers import TOPIC, Brokers, Peer, frame, subscribe_frame

from magnetar.broker.connections.session import SessionState
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import AuthenticationFailure, MetadataFailure, ServerErrorCode
from magnetar.io.waiting import sleep
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security.authentication import Claim, Principal
from magnetar.security.authorization import Changed, Operation, Target


class Word:
    """Everybody may everything, by one word, but what was taken away."""

    asks = True

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.unreadable: set[str] = set()
        self.asked: list[str] = []
        self.changed: Changed = lambda _touched: None

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        self.asked.append(str(operation))
        if principal.role in self.unreadable:
            raise MetadataFailure("cannot be read")
        return f"no {operation}" if str(operation) in self.taken or principal.role in self.taken else None

    def listen(self, changed: Changed) -> None:
        self.changed = changed

    def take(self, what: str) -> None:
        self.taken.add(what)
        self.changed(None)


class Named:
    """Clients are who they say, behind a proxy when they say so, until their method is off."""

    asks = True
    proofs = ()

    def __init__(self) -> None:
        self.off: set[str] = set()
        self.claims: list[Claim] = []
        self.changed: Callable[[frozenset[str] | None], None] = lambda _methods: None

    async def authenticate(self, claim: Claim) -> Principal:
        self.claims.append(claim)
        [own] = claim.credentials
        if own.method in self.off or (claim.original is not None and claim.original.method in self.off):
            raise AuthenticationFailure("no more")
        return Principal(own.data.decode(), own.method, claim.original_role or None)

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        self.changed = changed

    async def close(self) -> None: ...


def peer_of(brokers: Brokers, role: str, method: str = "word", **more: Any) -> Peer:
    peer = Peer(brokers, connect=False)
    peer.may_be_closed = True
    peer.connection.data_received(
        frame(
            BaseCommand.CONNECT,
            "connect",
            client_version="test",
            protocol_version=21,
            auth_method_name=method,
            auth_data=role.encode(),
            **more,
        )
    )
    brokers.until(lambda: peer.connection.session.state is SessionState.OPEN and peer.reading)
    return peer


def opening(peer: Peer) -> None:
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1)


@pytest.mark.parametrize("turns", [0, 2, 5])
@pytest.mark.parametrize("what", ["produce", "consume"])
def test_what_is_being_opened_when_it_is_taken_away_does_not_stand(what: str, turns: int) -> None:
    word = Word()
    brokers = Brokers(authorizer=word)
    load = brokers.broker.topics.load

    async def slowly(name: TopicName, **options: Any) -> AnyTopic:
        await sleep(brokers.loop, 2)
        found: AnyTopic = await load(name, **options)
        return found

    brokers.broker.topics.load = slowly  # type: ignore[method-assign, assignment]
    peer = Peer(brokers)
    if what == "produce":
        opening(peer)
    else:
        peer.connection.data_received(subscribe_frame(1, "s", 0))
    for _ in range(turns):
        brokers.one_turn()
    assert word.asked == ([what] if turns else [])
    word.take(what)
    session = peer.connection.session
    brokers.world.wait(5)
    assert not session.producers
    assert not session.consumers
    topic = brokers.broker.topics.loaded.get(TOPIC)
    if topic is not None:
        assert not topic.producers
        assert all(not one.consumers for one in topic.subscriptions.values())  # type: ignore[attr-defined]
    told = peer.received(BaseCommand.ERROR)
    ended = peer.count(BaseCommand.CLOSE_PRODUCER) + peer.count(BaseCommand.CLOSE_CONSUMER)
    assert ended or [one.error.error for one in told] == [ServerErrorCode.AUTHORIZATION]


def test_without_a_change_a_producer_is_asked_about_once() -> None:
    word = Word()
    brokers = Brokers(authorizer=word)
    brokers.publisher()
    assert word.asked == ["produce", "replicate"]


def test_a_client_of_whom_nothing_can_be_known_now_keeps_nobody_from_being_asked() -> None:
    word, named = Word(), Named()
    brokers = Brokers(named, authorizer=word)
    peers = [peer_of(brokers, role) for role in ("puzzle", "alice", "bob")]
    for peer in peers:
        opening(peer)
        brokers.until(lambda peer=peer: peer.count(BaseCommand.PRODUCER_SUCCESS))  # type: ignore[misc]
    word.unreadable.add("puzzle")
    word.taken.add("alice")
    word.take("bob")
    brokers.world.wait(5)
    assert [peer.count(BaseCommand.CLOSE_PRODUCER) for peer in peers] == [0, 1, 1]
    word.unreadable.clear()
    word.taken.add("puzzle")
    brokers.world.wait(5)
    assert peers[0].count(BaseCommand.CLOSE_PRODUCER) == 1, "it is asked until there is an answer"


def test_a_proof_that_counts_no_more_ends_its_connections_and_those_it_was_passed_on_for() -> None:
    named = Named()
    brokers = Brokers(named)
    stays = peer_of(brokers, "alice", "other")
    own = peer_of(brokers, "alice", "word")
    passed_on = peer_of(
        brokers,
        "proxy",
        "other",
        original_principal="alice",
        original_auth_method="word",
        original_auth_data="alice",
    )
    named.claims.clear()
    named.off.add("word")
    named.changed(frozenset({"word"}))
    brokers.world.wait(1)
    assert [peer.closed for peer in (stays, own, passed_on)] == [False, True, True]
    assert len(named.claims) == 2
    assert all(one.again for claim in named.claims for one in claim.credentials)


def test_what_changes_while_it_is_asked_is_asked_once_more() -> None:
    named = Named()
    brokers = Brokers(named)
    peer = peer_of(brokers, "alice")
    waiting: list[Any] = []
    first = named.authenticate

    async def slowly(claim: Claim) -> Principal:
        found = await first(claim)
        waiting.append(brokers.loop.create_future())
        await waiting[-1]
        return found

    named.authenticate = slowly  # type: ignore[method-assign]
    named.changed(None)
    brokers.until(lambda: len(waiting) == 1)
    named.off.add("word")
    named.changed(None)
    brokers.world.wait(1)
    assert peer.closed, "what was found out before the change does not count"
