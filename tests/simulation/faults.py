"""What goes wrong: each fault is one coroutine, drawn by the seed.

To add one: write a coroutine that takes a :class:`Fate`, and put it into :data:`FAULTS`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from faulty_metadata import Fault as MetadataFault
from faulty_metadata import FaultyMetadataStore
from simulated_io import SimulatedDisk

from magnetar.io.files import SpaceExhausted
from magnetar.metadata.embedded import DatabaseDamaged
from magnetar.metadata.interface import MetadataUnavailable
from magnetar.server.embedded_stores import StoresDisagree
from simulation.client import Client

if TYPE_CHECKING:
    from simulation.world import World


@dataclass
class Fate:
    """What a fault works with."""

    world: World
    random: Random
    clients: list[Client]


Fault = Callable[[Fate], Coroutine[Any, Any, None]]


async def kill(fate: Fate) -> None:
    """SIGKILL: what the operating system has stays."""
    fate.world.broker.kill()


async def cut_power(fate: Fate) -> None:
    """The power goes at one of the next changes of the disk."""
    broker = fate.world.broker
    if broker.simulation is not None:
        broker.disk.cut_power_at(1 + int(60 * fate.random.random() ** 2))
        disk = broker.disk
        await fate.world.sleep(0.5)
        if broker.disk is disk and broker.simulation is not None:
            # Nothing was written meanwhile.
            broker.power_lost()


async def stop(fate: Fate) -> None:
    """A clean stop."""
    await fate.world.broker.stop()


async def fail_sync(fate: Fate) -> None:
    """A sync that fails: the process must stop."""
    fate.world.broker.disk.fail("sync", "ledgers/", after=fate.random.randrange(6))


async def fail_write(fate: Fate) -> None:
    """A write that fails: the process must stop."""
    fate.world.broker.disk.fail("write", "ledgers/", after=fate.random.randrange(6))


async def fill_disk(fate: Fate) -> None:
    """No room for a while: publishing is refused, and goes on when there is room again."""
    disk = fate.world.broker.disk
    fate.world.log.disk_was_full = True
    # A cursor whose new ledger found no room for its record tries again a second later.
    fate.world.writes_late = True
    before = disk.quota
    disk.quota = before - disk.free_bytes() + fate.random.randrange(40_000)
    await fate.world.sleep(fate.random.random())
    fate.world.broker.disk.quota = before


async def slow_disk(fate: Fate) -> None:
    """Each job of the disk takes long for a while."""
    world = fate.world
    simulation = world.broker.simulation
    if simulation is None:
        return
    world.writes_late = True
    before = [worker.longest_delay for worker in simulation.workers]
    for worker in simulation.workers:
        worker.longest_delay = 0.2 + fate.random.random()
    await world.sleep(fate.random.random() * 5)
    for worker, delay in zip(simulation.workers, before, strict=False):
        worker.longest_delay = delay


async def cut_connections(fate: Fate) -> None:
    """Connections are reset, as by a box in between."""
    for link in list(fate.world.network.links.values()):
        if fate.random.random() < 0.5:
            link.reset()


async def silence(fate: Fate) -> None:
    """A connection goes silent: nobody hears anything, until keep-alive or a request runs out of time."""
    links = list(fate.world.network.links.values())
    if links:
        fate.random.choice(links).silent = True


async def jump_clock(fate: Fate) -> None:
    """The wall clock jumps, by seconds or by a day, to and fro."""
    simulation = fate.world.broker.simulation
    if simulation is not None:
        far = fate.random.choice((500, 5_000, 600_000, 86_400_000))
        simulation.clock.offset_ms += fate.random.choice((-1, 1)) * fate.random.randrange(far)
        fate.world.ahead_ms = max(fate.world.ahead_ms, simulation.clock.offset_ms)


async def unload(fate: Fate) -> None:
    """A topic is closed, as an administrator may do; everybody comes back."""
    world = fate.world
    service, simulation = world.broker.service, world.broker.simulation
    if service is not None and simulation is not None and service.topics.loaded:
        topic = fate.random.choice(list(service.topics.loaded.values()))
        simulation.loop.create_task(service.topics.unload_topic(topic))


async def lose_metadata_answers(fate: Fate) -> None:
    """Of some operations on the metadata nobody hears whether they happened."""
    metadata = fate.world.broker.metadata
    fate.world.log.metadata_were_away = True
    if metadata is None:
        return
    fate.world.writes_late = True
    share = fate.random.random() * 0.5

    def draw(_call: str) -> MetadataFault | None:
        return fate.random.choice(list(MetadataFault)) if fate.random.random() < share else None

    metadata.draw = draw
    await fate.world.sleep(fate.random.random() * 5)
    metadata.draw = lambda _call: None


async def late_metadata_events(fate: Fate) -> None:
    """Changes of the metadata are told after they are answered, from now on."""
    metadata = fate.world.broker.metadata
    if metadata is not None:
        metadata.event_delay = fate.random.random()


async def lose_metadata(fate: Fate) -> None:
    """The metadata store is away for a while; perhaps for so long that the session ends."""
    metadata = fate.world.broker.metadata
    fate.world.log.metadata_were_away = True
    if metadata is None:
        return
    fate.world.writes_late = True
    metadata.disconnect()
    await fate.world.sleep(fate.random.random() * 5)
    if fate.world.broker.metadata is not metadata:
        return
    if fate.random.random() < 0.5:
        # In the loop of its process.
        process = fate.world.broker.simulation
        assert process is not None
        process.loop.create_task(_new_session(metadata, fate.world))
    else:
        metadata.reconnect()


async def _new_session(metadata: FaultyMetadataStore, world: World) -> None:
    for topic in world.model.topics.values():
        topic.doubt_all()
    await metadata.lose_session()
    # Until now topics took acknowledgements that no new owner will know of.
    for topic in world.model.topics.values():
        topic.doubt_all()
    metadata.reconnect()


async def fall_back(fate: Fate) -> None:
    """After a kill the metadata are an earlier copy: the start is refused. They are put back or recovered."""
    world, broker = fate.world, fate.world.broker
    earlier = _metadata_files(broker.disk)
    if not broker.serving or not earlier:
        return
    await world.sleep(fate.random.random() * 3)
    if world.stay_dead or not broker.serving:
        return
    world.stay_dead = True
    try:
        journal = broker.journal
        known = journal is not None and journal.durable
        broker.kill()
        if not known:
            # What was answered in this moment is in the metadata alone: nothing else knows of it yet.
            return
        newest = _metadata_files(broker.disk)
        _put_metadata(broker.disk, earlier)
        await broker.start()
        error = broker.start_error
        if error is None and not broker.serving:
            # Something else ended it while it started.
            _put_metadata(broker.disk, newest)
            return
        if error is None:
            # Nothing had changed, or nothing that an acknowledged entry came after: what is served tells.
            world.trace.note("fault: the earlier metadata are served")
            return
        if not isinstance(error, StoresDisagree | DatabaseDamaged) and not _is_expected(error):
            raise error
        broker.kill()
        if fate.random.random() < 0.5:
            while not await broker.recover_metadata():
                await world.sleep(fate.random.random())
        else:
            _put_metadata(broker.disk, newest)
    finally:
        world.stay_dead = False


def _metadata_files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: _read(disk, path) for path in disk.paths("metadata/") if "reserve" not in path}


def _read(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def _put_metadata(disk: SimulatedDisk, files: dict[str, bytes]) -> None:
    for path in _metadata_files(disk).keys() - files.keys():
        disk.unlink(path)
    for path, data in files.items():
        file = disk.open(path, create=True)
        file.truncate(0)
        file.write(data, 0)
        file.sync()
        file.close()
    disk.sync_directory("metadata")


async def cut_client(fate: Fate) -> None:
    """A client's process dies."""
    fate.random.choice(fate.clients).cut()


FAULTS: dict[str, tuple[Fault, int]] = {
    "kill": (kill, 3),
    "power": (cut_power, 5),
    "stop": (stop, 2),
    "sync": (fail_sync, 1),
    "write": (fail_write, 1),
    "full": (fill_disk, 1),
    "slow": (slow_disk, 1),
    "reset": (cut_connections, 3),
    "silent": (silence, 1),
    "clock": (jump_clock, 1),
    "client": (cut_client, 2),
    "unload": (unload, 2),
    "answers": (lose_metadata_answers, 1),
    "events": (late_metadata_events, 1),
    "metadata": (lose_metadata, 1),
    "earlier": (fall_back, 1),
}
"""Every fault, and how often it is drawn beside the others."""


async def run_faults(fate: Fate, count: int, longest_pause: float) -> None:
    """Draws and runs ``count`` faults, one after another, with pauses between."""
    names = list(FAULTS)
    weights = [FAULTS[name][1] for name in names]
    for _ in range(count):
        await fate.world.sleep(fate.random.random() * longest_pause)
        if fate.random.random() < 0.8:
            # Else it meets a broker that is starting, or none.
            while not fate.world.broker.serving:
                await fate.world.sleep(0.01)
        name = fate.random.choices(names, weights)[0]
        fate.world.trace.note("fault:", name)
        await FAULTS[name][0](fate)


def _is_expected(error: BaseException) -> bool:
    """Whether a start may fail with this as long as the disk is not mended."""
    if isinstance(error, SpaceExhausted):
        return True
    told = isinstance(error, OSError | MetadataUnavailable)
    return told and any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EIO))


async def keep_alive(world: World, random: Random) -> None:
    """Starts the broker again whenever it has died."""
    while True:
        if not world.broker.alive and not world.stay_dead:
            await world.sleep(random.random() * 0.5)
            mended = world.quiet
            await world.broker.start()
            if world.broker.start_error is not None:
                if mended or not _is_expected(world.broker.start_error):
                    raise world.broker.start_error
                world.broker.kill()
        await world.sleep(0.02)
