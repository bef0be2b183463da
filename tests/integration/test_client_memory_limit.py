"""The memory limit of a client: sending waits or fails, also when several producers share it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from server import Server

from magnetar.client import Client, InitialPosition, InvalidConfiguration, MemoryBufferIsFull, Result, aio
from magnetar.client.exceptions import AlreadyClosed

WAIT = 20_000
LARGE = b"x" * 1000


def run(url: str, work: Callable[[aio.Client], Awaitable[None]], **options: int) -> None:
    async def with_client() -> None:
        async with aio.Client(url, **options) as client:
            await work(client)

    asyncio.run(with_client())


def memory(client: aio.Client) -> int:
    assert client.services.memory is not None
    return client.services.memory.used


@pytest.mark.parametrize("batching", [True, False])
def test_a_full_memory_refuses_messages_of_all_producers(server: Server, topic: str, batching: bool) -> None:
    async def work(client: aio.Client) -> None:
        first, second = [
            await client.create_producer(name, batching_enabled=batching, block_if_queue_full=False)
            for name in (topic, topic + "-2")
        ]
        results: list[Result] = []
        for _ in range(3):
            first.send_async(LARGE, lambda result, _id: results.append(result))
        # The third message exceeded the limit; the next one finds no room, on whatever topic.
        with pytest.raises(MemoryBufferIsFull, match="3000 of the 2500 bytes of memory_limit_bytes"):
            second.send_async(b"y", lambda _result, _id: None)
        with pytest.raises(MemoryBufferIsFull):
            await second.send(b"y")
        await first.flush()
        assert results == [Result.Ok] * 3
        assert memory(client) == 0
        await second.send(LARGE * 3)
        # Messages that are refused for another reason are not counted.
        with pytest.raises(aio.PulsarException):
            await second.send(b"y", sequence_id=-1)
        assert memory(client) == 0

    run(server.url, work, memory_limit_bytes=2500)


def test_senders_wait_for_memory_in_turn(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        producers = [
            await client.create_producer(f"{topic}-{index}", block_if_queue_full=True) for index in range(3)
        ]
        most = 0

        async def send(producer: aio.Producer, content: bytes) -> None:
            nonlocal most
            await producer.send(content)
            most = max(most, memory(client))

        sent = [send(producer, b"%d" % index * 100) for index in range(100) for producer in producers]
        await asyncio.gather(*sent)
        assert memory(client) == 0
        assert most < 1100
        for producer in producers:
            consumer = await client.subscribe(
                producer.topic(), "s", initial_position=InitialPosition.Earliest
            )
            assert [(await consumer.receive(WAIT)).data() for _ in range(100)] == [
                b"%d" % index * 100 for index in range(100)
            ]

    run(server.url, work, memory_limit_bytes=1000)


def test_a_cancelled_sender_sends_nothing(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        full = await client.create_producer(topic + "-full", batching_max_publish_delay_ms=600_000)
        producer = await client.create_producer(topic, block_if_queue_full=True)
        first = asyncio.ensure_future(full.send(LARGE))
        await asyncio.sleep(0)
        cancelled, waiting = (asyncio.ensure_future(producer.send(each)) for each in (b"1", b"2"))
        await asyncio.sleep(0)
        assert memory(client) == 1000
        cancelled.cancel()
        await full.flush()
        await asyncio.gather(first, waiting)
        assert memory(client) == 0
        consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        assert (await consumer.receive(WAIT)).data() == b"2"

    run(server.url, work, memory_limit_bytes=1000)


def test_waiting_senders_of_a_closed_producer_get_its_error(server: Server, topic: str) -> None:
    async def work(client: aio.Client) -> None:
        full = await client.create_producer(topic + "-full", batching_max_publish_delay_ms=600_000)
        producer = await client.create_producer(topic, block_if_queue_full=True)
        first = asyncio.ensure_future(full.send(LARGE))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(producer.send(b"x"))
        await asyncio.sleep(0)
        await producer.close()
        with pytest.raises(AlreadyClosed):
            await waiting
        await full.flush()
        await first
        assert memory(client) == 0

    run(server.url, work, memory_limit_bytes=1000)


def test_threads_wait_for_memory(server: Server, topic: str) -> None:
    with Client(server.url, memory_limit_bytes=5000) as client:
        producers = [client.create_producer(f"{topic}-{index}", block_if_queue_full=True) for index in (0, 1)]
        results: list[Result] = []

        def send(index: int) -> None:
            for _ in range(100):
                producers[index].send_async(LARGE, lambda result, _id: results.append(result))

        threads = [threading.Thread(target=send, args=(index,)) for index in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for producer in producers:
            producer.flush()
            producer.close()
        assert results == [Result.Ok] * 200


def test_without_block_if_queue_full_the_callback_gets_the_error(server: Server, topic: str) -> None:
    with Client(server.url, memory_limit_bytes=1) as client:
        producer = client.create_producer(topic)
        results: list[Result] = []
        for _ in range(100):
            producer.send_async(LARGE, lambda result, _id: results.append(result))
        producer.close()
        assert set(results) == {Result.Ok, Result.MemoryBufferIsFull}


def test_partitions_share_the_limit(start_server: Callable[..., Server], topic: str) -> None:
    server = start_server(allowAutoTopicCreationType="partitioned", defaultNumPartitions=3)

    async def work(client: aio.Client) -> None:
        producer = await client.create_producer(topic, block_if_queue_full=True, batching_enabled=False)
        sent = (producer.send(b"%d" % index, partition_key=str(index)) for index in range(50))
        assert len(await asyncio.gather(*sent)) == 50
        assert memory(client) == 0

    run(server.url, work, memory_limit_bytes=3)


def test_an_impossible_limit() -> None:
    with pytest.raises(InvalidConfiguration, match="memory_limit_bytes must be 0 or more, not -1"):
        Client("pulsar://localhost:1", memory_limit_bytes=-1)
