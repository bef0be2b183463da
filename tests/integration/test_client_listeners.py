"""Message listeners: in order, at the end of a consumer and of a client, and on threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Awaitable, Callable

import pytest
from server import Server

from magnetar.client import (
    Client,
    Consumer,
    ConsumerType,
    InitialPosition,
    InvalidConfiguration,
    Message,
    Timeout,
    aio,
)
from magnetar.client.gathered import TopicsConsumer

SECONDS = 20.0
EARLIEST = {"initial_position": InitialPosition.Earliest}


def run(url: str, work: Callable[[aio.Client], Awaitable[None]]) -> None:
    async def with_client() -> None:
        async with aio.Client(url) as client, asyncio.timeout(SECONDS):
            await work(client)

    asyncio.run(with_client())


async def publish(client: aio.Client, topic: str, count: int, **options: str) -> None:
    producer = await client.create_producer(topic, batching_enabled=False)
    await asyncio.gather(*(producer.send(b"%d" % index, **options) for index in range(count)))
    await producer.close()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_messages_come_in_order(server: Server, topic: str, asynchronous: bool) -> None:
    async def work(client: aio.Client) -> None:
        got: list[bytes] = []
        running = 0
        complete = asyncio.Event()

        def plain(consumer: aio.Consumer, message: Message) -> None:
            consumer.acknowledge_soon(message)
            got.append(message.data())
            if len(got) == 50:
                complete.set()

        async def slow(consumer: aio.Consumer, message: Message) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1
            plain(consumer, message)

        await publish(client, topic, 50)
        listener = slow if asynchronous else plain
        consumer = await client.subscribe(topic, "s", message_listener=listener, **EARLIEST)
        await complete.wait()
        assert got == [b"%d" % index for index in range(50)]
        await consumer.close()
        consumer = await client.subscribe(topic, "s")
        await publish(client, topic, 1)
        assert (await consumer.receive()).data() == b"0"

    run(server.url, work)


def test_a_failed_call_is_logged_and_repeated(
    server: Server, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: aio.Client) -> None:
        calls: list[int] = []
        again = asyncio.Event()

        async def listener(consumer: aio.Consumer, message: Message) -> None:
            calls.append(message.redelivery_count())
            if len(calls) == 1:
                raise ValueError("the first time")
            await consumer.acknowledge(message)
            again.set()

        await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            message_listener=listener,
            negative_ack_redelivery_delay_ms=50,
        )
        await publish(client, topic, 1)
        await again.wait()
        assert calls == [0, 1]

    run(server.url, work)
    assert "the listener failed for message" in caplog.text
    assert "the first time" in caplog.text


def test_pause_and_resume(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        got: asyncio.Queue[bytes] = asyncio.Queue()
        consumer = await client.subscribe(
            topic, "s", message_listener=lambda _consumer, message: got.put_nowait(message.data())
        )
        consumer.pause()
        await publish(client, topic, 3)
        other = await client.subscribe(topic, "witness", **EARLIEST)
        for _ in range(3):
            await other.receive()
        assert got.empty()
        consumer.resume()
        assert [await got.get() for _ in range(3)] == [b"0", b"1", b"2"]

    run(server.url, work)


@pytest.mark.parametrize("size", [0, 2, 1000])
def test_a_paused_consumer_requests_no_messages(server: Server, topic: str, size: int) -> None:
    async def work(client: aio.Client) -> None:
        consumer = await client.subscribe(topic, "s", receiver_queue_size=size)
        await publish(client, topic, 10)
        assert (await consumer.receive()).data() == b"0"
        consumer.pause()
        received = 1
        with contextlib.suppress(Timeout):
            while await consumer.receive(200):
                received += 1
        if size < 10:
            assert received < 10
        consumer.resume()
        for _ in range(10 - received):
            await consumer.receive()

    run(server.url, work)


@pytest.mark.parametrize("whole_client", [True, False])
def test_closing_waits_for_the_call(server: Server, topic: str, whole_client: bool) -> None:
    async def work(client: aio.Client) -> None:
        begun, goes_on = asyncio.Event(), asyncio.Event()
        ends: list[str] = []

        async def listener(consumer: aio.Consumer, message: Message) -> None:
            begun.set()
            await goes_on.wait()
            await consumer.acknowledge(message)
            ends.append("listener")

        async def close() -> None:
            await (client if whole_client else consumer).close()
            ends.append("close")

        consumer = await client.subscribe(topic, "s", message_listener=listener)
        await publish(client, topic, 2)
        await begun.wait()
        cancelled = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0)
        cancelled.cancel()
        closing = asyncio.ensure_future(close())
        await asyncio.sleep(0.05)
        assert not ends
        goes_on.set()
        await closing
        assert ends == ["listener", "close"]

    run(server.url, work)


def test_a_listener_closes_its_own_consumer(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        closed = asyncio.Event()

        async def listener(consumer: aio.Consumer, message: Message) -> None:
            await consumer.acknowledge(message)
            await consumer.close()
            closed.set()

        await client.subscribe(topic, "s", message_listener=listener)
        await publish(client, topic, 2)
        await closed.wait()
        consumer = await client.subscribe(topic, "s")
        assert (await consumer.receive()).data() == b"1"

    run(server.url, work)


def test_several_calls_at_once_keep_the_order_of_keys(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        got: dict[str, list[bytes]] = {}
        running: set[str] = set()
        most = 0
        complete = asyncio.Event()

        async def listener(consumer: aio.Consumer, message: Message) -> None:
            nonlocal most
            key = message.partition_key()
            assert key not in running
            running.add(key)
            most = max(most, len(running))
            await asyncio.sleep(0.001)
            running.discard(key)
            got.setdefault(key, []).append(message.data())
            if sum(map(len, got.values())) == 60:
                complete.set()

        keys = "abcdef"
        producer = await client.create_producer(topic)
        for index in range(10):
            for key in keys:
                await producer.send(b"%d" % index, partition_key=key)
        consumer = await client.subscribe(
            topic, "s", message_listener=listener, listener_concurrency=4, **EARLIEST
        )
        await complete.wait()
        assert got == {key: [b"%d" % index for index in range(10)] for key in keys}
        assert 1 < most <= 4
        await consumer.close()

    run(server.url, work)


def test_several_topics(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        got: set[str] = set()
        complete = asyncio.Event()

        async def listener(consumer: TopicsConsumer, message: Message) -> None:
            await consumer.acknowledge(message)
            got.add(message.topic_name())
            if len(got) == 2:
                complete.set()

        names = [topic, topic + "-2"]
        consumer = await client.subscribe_to_topics(names, "s", message_listener=listener)
        for name in names:
            await publish(client, name, 1)
        await complete.wait()
        assert got == set(names)
        await consumer.unsubscribe()

    run(server.url, work)


def test_a_thread_calls_the_listener(server: Server, topic: str) -> None:
    got: list[tuple[bytes, str]] = []
    complete, goes_on = threading.Event(), threading.Event()

    def listener(consumer: Consumer, message: Message) -> None:
        producer.send(message.data())
        consumer.acknowledge(message)
        got.append((message.data(), threading.current_thread().name))
        if len(got) == 20:
            complete.set()
            goes_on.wait(SECONDS)
            got.append((b"", ""))

    client = Client(server.url)
    producer = client.create_producer(topic + "-copy")
    client.subscribe(topic, "s", message_listener=listener)
    source = client.create_producer(topic)
    for index in range(20):
        source.send(b"%d" % index)
    assert complete.wait(SECONDS)
    closing = threading.Thread(target=client.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    goes_on.set()
    closing.join()
    assert [data for data, _ in got] == [*(b"%d" % index for index in range(20)), b""]
    assert {name for _, name in got[:20]} == {"magnetar-listener"}
    for thread in threading.enumerate():
        if thread.name == "magnetar-listener":
            thread.join(SECONDS)
            assert not thread.is_alive()


def test_a_listener_closes_the_client(server: Server, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    closed = threading.Event()

    def listener(consumer: Consumer, message: Message) -> None:
        consumer.acknowledge(message)
        client.close()
        closed.set()

    client = Client(server.url)
    client.subscribe(topic, "s", message_listener=listener)
    client.create_producer(topic).send(b"x")
    assert closed.wait(SECONDS)
    gc.collect()
    assert not caplog.records


def test_refused(server: Server, topic: str) -> None:
    async def listener(consumer: Consumer, message: Message) -> None: ...

    with Client(server.url) as client:
        with pytest.raises(InvalidConfiguration, match=r"an async message_listener requires"):
            client.subscribe(topic, "s", message_listener=listener)
        with pytest.raises(InvalidConfiguration, match="listener_concurrency must be above 0, not 0"):
            client.subscribe(topic, "s", listener_concurrency=0)
