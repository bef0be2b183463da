"""Consumers of a pattern learn of new topics from the broker, long before they look for them again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from server import Server

from magnetar.client import aio

SECONDS = 30
"""Less than the minute between two looks."""


async def publish(client: aio.Client, topic: str) -> None:
    async with await client.create_producer(topic) as producer:
        await producer.send(topic.encode())


async def gets(consumer: aio.Consumer, topic: str, *, again: str | None = None) -> None:
    """Receives the message of a topic, which comes after it was found.

    A killed broker forgets the latest acknowledgements, so the message of ``again`` may come once more.
    """
    message = await consumer.receive(SECONDS * 1000)
    if again is not None and message.topic_name() == again:
        await consumer.acknowledge(message)
        message = await consumer.receive(SECONDS * 1000)
    assert message.data() == topic.encode()
    assert message.topic_name() == topic
    await consumer.acknowledge(message)


def test_new_topics_are_consumed_at_once(server: Server, topic: str) -> None:
    async def work() -> None:
        async with aio.Client(server.url) as client:
            consumer = await client.subscribe_to_pattern(
                f"{topic}-.*", "s", initial_position=aio.InitialPosition.Earliest
            )
            for number in range(3):
                await publish(client, f"{topic}-{number}")
                await gets(consumer, f"{topic}-{number}")
            # Its consumer does not create a deleted topic again, and finds it if somebody else does.
            path = f"/admin/v2/{topic.replace('://', '/')}-1"
            assert server.ask("DELETE", f"{path}?force=true")[0] == 204
            await asyncio.sleep(0.5)
            assert server.ask("GET", f"{path}/stats")[0] == 404
            await publish(client, f"{topic}-1")
            await gets(consumer, f"{topic}-1")
            assert server.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}-parts/partitions", "2")[0] == 204
            await publish(client, f"{topic}-parts-partition-1")
            await gets(consumer, f"{topic}-parts-partition-1")
            await consumer.close()

    asyncio.run(work())


def test_a_watch_goes_on_after_its_broker_was_killed(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server()
    start = "persistent://public/default/watched"

    async def work() -> None:
        async with aio.Client(server.url, max_backoff_interval_ms=500) as client:
            consumer = await client.subscribe_to_pattern(
                f"{start}-.*", "s", initial_position=aio.InitialPosition.Earliest
            )
            await publish(client, f"{start}-1")
            await gets(consumer, f"{start}-1")
            await asyncio.to_thread(server.restart, kill=True)
            await publish(client, f"{start}-2")
            await gets(consumer, f"{start}-2", again=f"{start}-1")

    asyncio.run(work())
