"""A client that has to say who it is: what it sends meanwhile waits, and nothing counts before."""

from __future__ import annotations

from typing import Any

import pytest
from peers import TOPIC, Brokers, Peer, frame, send_frame, subscribe_frame

from magnetar.broker.connections.session import SessionState
from magnetar.errors import AuthenticationFailure, ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security.authentication import ANONYMOUS, Claim, NobodyIsAsked, Principal

ALICE = Principal("alice", "word")


class Slow:
    """Answers when the test does."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answer: Any = None
        self.cancelled = False
        self.loop: Any = None

    asks = True
    proofs = ()

    def listen(self, changed: Any) -> None:
        """It never changes its mind."""

    async def close(self) -> None:
        """It holds nothing."""

    async def authenticate(self, claim: Claim) -> Principal:
        [offered] = claim.credentials
        self.asked.append((offered.method, offered.data, offered.peer))
        self.answer = self.loop.create_future()
        try:
            principal: Principal = await self.answer
        finally:
            self.cancelled = self.answer.cancelled()
        return principal


def slow(keep_alive: float = 1e6) -> tuple[Brokers, Slow]:
    asked = Slow()
    brokers = Brokers(asked, keep_alive)
    asked.loop = brokers.loop
    return brokers, asked


def connect_frame() -> bytes:
    return frame(
        BaseCommand.CONNECT,
        "connect",
        client_version="test",
        protocol_version=21,
        auth_method_name="word",
        auth_data=b"open sesame",
    )


def producer_frame() -> bytes:
    return frame(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1)


def test_what_follows_connect_waits_until_it_is_known_who_the_client_is() -> None:
    brokers, asked = slow()
    peer = Peer(brokers, connect=False)
    peer.connection.data_received(connect_frame() + producer_frame())
    assert not peer.reading, "what more it sends must wait in its socket"
    peer.send(BaseCommand.PING, "ping")
    for _ in range(10):
        brokers.one_turn()
    assert asked.asked == [("word", b"open sesame", "127.0.0.1:1")]
    assert peer.connection.session.state is SessionState.CONNECTING
    assert not peer.size
    assert TOPIC not in brokers.broker.topics.loaded
    asked.answer.set_result(ALICE)
    brokers.until(lambda: peer.count(BaseCommand.PRODUCER_SUCCESS) and peer.count(BaseCommand.PONG))
    kinds = [int(command.type) for command in peer.received(BaseCommand.CONNECTED)]
    assert kinds == [BaseCommand.CONNECTED]
    assert peer._commands[0].type == BaseCommand.CONNECTED
    assert peer.connection.session.principal is ALICE
    assert peer.reading


def test_whoever_proves_nothing_is_told_so_and_closed() -> None:
    brokers, asked = slow()
    peer = Peer(brokers, connect=False)
    peer.may_be_closed = True
    peer.connection.data_received(connect_frame() + producer_frame())
    brokers.one_turn()
    asked.answer.set_exception(AuthenticationFailure("Failed to authenticate"))
    brokers.until(lambda: peer.closed)
    (told,) = peer.received(BaseCommand.ERROR)
    assert told.error.error == ServerErrorCode.AUTHENTICATION
    assert told.error.message == "Failed to authenticate"
    assert told.error.request_id == 2**64 - 1
    peer.connection.connection_lost(None)
    brokers.world.wait(1)
    assert TOPIC not in brokers.broker.topics.loaded
    assert not peer.count(BaseCommand.CONNECTED)


def test_an_authenticator_that_breaks_lets_nobody_in() -> None:
    brokers, asked = slow()
    peer = Peer(brokers, connect=False)
    peer.may_be_closed = True
    peer.connection.data_received(connect_frame())
    brokers.one_turn()
    asked.answer.set_exception(KeyError("its own affair"))
    brokers.until(lambda: peer.closed)
    (told,) = peer.received(BaseCommand.ERROR)
    assert "its own affair" not in told.error.message
    assert peer.connection.session.state is SessionState.CLOSING


def test_nobody_is_asked_on_behalf_of_a_client_that_has_gone() -> None:
    brokers, asked = slow()
    peer = Peer(brokers, connect=False)
    peer.connection.data_received(connect_frame() + producer_frame())
    brokers.one_turn()
    peer.connection.connection_lost(None)
    brokers.world.wait(1)
    assert asked.cancelled
    assert peer.connection.session.state is SessionState.CLOSED
    assert not peer.size
    assert not brokers.broker.connections.all


def test_an_answer_that_never_comes_ends_with_the_patience_for_silent_clients() -> None:
    brokers, asked = slow(keep_alive=30)
    peer = Peer(brokers, connect=False)
    peer.may_be_closed = True
    peer.connection.data_received(connect_frame())
    brokers.world.wait(29)
    assert not peer.closed
    brokers.world.wait(2)
    assert peer.closed
    assert asked.cancelled


def test_anything_before_connect_ends_the_connection() -> None:
    for first in (producer_frame(), send_frame(0), frame(BaseCommand.PING, "ping")):
        brokers, asked = slow()
        peer = Peer(brokers, connect=False)
        peer.may_be_closed = True
        peer.connection.data_received(first + connect_frame())
        brokers.one_turn()
        assert peer.closed
        assert not asked.asked


def test_a_second_connect_ends_the_connection() -> None:
    brokers, asked = slow()
    peer = Peer(brokers, connect=False)
    peer.may_be_closed = True
    peer.connection.data_received(connect_frame() * 2)
    brokers.one_turn()
    assert not peer.closed
    asked.answer.set_result(ALICE)
    brokers.until(lambda: peer.closed)
    assert len(asked.asked) == 1


def test_everybody_is_anonymous_where_nobody_is_asked() -> None:
    brokers = Brokers()
    assert isinstance(brokers.broker.authenticator, NobodyIsAsked)
    assert Peer(brokers).connection.session.principal is ANONYMOUS


class Knows:
    """Takes the word of a client for its name."""

    asks = True
    proofs = ()

    def listen(self, changed: Any) -> None:
        """It never changes its mind."""

    async def close(self) -> None:
        """It holds nothing."""

    async def authenticate(self, claim: Claim) -> Principal:
        return Principal("alice", "word")


def test_all_that_a_client_asks_of_the_broker_is_asked_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(Knows())
    asked: dict[str, set[str]] = {}

    def watch(owner: Any, name: str) -> None:
        """Notes for whom a method is called: a principal among what it is given."""
        method = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            roles = {one.role for one in (*given, *named.values()) if isinstance(one, Principal)}
            asked.setdefault(name, set()).update(roles or {"nobody"})
            return method(*given, **named)

        monkeypatch.setattr(owner, name, watched)

    broker = brokers.broker
    watch(broker, "topic_names")
    watch(broker.lookups, "look_up")
    watch(broker.topics, "load")
    watch(broker.topics.creation, "partitions_or_create")
    watch(broker.topics.creation, "existing_partitions")
    watch(broker.topic_lists, "watch")
    peer = brokers.publisher()
    topic = broker.topics.loaded[TOPIC]
    watch(topic.subscriptions, "subscribe")
    peer.connection.data_received(subscribe_frame(2, "s", 0))
    for create in (True, False):
        peer.send(
            BaseCommand.PARTITIONED_METADATA,
            "partitionMetadata",
            topic=TOPIC,
            request_id=3,
            metadata_auto_creation_enabled=create,
        )
    peer.send(BaseCommand.LOOKUP, "lookupTopic", topic=TOPIC, request_id=4)
    space = "public/default"
    peer.send(BaseCommand.GET_TOPICS_OF_NAMESPACE, "getTopicsOfNamespace", namespace=space, request_id=5)
    peer.send(
        BaseCommand.WATCH_TOPIC_LIST,
        "watchTopicList",
        namespace=space,
        topics_pattern=f"persistent://{space}/.*",
        watcher_id=1,
        request_id=6,
    )
    brokers.until(lambda: peer.count(BaseCommand.WATCH_TOPIC_LIST_SUCCESS))
    names = ("load", "look_up", "topic_names", "watch", "subscribe")
    names += ("partitions_or_create", "existing_partitions")
    assert asked == {name: {"alice"} for name in names}
    (producer,) = topic.producers.values()
    (consumer,) = topic.subscriptions["s"].consumers
    assert (producer.principal, consumer.principal) == (Principal("alice", "word"),) * 2
