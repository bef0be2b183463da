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
            # `zip` asks the reader last, which would wait for another message.
            assert [message.data() for _, message in zip(WANTED, reader, strict=False)] == WANTED


def test_a_function_says_where_each_topic_is_sought(server: Server, topic: str) -> None:
    async def work() -> None:
        topics = [f"{topic}-{number}" for number in range(2)]
        async with aio.Client(server.url) as client:
            ids = {}
            consumer = await client.subscribe_to_topics(topics, "s")
            for name in topics:
                async with await client.create_producer(name) as producer:
                    ids[name] = [await producer.send(b"%d" % number) for number in range(3)]
            received = [await consumer.receive(20_000) for _ in range(6)]
            assert len(received) == 6
            # The message of an id is itself not delivered.
            where = {topics[0]: ids[topics[0]][0], topics[1]: MessageId.earliest}
            await consumer.seek(lambda name: where[name])
            again = [await consumer.receive(20_000) for _ in range(5)]
            assert sorted((each.topic_name(), each.data()) for each in again) == sorted(
                [*((topics[0], b"%d" % n) for n in (1, 2)), *((topics[1], b"%d" % n) for n in range(3))]
            )
            one = await client.subscribe(topics[0], "one")
            await one.seek(lambda _name: MessageId.earliest)
            assert (await one.receive(20_000)).data() == b"0"

    asyncio.run(work())
