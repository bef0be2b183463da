"""Clients that publish beyond a rate: not read for a while, and neither taken for dead nor driven out."""

from __future__ import annotations

from peers import TOPIC, Brokers, Peer, send_frame

from magnetar.broker.flow.rate_limits import PublishLimiter
from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

KEEP_ALIVE = 30.0


def throttled(brokers: Brokers, seconds: int) -> Peer:
    """A client that is not read for so long, and does not answer meanwhile."""
    peer = Peer(brokers)
    peer.send(
        BaseCommand.PRODUCER,
        "producer",
        topic=TOPIC,
        producer_id=1,
        request_id=1,
        producer_name="orders",
        user_provided_producer_name=True,
    )
    brokers.until(lambda: peer.count(BaseCommand.PRODUCER_SUCCESS))
    now = brokers.world.simulation.io.clock.monotonic()
    brokers.broker.topics.loaded[TOPIC].publish_limiter = PublishLimiter(1, 0, now)
    for sequence_id in range(seconds + 1):
        peer.connection.data_received(send_frame(sequence_id, b"x"))
    brokers.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == seconds + 1)
    assert not peer.reading
    return peer


def test_a_client_that_the_broker_does_not_read_is_not_silent() -> None:
    brokers = Brokers(keep_alive=KEEP_ALIVE)
    peer = throttled(brokers, 300)
    brokers.loop.run_for(290)
    assert not peer.reading
    assert peer.count(BaseCommand.PING) == 9
    brokers.loop.run_for(15)
    assert peer.reading
    assert len(brokers.broker.topics.loaded[TOPIC].producers) == 1


def test_nobody_with_the_same_name_takes_its_place() -> None:
    brokers = Brokers(keep_alive=KEEP_ALIVE)
    peer = throttled(brokers, 100)
    other = Peer(brokers)
    other.send(
        BaseCommand.PRODUCER,
        "producer",
        topic=TOPIC,
        producer_id=1,
        request_id=1,
        producer_name="orders",
        user_provided_producer_name=True,
    )
    brokers.loop.run_for(20)
    [refused] = other.received(BaseCommand.ERROR)
    assert refused.error.error == ServerErrorCode.PRODUCER_BUSY
    assert not peer.closed
