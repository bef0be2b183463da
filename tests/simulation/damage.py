"""A bit of what is stored flips: the damage is named, or does not matter; wrong bytes are never served."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from magnetar.ledger.interface import LedgerError
from simulation.client import Client
from simulation.reader import Reader
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.world import World

_PATIENCE = 30.0
"""Virtual seconds without an entry: what is dispatched at a low rate takes longer than that in all."""


async def flip_and_read(world: World, random: Random) -> None:
    """Flips a bit below ``ledgers/`` of a broker that was stopped, starts it again and reads everything.

    :raises Violation: what was acknowledged is missing, and nobody said why
    """
    disk = world.broker.disk
    paths = [path for path in disk.paths("ledgers/") if disk.size_of(path)]
    path = random.choice(paths)
    offset = random.randrange(disk.size_of(path))
    world.trace.note("damage:", path, "at", offset)
    disk.bit_flip(path, offset, random.randrange(8))
    world.check()
    world.damaged = True
    await world.broker.start()
    error = world.broker.start_error
    if error is not None:
        # A VERSION of another format is named by its directory.
        named = path.rpartition("/")[2] in str(error) or "has format" in str(error)
        if not isinstance(error, LedgerError | OSError) or not named:
            raise Violation(f"a bit of {path} flipped at {offset}, and it is not named: {error!r}") from error
        world.broker.kill()
        return
    client = Client(world, "inspector")
    readers = [
        Reader(client, topic, f"inspector-{number}", Random(random.getrandbits(64)))
        for number, topic in enumerate(world.model.topics.values())
    ]
    tasks = [world.spawn(reader.run()) for reader in readers]
    end, came = world.loop.time() + _PATIENCE, [reader.last for reader in readers]
    while world.loop.time() < end and not all(reader.idle for reader in readers):
        await world.sleep(0.5)
        # A reader of a topic that cannot be loaded opens it again and again.
        if (now := [reader.last for reader in readers]) != came:
            end, came = world.loop.time() + _PATIENCE, now
    # A topic that cannot be loaded names the damage to its clients.
    told = any(path in reader.refusal for reader in readers)
    if not all(reader.idle for reader in readers) and not world.log.errors and not told:
        raise Violation(f"a bit of {path} flipped at {offset}: {', '.join(map(str, readers))}, no error")
    for reader in readers:
        reader.stopping = True
    for task in tasks:
        await world.finished(task)
    world.broker.kill()
