"""A program reads, processes and writes in transactions, and its broker is killed again and again: each input
has one visible output in the end. tools/soak kills more often.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from server import Server

from magnetar.client import aio
from magnetar.client.exceptions import PulsarException

KILLS = int(os.environ.get("MAGNETAR_TRANSACTION_KILLS", "3"))
SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "1"))
INPUT = "persistent://public/default/killed-in"
OUTPUTS = ("persistent://public/default/killed-out-a", "persistent://public/default/killed-out-b")
INPUTS_OF_A_LIFE = 60
SECONDS = 90.0


class Program:
    """Two workers, which take what comes and publish what they have read."""

    def __init__(self, client: aio.Client, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self.stopping = False

    async def run(self) -> None:
        consumer = await self._client.subscribe(
            INPUT,
            "work",
            negative_ack_redelivery_delay_ms=200,
            consumer_type=aio.ConsumerType.Shared,
            initial_position=aio.InitialPosition.Earliest,
        )
        producers = [await self._client.create_producer(topic) for topic in OUTPUTS]
        while not self.stopping:
            with suppress(PulsarException):
                await self._work(consumer, producers)

    async def _work(self, consumer: aio.Consumer, producers: list[aio.Producer]) -> None:
        taken = [await consumer.receive(500)]
        with suppress(PulsarException):
            while len(taken) < self._random.choice((1, 5, 20)):
                taken.append(await consumer.receive(20))
        try:
            async with self._client.transaction(timeout=5.0) as transaction:
                for message in taken:
                    producer = self._random.choice(producers)
                    await producer.send(message.data(), transaction=transaction)
                    await consumer.acknowledge(message, transaction=transaction)
                if self._random.random() < 0.1:
                    raise PulsarException("an input that cannot be processed now")
        except PulsarException:
            for message in taken:
                consumer.negative_acknowledge(message)
            raise


async def outputs(client: aio.Client, wanted: int) -> Counter[bytes]:
    """Reads the outputs until there are as many as wanted, and a little longer."""
    found: Counter[bytes] = Counter()

    async def read(topic: str) -> None:
        reader = await client.create_reader(topic, aio.MessageId.earliest)
        while True:
            found[(await reader.read_next()).data()] += 1

    reading = [asyncio.ensure_future(read(topic)) for topic in OUTPUTS]
    end = asyncio.get_running_loop().time() + SECONDS
    while found.total() < wanted and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    await asyncio.sleep(1.0)
    for each in reading:
        each.cancel()
    return found


def test_each_input_has_one_output(start_server: Callable[..., Server]) -> None:
    server = start_server(
        transactionCoordinatorEnabled="true",
        brokerDeduplicationEnabled="true",
        defaultRetentionTimeInMinutes="-1",
        defaultRetentionSizeInMB="-1",
    )

    async def story() -> None:
        inputs: list[bytes] = []
        async with aio.Client(server.url, max_backoff_interval_ms=500) as client:
            programs = [Program(client, SEED + number) for number in range(2)]
            running = [asyncio.ensure_future(each.run()) for each in programs]
            source = await client.create_producer(INPUT, producer_name="source")
            for _life in range(KILLS + 1):
                for _number in range(INPUTS_OF_A_LIFE):
                    inputs.append(b"%d" % len(inputs))
                    await source.send(inputs[-1])
                if _life < KILLS:
                    await asyncio.sleep(programs[0]._random.random())
                    await asyncio.to_thread(server.restart, kill=True)
            found = await outputs(client, len(inputs))
            for program in programs:
                program.stopping = True
            await asyncio.wait(running, timeout=SECONDS)
        assert sorted(found) == sorted(inputs)
        assert set(found.values()) == {1}

    asyncio.run(story())
