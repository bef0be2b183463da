"""One seed's world: servers, processes with a ledger store each, and the chain of ledgers they write."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from random import Random
from typing import Any

from simulated_bookkeeper import SimulatedServers, open_bookkeeper_store
from simulated_io import Conditions, SimulatedNetwork, Simulation, simulated_io

from magnetar.io.interfaces import Clock, Loop
from magnetar.ledger.interface import LedgerError, LedgerStore, Quorums
from magnetar.metadata.interface import MetadataError
from simulation.bookkeeper.truth import Truth
from simulation.driven import Driven, logging_to
from simulation.trace import Trace

QUORUMS = (
    Quorums(3, 3, 2),
    Quorums(3, 3, 2),
    Quorums(3, 2, 2),
    Quorums(5, 3, 2),
    Quorums(2, 2, 2),
    Quorums(4, 3, 3),
    Quorums(3, 3, 1),
    Quorums(1, 1, 1),
)
TROUBLE = (LedgerError, MetadataError)
"""What those who use ledgers may meet."""


class Process:
    """One that uses ledgers; :meth:`start` and :meth:`kill` it as often as you like."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.simulation: Simulation | None = None
        self.store: LedgerStore | None = None
        self.lives = 0
        self.paused = False

    def start(self) -> None:
        self.lives += 1
        world = self.world
        self.simulation = simulated_io(world.random.getrandbits(32), network=world.network, name=self.name)
        self.spawn(self._open())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs in this process, and dies with it; what it raises ends the run."""
        assert self.simulation is not None
        task = self.simulation.loop.create_task(work)
        task.add_done_callback(self.world.ended)
        return task

    @property
    def loop(self) -> Loop:
        """Of this life."""
        assert self.simulation is not None
        return self.simulation.loop

    @property
    def clock(self) -> Clock:
        assert self.simulation is not None
        return self.simulation.io.clock

    async def _open(self) -> None:
        assert self.simulation is not None
        while self.store is None:
            try:
                self.store = await open_bookkeeper_store(self.simulation)
            except TROUBLE as error:
                self.world.trace.note(self.name, "cannot open its store", error)
                await self.sleep(1.0)

    async def sleep(self, seconds: float) -> None:
        assert self.simulation is not None
        loop = self.simulation.loop
        passed = loop.create_future()
        loop.call_later(seconds, passed.set_result, None)
        await passed

    def kill(self, *, silently: bool = False) -> None:
        if self.simulation is not None:
            self.simulation.abandon(silently=silently)
        self.simulation = self.store = None
        self.paused = False

    def pause(self) -> None:
        if self.simulation is not None and not self.paused:
            self.paused = True
            self.simulation.loop.pause()

    def resume(self) -> None:
        if self.simulation is not None and self.paused:
            self.paused = False
            self.simulation.loop.resume()


class World(Driven):
    """:param random: draws what belongs to the world and to nobody in it"""

    def __init__(self, random: Random, *, printing: bool = False) -> None:
        super().__init__()
        self.random = random
        self.trace = Trace(self.loop.time, printing=printing)
        slow = random.choice((0.001, 0.005, 0.03))
        self.network = SimulatedNetwork(self.loop, random.getrandbits(32), Conditions(latency=slow))
        conditions = self.network.conditions
        conditions.pieces = random.choice((1, 1, 3))
        conditions.cut = random.choice((0.0, 0.0, 0.3))
        conditions.refused = random.choice((0.0, 0.05))
        self.quorums = random.choice(QUORUMS)
        self.servers = SimulatedServers(self.network, self.quorums.ensemble + random.randrange(4))
        for bookie in self.servers.bookies:
            self._give_journal(bookie, Random(random.getrandbits(32)))
        self.truth = Truth(self.servers)
        self.chain: list[int] = []
        """Ledgers in the order of what is in them, as the record of a managed ledger has them."""
        self.owner = ""
        """The process that should write; one that was it may not know yet."""
        self.copying: set[int] = set()
        """Ledgers that the replicator is at, or was when it was killed."""
        self.copied = 0
        """Segments of which another bookie has the entries of one that was missed."""
        self.quiet = False
        """Nothing goes wrong any more."""

    def _give_journal(self, bookie: Any, random: Random) -> None:
        typical = random.choice((0.0005, 0.002, 0.02))
        bookie.model.journal_delay = lambda: typical * random.expovariate(1.0)

    def drive(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs all until ``work`` is done.

        :raises Violation: something happened that must not
        """
        with logging_to(logging.NullHandler()):
            self.loop.run_until(self.spawn(work))
