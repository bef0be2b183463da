"""What the disk has taken only counts: nothing is read of any client before the loop's next turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from peers import TOPIC, Brokers, Peer, frame, send_frame

from magnetar.broker.topics.persistent import Topic
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


class Watched:
    """A topic's publishes, and which of them came while it was being told what is durable."""

    def __init__(self, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
        self.publishes = 0
        self.inside = 0
        self.largest = 0
        self._told = False
        publish, on_durable = topic.publish, topic.on_durable

        def watch_publish(*given: Any) -> None:
            self.publishes += 1
            self.inside += self._told
            self.largest = max(self.largest, len(given[2]))
            publish(*given)

        def watch_durable(appends: Sequence[Any]) -> None:
            self._told = True
            on_durable(appends)
            self._told = False

        monkeypatch.setattr(topic, "publish", watch_publish)
        monkeypatch.setattr(topic, "on_durable", watch_durable)


def watched(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Watched:
    topic = brokers.broker.topics.loaded[TOPIC]
    assert isinstance(topic, Topic)
    return Watched(topic, monkeypatch)


def another_publisher(brokers: Brokers, name: str) -> Peer:
    peer = Peer(brokers)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1, producer_name=name)
    brokers.until(lambda: peer.count(BaseCommand.PRODUCER_SUCCESS))
    peer.forget()
    return peer


def test_more_of_a_client_is_read_in_the_turn_after_its_entries_are_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers()
    brokers.broker.limits.max_pending_publishes = 4
    peer = another_publisher(brokers, "p")
    topic = watched(brokers, monkeypatch)
    peer.connection.data_received(b"".join(send_frame(n) for n in range(20)))
    assert not peer.reading
    brokers.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == 20)
    assert topic.inside == 0
    assert topic.publishes >= 5
    assert topic.largest <= 4
    told = [answer.send_receipt.sequence_id for answer in peer.received(BaseCommand.SEND_RECEIPT)]
    assert told == list(range(20))
    brokers.one_turn()
    assert peer.reading


def test_others_that_waited_for_room_are_read_in_the_turn_after_too(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    peers = [another_publisher(brokers, f"p{n}") for n in range(3)]
    brokers.broker.limits.publish_buffer._max = 1500
    topic = watched(brokers, monkeypatch)
    for _ in range(3):
        for peer in peers:
            peer.connection.data_received(send_frame(0) + send_frame(1))
    assert not any(peer.reading for peer in peers[1:])
    brokers.until(lambda: all(peer.count(BaseCommand.SEND_RECEIPT) == 6 for peer in peers))
    assert topic.inside == 0
    assert brokers.broker.limits.publish_buffer.used == 0


def test_what_comes_while_a_client_waits_to_be_read_on_stays_behind_what_it_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transport may hand over what it had read when it was stopped."""
    brokers = Brokers()
    brokers.broker.limits.max_pending_publishes = 1
    peer = another_publisher(brokers, "p")
    peer.connection.data_received(send_frame(0) + send_frame(1))
    topic = brokers.broker.topics.loaded[TOPIC]
    on_durable = topic.on_durable  # type: ignore[union-attr]

    def durable(appends: Sequence[Any]) -> None:
        on_durable(appends)
        if not peer.connection.closed and late:
            peer.connection.data_received(late.pop())

    late = [send_frame(2)]
    monkeypatch.setattr(topic, "on_durable", durable)
    brokers.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == 3)
    told = [answer.send_receipt.sequence_id for answer in peer.received(BaseCommand.SEND_RECEIPT)]
    assert told == [0, 1, 2]


def test_one_that_goes_while_it_waits_to_be_read_on_is_left_alone() -> None:
    brokers = Brokers()
    peer = another_publisher(brokers, "p")
    peer.connection.input.pause()
    peer.connection.data_received(frame(BaseCommand.PING, "ping"))
    peer.connection.input.resume()
    peer.connection.connection_lost(None)
    brokers.one_turn()
    assert not peer.count(BaseCommand.PONG)


def test_one_that_is_stopped_again_while_it_waits_to_be_read_on_waits() -> None:
    brokers = Brokers()
    peer = another_publisher(brokers, "p")
    peer.connection.input.pause()
    peer.connection.data_received(frame(BaseCommand.PING, "ping"))
    peer.connection.input.resume()
    peer.connection.input.pause()
    brokers.one_turn()
    brokers.one_turn()
    assert not peer.count(BaseCommand.PONG)
    assert not peer.reading
    peer.connection.input.resume()
    brokers.one_turn()
    brokers.one_turn()
    assert peer.count(BaseCommand.PONG) == 1
    assert peer.reading


def test_one_call_of_the_loop_serves_all_that_may_be_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    peers = [another_publisher(brokers, f"p{n}") for n in range(10)]
    calls: list[Any] = []
    for peer in peers:
        peer.connection.input.pause()
    monkeypatch.setattr(
        brokers.broker.limits.readable, "_loop", type("Loop", (), {"call_soon": calls.append})
    )
    for peer in peers:
        for _ in range(3):
            peer.connection.input.resume()
            peer.connection.input.pause()
        peer.connection.input.resume()
    assert len(calls) == 1
    assert not any(peer.reading for peer in peers)
    calls[0]()
    assert all(peer.reading for peer in peers)
