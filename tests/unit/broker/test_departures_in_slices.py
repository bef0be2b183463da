"""A client with thousands of producers and consumers goes, and others do not notice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from peers import TOPIC, Brokers, Peer, send_frame, subscribe_frame

from magnetar.broker import events
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MANY = 200
IN_A_SLICE = 4


class _Costly(logging.Handler):
    """Work takes no time in the simulated world: here each departure takes so much, and is noted."""

    def __init__(self, brokers: Brokers, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._timeline = brokers.loop.timeline
        self.left = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() in ("producer closed", "consumer closed"):
            self.left += 1
            self._timeline.now += self._seconds


@contextmanager
def costly(brokers: Brokers, in_a_slice: int = IN_A_SLICE) -> Iterator[_Costly]:
    handler = _Costly(brokers, 0.001 / in_a_slice + 1e-6)
    level = events.log.level
    events.log.addHandler(handler)
    events.log.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        events.log.setLevel(level)
        events.log.removeHandler(handler)


def with_many() -> tuple[Brokers, Peer]:
    brokers = Brokers()
    peer = Peer(brokers)
    for number in range(MANY):
        peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=number, request_id=number)
        peer.connection.data_received(subscribe_frame(number, f"s{number}", 0))
    brokers.until(lambda: peer.count(BaseCommand.SUCCESS) == peer.count(BaseCommand.PRODUCER_SUCCESS) == MANY)
    return brokers, peer


@pytest.mark.parametrize("closed_by_broker", [False, True])
def test_what_a_client_had_open_goes_in_slices(closed_by_broker: bool) -> None:
    brokers, peer = with_many()
    peer.may_be_closed = True
    most = before = 0
    with costly(brokers) as found:
        if closed_by_broker:
            peer.connection.close()
        else:
            peer.connection.connection_lost(None)
        assert not peer.connection.session.producers
        assert not peer.connection.session.consumers
        turns = 0
        while found.left < 2 * MANY:
            most = max(most, found.left - before)
            before = found.left
            brokers.one_turn()
            turns += 1
            assert turns < 2 * MANY
    assert most <= IN_A_SLICE
    assert turns >= 2 * MANY / IN_A_SLICE - 1
    topic = brokers.broker.topics.loaded[TOPIC]
    assert not topic.producers
    assert topic.subscriptions.consumer_count() == 0


def test_a_client_that_comes_back_finds_its_subscriptions_free_though_it_has_not_gone_from_all() -> None:
    brokers, peer = with_many()
    with costly(brokers) as found:
        peer.connection.connection_lost(None)
        again = Peer(brokers)
        again.connection.data_received(subscribe_frame(1, f"s{MANY - 1}", 0))
        again.connection.data_received(subscribe_frame(2, f"s{MANY - 2}", 1))
        brokers.until(lambda: again.count(BaseCommand.SUCCESS) + again.count(BaseCommand.ERROR) == 2)
        assert found.left < 2 * MANY
        assert again.count(BaseCommand.SUCCESS) == 2
        brokers.until(lambda: found.left == 2 * MANY)
    assert brokers.broker.topics.loaded[TOPIC].subscriptions.consumer_count() == 2


def test_a_topic_that_is_closed_meanwhile_is_let_go_of_once() -> None:
    brokers, peer = with_many()
    with costly(brokers) as found:
        peer.connection.connection_lost(None)
        topic = brokers.broker.topics.loaded[TOPIC]
        assert found.left < 2 * MANY
        for subscription in list(topic.subscriptions.values()):
            subscription.disconnect_all()
        for _ in range(2 * MANY):
            brokers.one_turn()
        assert found.left == 2 * MANY


def test_messages_do_not_go_to_a_consumer_whose_client_has_gone() -> None:
    brokers = Brokers()
    publisher = brokers.publisher()
    gone, stays = brokers.subscribed("s", 1, number=1), brokers.subscribed("s", 1, number=2)
    for number in range(MANY):
        gone.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=number, request_id=number)
    brokers.until(lambda: gone.count(BaseCommand.PRODUCER_SUCCESS) == MANY)
    for peer, number in ((gone, 1), (stays, 2)):
        peer.send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=1000)
    with costly(brokers, 1) as found:
        gone.connection.connection_lost(None)
        publisher.connection.data_received(b"".join(send_frame(number) for number in range(20)))
        while stays.count(BaseCommand.MESSAGE) < 20:
            brokers.one_turn()
            brokers.loop.timeline.advance()
            assert found.left < MANY
