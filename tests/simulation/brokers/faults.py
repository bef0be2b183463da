"""What goes wrong with brokers, bookies, ZooKeeper and the network between them.

Each fault ends by itself, or when :attr:`World.quiet` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from magnetar.broker.admin.all import Admin
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.service import BrokerService
from magnetar.errors import BrokerError
from magnetar.metadata.interface import MetadataError
from simulation.brokers.member import Member
from simulation.brokers.world import World

_SMALLEST_RANGE = 1 << 28
"""What is smaller is not divided further."""
_SUPERVISED_SECONDS = 3.0
"""Within so long a broker that has ended is started again."""


@dataclass
class Fate:
    """What a fault works with."""

    world: World
    random: Random

    async def while_it_lasts(self, longest: float) -> None:
        """Some time, mostly short."""
        world = self.world
        until = world.loop.time() + longest * self.random.random() ** 2
        while world.loop.time() < until and not world.quiet:
            await world.sleep(min(0.2, until - world.loop.time()))

    async def keep_alive(self) -> None:
        """What supervises the brokers' processes."""
        while True:
            await self.world.sleep(self.random.random() * _SUPERVISED_SECONDS)
            for member in self.world.members:
                if member.simulation is None:
                    member.start()

    async def through(self, member: Member, work: Coroutine[Any, Any, None]) -> None:
        """What an operator asks a broker for is done, or the broker has ended."""
        asked, lives = member.ask(work), member.lives
        while member.lives == lives and member.simulation is not None and not asked.done():
            await self.world.sleep(0.1)
        if asked.done() and not asked.cancelled():
            asked.result()

    def somebody(self) -> Member:
        return self.random.choice(self.world.members)

    def serving(self) -> Member | None:
        """A broker that can be asked; None: there is none now."""
        those = [each for each in self.world.members if each.service is not None and not each.paused]
        return self.random.choice(those) if those else None


Fault = Callable[[Fate], Coroutine[Any, Any, None]]


async def kill(fate: Fate) -> None:
    fate.somebody().kill(silently=fate.random.random() < 0.3)


async def stop(fate: Fate) -> None:
    """An orderly end, as in a restart of all brokers one after the other."""
    await fate.somebody().stop()


async def pause(fate: Fate) -> None:
    """SIGSTOP, and after a while SIGCONT: beyond the session's end, perhaps."""
    member = fate.somebody()
    lives = member.lives
    if member.simulation is None or member.paused:
        return
    member.pause()
    await fate.while_it_lasts(15)
    if member.lives == lives:
        member.resume()


async def unload(fate: Fate) -> None:
    """A bundle is given up, towards somebody or nobody."""
    member = fate.serving()
    if member is None:
        return
    service = member.service
    assert service is not None
    held = service.ownership.held()
    if not held:
        return
    bundle = fate.random.choice(held)
    towards = fate.random.choice((None, fate.somebody().name + ":8080"))
    fate.world.trace.note("unload", member.name, bundle, towards)
    await fate.through(member, _unloaded(service, bundle, towards))


async def _unloaded(service: BrokerService, bundle: Bundle, towards: str | None) -> None:
    try:
        await service.topics.unloads.unload(bundle, towards)
    except MetadataError:
        # The operator is told so, and tries again or not.
        return


async def split(fate: Fate) -> None:
    """A bundle is divided, and its parts stay, or are given up."""
    member = fate.serving()
    if member is None or member.broker is None or member.service is None:
        return
    held = [each for each in member.service.ownership.held() if str(each.namespace) == "public/default"]
    if not held:
        return
    bundle = fate.random.choice(held)
    if bundle.range.upper - bundle.range.lower < _SMALLEST_RANGE:
        return
    fate.world.trace.note("split", member.name, bundle)
    await fate.through(member, _split(member.broker.admin, bundle, unload=fate.random.random() < 0.3))


async def _split(admin: Admin, bundle: Bundle, *, unload: bool) -> None:
    try:
        await admin.bundles.split(
            str(bundle.namespace), str(bundle.range), None, (), unload=unload, authoritative=False
        )
    except (BrokerError, MetadataError):
        return


async def cut_off_metadata(fate: Fate) -> None:
    await cut_off(fate, fate.somebody().name, "zookeeper", 25)


async def cut_off_bookie(fate: Fate) -> None:
    await cut_off(fate, fate.somebody().name, fate.random.choice(fate.world.servers.bookies).name)


async def cut_off_client(fate: Fate) -> None:
    await cut_off(fate, f"client{fate.random.randrange(2)}", fate.somebody().name)


async def cut_off(fate: Fate, client: str, server: str, longest: float = 12) -> None:
    network = fate.world.network
    if network.separated(client, server):
        return
    fate.world.trace.note("cut off", client, server)
    network.separate(client, server)
    await fate.while_it_lasts(longest)
    network.rejoin(client, server)


async def break_connections(fate: Fate) -> None:
    for link in list(fate.world.network.links.values()):
        if fate.random.random() < 0.5:
            link.reset()


async def crash_bookie(fate: Fate) -> None:
    bookie = fate.random.choice(fate.world.servers.bookies)
    if not bookie.alive:
        return
    written = fate.random.randrange(bookie.model.unwritten + 1)
    fate.world.trace.note("crash", bookie.name, written)
    bookie.kill(written, silently=fate.random.random() < 0.3, forgotten_after=6 * fate.random.random())
    await fate.while_it_lasts(10)
    bookie.start()
    fate.world.trace.note("start", bookie.name)


async def slow_bookie(fate: Fate) -> None:
    model = fate.random.choice(fate.world.servers.bookies).model
    model.delay = 2 * fate.random.random() ** 2
    await fate.while_it_lasts(8)
    model.delay = 0.0


async def crash_zookeeper(fate: Fate) -> None:
    zookeeper = fate.world.servers.zookeeper
    if not zookeeper.alive:
        return
    fate.world.trace.note("crash zookeeper")
    zookeeper.kill(silently=fate.random.random() < 0.3)
    await fate.while_it_lasts(8)
    zookeeper.start()


async def silence_zookeeper(fate: Fate) -> None:
    model = fate.world.servers.zookeeper.model
    model.silent = True
    await fate.while_it_lasts(5)
    model.speak()


async def lose_answers(fate: Fate) -> None:
    """Where ZooKeeper is several servers: changes are made, and connections end that were to tell so."""
    model = fate.world.servers.zookeeper.model
    model.losing += 1
    await fate.while_it_lasts(10)
    model.losing -= 1


FAULTS: dict[Fault, int] = {
    kill: 5,
    stop: 5,
    pause: 6,
    unload: 10,
    split: 3,
    cut_off_metadata: 5,
    cut_off_bookie: 3,
    cut_off_client: 3,
    break_connections: 2,
    crash_bookie: 3,
    slow_bookie: 2,
    crash_zookeeper: 2,
    silence_zookeeper: 1,
}

OF_SEVERAL: dict[Fault, int] = {lose_answers: 5}
"""Besides these, where ZooKeeper is several servers."""
