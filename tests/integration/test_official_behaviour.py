"""What ``magnetar.pulsar`` does beyond the programs of tutorials: listeners, the end of a client, asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator

import pytest
from server import Server

import magnetar.pulsar as pulsar
import magnetar.pulsar.asyncio as pulsar_asyncio

SECONDS = 20


@pytest.fixture
def client(server: Server) -> Iterator[pulsar.Client]:
    made = pulsar.Client(server.url)
    yield made
    made.shutdown()


def test_only_messages_and_ids_are_acknowledged(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    for acknowledge in (consumer.acknowledge, consumer.acknowledge_cumulative, consumer.negative_acknowledge):
        for wrong in (5, None, "1:2"):
            with pytest.raises(TypeError, match="a Message or a MessageId is expected, not "):
                acknowledge(wrong)  # type: ignore[arg-type]


def test_a_reader_listener_gets_the_reader(client: pulsar.Client, topic: str) -> None:
    got: queue.Queue[tuple[bool, bytes]] = queue.Queue()
    producer = client.create_producer(topic)
    reader = client.create_reader(
        topic,
        pulsar.MessageId.earliest,
        reader_listener=lambda given, message: got.put((given is reader, message.data())),
    )
    producer.send(b"x")
    assert got.get(timeout=SECONDS) == (True, b"x")
    with pytest.raises(pulsar.InvalidConfiguration):
        reader.read_next(10)


@pytest.mark.parametrize("size", [0, 1000])
def test_a_listener_may_block_and_fail(client: pulsar.Client, topic: str, size: int) -> None:
    producer = client.create_producer(topic)
    got: queue.Queue[bytes] = queue.Queue()

    def listener(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        if message.data() == b"fail":
            raise ValueError("the program's own error")
        if message.data() == b"send":
            producer.send(b"sent by the listener")
        got.put(message.data())
        consumer.acknowledge(message)

    client.subscribe(topic, "s", message_listener=listener, receiver_queue_size=size)
    for content in (b"fail", b"send", b"last"):
        producer.send(content)
    assert {got.get(timeout=SECONDS) for _ in range(3)} == {b"send", b"last", b"sent by the listener"}


def test_consumers_share_the_listener_threads(server: Server, topic: str) -> None:
    client = pulsar.Client(server.url, message_listener_threads=2)
    names: queue.Queue[str] = queue.Queue()
    for number in range(4):
        client.subscribe(
            topic, f"s{number}", message_listener=lambda *_: names.put(threading.current_thread().name)
        )
    client.create_producer(topic).send(b"x")
    assert len({names.get(timeout=SECONDS) for _ in range(4)}) == 2
    client.close()


@pytest.mark.parametrize("end", [pulsar.Client.close, pulsar.Client.shutdown])
def test_a_blocked_receive_ends_with_the_client(
    server: Server, topic: str, end: Callable[[pulsar.Client], None]
) -> None:
    client = pulsar.Client(server.url)
    consumer = client.subscribe(topic, "s")
    entered, ended = threading.Event(), queue.Queue[Exception]()

    def receive() -> None:
        entered.set()
        try:
            consumer.receive()
        except pulsar.PulsarException as error:
            ended.put(error)

    threading.Thread(target=receive, daemon=True).start()
    assert entered.wait(SECONDS)
    end(client)
    assert isinstance(ended.get(timeout=SECONDS), pulsar.AlreadyClosed)
    with pytest.raises(pulsar.AlreadyClosed, match=r"^Pulsar error: AlreadyClosed$"):
        client.create_producer(topic)
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.acknowledge(pulsar.MessageId(-1, 1, 1))
    assert not consumer.is_connected()


def test_errors_have_their_details_as_the_cause(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy, match=r"^Pulsar error: ConsumerBusy$") as failure:
        client.subscribe(topic, "s")
    assert "already connected" in str(failure.value.__cause__)


def test_asyncio_subscribes_to_lists_and_patterns(server: Server, topic: str) -> None:
    async def work() -> None:
        client = pulsar_asyncio.Client(server.url)
        topics = [f"{topic}-a", f"{topic}-b"]
        by_list = await client.subscribe(topics, "list")
        by_pattern = await client.subscribe(f"{topic}-.*", "pattern", is_pattern_topic=True)
        for each in topics:
            await (await client.create_producer(each)).send(each.encode())
        for consumer in (by_list, by_pattern):
            messages = [await consumer.receive() for _ in topics]
            assert sorted(message.data().decode() for message in messages) == topics
            for message in messages:
                await consumer.acknowledge(message.message_id())
        waiting = asyncio.create_task(by_list.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(pulsar_asyncio.PulsarException, match=r"^13 ConsumerBusy: ") as busy:
            await client.subscribe(topics[0], "list")
        assert busy.value.error() == pulsar.Result.ConsumerBusy
        await client.close()

    asyncio.run(work())


def test_asyncio_sends_and_receives_in_order_from_any_event_loop(server: Server, topic: str) -> None:
    client = pulsar_asyncio.Client(server.url)

    async def publish(first: int) -> None:
        producer = await client.create_producer(topic, max_pending_messages=100)
        sent = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(first, first + 100)]
        sent[50].cancel()
        ended = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(each) for each in ended].count(pulsar.MessageId) == 99, ended
        await producer.close()
        with pytest.raises(pulsar_asyncio.PulsarException, match="AlreadyClosed"):
            await producer.send(b"x")

    async def consume() -> None:
        consumer = await client.subscribe(
            topic, "s", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=50
        )
        expected = [*range(50), *range(51, 150), *range(151, 200)]
        got = []
        for _ in expected:
            message = await asyncio.wait_for(consumer.receive(), SECONDS)
            got.append(int(message.data()))
            await consumer.acknowledge(message)
        assert got == expected
        await consumer.seek(pulsar.MessageId.earliest)
        assert (await asyncio.wait_for(consumer.receive(), SECONDS)).data() == b"0"
        await consumer.close()
        with pytest.raises(pulsar_asyncio.PulsarException, match="AlreadyClosed"):
            await consumer.receive()

    asyncio.run(publish(0))
    asyncio.run(publish(100))
    asyncio.run(consume())
    client.shutdown()


def test_asyncio_says_that_a_queue_is_full(server: Server, topic: str) -> None:
    async def work() -> None:
        client = pulsar_asyncio.Client(server.url)
        producer = await client.create_producer(topic, max_pending_messages=1)
        ended = await asyncio.gather(producer.send(b"1"), producer.send(b"2"), return_exceptions=True)
        assert isinstance(ended[0], pulsar.MessageId)
        assert isinstance(ended[1], pulsar_asyncio.PulsarException)
        assert ended[1].error() == pulsar.Result.ProducerQueueIsFull
        waiting = await client.create_producer(topic, max_pending_messages=1, block_if_queue_full=True)
        await asyncio.gather(*(waiting.send(b"x") for _ in range(20)))
        await client.close()

    asyncio.run(work())
