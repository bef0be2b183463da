"""Clients of the cluster: Magnetar's own, which knows the addresses of all brokers."""

from __future__ import annotations

from random import Random
from typing import Any

from magnetar.client.exceptions import PulsarException, Timeout
from magnetar.client.message_id import MessageId
from simulation.brokers.world import World
from simulation.core import CoreClient, CoreProducer, CoreTopic
from simulation.trace import Violation


class Producer(CoreProducer):
    """Each receipt is compared with what the metadata says of the ledger."""

    def __init__(self, client: CoreClient, topic: CoreTopic, name: str, world: World) -> None:
        super().__init__(client, topic, name)
        self._brokers = world
        # They publish as long as it goes on: whoever is through asks for no owner any more.
        self._count = client.random.randrange(20, 200)
        self._pause = client.random.choice((0.2, 0.5, 1.0))

    def told(self, message_id: MessageId) -> None:
        if message_id.ledger_id() >= 0:
            self._brokers.check_receipt(message_id.ledger_id(), message_id.entry_id())


async def read_all(world: World, topic: CoreTopic, random: Random) -> None:
    """Everything that has a receipt is there, where the receipt said, in its order.

    :raises Violation: it is not
    """
    client = CoreClient(world, f"judge of {topic.name.rpartition('/')[2]}", random)
    reading = client.spawn(_read(client, topic))
    await world.finished(reading)
    await client.close()


async def _read(client: CoreClient, topic: CoreTopic) -> None:
    reader: Any = None
    while reader is None:
        try:
            reader = await client.client.create_reader(topic.name, MessageId.earliest)
        except PulsarException as error:
            client.world.trace.note(client.name, "not open:", repr(error))
            await client.sleep(1.0)
    highest: dict[str, int] = {}
    missing = dict(topic.stored)
    while missing:
        try:
            message = await reader.read_next(20_000)
        except Timeout:
            break
        name, number = message.data().split(b":", 2)[:2]
        key = (name.decode(), int(number))
        if topic.sent[key][0] != message.data():
            raise Violation(f"{client.name}: {key} has other bytes than were sent")
        before = highest.get(key[0], -1)
        if key[1] > before and not topic.follows(*key, before):
            raise Violation(f"{client.name}: {key} comes first after {before}")
        highest[key[0]] = max(before, key[1])
        # Where nothing is deduplicated, something may be stored before that has no receipt.
        told = missing.get(key)
        if told is not None and (told.ledger_id() < 0 or told == message.message_id()):
            del missing[key]
    if missing:
        raise Violation(f"{client.name}: what has receipts is not there: {list(missing.items())[:5]}")
    await reader.close()
