"""One seed's story of a topic and its shadows, in one broker: what the source has, each shadow delivers.

Meanwhile the broker dies, topics are unloaded, shadows are deleted and made again, and the source is trimmed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from magnetar.errors import BrokerError
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.settings import RetentionSettings
from magnetar.metadata.interface import MetadataError
from magnetar.naming.replicators import SHADOW_SOURCE
from simulation import limits
from simulation.core import CoreClient, CoreProducer
from simulation.geo.world import NAMESPACE, Site, World
from simulation.limits import FOREVER, Limits
from simulation.trace import Violation
from simulation.watcher import Id, Watcher, read_topic

SOURCE = f"persistent://{NAMESPACE}/source"
_TROUBLED_SECONDS = (3.0, 25.0)
_BOUND_SECONDS = 200.0
"""After the last fault every shadow has delivered what its source has, within it."""


class ShadowWorld(World):
    """One cluster, whose source topic keeps everything, or what nobody has consumed."""

    trims = False

    def _names(self) -> Sequence[str]:
        return ("east",)

    def _targets(self) -> Mapping[str, Sequence[str]]:
        return {"east": ()}

    def _limits(self, random: Random) -> Limits:
        drawn = limits.draw(random)
        settings = replace(
            drawn.settings,
            replication_producer_queue_size=random.choice((1, 3, 50, 1000)),
            broker_delete_inactive_topics_enabled=False,
        )
        self.trims = random.random() < 0.5
        retention = RetentionSettings() if self.trims else FOREVER
        return replace(drawn, settings=settings, ledgers=replace(drawn.ledgers, retention=retention))

    def policies(self) -> dict[str, Any]:
        kept = 0 if self.trims else -1
        return {
            "deduplicationEnabled": self.once,
            "retention_policies": {"retentionTimeInMinutes": kept, "retentionSizeInMB": kept},
            # A consumer of a shadow that was just deleted would make an ordinary topic.
            "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
        }


class Shadows:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        self._random = random = Random(f"shadows {seed}")
        self.world = ShadowWorld(Random(random.getrandbits(64)), printing=printing)
        self.topics = [f"persistent://{NAMESPACE}/shadow-{n}" for n in range(random.choice((1, 2, 2)))]
        self.contents: dict[Id, bytes] = {}
        self.watchers = [self._watcher(topic) for topic in self.topics]
        self._own = self._watcher(SOURCE) if random.random() < 0.7 else None
        self._over = False
        self.delivered = 0
        """Messages that shadows have delivered."""

    def _watcher(self, topic: str) -> Watcher:
        return Watcher(self._site, topic, self.contents, Random(self._random.getrandbits(64)))

    @property
    def _site(self) -> Site:
        return self.world.sites["east"]

    def run(self) -> World:
        """:raises Violation: something happened that must not"""
        try:
            self.world.drive(self._story())
        finally:
            self.world.close()
        return self.world

    async def _story(self) -> None:
        world, random = self.world, self._random
        await self._site.set_up()
        await self.make_all()
        keeper = world.spawn(self._keep_alive())
        client = CoreClient(self._site, "publisher", Random(random.getrandbits(64)))
        producers = [
            client.spawn(CoreProducer(client, self._site.topic(SOURCE), f"producer-{number}").run())
            for number in range(random.choice((1, 1, 2)))
        ]
        watchers = [*self.watchers, *([self._own] if self._own is not None else [])]
        watching = [world.spawn(each.consume()) for each in watchers]
        until = world.loop.time() + random.uniform(*_TROUBLED_SECONDS)
        pause = random.choice((0.3, 1.0, 4.0))
        while world.loop.time() < until:
            fault = random.choices(list(_FAULTS), list(_FAULTS.values()))[0]
            await fault(self, Random(random.getrandbits(64)))
            await world.sleep(random.expovariate(1 / pause))
        world.calm()
        world.trace.note("quiet")
        for task in producers:
            await world.finished(task)
        await client.close()
        await self.make_all()
        await self._judge()
        for each in watchers:
            each.done = True
        for task in watching:
            await world.finished(task)
        self._over = True
        await world.finished(keeper)
        await self._site.broker.stop()

    async def _keep_alive(self) -> None:
        """A broker that is down is started again after a while."""
        world, broker = self.world, self._site.broker
        random = Random(self._random.getrandbits(64))
        while not self._over:
            await world.sleep(random.random())
            world.check_log()
            if not broker.alive and not await broker.start() and broker.start_error:
                raise Violation(f"the broker does not start: {broker.start_error!r}")

    # What an operator does

    async def operate(self, work: Callable[[Any], Awaitable[None]]) -> bool:
        """Has an operator ask the broker for something; whether it was done. It dies with the broker."""
        process = self._site.broker
        if process.service is None or process.simulation is None or process.broker is None:
            return False
        done: list[bool] = []

        async def asked(admin: Any) -> None:
            try:
                await work(admin)
            except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
                self.world.trace.note("operator:", repr(error))
            else:
                done.append(True)

        simulation = process.simulation
        task = simulation.loop.create_task(asked(process.broker.admin))
        while not task.done() and process.simulation is simulation:
            await self.world.sleep(0.05)
        return bool(done)

    async def make_all(self) -> None:
        """The source and its shadows are there, and the source knows of all of them."""

        async def work(admin: Any) -> None:
            service = self._site.broker.service
            assert service is not None
            for topic in (SOURCE, *self.topics):
                if not await service.topics.creation.exists(service.parse_topic(topic)):
                    await admin.topics.create(topic, {} if topic == SOURCE else {SHADOW_SOURCE: SOURCE})
            await set_shadows(admin, self.topics)

        while not await self.operate(work):
            await self.world.sleep(0.5)

    # In the end

    async def _judge(self) -> None:
        """:raises Violation: a shadow has other messages than its source, or did not deliver all of them"""
        until = self.world.loop.time() + _BOUND_SECONDS
        for watcher in self.watchers:
            while True:
                there = await read_topic(self._site, SOURCE)
                found = await read_topic(self._site, watcher.topic)
                missing = there.keys() - watcher.got
                if there == found and not missing:
                    break
                if self.world.loop.time() > until:
                    raise Violation(
                        f"{watcher.topic}: {len(there)} messages in the source, {len(found)} in the shadow, "
                        f"not delivered: {sorted(missing)[:5]}"
                    )
                await self.world.sleep(1.0)
            self.delivered += len(watcher.got)


async def set_shadows(admin: Any, topics: Sequence[str]) -> None:
    await admin.topic_policies.set_policy(
        SOURCE, {"shadowTopics": list(topics) or None}, everywhere=False, field="shadowTopics"
    )


# What goes wrong

Fault = Callable[[Shadows, Random], Awaitable[None]]


async def kill(story: Shadows, _random: Random) -> None:
    story.world.trace.note("fault: kill")
    story.world.sites["east"].broker.kill()


async def restart(story: Shadows, _random: Random) -> None:
    broker = story.world.sites["east"].broker
    if broker.serving:
        await broker.stop()


async def unload(story: Shadows, random: Random) -> None:
    topic = random.choice((SOURCE, *story.topics))
    story.world.trace.note("fault: unload", topic)

    async def work(_admin: Any) -> None:
        service = story.world.sites["east"].broker.service
        loaded = service.topics.loaded.get(topic) if service is not None else None
        if service is not None and loaded is not None:
            await service.topics.unload_topic(loaded)

    await story.operate(work)


async def forget(story: Shadows, random: Random) -> None:
    """The source does not know of one of its shadows for a while."""
    left = [topic for topic in story.topics if random.random() < 0.5]
    story.world.trace.note("fault: shadows are", left)
    await story.operate(lambda admin: set_shadows(admin, left))
    await story.world.sleep(random.random() * 2)
    await story.make_all()


async def delete(story: Shadows, random: Random) -> None:
    """A shadow is deleted, and made again after a while."""
    topic = random.choice(story.topics)
    story.world.trace.note("fault: delete", topic)
    await story.operate(lambda admin: admin.topics.delete(topic, force=True))
    await story.world.sleep(random.random() * 2)
    await story.make_all()


_FAULTS: dict[Fault, float] = {kill: 3, restart: 1, unload: 4, forget: 1, delete: 1}
