"""One seed's story: ledgers are written, recovered and read while faults strike; then all is looked at."""

from __future__ import annotations

from random import Random

from simulated_bookkeeper import spread

from simulation.bookkeeper.actors import Onlooker, Owner, judge
from simulation.bookkeeper.faults import FAULTS, OF_SEVERAL, Fate
from simulation.bookkeeper.replicator import Replicator
from simulation.bookkeeper.world import Process, World
from simulation.trace import Violation

_TROUBLED_SECONDS = (5.0, 40.0)
_QUIET_SECONDS = 30.0
"""As long as sessions, questions and pauses between tries last, several times."""


class _Life(Process):
    """A process with something to do."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        super().__init__(world, name)
        self._random = random
        self.owner: Owner | None = None

    def start(self) -> None:
        super().start()
        random = Random(self._random.getrandbits(64))
        if self.name == "replicator":
            self.spawn(Replicator(self, random).run())
        elif self.name.startswith("owner"):
            self.owner = Owner(self, random)
            self.spawn(self.owner.run())
        else:
            self.spawn(Onlooker(self, random).run())


class Scenario:
    """:param seed: decides everything"""

    def __init__(self, seed: int, *, printing: bool = False) -> None:
        self._random = random = Random(seed)
        self.world = World(Random(random.getrandbits(64)), printing=printing)
        world = self.world
        spread(world.servers.zookeeper, seed)
        names = ("owner1", "owner2", "onlooker", "replicator")
        self._processes = [_Life(world, name, Random(random.getrandbits(64))) for name in names]
        world.owner = "owner1"

    def run(self) -> World:
        """:raises Violation: something happened that must not"""
        try:
            self.world.drive(self._story())
        finally:
            for process in self._processes:
                process.kill()
            self.world.loop.abandon()
        return self.world

    async def _story(self) -> None:
        world, random = self.world, self._random
        for process in self._processes:
            process.start()
        await world.sleep(1)
        fate = Fate(world, Random(random.getrandbits(64)), list(self._processes))
        until = world.loop.time() + random.uniform(*_TROUBLED_SECONDS)
        pause = random.choice((0.3, 1.0, 3.0))
        under_way = []
        faults = FAULTS | OF_SEVERAL if world.servers.zookeeper.model.several else FAULTS
        while world.loop.time() < until:
            fault = random.choices(list(faults), list(faults.values()))[0]
            under_way.append(world.spawn(fault(fate)))
            await world.sleep(random.expovariate(1 / pause))
        world.quiet = True
        for task in under_way:
            while not task.done():
                await world.sleep(0.1)
        world.trace.note("quiet")
        await world.sleep(_QUIET_SECONDS)
        self._look_at_what_is_written()
        last = Process(world, "judge")
        last.start()
        while last.store is None:
            await world.sleep(0.1)
        judging = last.spawn(judge(last))
        while not judging.done():
            await world.sleep(0.1)
        last.kill()

    def _look_at_what_is_written(self) -> None:
        """Whatever its writer goes on with is on its whole write quorum by now."""
        world = self.world
        for process in self._processes:
            writing = process.owner.writing if process.owner is not None else None
            if writing is None or writing.failed is not None:
                continue
            record = world.truth.record(writing.ledger_id)
            truth = world.truth.ledgers[writing.ledger_id]
            if record is None or truth.closed is not None:
                continue
            if writing.last != writing.appended - 1:
                raise Violation(
                    f"ledger {writing.ledger_id}: {writing.last} of {writing.appended} are acknowledged"
                )
            # A bookie that failed was replaced from then on, and may lack what was confirmed before.
            for entry_id in range(record.segments[-1].first_entry_id, writing.last + 1):
                found = world.truth.holders(record, writing.ledger_id, entry_id)
                if found < record.quorums.write:
                    raise Violation(f"entry {entry_id} of ledger {writing.ledger_id} is on {found} bookies")
