"""A non-persistent topic that is deleted lets its clients go."""

from __future__ import annotations

from peers import Brokers, Peer, subscribe_frame

from magnetar.protocol.pulsar_api_pb2 import BaseCommand

TOPIC = "non-persistent://public/default/t"


def test_its_producers_and_consumers_are_closed() -> None:
    brokers = Brokers()
    peer = Peer(brokers)
    peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1)
    peer.connection.data_received(subscribe_frame(1, "s", 0, TOPIC))
    brokers.until(lambda: peer.count(BaseCommand.PRODUCER_SUCCESS) == peer.count(BaseCommand.SUCCESS) == 1)
    topic = brokers.broker.topics.loaded[TOPIC]
    deleted = brokers.loop.create_task(brokers.broker.topics.delete_topic(topic))
    brokers.until(deleted.done)
    brokers.until(
        lambda: peer.count(BaseCommand.CLOSE_PRODUCER) == peer.count(BaseCommand.CLOSE_CONSUMER) == 1
    )
    assert not topic.producers
    assert not topic.subscriptions
