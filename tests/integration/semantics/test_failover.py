"""Failover subscriptions: who is served, who takes over, and what is delivered then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from raw_client import Client, Refused, id_of, position
from server import Server

from magnetar.naming.hashes import murmur3_positive
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

FAILOVER = CommandSubscribe.Failover
CHANGE = BaseCommand.ACTIVE_CONSUMER_CHANGE


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.port)
    yield made
    made.close()


def is_active(client: Client, consumer_id: int) -> bool:
    """What the consumer is told next."""
    return bool(client.take(CHANGE, consumer_id=consumer_id).is_active)


def test_the_first_consumer_is_served(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    client.subscribe(topic, "s", FAILOVER, 10, consumer_id=70)
    where = client.published(producer, [b"1", b"2"])
    assert is_active(client, 70)
    for index, wanted in enumerate((b"1", b"2")):
        found, payload = client.message(70)
        assert (payload, position(found.message_id)) == (wanted, where[index])
        assert not found.redelivery_count


def test_a_newcomer_learns_its_state_before_its_success(client: Client, topic: str) -> None:
    client.subscribe(topic, "s", FAILOVER, consumer_id=71, consumer_name="a", priority_level=0)
    client.begin(
        BaseCommand.SUBSCRIBE,
        topic=topic,
        subscription="s",
        subType=FAILOVER,
        consumer_id=72,
        consumer_name="b",
        priority_level=1,
    )
    client.take(BaseCommand.SUCCESS)
    kept = [frame.active_consumer_change for frame, _entry in client.kept if frame.type == CHANGE]
    assert [(change.consumer_id, change.is_active) for change in kept][-1] == (72, False)


def test_takeover_without_loss(client: Client, server: Server, topic: str) -> None:
    other = Client(server.port)
    producer, _ = client.produce(topic)
    client.subscribe(topic, "s", FAILOVER, 3, consumer_id=73, priority_level=0)
    other.subscribe(topic, "s", FAILOVER, 100, consumer_id=74, priority_level=1)
    where = client.published(producer, [b"%d" % n for n in range(6)])
    found = client.messages(73, 3)
    client.acknowledge(73, [id_of(where[0]), id_of(where[2])])
    assert [payload for _message, payload in found] == [b"0", b"1", b"2"]
    client.close_consumer(73)
    while not is_active(other, 74):
        pass
    assert [payload for _message, payload in other.messages(74, 4)] == [b"1", b"3", b"4", b"5"]
    assert not other.count_kept(BaseCommand.MESSAGE)
    other.close()


def test_takeover_from_a_connection_that_is_gone(client: Client, server: Server, topic: str) -> None:
    other = Client(server.port)
    producer, _ = client.produce(topic)
    other.subscribe(topic, "s", FAILOVER, 100, consumer_id=75, consumer_name="z")
    client.subscribe(topic, "s", FAILOVER, 100, consumer_id=76, priority_level=1)
    client.published(producer, [b"1"])
    other.message(75)
    other.close()
    assert client.message(76)[1] == b"1"


def test_a_better_priority_takes_over(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    client.subscribe(topic, "s", FAILOVER, 100, consumer_id=77, priority_level=5)
    where = client.published(producer, [b"1", b"2"])
    client.messages(77, 2)
    client.acknowledge(77, [id_of(where[0])])
    client.subscribe(topic, "s", FAILOVER, 100, consumer_id=78, priority_level=4)
    assert client.message(78)[1] == b"2"
    # Whoever was active may still acknowledge what it had.
    client.acknowledge(77, [id_of(where[1])], cumulative=True)
    client.published(producer, [b"3"])
    assert client.message(78)[1] == b"3"
    assert not [f for f, _entry in client.kept if f.type == BaseCommand.MESSAGE]


def test_only_the_active_one_asks_for_redelivery(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    client.subscribe(topic, "s", FAILOVER, 100, consumer_id=79, priority_level=0)
    client.subscribe(topic, "s", FAILOVER, 100, consumer_id=80, priority_level=1)
    where = client.published(producer, [b"1", b"2"])
    client.messages(79, 2)
    client.redeliver(80)
    assert not client.count_kept(BaseCommand.MESSAGE)
    # Single messages are never asked for: the order is kept.
    client.redeliver(79, [id_of(where[1])])
    again = client.messages(79, 2)
    assert [(payload, found.redelivery_count) for found, payload in again] == [(b"1", 0), (b"2", 0)]


@pytest.mark.parametrize("partition", range(3))
def test_partitions_are_spread(client: Client, topic: str, partition: int) -> None:
    topic = f"{topic}-partition-{partition}"
    producer, _ = client.produce(topic)
    ids = {}
    for number, name in enumerate(("c", "a", "b")):
        ids[name] = client.subscribe(topic, "s", FAILOVER, 10, consumer_id=81 + number, consumer_name=name)
    client.published(producer, [b"1"])
    assert client.message(ids["abc"[partition]])[1] == b"1"


NAMES = ("x1", "x2", "x3")


@pytest.mark.parametrize("hashing", ["false", "true"])
def test_the_setting_chooses_for_partitions_alone(start_server: Callable[..., Server], hashing: str) -> None:
    server = start_server(
        activeConsumerFailoverConsistentHashing=hashing, activeConsumerFailoverDelayTimeMillis=0
    )
    client = Client(server.port)
    found = {}
    for topic in (*(f"persistent://public/default/hashed-partition-{index}" for index in range(4)), PLAIN):
        producer, _ = client.produce(topic)
        ids = {client.subscribe(topic, "s", FAILOVER, 10, consumer_name=name): name for name in NAMES}
        client.published(producer, [b"1"])
        found[topic] = ids[client.take(BaseCommand.MESSAGE).consumer_id]
    plain = found.pop(PLAIN)
    # What Apache Pulsar 4.0.8 chose, with either value.
    assert plain == "x3"
    by_index = [NAMES[index % 3] for index in range(4)]
    by_hash = [on_ring(topic) for topic in found]
    assert by_index != by_hash
    assert list(found.values()) == (by_hash if hashing == "true" else by_index)
    client.close()


PLAIN = "persistent://public/default/subs-e5f828h5"


def on_ring(topic: str) -> str:
    """Whose is the first of 100 points of each name at or behind that of the topic."""
    points = sorted(
        (murmur3_positive(f"{name}{point}".encode()), name) for name in NAMES for point in range(100)
    )
    at = murmur3_positive(topic.encode())
    return next((name for point, name in points if point >= at), points[0][1])


def test_another_type_is_refused(client: Client, topic: str) -> None:
    client.subscribe(topic, "s", FAILOVER)
    with pytest.raises(Refused, match="of different type") as refused:
        client.subscribe(topic, "s", CommandSubscribe.Exclusive)
    assert refused.value.code == 5


def test_no_delay(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(activeConsumerFailoverDelayTimeMillis=0)
    client = Client(server.port)
    topic = "persistent://public/default/t"
    client.subscribe(topic, "s", FAILOVER, 10, consumer_id=1)
    client.barrier()
    assert [f.active_consumer_change.is_active for f, _entry in client.kept if f.type == CHANGE] == [True]
    client.close()


def test_old_clients_are_not_told(server: Server, topic: str) -> None:
    old = Client(server.port, protocol_version=11)
    producer, _ = old.produce(topic)
    consumer = old.subscribe(topic, "s", FAILOVER, 10)
    old.published(producer, [b"1"])
    assert old.message(consumer)[1] == b"1"
    assert not old.count_kept(CHANGE)
    old.close()
