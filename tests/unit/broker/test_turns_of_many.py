"""A broker with a thousand consumers, requests or subscriptions at once: each turn of its loop is short."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers import PAYLOAD, TOPIC, Brokers, Peer, frame, send_frame, subscribe_frame

from magnetar.broker.flow.loop_budget import REQUEST_PRICE, STEP_BYTES, TURN_BYTES
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    yield brokers
    assert brokers.broker.budget.waiting == 0


def positions(peer: Peer) -> list[tuple[int, int]]:
    ids = [c.message.message_id for c in peer.received(BaseCommand.MESSAGE)]
    return [(found.ledgerId, found.entryId) for found in ids]


def test_consumers_that_all_start_on_a_backlog_share_turns(brokers: Brokers) -> None:
    backlog, count = 200, 200
    publisher = brokers.publisher()
    consumers = [brokers.subscribed(f"s{n}") for n in range(count)]
    brokers.publish(publisher, backlog)
    good = brokers.subscribed("good", topic=TOPIC + "-of-another")
    brokers.publish(brokers.publisher(TOPIC + "-of-another"), 1)
    brokers.turns.clear()
    brokers.written = 0
    for consumer in consumers:
        consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1000)
    total = count * backlog * len(PAYLOAD)
    good.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1000)
    brokers.until(lambda: good.count(BaseCommand.MESSAGE) == 1)
    assert brokers.written < total / 4, "it came when the others had nearly all of theirs"
    brokers.until(lambda: all(consumer.count(BaseCommand.MESSAGE) == backlog for consumer in consumers))
    assert max(brokers.turns) <= TURN_BYTES + STEP_BYTES + 64 * 1024
    wanted = positions(consumers[0])
    assert len(wanted) == backlog
    assert wanted == sorted(wanted)
    assert all(positions(consumer) == wanted for consumer in consumers)


def test_nobody_has_everything_while_another_has_nothing(brokers: Brokers) -> None:
    publisher = brokers.publisher()
    consumers = [brokers.subscribed(f"s{n}") for n in range(100)]
    brokers.publish(publisher, 400)
    for consumer in consumers:
        consumer.forget()
        consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1000)
    begun = brokers.broker.budget.waiting
    assert begun > 50
    brokers.until(lambda: all(consumer.size for consumer in consumers))
    finished = sum(consumer.size >= 400 * len(PAYLOAD) for consumer in consumers)
    assert finished <= 10
    brokers.until(lambda: all(consumer.count(BaseCommand.MESSAGE) == 400 for consumer in consumers))


def test_consumers_of_a_shared_subscription_share_turns(brokers: Brokers) -> None:
    backlog, payload = 900, bytes(10_000)
    publisher = brokers.publisher()
    consumers = [brokers.subscribed("s", 1, number=n) for n in range(50)]
    for consumer in consumers:
        consumer.forget()
    brokers.publish(publisher, backlog, payload)
    brokers.turns.clear()
    for number, consumer in enumerate(consumers):
        consumer.send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=1000)
    brokers.until(lambda: sum(c.size for c in consumers) >= backlog * len(payload))
    assert max(brokers.turns) <= TURN_BYTES + STEP_BYTES
    found = [positions(consumer) for consumer in consumers]
    assert len({one for many in found for one in many}) == sum(map(len, found)) == backlog


def test_a_message_to_a_thousand_subscriptions_goes_out_over_several_turns(brokers: Brokers) -> None:
    count = 1000
    publisher = brokers.publisher()
    consumers = []
    peer = Peer(brokers)
    for number in range(count):
        if number % 10 == 0:
            peer = Peer(brokers)
            consumers.append(peer)
        peer.connection.data_received(subscribe_frame(number, f"s{number}", 0))
        peer.send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=1000)
    brokers.until(lambda: sum(c.count(BaseCommand.SUCCESS) for c in consumers) == count)
    for number in range(count):
        consumers[number // 10].send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=1000)
    brokers.turns.clear()
    publisher.connection.data_received(send_frame(0) + send_frame(1))
    brokers.until(lambda: sum(c.count(BaseCommand.MESSAGE) for c in consumers) == 2 * count)
    assert sum(bool(size) for size in brokers.turns) > 3
    for peer in consumers:
        got: dict[int, list[int]] = {}
        for found in peer.received(BaseCommand.MESSAGE):
            got.setdefault(found.message.consumer_id, []).append(found.message.message_id.entryId)
        assert len(got) == 10
        assert all(entries == [0, 1] for entries in got.values())


def test_requests_of_one_connection_are_handled_turn_by_turn(brokers: Brokers) -> None:
    count = 500
    brokers.publisher()
    flood, other = Peer(brokers), Peer(brokers)
    brokers.one_turn()
    flood.connection.data_received(b"".join(subscribe_frame(n, f"s{n}", 0) for n in range(count)))
    assert not flood.reading
    assert len(flood.connection.session.opening_consumers) <= TURN_BYTES // REQUEST_PRICE
    other.send(BaseCommand.PING, "ping")
    brokers.until(lambda: other.count(BaseCommand.PONG))
    assert flood.count(BaseCommand.SUCCESS) < count / 4
    brokers.until(lambda: flood.count(BaseCommand.SUCCESS) == count)
    answered = [answer.success.request_id for answer in flood.received(BaseCommand.SUCCESS)]
    assert sorted(answered) == list(range(count))
    assert flood.reading


def test_frames_of_one_connection_are_handled_turn_by_turn(brokers: Brokers) -> None:
    """FLOW frames, the cheapest of all, by the ten thousand in one read; none is lost, order is kept."""
    count = 30_000
    peer = brokers.subscribed("s")
    one = frame(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1)
    consumer = peer.connection.session.consumers[1]
    peer.connection.data_received(one * count)
    assert 0 < consumer.permits < count / 2
    peer.connection.data_received(
        frame(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=2)
    )
    turns = brokers.until(lambda: peer.count(BaseCommand.SUCCESS) == 2)
    assert turns > 2
    assert consumer.permits == count
    assert peer.reading


def test_a_connection_that_goes_while_it_waits_is_forgotten(brokers: Brokers) -> None:
    brokers.publisher()
    flood = Peer(brokers)
    flood.connection.data_received(b"".join(subscribe_frame(n, f"s{n}", 0) for n in range(200)))
    assert brokers.broker.budget.waiting
    flood.connection.connection_lost(None)
    brokers.until(lambda: not brokers.broker.budget.waiting)
    brokers.world.wait(1)
    topic = brokers.broker.topics.loaded[TOPIC]
    assert topic.subscriptions.consumer_count() == 0
