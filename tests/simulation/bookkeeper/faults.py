"""What goes wrong with bookies, ZooKeeper, the network between, and those who use them.

Each fault ends by itself, or when :attr:`World.quiet` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from magnetar.ledger.interface import LedgerState
from simulation.bookkeeper.world import Process, World


@dataclass
class Fate:
    """What a fault works with."""

    world: World
    random: Random
    processes: list[Process]

    async def while_it_lasts(self, longest: float) -> None:
        """Some time, mostly short."""
        world = self.world
        until = world.loop.time() + longest * self.random.random() ** 2
        while world.loop.time() < until and not world.quiet:
            await world.sleep(min(0.2, until - world.loop.time()))


Fault = Callable[[Fate], Coroutine[Any, Any, None]]


async def crash_bookie(fate: Fate) -> None:
    bookie = fate.random.choice(fate.world.servers.bookies)
    if not bookie.alive:
        return
    written = fate.random.randrange(bookie.model.unwritten + 1)
    fate.world.trace.note("crash", bookie.name, written)
    bookie.kill(written, silently=fate.random.random() < 0.3, forgotten_after=6 * fate.random.random())
    await fate.while_it_lasts(15)
    bookie.start()
    fate.world.trace.note("start", bookie.name)


async def silence_bookie(fate: Fate) -> None:
    model = fate.random.choice(fate.world.servers.bookies).model
    model.silent = True
    await fate.while_it_lasts(10)
    model.silent = False


async def slow_bookie(fate: Fate) -> None:
    """Answers come late, some of them when nobody waits for them any more."""
    model = fate.random.choice(fate.world.servers.bookies).model
    model.delay = 4 * fate.random.random() ** 2
    await fate.while_it_lasts(10)
    model.delay = 0.0


async def full_bookie(fate: Fate) -> None:
    model = fate.random.choice(fate.world.servers.bookies).model
    model.read_only = True
    await fate.while_it_lasts(10)
    model.read_only = False


async def collect_garbage(fate: Fate) -> None:
    """Bookies drop closed ledgers whose metadata names them no more, unless somebody copies them now."""
    world = fate.world
    for ledger_id in world.chain:
        record = world.truth.record(ledger_id)
        if record is None or record.state is not LedgerState.CLOSED or ledger_id in world.copying:
            continue
        named = {bookie_id for segment in record.segments for bookie_id in segment.ensemble}
        for bookie in world.servers.bookies:
            if bookie.alive and bookie.bookie_id not in named and bookie.model.drop(ledger_id):
                world.trace.note(bookie.name, "drops", ledger_id)


async def cut_off(fate: Fate) -> None:
    """One process does not reach one bookie, while others do; at the end connections break."""
    world = fate.world
    process, bookie = fate.random.choice(fate.processes), fate.random.choice(world.servers.bookies)
    await _without(fate, process.name, bookie.name)


async def cut_off_metadata(fate: Fate) -> None:
    await _without(fate, fate.random.choice(fate.processes).name, "zookeeper")


async def _without(fate: Fate, client: str, server: str) -> None:
    network = fate.world.network
    fate.world.trace.note("cut off", client, server)
    if network.separated(client, server):
        return
    network.separate(client, server)
    await fate.while_it_lasts(12)
    network.rejoin(client, server)


async def break_connections(fate: Fate) -> None:
    for link in list(fate.world.network.links.values()):
        if fate.random.random() < 0.5:
            link.reset()


async def crash_zookeeper(fate: Fate) -> None:
    zookeeper = fate.world.servers.zookeeper
    if not zookeeper.alive:
        return
    zookeeper.kill(silently=fate.random.random() < 0.3)
    await fate.while_it_lasts(12)
    zookeeper.start()


async def silence_zookeeper(fate: Fate) -> None:
    model = fate.world.servers.zookeeper.model
    model.silent = True
    await fate.while_it_lasts(8)
    model.speak()


async def lose_answers(fate: Fate) -> None:
    """Where ZooKeeper is several servers: changes are made, and connections end that were to tell so."""
    model = fate.world.servers.zookeeper.model
    model.losing += 1
    await fate.while_it_lasts(10)
    model.losing -= 1


async def another_owner(fate: Fate) -> None:
    """The one there was may live, and write on until it is told."""
    fate.world.owner = fate.random.choice(fate.processes[:2]).name


async def kill_process(fate: Fate) -> None:
    process = fate.random.choice(fate.processes)
    if process.simulation is None or process.paused:
        return
    fate.world.trace.note("kill", process.name)
    process.kill(silently=fate.random.random() < 0.3)
    if fate.random.random() < 0.7:
        await another_owner(fate)
    await fate.while_it_lasts(5)
    process.start()


async def pause_process(fate: Fate) -> None:
    """SIGSTOP, and after a while SIGCONT: beyond the time-outs of its questions and its session, perhaps."""
    process = fate.random.choice(fate.processes)
    if process.simulation is None or process.paused:
        return
    lives = process.lives
    fate.world.trace.note("pause", process.name)
    process.pause()
    if fate.random.random() < 0.7 and len(fate.processes) > 1:
        await another_owner(fate)
    await fate.while_it_lasts(15)
    if process.lives == lives:
        fate.world.trace.note("resume", process.name)
        process.resume()


async def take_over_in_trouble(fate: Fate) -> None:
    """Another process takes over from one that does not hear of it, while bookies crash or are slow."""
    world, random = fate.world, fate.random
    for bookie in world.servers.bookies:
        if random.random() < 0.5:
            bookie.model.delay = random.random() ** 2
    one, other = fate.processes[:2]
    before, after = (one, other) if world.owner == one.name else (other, one)
    harm = random.choice((pause_process, cut_off_metadata, crash_bookie))
    under_way = [world.spawn(harm(replace(fate, processes=[before])))]
    await world.sleep(0.1 * random.random())
    world.owner = after.name
    under_way += [world.spawn(crash_bookie(fate)) for _ in range(random.randrange(3))]
    await fate.while_it_lasts(4)
    for bookie in world.servers.bookies:
        bookie.model.delay = 0.0
    for task in under_way:
        while not task.done():
            await world.sleep(0.1)


FAULTS: dict[Fault, int] = {
    crash_bookie: 8,
    silence_bookie: 4,
    slow_bookie: 6,
    full_bookie: 3,
    collect_garbage: 3,
    cut_off: 5,
    cut_off_metadata: 2,
    break_connections: 2,
    crash_zookeeper: 2,
    silence_zookeeper: 1,
    another_owner: 6,
    take_over_in_trouble: 8,
    kill_process: 4,
    pause_process: 4,
}

OF_SEVERAL: dict[Fault, int] = {lose_answers: 5}
"""Besides these, where ZooKeeper is several servers."""
