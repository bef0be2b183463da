"""The client with ``with`` and ``for``, and its printed forms."""

from __future__ import annotations

import asyncio
import threading

import pytest
from server import Server

from magnetar.client import Client, InitialPosition, MessageId, aio
from magnetar.client.exceptions import AlreadyClosed

COUNT = 20
WANTED = [b"%d" % number for number in range(COUNT)]


def test_async_statements(server: Server, topic: str) -> None:
    async def work() -> None:
        async with aio.Client(server.url) as client:
            assert repr(client) == f"Client({server.url!r})"
            async with await client.create_producer(
                topic, producer_name="p", max_pending_messages=2
            ) as producer:
                # More than the queue takes: the senders wait.
                await asyncio.gather(*(producer.send(content) for content in WANTED))
                assert repr(producer) == f"Producer({topic!r}, name='p')"
            with pytest.raises(AlreadyClosed):
                await producer.send(b"x")
            got = []
            async with await client.subscribe(
                topic, "s", consumer_name="c", initial_position=InitialPosition.Earliest
            ) as consumer:
                assert repr(consumer) == f"Consumer({topic!r}, 's', name='c')"
                async for message in consumer:
                    got.append(message.data())
                    await consumer.acknowledge(message)
                    if len(got) == COUNT:
                        # The loop ends, as the consumer is closed.
                        await consumer.close()
            assert got == WANTED
            async with await client.create_reader(topic, MessageId.earliest) as reader:
                assert repr(reader) == f"Reader({topic!r})"
                got = []
                async for message in reader:
                    got.append(message.data())
                    if len(got) == COUNT:
                        break
            assert got == WANTED

    asyncio.run(work())


def test_async_statements_of_several_topics(server: Server, topic: str) -> None:
    async def work() -> None:
        topics = [f"{topic}-{number}" for number in range(3)]
        async with aio.Client(server.url) as client:
            async with await client.subscribe_to_topics(topics, "s") as consumer:
                for number, name in enumerate(topics):
                    async with await client.create_producer(name) as producer:
                        await producer.send(b"%d" % number)
                got = set()
                async for message in consumer:
                    got.add(message.data())
                    if len(got) == len(topics):
                        break
                assert got == {b"0", b"1", b"2"}
            with pytest.raises(AlreadyClosed):
                await consumer.receive(1000)

    asyncio.run(work())


def test_blocking_statements(server: Server, topic: str) -> None:
    with Client(server.url) as client:
        assert repr(client) == f"Client({server.url!r})"
        with client.create_producer(topic, producer_name="p") as producer:
            for content in WANTED:
                producer.send_async(content, lambda _result, _id: None)
            producer.flush()
            assert repr(producer) == f"Producer({topic!r}, name='p')"
        with client.subscribe(topic, "s", initial_position=InitialPosition.Earliest) as consumer:
            got = []
            for message in consumer:
                got.append(message.data())
                consumer.acknowledge(message)
                if len(got) == COUNT:
                    # Another thread ends the loop.
                    threading.Timer(0.1, consumer.close).start()
            assert got == WANTED
        with client.create_reader(topic, MessageId.earliest) as reader:
            assert [message.data() for message, _ in zip(reader, WANTED, strict=False)] == WANTED
