"""Consumes a topic or a shadow of it, and checks that messages are the same everywhere and come in order."""

from __future__ import annotations

from random import Random
from typing import Any

from magnetar.client.enums import ConsumerType, InitialPosition
from magnetar.client.exceptions import PulsarException, Timeout
from magnetar.client.message_id import MessageId
from simulation.core import CoreClient, CoreWorld
from simulation.trace import Violation

SUBSCRIPTION = "s"
_KINDS = (ConsumerType.Exclusive, ConsumerType.Failover)

Id = tuple[int, int, int]


def id_of(message: Any) -> Id:
    """Ledger, entry, and place in the batch."""
    return numbers_of(message.message_id())


def numbers_of(found: MessageId) -> Id:
    """Ledger, entry, and place in the batch."""
    return found.ledger_id(), found.entry_id(), found.batch_index()


class Watcher:
    """Consumes a topic with its own subscription, and acknowledges everything."""

    def __init__(self, world: CoreWorld, topic: str, contents: dict[Id, bytes], random: Random) -> None:
        """:param contents: all messages that any watcher has received, by their ids"""
        self.world = world
        self.topic = topic
        self.got: set[Id] = set()
        self.bodies: set[bytes] = set()
        self.done = False
        self._contents = contents
        self._random = random
        self._kind = random.choice(_KINDS)
        self._highest: Id = (-1, -1, -1)

    async def consume(self) -> None:
        """Consumes until :attr:`done`; the client is replaced now and then."""
        while not self.done:
            client = CoreClient(
                self.world, f"consumer of {self.topic[-8:]}", Random(self._random.getrandbits(64))
            )
            await self.world.finished(client.spawn(self._consume(client)))
            await client.close()

    async def _consume(self, client: CoreClient) -> None:
        try:
            consumer = await client.client.subscribe(
                self.topic, SUBSCRIPTION, consumer_type=self._kind, initial_position=InitialPosition.Earliest
            )
            left = self._random.randrange(1, 60)
            # In the end it stays: without acknowledgement of single messages a batch comes again as a whole.
            while not self.done and (left > 0 or self.world.quiet):
                left -= 1
                try:
                    message = await consumer.receive(1_000)
                except Timeout:
                    continue
                self._take(client.name, message)
                await consumer.acknowledge(message)
            await consumer.close()
        except PulsarException as error:
            self.world.trace.note(client.name, "stopped:", repr(error))
            await client.sleep(1.0)

    def _take(self, name: str, message: Any) -> None:
        """:raises Violation: it differs from what others got, or arrives too late"""
        place, content = id_of(message), message.data()
        self.world.trace.note(name, "gets", place)
        if self._contents.setdefault(place, content) != content:
            raise Violation(f"{name}: {place} has other bytes than elsewhere")
        if place not in self.got and place < self._highest:
            raise Violation(f"{name}: {place} comes first after {self._highest}")
        self._highest = max(self._highest, place)
        self.got.add(place)
        self.bodies.add(content)


async def read_topic(world: CoreWorld, topic: str) -> dict[Id, bytes]:
    """Returns everything that a reader finds in a topic."""
    client = CoreClient(world, f"reader of {topic[-8:]}", Random(1))
    found: dict[Id, bytes] = {}

    async def read() -> None:
        try:
            reader = await client.client.create_reader(topic, MessageId.earliest)
            while True:
                message = await reader.read_next(2_000)
                found[id_of(message)] = message.data()
        except PulsarException as error:
            world.trace.note(client.name, "ended:", repr(error))

    await world.finished(client.spawn(read()))
    await client.close()
    return found
