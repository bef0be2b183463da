"""One seed's story: clusters publish while links are cut and brokers die; then each has what it should."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from magnetar.client.exceptions import PulsarException, Timeout
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import MessageOptions
from simulation.core import CoreClient, CoreProducer
from simulation.geo.following import Following, key_of
from simulation.geo.world import NAMESPACE, Published, Site, World
from simulation.trace import Violation

_TROUBLED_SECONDS = (3.0, 25.0)
_BOUND_SECONDS = 400.0
"""After the last fault every message is in each cluster that is to have it, within it."""
_LONGEST_CUT = 40.0
_LOCAL = "__local__"
_MOST_AGAIN = 50_000
"""Messages that are there more than once without deduplication: far more than faults can cause."""


class Producer(CoreProducer):
    """Some of its messages are for some of the other clusters only."""

    def __init__(self, client: CoreClient, site: Site, topic: str, name: str) -> None:
        super().__init__(client, site.topic(topic), name)
        self._site = site
        self._told_of = site.world.published[name] = Published(site.name, topic)

    def options_of(self, producer: Any, number: int) -> MessageOptions | None:
        random, targets = self.client.random, self._site.targets
        wanted = frozenset(targets)
        options = None
        if random.random() < 0.1:
            wanted = frozenset(target for target in targets if random.random() < 0.5)
            options = producer.message_options({"replication_clusters": sorted(wanted) or [_LOCAL]})
        self._told_of.wanted[number] = wanted
        return options


class Scenario:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        self._random = random = Random(seed)
        self.world = World(Random(random.getrandbits(64)), printing=printing)
        self._clients: list[CoreClient] = []
        self._over = False
        self._following: list[Following] = []
        self._fate = Random(f"replicated subscriptions {seed}")
        self.replicated = 0
        """Messages that were found in another cluster than their own."""
        self.followed = 0
        """Messages that a cluster did not deliver, as they were acknowledged in another one."""

    def run(self) -> World:
        """:raises Violation: something happened that must not"""
        try:
            self.world.drive(self._story())
        finally:
            self.world.close()
        return self.world

    async def _story(self) -> None:
        world, random = self.world, self._random
        for site in world.sites.values():
            await site.set_up()
        at_work = self._people()
        keeper = world.spawn(self._keep_alive())
        at_work += [world.spawn(each.consume()) for each in self._following]
        until = world.loop.time() + random.uniform(*_TROUBLED_SECONDS)
        pause = random.choice((0.3, 1.0, 4.0))
        under_way = []
        while world.loop.time() < until:
            fault = random.choices(list(_FAULTS), list(_FAULTS.values()))[0]
            under_way.append(world.spawn(fault(world, Random(random.getrandbits(64)))))
            await world.sleep(random.expovariate(1 / pause))
        world.calm()
        for task in under_way:
            await world.finished(task)
        world.trace.note("quiet")
        for task in at_work:
            await world.finished(task)
        for client in self._clients:
            await client.close()
        await self._judge()
        for each in self._following:
            for site in world.sites.values():
                await each.judge(site)
            self.followed += each.unsent
        self._over = True
        await world.finished(keeper)
        for site in world.sites.values():
            await site.broker.stop()

    def _people(self) -> list[Any]:
        random, at_work = self._random, []
        topics = [f"persistent://{NAMESPACE}/t{number}" for number in range(random.choice((1, 1, 2)))]
        if self.world.mesh and self._fate.random() < 0.7:
            self._following = [Following(self.world, each, self._fate) for each in topics]
        for site in self.world.sites.values():
            if random.random() < 0.2:
                continue
            client = CoreClient(site, f"client of {site.name}", Random(random.getrandbits(64)))
            self._clients.append(client)
            for topic in topics:
                for number in range(random.choice((1, 1, 2))):
                    name = f"{site.name}-{topic[-2:]}-{number}"
                    at_work.append(client.spawn(Producer(client, site, topic, name).run()))
        return at_work

    async def _keep_alive(self) -> None:
        """Whatever is down is started again after a while."""
        world = self.world
        random = Random(self._random.getrandbits(64))
        while not self._over:
            await world.sleep(random.random())
            world.check_log()
            for site in world.sites.values():
                service = site.broker.service
                if service is not None and service.replication is not None:
                    service.replication._common.in_flight.check()
                if not site.broker.alive and not await site.broker.start() and site.broker.start_error:
                    raise Violation(f"{site.name} does not start: {site.broker.start_error!r}")

    # In the end

    async def _judge(self) -> None:
        """:raises Violation: a cluster has too much, too little, or in another order"""
        world = self.world
        until = world.loop.time() + _BOUND_SECONDS
        for site in world.sites.values():
            for topic in sorted({each.topic for each in world.published.values()}):
                judge = Judge(site, topic)
                if not judge.awaited:
                    continue
                client = CoreClient(site, f"judge of {topic[-2:]} in {site.name}", Random(1))
                await world.finished(client.spawn(judge.read(client, until)))
                await client.close()
                self.replicated += judge.foreign


class Judge:
    """Reads one topic of one cluster."""

    def __init__(self, site: Site, topic: str) -> None:
        self._site = site
        self._topic = topic
        self.foreign = 0
        self.awaited = {
            (name, number)
            for name, published in site.world.published.items()
            if published.topic == topic
            for number, wanted in published.wanted.items()
            if site.name in (published.site, *wanted)
        }
        self._found: set[tuple[str, int]] = set()
        self._again = 0
        self._highest: dict[str, int] = {}

    async def read(self, client: CoreClient, until: float) -> None:
        reader: Any = None
        world = self._site.world
        while reader is None:
            try:
                reader = await client.client.create_reader(self._topic, MessageId.earliest)
            except PulsarException as error:
                world.trace.note(client.name, "not open:", repr(error))
                await client.sleep(1.0)
        while True:
            left = self.awaited - self._found
            try:
                message = await reader.read_next(3_000)
            except Timeout:
                if not left:
                    break
                if world.loop.time() > until:
                    some = sorted(left)[:5]
                    raise Violation(
                        f"{client.name}: {len(left)} did not arrive in time, {some} among them"
                    ) from None
                continue
            self._take(client.name, message)
        await reader.close()

    def _take(self, judge: str, message: Any) -> None:
        content, key = message.data(), key_of(message)
        world = self._site.world
        published = world.published.get(key[0])
        if published is None or key not in self.awaited:
            raise Violation(f"{judge}: {key} must not be here")
        if world.sites[published.site].topics[self._topic].sent[key][0] != content:
            raise Violation(f"{judge}: {key} has other bytes than were sent")
        if key in self._found:
            self._again += 1
            if world.once or self._again > _MOST_AGAIN:
                raise Violation(f"{judge}: {key} is there again")
            return
        if key[1] < self._highest.get(key[0], -1):
            raise Violation(f"{judge}: {key} comes after {self._highest[key[0]]}")
        self._highest[key[0]] = key[1]
        self._found.add(key)
        self.foreign += published.site != self._site.name


# What goes wrong

Fault = Callable[[World, Random], Awaitable[None]]


def _some(world: World, random: Random) -> Site:
    return world.sites[random.choice(world.names)]


async def kill(world: World, random: Random) -> None:
    site = _some(world, random)
    world.trace.note("fault: kill", site.name)
    site.broker.kill()


async def restart(world: World, random: Random) -> None:
    site = _some(world, random)
    if site.broker.serving:
        await site.broker.stop()


async def unload(world: World, random: Random) -> None:
    site = _some(world, random)
    service = site.broker.service
    topics = [] if service is None else [name for name in sorted(service.topics.loaded) if NAMESPACE in name]
    if service is None or not topics:
        return
    name = random.choice(topics)
    world.trace.note("fault: unload", site.name, name)
    assert site.broker.simulation is not None
    # It dies with the broker.
    site.broker.simulation.loop.create_task(service.topics.unload_topic(service.topics.loaded[name]))


async def cut(world: World, random: Random) -> None:
    """Two clusters do not reach each other for a while, and neither is told."""
    one, other = random.sample(world.names, 2)
    world.trace.note("fault: cut", one, other)
    world.network.separate(one, other)
    await world.sleep(random.choice((0.5, 5.0, _LONGEST_CUT)) * random.random())
    world.network.rejoin(one, other)
    world.trace.note("fault: over", one, other)


async def reset(world: World, random: Random) -> None:
    """Connections of two clusters break."""
    one, other = random.sample(world.names, 2)
    world.trace.note("fault: reset", one, other)
    world.network.separate(one, other)
    world.network.rejoin(one, other)


_FAULTS: dict[Fault, float] = {kill: 3, restart: 1, unload: 2, cut: 3, reset: 3}
