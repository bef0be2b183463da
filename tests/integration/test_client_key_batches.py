"""Batches with keys on Key_Shared subscriptions: each key reaches one consumer, and in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from server import Server

from magnetar.client.aio import BatchingType, Client, ConsumerType, MessageId
from magnetar.client.exceptions import Timeout

KEYS = [f"key-{number}" for number in range(20)]
ROUNDS = 10


async def drained(consumer: Any) -> list[tuple[str, int]]:
    """Returns key and content of the messages that the consumer gets."""
    found = []
    try:
        while True:
            message = await consumer.receive(1000)
            await consumer.acknowledge(message)
            found.append((message.partition_key(), int(message.data())))
    except Timeout:
        return found


@pytest.mark.parametrize("kind", [None, BatchingType.KeyBased])
def test_batched_messages_with_keys_reach_one_consumer_per_key_in_order(
    server: Server, topic: str, kind: BatchingType | None
) -> None:
    async def work() -> None:
        async with Client(server.url) as client:
            consumers = [
                await client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared) for _ in range(3)
            ]
            producer = await client.create_producer(topic, batching_type=kind)
            numbers = range(ROUNDS * len(KEYS))
            ids: list[MessageId] = await asyncio.gather(
                *(producer.send(b"%d" % n, partition_key=KEYS[n % len(KEYS)]) for n in numbers)
            )
            assert any(each.batch_size() > 1 for each in ids)
            received = await asyncio.gather(*(drained(consumer) for consumer in consumers))
            owners = defaultdict(set)
            orders = defaultdict(list)
            for owner, messages in enumerate(received):
                for key, number in messages:
                    owners[key].add(owner)
                    orders[key].append(number)
            assert sorted(orders) == sorted(KEYS)
            assert {key: len(found) for key, found in owners.items()} == dict.fromkeys(KEYS, 1)
            assert len({min(found) for found in owners.values()}) > 1
            for place, key in enumerate(KEYS):
                assert orders[key] == list(range(place, len(numbers), len(KEYS)))

    asyncio.run(work())


def test_batches_of_several_keys_pass_deduplication(server: Server, topic: str) -> None:
    async def work() -> None:
        async with Client(server.url) as client:
            consumer = await client.subscribe(topic, "s")
            path = f"/admin/v2/{topic.replace('://', '/')}/deduplicationEnabled"
            assert server.ask("POST", path, "true")[0] == 204
            producer = await client.create_producer(topic, producer_name="p")
            await asyncio.gather(*(producer.send(b"%d" % n, partition_key=KEYS[n % 3]) for n in range(100)))
            messages = [await consumer.receive(20_000) for _ in range(100)]
            assert sorted(int(message.data()) for message in messages) == list(range(100))
            assert [each.sequence_id() for each in messages] == [int(each.data()) for each in messages]
            assert producer.last_sequence_id() == 99

    asyncio.run(work())
