"""Options of the client that come from the official clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from server import Server

from magnetar.client import (
    BatchReceivePolicy,
    Client,
    ConsumerType,
    HashingScheme,
    IncompatibleSchema,
    InitialPosition,
    InvalidConfiguration,
    MessageId,
    PartitionsRoutingMode,
    ProducerQueueIsFull,
    RegexSubscriptionMode,
    Result,
)
from magnetar.client.aio import Client as AsyncClient
from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.schema import ProducerSchema
from magnetar.naming.hashes import boost_string_hash

WAIT = 20_000


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


def partitioned(server: Server, topic: str, count: int) -> None:
    path = f"/admin/v2/{topic.replace('://', '/')}/partitions"
    assert server.ask("PUT", path, str(count))[0] == 204


def test_batches_are_received_by_number_size_and_time(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(topic)
    for index in range(20):
        producer.send(b"%05d" % index)
    first = consumer.receive(WAIT)
    by_number = consumer.batch_receive(BatchReceivePolicy(6, -1, WAIT))
    by_size = consumer.batch_receive(BatchReceivePolicy(-1, 22, WAIT))
    by_time = consumer.batch_receive(BatchReceivePolicy(-1, -1, 1000))
    assert [len(found) for found in (by_number, by_size, by_time)] == [6, 5, 8]
    received = [first, *by_number, *by_size, *by_time]
    assert [int(message.data()) for message in received] == list(range(20))
    assert consumer.batch_receive() == []
    with pytest.raises(InvalidConfiguration, match="timeout_ms must be above 0"):
        consumer.batch_receive(BatchReceivePolicy(0, 0, 0))


@pytest.mark.parametrize("kind", ["topic", "partitions", "topics"])
def test_batches_are_received_with_asyncio(server: Server, topic: str, kind: str) -> None:
    topics = [topic] if kind != "topics" else [f"{topic}-a", f"{topic}-b"]
    if kind == "partitions":
        partitioned(server, topic, 3)

    async def work() -> None:
        async with AsyncClient(server.url) as client:
            if kind == "topics":
                consumer = await client.subscribe_to_topics(topics, "s")
            else:
                consumer = await client.subscribe(topic, "s")
            producers = [await client.create_producer(each, batching_enabled=False) for each in topics]
            for number in range(12):
                await producers[number % len(topics)].send(b"%d" % number)
            received = await consumer.batch_receive(BatchReceivePolicy(5, -1, WAIT))
            assert len(received) == 5
            waiting = asyncio.ensure_future(consumer.batch_receive(BatchReceivePolicy(20, -1, -1)))
            await asyncio.sleep(0.5)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert waiting.cancelled()
            received.append(await consumer.receive(WAIT))
            received += await consumer.batch_receive(BatchReceivePolicy(-1, -1, 500))
            for message in received:
                await consumer.acknowledge(message)
            numbers = [int(message.data()) for message in received]
            assert sorted(numbers) == list(range(12)), "what the cancelled call had taken comes once"
            if kind == "topic":
                assert numbers == list(range(12))
            assert await consumer.batch_receive() == []
            with pytest.raises(InvalidConfiguration, match="timeout_ms must be above 0"):
                await consumer.batch_receive(BatchReceivePolicy(0, 0, 0))

    asyncio.run(work())


def test_messages_of_a_cancelled_batch_are_gone_after_a_seek(server: Server, topic: str) -> None:
    async def work() -> None:
        async with AsyncClient(server.url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(3)))

            async def redelivered() -> None:
                consumer.redeliver_unacknowledged_messages()

            for again in (lambda: consumer.seek(MessageId.earliest), redelivered):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.batch_receive(BatchReceivePolicy(4, -1, -1)), 0.5)
                await again()
                received = await consumer.batch_receive(BatchReceivePolicy(4, -1, 1000))
                assert [message.data() for message in received] == [b"0", b"1", b"2"]
                await consumer.seek(MessageId.earliest)

    asyncio.run(work())


def test_keys_are_routed_like_official_clients_do(server: Server, client: Client, topic: str) -> None:
    partitioned(server, topic, 7)
    producer = client.create_producer(topic, hashing_scheme=HashingScheme.BoostHash)
    for key in ("a", "order-17", "ünï"):
        assert producer.send(b"", partition_key=key).partition() == boost_string_hash(key.encode()) % 7
        assert (
            producer.send(b"", partition_key=key, ordering_key="o").partition()
            == boost_string_hash(key.encode()) % 7
        )


@pytest.mark.parametrize("lazy", [False, True])
def test_pending_messages_of_all_partitions_are_limited(server: Server, topic: str, lazy: bool) -> None:
    partitioned(server, topic, 3)
    options: dict[str, Any] = {
        "max_pending_messages_across_partitions": 6,
        "message_routing_mode": PartitionsRoutingMode.CustomPartition,
        "message_router": lambda content, _options, _count: content[0] % 3,
        "batching_max_publish_delay_ms": 2000,
        "batching_enabled": True,
        "lazy_start_partitioned_producers": lazy,
    }
    contents = [bytes([number]) for number in range(12)]

    async def work() -> None:
        async with AsyncClient(server.url) as client:
            producer = await client.create_producer(topic, block_if_queue_full=False, **options)
            sent = [asyncio.ensure_future(producer.send(content)) for content in contents]
            while sum(each.done() for each in sent) < 6:
                await asyncio.wait(sent, timeout=0.01)
            assert producer.pending_messages == 6
            results = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(each) for each in results] == [MessageId] * 6 + [ProducerQueueIsFull] * 6
            await producer.close()

            options["batching_max_publish_delay_ms"] = 50
            producer = await client.create_producer(topic, block_if_queue_full=True, **options)
            sent = [asyncio.ensure_future(producer.send(content)) for content in contents]
            highest = 0
            while not all(each.done() for each in sent):
                highest = max(highest, producer.pending_messages)
                await asyncio.sleep(0)
            assert highest == 6
            assert len({each.result() for each in sent}) == 12

    asyncio.run(work())
    with Client(server.url) as blocking:
        producer = blocking.create_producer(topic, block_if_queue_full=True, **options)
        outcomes: list[Result] = []
        for content in contents:
            producer.send_async(content, lambda result, _id: outcomes.append(result))
        producer.flush()
        assert outcomes == [Result.Ok] * 12
        with ThreadPoolExecutor(12) as threads:
            assert len(set(threads.map(producer.send, contents))) == 12
        with pytest.raises(InvalidConfiguration, match="across_partitions must be above 0, not 0"):
            blocking.create_producer(topic, max_pending_messages_across_partitions=0)


def test_lazy_producers_are_opened_by_their_first_message(server: Server, client: Client, topic: str) -> None:
    partitioned(server, topic, 5)
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    producer = client.create_producer(
        topic,
        lazy_start_partitioned_producers=True,
        message_routing_mode=PartitionsRoutingMode.CustomPartition,
        message_router=lambda content, _options, _count: int(content) % 5,
    )
    assert publishers(server, topic) == 1
    results: list[Result] = []
    for index in range(10):
        producer.send_async(b"%d" % index, lambda result, _id: results.append(result))
    producer.flush()
    assert producer.send(b"10").partition() == 0
    assert publishers(server, topic) == 5
    assert producer.is_connected()
    assert results == [Result.Ok] * 10
    received = sorted(int(consumer.receive(WAIT).data()) for _ in range(11))
    assert received == list(range(11))
    producer.close()


def publishers(server: Server, topic: str) -> int:
    """Number of producers over all partitions."""
    found = 0
    for index in range(5):
        _status, body = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}-partition-{index}/stats")
        found += body.count(b'"producerName"')
    return found


def test_null_values_are_told_from_empty_ones(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    for batching in (False, True):
        producer = client.create_producer(topic, batching_enabled=batching)
        producer.send(b"", partition_key="k", null_value=True)
        producer.send(b"", partition_key="k")
        assert [consumer.receive(WAIT).has_null_value() for _ in range(2)] == [True, False]


def test_a_consumer_declares_its_schema(client: Client, topic: str) -> None:
    record = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "%s"}]}'
    client.create_producer(topic, schema=ProducerSchema("AVRO", record % "int"))
    client.subscribe(topic, "same", schema=ProducerSchema("AVRO", record % "int"))
    with pytest.raises(IncompatibleSchema):
        client.subscribe(topic, "other", schema=ProducerSchema("AVRO", record % "string"))


def test_patterns_match_non_persistent_topics_on_request(client: Client) -> None:
    name = uuid4().hex
    persistent, fleeting = (
        f"{domain}://public/default/{name}" for domain in ("persistent", "non-persistent")
    )
    producers = [client.create_producer(topic) for topic in (persistent, fleeting)]
    expected = {
        RegexSubscriptionMode.PersistentOnly: {persistent},
        RegexSubscriptionMode.NonPersistentOnly: {fleeting},
        RegexSubscriptionMode.AllTopics: {persistent, fleeting},
    }
    for mode, topics in expected.items():
        consumer = client.subscribe_to_pattern(
            f"public/default/{name}.*", f"s{int(mode)}", regex_subscription_mode=mode
        )
        for producer in producers:
            producer.send(b"x")
        assert {consumer.receive(WAIT).topic_name() for _ in topics} == topics
        consumer.close()


def test_a_dead_letter_topic_gets_its_first_subscription(client: Client, topic: str) -> None:
    dead = f"{topic}-dead"
    policy = DeadLetterPolicy(1, dead, "keeper")
    options = {"consumer_type": ConsumerType.Shared, "negative_ack_redelivery_delay_ms": 10}
    consumer = client.subscribe(topic, "s", dead_letter_policy=policy, **options)
    producer = client.create_producer(topic)
    producer.send(b"poison")
    producer.send(b"last")
    seen = []
    while seen.count(b"poison") < 2:
        message = consumer.receive(WAIT)
        seen.append(message.data())
        if message.data() == b"poison":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    reader = client.create_reader(dead, MessageId.earliest)
    assert reader.read_next(WAIT).data() == b"poison"
    # The subscription was there before the message.
    keeper = client.subscribe(dead, "keeper")
    assert keeper.receive(WAIT).data() == b"poison"


def test_several_topics_are_consumed(client: Client, topic: str) -> None:
    topics = [f"{topic}-{index}" for index in range(3)]
    consumer = client.subscribe_to_topics(topics, "s", initial_position=InitialPosition.Earliest)
    for each in topics:
        client.create_producer(each).send(each.encode())
    assert sorted(consumer.receive(WAIT).data().decode() for _ in topics) == topics


def test_a_reader_reads_all_partitions(server: Server, client: Client, topic: str) -> None:
    partitioned(server, topic, 3)
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % index) for index in range(9)]
    reader = client.create_reader(topic, MessageId.earliest)
    assert sorted(int(reader.read_next(WAIT).data()) for _ in range(9)) == list(range(9))
    assert not reader.has_message_available()
    producer.send(b"9")
    assert reader.has_message_available()
    assert reader.read_next(WAIT).data() == b"9"
    assert reader.topic() == topic
    last = client.create_reader(topic, MessageId.latest, start_message_id_inclusive=True)
    assert last.has_message_available()
    with pytest.raises(InvalidConfiguration, match=r"starts at MessageId\.earliest"):
        client.create_reader(topic, ids[0])


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_table_view_has_the_latest_contents(server: Server, topic: str, partitions: int) -> None:
    if partitions:
        partitioned(server, topic, partitions)

    async def work() -> None:
        async with AsyncClient(server.url) as client:
            producer = await client.create_producer(topic)
            for key, content in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("c", b"")):
                await producer.send(content, partition_key=key)
            await producer.send(b"without a key")
            view = await client.create_table_view(topic)
            assert (view.contents(), len(view), view.get("c")) == ({"a": b"3", "b": b"2"}, 2, None)
            changes: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
            assert view.listen(lambda key, content: changes.put_nowait((key, content))) == view.contents()
            await producer.send(b"5", partition_key="d")
            await producer.send(b"", partition_key="d", null_value=True)
            assert [await changes.get(), await changes.get()] == [("d", b"5"), ("d", b"")]
            assert view.get("d") is None
            await view.close()
            await view.close()

    asyncio.run(work())
