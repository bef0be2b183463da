"""One seed's story: topics are published to and consumed while brokers and servers fail; then all is read."""

from __future__ import annotations

from random import Random
from typing import Any

from simulated_bookkeeper import spread

from simulation.brokers.clients import Producer, read_all
from simulation.brokers.faults import FAULTS, OF_SEVERAL, Fate
from simulation.brokers.ownership import OneOwner
from simulation.brokers.world import World
from simulation.core import CoreClient, CoreConsumer, CoreTopic
from simulation.trace import Violation

_TROUBLED_SECONDS = (5.0, 40.0)
_BOUND_SECONDS = 300.0
"""After the last fault everything is published and consumed within it."""
_END_SECONDS = 600.0
"""After it everything is read again, and all have stopped."""


class Scenario:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        self._random = random = Random(seed)
        self.world = world = World(Random(random.getrandbits(64)), printing=printing)
        spread(world.servers.zookeeper, seed)
        self.owners = OneOwner(world)
        self._clients: list[CoreClient] = []
        self._producers: list[Producer] = []
        self._consumers: list[CoreConsumer] = []
        self._at_work: list[Any] = []

    def run(self) -> World:
        """:raises Violation: something happened that must not"""
        try:
            self.world.drive(self._story())
        finally:
            self.world.loop.timeline.after_step = None
            for member in self.world.members:
                member.kill()
            self.world.loop.abandon()
        return self.world

    async def _story(self) -> None:
        world, random = self.world, self._random
        await world.set_up()
        for member in world.members:
            member.start()
        await world.sleep(random.uniform(0, 2))
        self._people()
        world.loop.timeline.after_step = self.owners
        fate = Fate(world, Random(random.getrandbits(64)))
        keeper = world.spawn(fate.keep_alive())
        until = world.loop.time() + random.uniform(*_TROUBLED_SECONDS)
        pause = random.choice((0.5, 2.0, 5.0))
        under_way = []
        faults = FAULTS | OF_SEVERAL if world.servers.zookeeper.model.several else FAULTS
        while world.loop.time() < until:
            fault = random.choices(list(faults), list(faults.values()))[0]
            under_way.append(world.spawn(fault(fate)))
            await world.sleep(random.expovariate(1 / pause))
        world.quiet = True
        for task in under_way:
            await world.finished(task)
        world.trace.note("quiet")
        watch = world.spawn(self._watch())
        await self._wait_for_all()
        for consumer in self._consumers:
            consumer.stopping = True
        for task in self._at_work:
            await world.finished(task)
        for client in self._clients:
            await client.close()
        for topic in world.topics:
            await read_all(world, topic, Random(random.getrandbits(64)))
        for member in world.members:
            await member.stop()
        keeper.cancel()
        watch.cancel()

    async def _watch(self) -> None:
        await self.world.sleep(_END_SECONDS)
        raise Violation(f"the story has not ended {_END_SECONDS} seconds after the last fault")

    def _people(self) -> None:
        world, random = self.world, self._random
        for number in range(random.randrange(2, 7)):
            topic = CoreTopic(f"persistent://public/default/topic{number}", once=world.deduplicates)
            world.topics.append(topic)
        # Who asks with a name of its own is not asked for by another name: two clients at most.
        for number in range(random.randrange(1, 3)):
            self._clients.append(CoreClient(world, f"client{number}", Random(random.getrandbits(64))))
        for number, topic in enumerate(world.topics):
            client = random.choice(self._clients)
            consumer = CoreConsumer(client, topic, f"consumer{number}", "s")
            self._consumers.append(consumer)
            self._at_work.append(client.spawn(consumer.run()))
            client = random.choice(self._clients)
            producer = Producer(client, topic, f"producer{number}", world)
            self._producers.append(producer)
            self._at_work.append(client.spawn(producer.run()))

    async def _wait_for_all(self) -> None:
        world = self.world
        until = world.loop.time() + _BOUND_SECONDS
        while left := self._left():
            if world.loop.time() > until:
                raise Violation(f"not through {_BOUND_SECONDS} seconds after the last fault: {left}")
            await world.sleep(1.0)

    def _left(self) -> list[Any]:
        left: list[Any] = [str(producer) for producer in self._producers if not producer.done]
        return left + [str(consumer) for consumer in self._consumers if not consumer.idle]
