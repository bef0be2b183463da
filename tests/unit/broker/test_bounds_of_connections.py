"""How much one connection may have open."""

from __future__ import annotations

from dataclasses import replace

from peers import TOPIC, Brokers, Peer, subscribe_frame

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def bounded() -> tuple[Brokers, Peer]:
    brokers = Brokers()
    brokers.broker.settings = replace(
        brokers.broker.settings, max_producers_per_connection=3, max_consumers_per_connection=3
    )
    return brokers, Peer(brokers)


def test_producers_of_a_connection_are_bounded_and_one_that_goes_makes_room() -> None:
    brokers, peer = bounded()
    for number in range(5):
        peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=number, request_id=number)
    brokers.world.wait(1)
    assert peer.count(BaseCommand.PRODUCER_SUCCESS) == 3
    refused = peer.received(BaseCommand.ERROR)
    assert [one.error.error for one in refused] == [ServerErrorCode.NOT_ALLOWED] * 2
    assert len(peer.connection.session.producers) == 3
    peer.send(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=0, request_id=9)
    brokers.world.wait(1)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=7, request_id=10)
    brokers.world.wait(1)
    assert peer.count(BaseCommand.PRODUCER_SUCCESS) == 4


def test_consumers_of_a_connection_are_bounded() -> None:
    brokers, peer = bounded()
    for number in range(5):
        peer.connection.data_received(subscribe_frame(number, f"s{number}", 0))
    brokers.world.wait(1)
    assert peer.count(BaseCommand.SUCCESS) == 3
    assert peer.count(BaseCommand.ERROR) == 2
    assert len(peer.connection.session.consumers) == 3
