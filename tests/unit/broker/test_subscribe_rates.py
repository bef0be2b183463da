"""How often one consumer may subscribe, and how a client hears that it may not now."""

from __future__ import annotations

from peers import TOPIC, Brokers, Peer, frame, subscribe_frame

from magnetar.broker.flow.rate_limits import SubscribeLimiter, subscribe_limiter
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import SubscribeRate
from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def test_each_consumer_has_a_bound_of_its_own() -> None:
    limiter = SubscribeLimiter(SubscribeRate(2, 10))
    mine, other = ("10.0.0.1", "c", 1), ("10.0.0.1", "d", 2)
    assert [limiter.admits(mine, 0.0) for _ in range(3)] == [True, True, False]
    assert limiter.admits(other, 0.0)
    assert not limiter.admits(mine, 4.9)
    assert limiter.admits(mine, 5.0)
    assert not limiter.admits(mine, 5.0)
    assert limiter.refused == 3
    assert [limiter.admits(mine, 1000.0) for _ in range(3)] == [True, True, False]


def test_no_bound_is_none() -> None:
    assert subscribe_limiter(SubscribeRate()) is None
    assert subscribe_limiter(SubscribeRate(-1)) is None
    assert subscribe_limiter(SubscribeRate(1)) is not None


def test_what_is_remembered_has_a_bound() -> None:
    limiter = SubscribeLimiter(SubscribeRate(1, 1000))
    for number in range(5000):
        assert limiter.admits(("10.0.0.1", "c", number), 0.0)
    assert len(limiter) <= 1000
    assert limiter.admits(("10.0.0.1", "c", 5000), 5000.0)
    assert len(limiter) == 1, "who may subscribe as a new one may is forgotten"


def subscribe(brokers: Brokers, peer: Peer) -> int:
    """The code that a client is answered; 0: it is subscribed."""
    peer.forget()
    peer.connection.data_received(subscribe_frame(1, "s", 1))
    brokers.until(lambda: peer.count(BaseCommand.SUCCESS) or peer.count(BaseCommand.ERROR))
    refused = peer.received(BaseCommand.ERROR)
    if refused:
        assert refused[0].error.message == "Subscribe limited by subscribe rate limit per consumer."
        return int(refused[0].error.error)
    peer.forget()
    peer.connection.data_received(
        frame(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=2)
    )
    brokers.until(lambda: peer.count(BaseCommand.SUCCESS))
    return 0


def test_a_client_that_comes_back_too_often_is_refused_for_a_while() -> None:
    brokers = Brokers(policies=EffectivePolicies(subscribe_rate=SubscribeRate(2, 10)))
    peer = Peer(brokers)
    refused = int(ServerErrorCode.NOT_ALLOWED)
    assert [subscribe(brokers, peer) for _ in range(3)] == [0, 0, refused]
    brokers.world.wait(5.0)
    assert subscribe(brokers, peer) == 0
    topic = brokers.broker.topics.loaded[TOPIC]
    topic.apply_policies(EffectivePolicies())
    assert [subscribe(brokers, peer) for _ in range(5)] == [0] * 5
