"""One client that publishes to many topics and consumes them, on the loop that runs, and tries again soon."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from magnetar.client.aio import Client, Consumer, MessageId, Producer, Result

PATIENCE = 90.0
_TOGETHER = 50
"""Topics that something is done with at once."""
_PENDING = 3
"""Messages without a receipt that a topic may have."""
_STEP, _PAUSE = 20, 0.04
"""So many topics are published to, and so many seconds nothing is done."""


class TopicLoad:
    """Bodies are numbers, ascending in each topic. No message is given up."""

    def __init__(self, url: str, topics: Sequence[str]) -> None:
        """:param url: of all brokers"""
        self.topics = topics
        self.published: dict[str, int] = dict.fromkeys(topics, 0)
        self.acknowledged: dict[str, list[tuple[int, MessageId]]] = defaultdict(list)
        self.received: dict[str, list[int]] = defaultdict(list)
        self.refused: list[str] = []
        self._client = Client(url, operation_timeout_seconds=60, max_backoff_interval_ms=500)
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing = True

    async def start(self) -> None:
        await _each(self.topics, self._open)
        self._tasks.append(asyncio.create_task(self._publish()))

    async def more(self, count: int) -> None:
        """Returns when so many more messages of each topic are acknowledged."""
        wanted = {topic: len(self.acknowledged[topic]) + count for topic in self.topics}
        deadline = time.monotonic() + PATIENCE
        while late := [topic for topic in self.topics if len(self.acknowledged[topic]) < wanted[topic]]:
            assert not self.refused, self.refused[:5]
            assert time.monotonic() < deadline, f"nothing is acknowledged in {len(late)}: {late[:5]}"
            await asyncio.sleep(0.05)

    async def finish(self) -> int:
        """Stops; how many messages there are.

        Checks that all that was ever acknowledged is in its topic, in order and where the receipt said,
        and that it was consumed in order.
        """
        self._publishing = False
        deadline = time.monotonic() + PATIENCE
        for topic in self.topics:
            wanted = self.published[topic]
            while len(self.acknowledged[topic]) < wanted or len(set(self.received[topic])) < wanted:
                assert time.monotonic() < deadline, (
                    f"{topic}: of {wanted} published {len(self.acknowledged[topic])} acknowledged, "
                    f"{len(set(self.received[topic]))} consumed"
                )
                await asyncio.sleep(0.05)
        await _each(self.topics, self._check)
        return sum(self.published.values())

    async def close(self) -> None:
        self._publishing = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Brokers that a test leaves dead or stopped are not waited for.
        await asyncio.wait([asyncio.create_task(self._client.close())], timeout=10)

    async def _open(self, topic: str) -> None:
        consumer = await self._client.subscribe(topic, "s")
        producer = await self._client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
        assert isinstance(consumer, Consumer)
        assert isinstance(producer, Producer)
        self._consumers[topic], self._producers[topic] = consumer, producer
        self._tasks.append(asyncio.create_task(self._consume(topic)))

    async def _publish(self) -> None:
        while True:
            for number, topic in enumerate(self.topics):
                if not number % _STEP:
                    await asyncio.sleep(_PAUSE)
                if not self._publishing:
                    return
                producer = self._producers[topic]
                if producer.pending_messages < _PENDING:
                    body = self.published[topic]
                    self.published[topic] += 1
                    producer.send_async(b"%d" % body, partial(self._told, topic, body))

    def _told(self, topic: str, body: int, result: Result, message_id: MessageId | None) -> None:
        if message_id is not None:
            self.acknowledged[topic].append((body, message_id))
        else:
            self.refused.append(f"{topic} {body}: {result}")

    async def _consume(self, topic: str) -> None:
        consumer = self._consumers[topic]
        while True:
            message = await consumer.receive()
            self.received[topic].append(int(message.data()))
            await consumer.acknowledge(message)

    async def _check(self, topic: str) -> None:
        acknowledged = self.acknowledged[topic]
        wanted = list(range(self.published[topic]))
        assert [body for body, _ in acknowledged] == wanted, topic
        assert list(dict.fromkeys(self.received[topic])) == wanted, topic
        stored = await self.stored(topic)
        assert list(dict.fromkeys(int(body) for body in stored.values())) == wanted, topic
        for body, message_id in acknowledged:
            assert stored[message_id.ledger_id(), message_id.entry_id()] == b"%d" % body, (topic, body)

    async def stored(self, topic: str) -> dict[tuple[int, int], bytes]:
        """All that is in a topic, by ledger and entry, in the order of reading."""
        found: dict[tuple[int, int], bytes] = {}
        reader = await self._client.create_reader(topic, MessageId.earliest)
        while await reader.has_message_available():
            message = await reader.read_next(timeout_millis=30_000)
            place = message.message_id()
            found[place.ledger_id(), place.entry_id()] = message.data()
        await reader.close()
        return found


async def _each(topics: Sequence[str], work: Callable[[str], Awaitable[None]]) -> None:
    room = asyncio.Semaphore(_TOGETHER)

    async def one(topic: str) -> None:
        async with room:
            await work(topic)

    await asyncio.gather(*(one(topic) for topic in topics))
