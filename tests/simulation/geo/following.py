"""A replicated subscription in every cluster: what nobody acknowledged anywhere is delivered everywhere."""

from __future__ import annotations

from random import Random
from typing import Any

from magnetar.client.enums import ConsumerType, InitialPosition
from magnetar.client.exceptions import PulsarException, Timeout
from simulation.core import CoreClient
from simulation.geo.world import Site, World
from simulation.trace import Violation

NAME = "replicated"
_KINDS = (ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared, ConsumerType.KeyShared)


_MARKERS = "pulsar.marker"
"""The producer of what brokers write into topics for each other."""


def key_of(message: Any) -> tuple[str, int]:
    """:raises Violation: it is no message of a client, but a marker"""
    if message.producer_name() == _MARKERS:
        raise Violation(f"a marker was delivered: {message.message_id()}")
    name, number = message.data().split(b":", 2)[:2]
    return name.decode(), int(number)


class Following:
    """Of one topic that all clusters of a mesh replicate to each other."""

    def __init__(self, world: World, topic: str, random: Random) -> None:
        self._world = world
        self._topic = topic
        self._random = random
        self._kind = random.choice(_KINDS)
        self._acknowledged: set[tuple[str, int]] = set()
        """In any cluster, or about to be."""
        self.unsent = 0
        """Messages that were not delivered in a cluster, as they were acknowledged in another one."""

    async def consume(self) -> None:
        """Consumes now here, now there, until nothing goes wrong any more."""
        random = self._random
        while not self._world.quiet:
            site = self._world.sites[random.choice(self._world.names)]
            client = CoreClient(site, f"consumer in {site.name}", Random(random.getrandbits(64)))
            await self._world.finished(client.spawn(self._consume(client, random.randrange(1, 60))))
            await client.close()

    async def _open(self, client: CoreClient) -> Any:
        try:
            return await client.client.subscribe(
                self._topic,
                NAME,
                consumer_type=self._kind,
                initial_position=InitialPosition.Earliest,
                replicate_subscription_state_enabled=True,
            )
        except PulsarException as error:
            self._world.trace.note(client.name, "not open:", repr(error))
            await client.sleep(1.0)
            return None

    async def _consume(self, client: CoreClient, most: int) -> None:
        consumer = await self._open(client)
        if consumer is None:
            return
        try:
            for _ in range(most):
                message = await consumer.receive(2_000)
                if self._random.random() < 0.9:
                    self._acknowledged.add(key_of(message))
                    await consumer.acknowledge(message)
            await client.sleep(self._random.choice((0.0, 0.5, 3.0)))
            await consumer.close()
        except PulsarException as error:
            self._world.trace.note(client.name, "stopped:", repr(error))

    async def judge(self, site: Site) -> None:
        """:raises Violation: the subscription of a cluster has passed what nobody acknowledged"""
        client = CoreClient(site, f"last consumer in {site.name}", Random(1))
        await self._world.finished(client.spawn(self._judge(client, site)))
        await client.close()

    async def _judge(self, client: CoreClient, site: Site) -> None:
        consumer = None
        while consumer is None:
            consumer = await self._open(client)
        found: set[tuple[str, int]] = set()
        while True:
            try:
                message = await consumer.receive(5_000)
            except Timeout:
                break
            found.add(key_of(message))
            # Else the broker stops at what may be unacknowledged.
            await consumer.acknowledge(message)
        await consumer.close()
        everywhere = {
            (name, number)
            for name, published in self._world.published.items()
            if published.topic == self._topic
            for number, wanted in published.wanted.items()
            if len(wanted) == len(self._world.names) - 1
        }
        lost = everywhere - self._acknowledged - found
        if lost:
            some = sorted(lost)[:5]
            raise Violation(f"{client.name}: {len(lost)} are passed that nobody acknowledged: {some}")
        self.unsent += len(everywhere - found)
        self._acknowledged |= found
