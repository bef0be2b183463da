"""Key_Shared subscriptions: who gets which key, and that no key is ever in two hands or out of order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from raw_client import Client, Refused, id_of, position
from server import Server

from magnetar.naming.hashes import murmur3_positive
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    AUTO_SPLIT,
    STICKY,
    BaseCommand,
    CommandSubscribe,
    KeySharedMeta,
    KeySharedMode,
    MessageMetadata,
)

KEY_SHARED = CommandSubscribe.Key_Shared
MESSAGE = BaseCommand.MESSAGE
BUSY, ASSIGN, NOT_ALLOWED = 5, 19, 22
Place = tuple[int, int]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.port)
    yield made
    made.close()


def meta(
    mode: KeySharedMode.ValueType = STICKY, ranges: Sequence[Place] = (), *, out_of_order: bool = False
) -> KeySharedMeta:
    made = KeySharedMeta(keySharedMode=mode, allowOutOfOrderDelivery=out_of_order)
    for first, last in ranges:
        made.hashRanges.add(start=first, end=last)
    return made


def publish(client: Client, producer: int, keys: Sequence[str]) -> list[Place]:
    """One message for each key, its payload its place in ``keys``; where they are stored."""
    for index, key in enumerate(keys):
        made = MessageMetadata(producer_name="raw", sequence_id=index, publish_time=1, partition_key=key)
        client.publish(producer, index, build_entry(made, b"%d" % index))
    return [position(client.take(BaseCommand.SEND_RECEIPT, producer_id=producer).message_id) for _key in keys]


def payloads(client: Client, consumer_id: int) -> list[int]:
    """What came for a consumer by now."""
    client.barrier()
    found = [entry for frame, entry in client.kept if is_message(frame, consumer_id)]
    client.kept = [pair for pair in client.kept if not is_message(pair[0], consumer_id)]
    return [int(entry[10 + int.from_bytes(entry[6:10], "big") :]) for entry in found]


def is_message(frame: BaseCommand, consumer_id: int) -> bool:
    return frame.type == MESSAGE and frame.message.consumer_id == consumer_id


def gathered(client: Client, consumers: Sequence[int], wanted: int) -> dict[int, list[int]]:
    """Payloads by consumer, once there are so many."""
    found: dict[int, list[int]] = {consumer: [] for consumer in consumers}
    while sum(map(len, found.values())) < wanted:
        frame, entry = client.take_frame(MESSAGE)
        found[frame.consumer_id].append(int(entry[10 + int.from_bytes(entry[6:10], "big") :]))
    return found


KEYS = [f"key-{number % 40}" for number in range(200)]


def test_each_key_goes_to_one_consumer_in_order(client: Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", KEY_SHARED, 1000) for _ in range(4)]
    producer, _ = client.produce(topic)
    publish(client, producer, KEYS)
    found = gathered(client, consumers, len(KEYS))
    owners: dict[str, int] = {}
    for consumer, numbers in found.items():
        assert numbers == sorted(numbers)
        for number in numbers:
            assert owners.setdefault(KEYS[number], consumer) == consumer
    assert len(set(owners.values())) > 1


def test_slots_as_in_pulsar(client: Client, topic: str) -> None:
    """Which of two ranges a key falls into was asked of Apache Pulsar 4.0.8."""
    low = client.subscribe(topic, "s", KEY_SHARED, 100, keySharedMeta=meta(ranges=[(0, 30000)]))
    producer, _ = client.produce(topic)
    publish(client, producer, [f"key-{number}" for number in range(10)])
    assert gathered(client, [low], 6)[low] == [1, 2, 3, 6, 8, 9]
    # What belonged to nobody waited for this one.
    high = client.subscribe(topic, "s", KEY_SHARED, 100, keySharedMeta=meta(ranges=[(30001, 65535)]))
    assert gathered(client, [high], 4)[high] == [0, 4, 5, 7]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([], "must not be empty"),
        ([(100, 200)], "Range conflict with consumer"),
        ([(0, 0)], "Range conflict with consumer"),
        ([(300, 200)], "start > end"),
        ([(300, 400), (350, 500)], "own ranges conflict"),
        ([(300, 65536)], "outside"),
        ([(-5, 0)], "outside"),
    ],
)
def test_sticky_ranges_refused(client: Client, topic: str, ranges: list[Place], message: str) -> None:
    client.subscribe(topic, "s", KEY_SHARED, keySharedMeta=meta(ranges=[(0, 100)]))
    with pytest.raises(Refused, match=message) as refused:
        client.subscribe(topic, "s", KEY_SHARED, keySharedMeta=meta(ranges=ranges))
    assert refused.value.code == ASSIGN
    client.subscribe(topic, "s", KEY_SHARED, keySharedMeta=meta(ranges=[(101, 200), (300, 400)]))


def test_a_range_is_free_again(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", KEY_SHARED, keySharedMeta=meta(ranges=[(0, 65535)]))
    client.close_consumer(consumer)
    client.subscribe(topic, "s", KEY_SHARED, keySharedMeta=meta(ranges=[(5, 10)]))


def test_all_consumers_ask_for_the_same(client: Client, topic: str) -> None:
    client.subscribe(topic, "s", KEY_SHARED)
    for asked, message in (
        (meta(ranges=[(0, 9)]), "key_shared mode of 'AUTO_SPLIT'.*'STICKY'"),
        (meta(AUTO_SPLIT, out_of_order=True), "does not allow out of order"),
    ):
        with pytest.raises(Refused, match=message) as refused:
            client.subscribe(topic, "s", KEY_SHARED, keySharedMeta=asked)
        assert refused.value.code == BUSY
    with pytest.raises(Refused, match="of different type") as refused:
        client.subscribe(topic, "s", CommandSubscribe.Shared)
    assert refused.value.code == BUSY


def test_the_next_first_consumer_may_ask_for_something_else(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", KEY_SHARED)
    client.close_consumer(consumer)
    client.subscribe(topic, "s", KEY_SHARED, 10, keySharedMeta=meta(ranges=[(0, 65535)]))
    producer, _ = client.produce(topic)
    publish(client, producer, ["a"])
    client.take(MESSAGE)


def split_keys(client: Client, topic: str, first: int, second: int) -> dict[int, str]:
    """A key of each consumer's, found by trying."""
    producer, _ = client.produce(topic)
    keys = [f"try-{number}" for number in range(64)]
    where = publish(client, producer, keys)
    found = gathered(client, [first, second], len(keys))
    for consumer, numbers in found.items():
        client.acknowledge(consumer, [id_of(where[number]) for number in numbers])
    client.close_producer(producer)
    return {consumer: keys[numbers[0]] for consumer, numbers in found.items()}


def test_a_newcomer_waits_until_its_slots_are_drained(client: Client, topic: str) -> None:
    """PIP-379: what the former holder has of a key is acknowledged before the new one gets any of it."""
    first = client.subscribe(topic, "s", KEY_SHARED, 1000)
    second = client.subscribe(topic, "s", KEY_SHARED, 1000)
    moves = split_keys(client, topic, first, second)[second]
    client.close_consumer(second)
    producer, _ = client.produce(topic)
    where = publish(client, producer, [moves, moves])
    assert gathered(client, [first], 2)[first] == [0, 1]
    second = client.subscribe(topic, "s", KEY_SHARED, 1000, consumer_name=f"c{second}")
    publish(client, producer, [moves, moves])
    assert payloads(client, second) == []
    client.acknowledge(first, [id_of(where[0])])
    assert payloads(client, second) == []
    client.acknowledge(first, [id_of(where[1])])
    assert gathered(client, [second], 2)[second] == [0, 1]
    assert payloads(client, first) == []


def test_out_of_order_is_allowed(client: Client, topic: str) -> None:
    allowed = meta(AUTO_SPLIT, out_of_order=True)
    first = client.subscribe(topic, "s", KEY_SHARED, 1000, keySharedMeta=allowed)
    second = client.subscribe(topic, "s", KEY_SHARED, 1000, keySharedMeta=allowed)
    moves = split_keys(client, topic, first, second)[second]
    client.close_consumer(second)
    producer, _ = client.produce(topic)
    publish(client, producer, [moves])
    assert gathered(client, [first], 1)[first] == [0]
    again = client.subscribe(topic, "s", KEY_SHARED, 1000, keySharedMeta=allowed, consumer_name=f"c{second}")
    publish(client, producer, [moves])
    assert gathered(client, [again], 1)[again] == [0]


def test_who_leaves_gives_back_first(client: Client, topic: str) -> None:
    first = client.subscribe(topic, "s", KEY_SHARED, 1000)
    second = client.subscribe(topic, "s", KEY_SHARED, 1000)
    key = split_keys(client, topic, first, second)[second]
    producer, _ = client.produce(topic)
    publish(client, producer, [key, key, key])
    assert gathered(client, [second], 3)[second] == [0, 1, 2]
    client.close_consumer(second)
    publish(client, producer, [key])
    assert gathered(client, [first], 4)[first] == [0, 1, 2, 0]


def test_one_without_permits_holds_back_its_keys_only(client: Client, topic: str) -> None:
    first = client.subscribe(topic, "s", KEY_SHARED, 64)
    second = client.subscribe(topic, "s", KEY_SHARED, 1000)
    keys = split_keys(client, topic, first, second)
    client.close_consumer(first)
    first = client.subscribe(topic, "s", KEY_SHARED, 1, consumer_name=f"c{first}", consumer_id=first)
    producer, _ = client.produce(topic)
    publish(client, producer, [keys[first], keys[first], keys[second], keys[first], keys[second]])
    found = gathered(client, [first, second], 3)
    assert found == {first: [0], second: [2, 4]}
    client.flow(first, 1)
    assert gathered(client, [first], 1)[first] == [1]
    publish(client, producer, [keys[first]])
    client.flow(first, 10)
    assert gathered(client, [first], 2)[first] == [3, 0]


def test_redelivery_keeps_the_key_where_it_was(client: Client, topic: str) -> None:
    first = client.subscribe(topic, "s", KEY_SHARED, 1000)
    second = client.subscribe(topic, "s", KEY_SHARED, 1000)
    key = split_keys(client, topic, first, second)[second]
    producer, _ = client.produce(topic)
    where = publish(client, producer, [key, key, key])
    gathered(client, [second], 3)
    for count in (1, 2):
        client.redeliver(second, [id_of(where[2]), id_of(where[1])])
        again = client.messages(second, 2)
        assert [(position(m.message_id), m.redelivery_count) for m, _p in again] == [
            (where[1], count), (where[2], count)
        ]  # fmt: skip
    assert payloads(client, first) == []


@pytest.mark.parametrize("field", ["ordering_key", "partition_key"])
def test_keys_in_base64_and_ordering_keys(client: Client, topic: str, field: str) -> None:
    """All of them mean the same bytes."""
    slot = murmur3_positive(b"bytes") % 65536
    wanted = client.subscribe(topic, "s", KEY_SHARED, 10, keySharedMeta=meta(ranges=[(slot, slot)]))
    producer, _ = client.produce(topic)
    made = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if field == "ordering_key":
        made.partition_key, made.ordering_key = "other", b"bytes"
    else:
        made.partition_key, made.partition_key_b64_encoded = "Ynl0ZXM=", True
    client.publish(producer, 0, build_entry(made, b"1"))
    assert client.message(wanted)[1] == b"1"


def test_halved_ranges(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(subscriptionKeySharedUseConsistentHashing="false")
    client = Client(server.port)
    topic = "persistent://public/default/t"
    consumers = [client.subscribe(topic, "s", KEY_SHARED, 1000) for _ in range(3)]
    producer, _ = client.produce(topic)
    publish(client, producer, KEYS)
    found = gathered(client, consumers, len(KEYS))
    # The first has the upper half, the second a quarter, the third the lowest.
    for consumer, (low, high) in zip(consumers, ((32769, 65535), (16385, 32768), (0, 16384)), strict=True):
        slots = {murmur3_positive(KEYS[n].encode()) % 65536 for n in found[consumer]}
        assert slots
        assert all(low <= slot <= high for slot in slots), (consumer, sorted(slots))
    client.close()


def test_switched_off(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(subscriptionKeySharedEnable="false")
    client = Client(server.port)
    with pytest.raises(Refused, match="Key_Shared subscription is disabled") as refused:
        client.subscribe("persistent://public/default/t", "s", KEY_SHARED)
    assert refused.value.code == NOT_ALLOWED
    client.close()


def test_statistics(client: Client, server: Server, topic: str) -> None:
    low = client.subscribe(topic, "s", KEY_SHARED, 10, keySharedMeta=meta(ranges=[(0, 30000)]))
    client.subscribe(topic, "s", KEY_SHARED, 10, keySharedMeta=meta(ranges=[(30001, 65535)]))
    status, answer = server.ask("GET", f"/admin/v2/persistent/{topic.partition('://')[2]}/stats")
    assert status == 200
    found = json.loads(answer)["subscriptions"]["s"]
    assert (found["type"], found["keySharedMode"]) == ("Key_Shared", "STICKY")
    assert found["allowOutOfOrderDelivery"] is False
    ranges = {each["consumerName"]: each["keyHashRangeArrays"] for each in found["consumers"]}
    assert ranges[f"c{low}"] == [[0, 30000]]
    assert sorted(ranges.values()) == [[[0, 30000]], [[30001, 65535]]]
