"""How much one connection may have open."""

from __future__ import annotations

from dataclasses import replace

from peers import TOPIC, Brokers, Peer, subscribe_frame

from magnetar.broker.connections.answers import MOST_OPENING
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


def test_topics_of_a_connection_are_loaded_a_few_at_a_time_and_those_of_another_are_not_behind_them() -> None:
    """All that wait for one commit go on in one turn of the loop: a hundred of them held everybody up."""
    brokers = Brokers()
    greedy, other = Peer(brokers), Peer(brokers)
    for number in range(100):
        topic = f"{TOPIC}-{number}"
        greedy.send(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=number, request_id=number)
    other.send(BaseCommand.PRODUCER, "producer", topic=f"{TOPIC}-other", producer_id=1, request_id=1)
    most = seen = 0
    for _ in range(4000):
        brokers.world.wait(0.0005)
        most = max(most, brokers.broker.topics.loading_count)
        if other.count(BaseCommand.PRODUCER_SUCCESS) and not seen:
            seen = greedy.count(BaseCommand.PRODUCER_SUCCESS)
        if greedy.count(BaseCommand.PRODUCER_SUCCESS) == 100:
            break
    else:
        raise AssertionError(greedy.count(BaseCommand.PRODUCER_SUCCESS))
    assert most <= MOST_OPENING + 1
    assert seen < 50


def test_a_producer_that_waits_for_exclusive_access_holds_up_no_other_topic() -> None:
    brokers = Brokers()
    brokers.publisher()
    peer = Peer(brokers)
    for number in range(2 * MOST_OPENING):
        fields = {"producer_id": number, "request_id": number, "producer_access_mode": 2}
        peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, **fields)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC + "-free", producer_id=999, request_id=999)
    brokers.world.wait(1)
    ready = [
        one for one in peer.received(BaseCommand.PRODUCER_SUCCESS) if one.producer_success.producer_ready
    ]
    assert [one.producer_success.request_id for one in ready] == [999]
