"""Non-persistent topics, frame by frame: who gets what, what is dropped, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from polling import until_wanted
from raw_client import Client, Refused, command, entry_of, id_of, position
from raw_connection import RawConnection
from server import Server

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandPartitionedTopicMetadataResponse,
    CommandSubscribe,
    IntRange,
    KeySharedMeta,
    MessageIdData,
    MessageMetadata,
)

PASSED = (0, 0)
DROPPED = (2**64 - 1, 2**64 - 1)
EXCLUSIVE, SHARED = CommandSubscribe.Exclusive, CommandSubscribe.Shared
FAILOVER, KEY_SHARED = CommandSubscribe.Failover, CommandSubscribe.Key_Shared
NOT_ALLOWED = 22
TOPIC_NOT_FOUND = 11

_names = count()


@pytest.fixture(scope="module")
def broker(start_server: Any) -> Server:
    server: Server = start_server(statsUpdateFrequencyInSecs=1)
    return server


@pytest.fixture
def client(broker: Server) -> Iterator[Client]:
    made = Client(broker.port)
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"non-persistent://public/default/np{next(_names)}"


def path_of(topic: str) -> str:
    return "/admin/v2/" + topic.replace("://", "/")


def stats(broker: Server, topic: str) -> Any:
    status, body = broker.ask("GET", path_of(topic) + "/stats")
    assert status == 200, body
    return json.loads(body)


def send_all(client: Client, producer: int, entries: list[bytes], numbers: list[int] | None = None) -> None:
    """All in one write, so that the broker reads them at once."""
    frames = []
    for index, entry in enumerate(entries):
        fields = {"num_messages": numbers[index]} if numbers else {}
        send = command(BaseCommand.SEND, producer_id=producer, sequence_id=index, **fields)
        frames.append(RawConnection.frame(send, entry))
    client.send_bytes(b"".join(frames))


def receipts(client: Client, producer: int, wanted: int) -> list[tuple[int, int]]:
    """The ids in the receipts, which come in the order of the messages."""
    found = [client.take(BaseCommand.SEND_RECEIPT, producer_id=producer) for _ in range(wanted)]
    assert [receipt.sequence_id for receipt in found] == list(range(wanted))
    return [position(receipt.message_id) for receipt in found]


def payloads(client: Client, consumer: int, wanted: int) -> list[bytes]:
    found = client.messages(consumer, wanted)
    assert all(position(message.message_id) == PASSED for message, _payload in found)
    return [payload for _message, payload in found]


def keyed(key: str, payload: bytes, sequence_id: int) -> bytes:
    metadata = MessageMetadata(
        producer_name="raw", sequence_id=sequence_id, publish_time=1, partition_key=key
    )
    return build_entry(metadata, payload)


# Delivery


def test_messages_go_to_who_is_connected_and_to_nobody_later(client: Client, topic: str) -> None:
    producer, success = client.produce(topic)
    assert success.last_sequence_id == -1
    assert client.published(producer, [b"nobody"]) == [PASSED]
    consumer = client.subscribe(topic, "s", permits=10)
    assert client.published(producer, [b"1", b"2"]) == [PASSED, PASSED]
    assert payloads(client, consumer, 2) == [b"1", b"2"]
    client.close_consumer(consumer)
    client.published(producer, [b"meanwhile"])
    again = client.subscribe(topic, "s", permits=10)
    client.published(producer, [b"3"])
    assert payloads(client, again, 1) == [b"3"]
    assert not client.count_kept(BaseCommand.MESSAGE)


def test_each_subscription_gets_everything(client: Client, topic: str) -> None:
    consumers = [client.subscribe(topic, f"s{index}", permits=5) for index in range(3)]
    producer, _ = client.produce(topic)
    client.published(producer, [b"1", b"2"])
    for consumer in consumers:
        assert payloads(client, consumer, 2) == [b"1", b"2"]


def test_a_shared_subscription_gives_each_consumer_as_many(client: Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", SHARED, 100) for _ in range(3)]
    producer, _ = client.produce(topic)
    sent = [b"%d" % index for index in range(30)]
    send_all(client, producer, [entry_of(payload, index) for index, payload in enumerate(sent)])
    receipts(client, producer, 30)
    got = [payload for consumer in consumers for payload in payloads(client, consumer, 10)]
    assert sorted(got) == sorted(sent)
    # Also one by one they take turns.
    for index in range(3):
        client.publish(producer, index, entry_of(b"%d" % index, index))
        client.take(BaseCommand.SEND_RECEIPT)
    for consumer in consumers:
        payloads(client, consumer, 1)


def test_shared_goes_by_priority_and_permits(client: Client, topic: str) -> None:
    low = client.subscribe(topic, "s", SHARED, 100, priority_level=2)
    first = client.subscribe(topic, "s", SHARED, 2, priority_level=1)
    second = client.subscribe(topic, "s", SHARED, 3, priority_level=1)
    producer, _ = client.produce(topic)
    send_all(client, producer, [entry_of(b"%d" % index, index) for index in range(9)])
    receipts(client, producer, 9)
    assert len(payloads(client, first, 2) + payloads(client, second, 3) + payloads(client, low, 4)) == 9
    assert not client.count_kept(BaseCommand.MESSAGE)


def test_failover_tells_who_is_active_at_once(client: Client, topic: str) -> None:
    middle = client.subscribe(topic, "s", FAILOVER, 10, consumer_name="m")
    change = BaseCommand.ACTIVE_CONSUMER_CHANGE
    assert client.take(change, consumer_id=middle).is_active
    first = client.subscribe(topic, "s", FAILOVER, 10, consumer_name="a")
    assert client.take(change, consumer_id=first).is_active
    assert not client.take(change, consumer_id=middle).is_active
    producer, _ = client.produce(topic)
    client.published(producer, [b"1"])
    assert payloads(client, first, 1) == [b"1"]
    client.close_consumer(first)
    assert client.take(change, consumer_id=middle).is_active
    client.published(producer, [b"2"])
    assert payloads(client, middle, 1) == [b"2"]


def test_key_shared_keeps_keys_together_and_in_order(client: Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", KEY_SHARED, 1000) for _ in range(3)]
    producer, _ = client.produce(topic)
    send_all(client, producer, [keyed(f"k{i % 20}", b"k%d:%d" % (i % 20, i), i) for i in range(200)])
    receipts(client, producer, 200)
    client.barrier()
    seen: dict[bytes, int] = {}
    got: dict[int, list[bytes]] = {consumer: [] for consumer in consumers}
    for _ in range(200):
        message, entry = client.take_frame(BaseCommand.MESSAGE)
        got[message.consumer_id].append(entry[10 + int.from_bytes(entry[6:10], "big") :])
    for consumer, found in got.items():
        assert found, "somebody has no slots"
        last: dict[bytes, int] = {}
        for payload in found:
            key, _, number = payload.partition(b":")
            assert seen.setdefault(key, consumer) == consumer
            assert last.get(key, -1) < int(number)
            last[key] = int(number)


def test_sticky_ranges_and_their_refusals(client: Client, topic: str, broker: Server) -> None:
    def ranges(first: int, last: int) -> KeySharedMeta:
        return KeySharedMeta(keySharedMode=1, hashRanges=[IntRange(start=first, end=last)])  # type: ignore[arg-type]

    low = client.subscribe(topic, "s", KEY_SHARED, 1000, keySharedMeta=ranges(0, 32767))
    with pytest.raises(Refused) as overlaps:
        client.subscribe(topic, "s", KEY_SHARED, 1000, keySharedMeta=ranges(30000, 65535))
    assert overlaps.value.code == 19
    with pytest.raises(Refused, match="key_shared mode") as other_mode:
        client.subscribe(topic, "s", KEY_SHARED, 100)
    assert other_mode.value.code == 5
    producer, _ = client.produce(topic)
    send_all(client, producer, [keyed(f"k{i}", b"%d" % i, i) for i in range(100)])
    receipts(client, producer, 100)
    client.barrier()
    taken = client.count_kept(BaseCommand.MESSAGE)
    assert 20 < taken < 80
    high = client.subscribe(topic, "s", KEY_SHARED, 1000, keySharedMeta=ranges(32768, 65535))
    send_all(client, producer, [keyed(f"k{i}", b"%d" % i, i) for i in range(100)])
    receipts(client, producer, 100)
    payloads(client, low, taken * 2)
    payloads(client, high, 100 - taken)


def test_an_exclusive_consumer_may_want_some_of_the_keys(client: Client, topic: str) -> None:
    ranges = KeySharedMeta(keySharedMode=1, hashRanges=[IntRange(start=0, end=32767)])  # type: ignore[arg-type]
    some = client.subscribe(topic, "some", permits=100, keySharedMeta=ranges)
    everything = client.subscribe(topic, "all", permits=100)
    producer, _ = client.produce(topic)
    send_all(client, producer, [keyed(f"k{i}", b"%d" % i, i) for i in range(50)])
    receipts(client, producer, 50)
    assert payloads(client, everything, 50) == [b"%d" % index for index in range(50)]
    taken = client.count_kept(BaseCommand.MESSAGE)
    assert 10 < taken < 40
    payloads(client, some, taken)


# What is dropped


def test_beyond_the_permits_messages_are_dropped_and_counted(
    client: Client, topic: str, broker: Server
) -> None:
    consumer = client.subscribe(topic, "s", permits=3)
    producer, _ = client.produce(topic)
    send_all(client, producer, [entry_of(b"%d" % index, index) for index in range(10)])
    assert receipts(client, producer, 10) == [PASSED] * 10
    assert payloads(client, consumer, 3) == [b"0", b"1", b"2"]
    client.flow(consumer, 1)
    client.publish(producer, 10, entry_of(b"later"))
    assert payloads(client, consumer, 1) == [b"later"]
    assert not client.count_kept(BaseCommand.MESSAGE)
    found = until_wanted(
        lambda: stats(broker, topic), lambda s: s["subscriptions"]["s"]["msgDropRate"] > 0, seconds=10
    )
    assert found["msgDropRate"] > 0
    assert found["msgInCounter"] == 11
    assert found["msgOutCounter"] == 4
    assert found["publishers"][0]["msgDropRate"] == 0


def test_batches_cost_a_permit_for_each_message(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=5)
    producer, _ = client.produce(topic)
    send_all(client, producer, [entry_of(b"%d" % index, index, 2) for index in range(10)], [2] * 10)
    receipts(client, producer, 10)
    # The one that uses up the permits overdraws them.
    assert payloads(client, consumer, 3) == [b"0", b"1", b"2"]
    client.flow(consumer, 1)
    client.publish(producer, 10, entry_of(b"still none"))
    client.barrier()
    assert not client.count_kept(BaseCommand.MESSAGE)


def test_a_consumer_that_does_not_read_loses_messages_and_nobody_else(
    client: Client, topic: str, broker: Server
) -> None:
    stalled = Client(broker.port, answers_pings=False)
    stalled.subscribe(topic, "stalled", permits=100_000)
    consumer = client.subscribe(topic, "s", permits=1_000_000)
    producer, _ = client.produce(topic)
    payload = bytes(50_000)
    for index in range(400):
        client.publish(producer, index, entry_of(payload, index))
        client.take(BaseCommand.SEND_RECEIPT, producer_id=producer, sequence_id=index)
        client.message(consumer)
    found = until_wanted(
        lambda: stats(broker, topic), lambda s: s["subscriptions"]["stalled"]["msgDropRate"] > 0, seconds=10
    )
    assert found["subscriptions"]["s"]["msgDropRate"] == 0
    assert found["subscriptions"]["s"]["msgOutCounter"] == 400
    assert found["subscriptions"]["stalled"]["msgOutCounter"] < 400
    stalled.close()


def test_beyond_the_cap_of_a_connection_messages_are_dropped(start_server: Any) -> None:
    broker: Server = start_server(
        maxConcurrentNonPersistentMessagePerConnection=5, statsUpdateFrequencyInSecs=1
    )
    client = Client(broker.port)
    topic = "non-persistent://public/default/capped"
    consumer = client.subscribe(topic, "s", permits=1000)
    producer, _ = client.produce(topic)
    dropped = 0
    for _attempt in range(20):
        send_all(client, producer, [entry_of(b"%d" % index, index, 2) for index in range(50)], [2] * 50)
        told = receipts(client, producer, 50)
        assert set(told) <= {PASSED, DROPPED}
        assert told[:5] == [PASSED] * 5
        delivered = [b"%d" % index for index, where in enumerate(told) if where == PASSED]
        assert payloads(client, consumer, len(delivered)) == delivered
        dropped += told.count(DROPPED)
        client.flow(consumer, 100)
        if dropped:
            break
    assert dropped
    found = until_wanted(
        lambda: stats(broker, topic), lambda s: s["publishers"][0]["msgDropRate"] > 0, seconds=10
    )
    assert found["msgDropRate"] > 0
    assert found["subscriptions"]["s"]["msgDropRate"] == 0
    assert not client.count_kept(BaseCommand.MESSAGE)
    client.close()


def test_nothing_is_dropped_of_what_a_burst_of_thousands_brings(
    client: Client, topic: str, broker: Server
) -> None:
    """At the cap of a connection it is read no further for a moment, so that nothing comes beyond it."""
    consuming = Client(broker.port)
    consumer = consuming.subscribe(topic, "s", permits=100_000)
    producer, _ = client.produce(topic)
    send_all(client, producer, [entry_of(b"%d" % index, index) for index in range(5_000)])
    assert receipts(client, producer, 5_000) == [PASSED] * 5_000
    assert payloads(consuming, consumer, 5_000) == [b"%d" % index for index in range(5_000)]
    consuming.close()


# What is taken and changes nothing


def test_acknowledgement_redelivery_and_seek_change_nothing(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=10)
    producer, _ = client.produce(topic)
    client.published(producer, [b"1"])
    payloads(client, consumer, 1)
    for cumulative in (False, True):
        answer = client.acknowledge(consumer, [id_of(PASSED)], cumulative=cumulative)
        assert not answer.HasField("error")
    client.redeliver(consumer)
    client.ask(BaseCommand.SEEK, BaseCommand.SUCCESS, consumer_id=consumer, message_id=id_of(PASSED))
    client.ask(BaseCommand.SEEK, BaseCommand.SUCCESS, consumer_id=consumer, message_publish_time=1)
    client.published(producer, [b"2"])
    assert payloads(client, consumer, 1) == [b"2"]
    assert not client.count_kept(BaseCommand.MESSAGE)
    assert not client.count_kept(BaseCommand.CLOSE_CONSUMER)


def test_there_is_no_last_message_id(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    with pytest.raises(Refused, match="stores no messages") as refused:
        client.ask(
            BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=consumer
        )
    assert refused.value.code == NOT_ALLOWED


# Subscriptions


def names(broker: Server, topic: str) -> list[str]:
    status, body = broker.ask("GET", path_of(topic) + "/subscriptions")
    assert status == 200
    found: list[str] = json.loads(body)
    return found


def test_subscriptions_live_as_long_as_they_are_wanted(client: Client, topic: str, broker: Server) -> None:
    durable = client.subscribe(topic, "durable")
    reader = client.subscribe(topic, "reader", durable=False)
    shared = client.subscribe(topic, "shared-reader", SHARED, durable=False)
    assert names(broker, topic) == ["durable", "reader", "shared-reader"]
    client.close_consumer(reader)
    client.close_consumer(shared)
    client.close_consumer(durable)
    assert names(broker, topic) == ["durable"]
    again = client.subscribe(topic, "durable")
    with pytest.raises(Refused, match="Exclusive consumer is already connected"):
        client.subscribe(topic, "durable")
    with pytest.raises(Refused, match="different type"):
        client.subscribe(topic, "durable", SHARED)
    client.ask(BaseCommand.UNSUBSCRIBE, BaseCommand.SUCCESS, consumer_id=again)
    assert names(broker, topic) == []


def test_an_unload_disconnects_everybody_and_forgets_subscriptions(
    client: Client, topic: str, broker: Server
) -> None:
    consumer = client.subscribe(topic, "s")
    producer, _ = client.produce(topic)
    status, _body = broker.ask("PUT", path_of(topic) + "/unload")
    assert status == 204
    client.take(BaseCommand.CLOSE_CONSUMER, consumer_id=consumer)
    client.take(BaseCommand.CLOSE_PRODUCER, producer_id=producer)
    client.produce(topic)
    assert names(broker, topic) == []


def test_a_restart_forgets_topics_and_keeps_partitioned_ones(start_server: Any) -> None:
    broker: Server = start_server()
    client = Client(broker.port)
    partitioned = "non-persistent://public/default/parts"
    assert broker.ask("PUT", path_of(partitioned) + "/partitions", "2")[0] == 204
    client.subscribe("non-persistent://public/default/gone", "s")
    client.subscribe(partitioned + "-partition-1", "s")
    client.close()
    broker.restart(kill=False)
    assert broker.ask("GET", "/admin/v2/non-persistent/public/default")[1] == b"[]"
    listed = json.loads(broker.ask("GET", "/admin/v2/non-persistent/public/default/partitioned")[1])
    assert listed == [partitioned]
    assert names(broker, partitioned + "-partition-1") == []
    data = broker.folder / "data"
    assert not any("gone" in str(found) for found in data.rglob("*"))


# Which there are


def topics_of(client: Client, mode: int, **fields: Any) -> list[str]:
    answer = client.ask(
        BaseCommand.GET_TOPICS_OF_NAMESPACE,
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace="public/default",
        mode=mode,
        **fields,
    )
    return list(answer.topics)


def test_lists_keep_persistent_and_non_persistent_apart(client: Client, topic: str) -> None:
    stored = topic.replace("non-persistent", "persistent") + "-stored"
    client.produce(topic)
    client.produce(stored)
    mode = CommandGetTopicsOfNamespace
    passing, kept = topics_of(client, mode.NON_PERSISTENT), topics_of(client, mode.PERSISTENT)
    assert (topic in passing, stored in passing) == (True, False)
    assert (topic in kept, stored in kept) == (False, True)
    pattern = topic.partition("/default/")[2] + ".*"
    found = topics_of(client, mode.ALL, topics_pattern=f"public/default/{pattern}")
    assert sorted(found) == sorted([topic, stored])


def test_topics_that_are_missing_are_made_by_those_who_may(client: Client, topic: str) -> None:
    def partitions(**fields: Any) -> Any:
        return client.ask(
            BaseCommand.PARTITIONED_METADATA,
            BaseCommand.PARTITIONED_METADATA_RESPONSE,
            topic=topic,
            **fields,
        )

    missing = partitions(metadata_auto_creation_enabled=False)
    assert missing.response == CommandPartitionedTopicMetadataResponse.Failed
    assert missing.error == TOPIC_NOT_FOUND
    with pytest.raises(Refused) as refused:
        client.subscribe(topic, "s", force_topic_creation=False)
    assert refused.value.code == TOPIC_NOT_FOUND
    assert partitions().partitions == 0
    client.produce(topic)
    assert partitions(metadata_auto_creation_enabled=False).partitions == 0


@pytest.mark.parametrize("kind", ["Persistent", "NonPersistent"])
def test_a_broker_may_serve_one_kind_alone(start_server: Any, kind: str) -> None:
    broker: Server = start_server(**{f"enable{kind}Topics": "false"})
    client = Client(broker.port)
    domains = {"Persistent": "persistent", "NonPersistent": "non-persistent"}
    for each, domain in domains.items():
        topic = f"{domain}://public/default/only"
        lookup = client.ask(BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=topic)
        if each != kind:
            assert lookup.brokerServiceUrl
            client.produce(topic)
            continue
        assert (lookup.error, lookup.brokerServiceUrl) == (NOT_ALLOWED, "")
        assert f"unable to load {domain} topic" in lookup.message
        for attempt in (lambda t=topic: client.produce(t), lambda t=topic: client.subscribe(t, "s")):
            with pytest.raises(Refused, match=f"unable to load {domain} topic") as refused:
                attempt()
            assert refused.value.code == NOT_ALLOWED
    client.close()


# Policies


def test_caps_count_here_too(start_server: Any) -> None:
    broker: Server = start_server(
        maxProducersPerTopic=1, maxConsumersPerTopic=2, maxSubscriptionsPerTopic=2, maxMessageSize=1000
    )
    client = Client(broker.port)
    topic = "non-persistent://public/default/caps"
    client.produce(topic)
    with pytest.raises(Refused, match="max producers"):
        client.produce(topic)
    client.subscribe(topic, "s", SHARED)
    client.subscribe(topic, "s", SHARED)
    with pytest.raises(Refused, match="max consumers"):
        client.subscribe(topic, "t", SHARED)
    other = topic + "2"
    for name in ("a", "b"):
        client.close_consumer(client.subscribe(other, name))
    with pytest.raises(Refused, match="maximum number of subscriptions"):
        client.subscribe(other, "c")
    client.close()


def test_a_topic_may_have_policies_of_its_own(client: Client, topic: str, broker: Server) -> None:
    client.subscribe(topic, "s")
    assert broker.ask("POST", path_of(topic) + "/maxProducers", "1")[0] == 204
    assert broker.ask("GET", path_of(topic) + "/maxProducers") == (200, b"1")
    client.produce(topic)
    with pytest.raises(Refused, match="max producers"):
        client.produce(topic)
    stored = topic.replace("non-persistent", "persistent")
    client.produce(stored)
    client.produce(stored)


def test_encryption_and_sizes_are_checked(client: Client, topic: str, broker: Server) -> None:
    client.subscribe(topic, "s")
    assert broker.ask("POST", path_of(topic) + "/maxMessageSize", "200")[0] == 204
    producer, _ = client.produce(topic)
    client.publish(producer, 0, entry_of(bytes(1000)))
    client.publish(producer, 1, entry_of(b"small", 1))
    refused = client.take(BaseCommand.SEND_ERROR)
    assert (refused.sequence_id, refused.message) == (0, "Exceed maximum message size")
    assert client.take(BaseCommand.SEND_RECEIPT).sequence_id == 1
    assert stats(broker, topic)["msgInCounter"] == 1


def test_exclusive_producers_and_who_waits_for_them(client: Client, topic: str, broker: Server) -> None:
    owner, success = client.produce(topic, producer_access_mode=1)
    assert success.topic_epoch == 0
    with pytest.raises(Refused, match="exclusive producer"):
        client.produce(topic)
    waiting, answer = client.produce(topic, producer_access_mode=2)
    assert not answer.producer_ready
    assert stats(broker, topic)["waitingPublishers"] == 1
    client.close_producer(owner)
    assert client.take(BaseCommand.PRODUCER_SUCCESS).producer_ready
    assert client.published(waiting, [b"mine"]) == [PASSED]


def test_ids_are_all_the_same(client: Client, topic: str) -> None:
    """As in Apache Pulsar: receipts and messages carry 0:0."""
    consumer = client.subscribe(topic, "s", permits=300)
    producer, _ = client.produce(topic)
    send_all(client, producer, [entry_of(b"x", index) for index in range(300)])
    assert set(receipts(client, producer, 300)) == {PASSED}
    for message, _payload in client.messages(consumer, 300):
        assert message.message_id == MessageIdData(ledgerId=0, entryId=0, partition=-1)
