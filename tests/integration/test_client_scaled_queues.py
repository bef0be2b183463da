"""Receiver queues that adapt their size to the program and to the memory limit of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from polling import until_true
from server import Server

from magnetar.client import Client, InitialPosition
from magnetar.client.aio import Client as AioClient
from magnetar.client.aio import Consumer

WAIT = 20_000


def run(url: str, work: Callable[[AioClient], Awaitable[None]], **options: int) -> None:
    async def with_client() -> None:
        async with AioClient(url, **options) as client:
            await work(client)

    asyncio.run(with_client())


async def scaled(client: AioClient, topic: str, **options: int) -> Consumer:
    consumer = await client.subscribe(
        topic, "s", initial_position=InitialPosition.Earliest, auto_scaled_receiver_queue=True, **options
    )
    assert isinstance(consumer, Consumer)
    return consumer


async def publish(client: AioClient, topic: str, count: int, content: bytes, *, batching: bool) -> None:
    producer = await client.create_producer(topic, batching_enabled=batching)
    await asyncio.gather(*(producer.send(content) for _ in range(count)))


@pytest.mark.parametrize("batching", [True, False])
def test_a_queue_grows_while_the_program_receives_all_of_it(
    server: Server, topic: str, batching: bool
) -> None:
    async def work(client: AioClient) -> None:
        await publish(client, topic, 300, b"x", batching=batching)
        consumer = await scaled(client, topic, receiver_queue_size=8)
        assert consumer.current_receiver_queue_size == 1
        for _ in range(300):
            await consumer.acknowledge(await consumer.receive(WAIT))
        if not batching:
            assert consumer.current_receiver_queue_size == 8
        # Nothing has arrived since: a program that waits without messages does not enlarge the queue.
        size = consumer.current_receiver_queue_size
        for _ in range(3):
            assert consumer.take() is None
        assert consumer.current_receiver_queue_size in (size, size * 2)

    run(server.url, work)


def test_a_queue_of_unreceived_messages_does_not_grow(server: Server, topic: str) -> None:
    async def work(client: AioClient) -> None:
        consumer = await scaled(client, topic)
        await publish(client, topic, 20, b"x", batching=False)
        await consumer.receive(WAIT)
        await until_true(lambda: bool(consumer._queue), seconds=WAIT / 1000)
        assert consumer.current_receiver_queue_size == 1

    run(server.url, work)


def test_a_queue_shrinks_when_the_memory_is_full(server: Server, topic: str) -> None:
    async def work(client: AioClient) -> None:
        memory = client.services.memory
        assert memory is not None
        consumer = await scaled(client, topic, receiver_queue_size=16)
        await publish(client, topic, 100, b"x", batching=False)
        other = AioClient(server.url)
        for _ in range(100):
            await consumer.receive(WAIT)
        assert consumer.current_receiver_queue_size == 16
        # Two of the large messages reach the limit.
        await publish(other, topic, 40, b"x" * 1000, batching=False)
        await until_true(lambda: consumer.current_receiver_queue_size == 8, seconds=WAIT / 1000)
        assert memory.used >= 1900
        for _ in range(40):
            await consumer.receive(WAIT)
        assert memory.used == 0
        assert 1 <= consumer.current_receiver_queue_size <= 16
        # What waits in a queue leaves the memory with its consumer.
        await publish(other, topic, 1, b"x" * 1000, batching=False)
        await until_true(lambda: memory.used > 0, seconds=WAIT / 1000)
        await other.close()
        await consumer.close()
        assert memory.used == 0

    run(server.url, work, memory_limit_bytes=2000)


def test_partitions_and_threads(start_server: Callable[..., Server], topic: str) -> None:
    server = start_server(allowAutoTopicCreationType="partitioned", defaultNumPartitions=2)
    with Client(server.url) as client:
        consumer = client.subscribe(topic, "s", auto_scaled_receiver_queue=True, receiver_queue_size=100)
        assert consumer.current_receiver_queue_size == 2
        producer = client.create_producer(topic)
        for index in range(50):
            producer.send(b"%d" % index)
        assert sorted(int(consumer.receive(WAIT).data()) for _ in range(50)) == list(range(50))
        assert 2 < consumer.current_receiver_queue_size <= 100
        consumer.close()
