"""The world in memory and in virtual time: one seed replays a whole run, power cuts included."""

from __future__ import annotations

from dataclasses import field
from random import Random
from typing import Any, NoReturn

from magnetar.io.interfaces import Io, Service, SqlConnection
from magnetar.io.simulated.clock import SimulatedClock, SimulatedRandomness
from magnetar.io.simulated.conditions import Conditions
from magnetar.io.simulated.disk import PowerLost, SimulatedDisk, SimulatedFile
from magnetar.io.simulated.loop import Deadlock, SimulatedLoop, Timeline
from magnetar.io.simulated.network import SimulatedHost, SimulatedNetwork
from magnetar.io.simulated.process import SimulatedProcess
from magnetar.io.simulated.worker import ProcessStopped, SimulatedWorker
from magnetar.lazy_dataclass import dataclass

__all__ = [
    "Conditions",
    "Deadlock",
    "PowerLost",
    "ProcessStopped",
    "SimulatedDisk",
    "SimulatedFile",
    "SimulatedHost",
    "SimulatedLoop",
    "SimulatedNetwork",
    "SimulatedProcess",
    "Simulation",
    "Timeline",
    "simulated_io",
]


@dataclass
class Simulation:
    """An :class:`Io` and the handles to what is behind it."""

    io: Io
    loop: SimulatedLoop
    disk: SimulatedDisk
    clock: SimulatedClock
    host: SimulatedHost
    stop_messages: list[str] = field(default_factory=list)
    """What ``stop_process`` was called with."""
    connections: list[Any] = field(default_factory=list)
    """Every SQLite connection that was opened."""
    workers: list[SimulatedWorker] = field(default_factory=list)
    """Every worker that was started."""
    processes: list[SimulatedProcess] = field(default_factory=list)
    """Every process of its own that was started."""

    def abandon(self, *, silently: bool = False) -> None:
        """Ends the life of everything that runs here, without any goodbye.

        :param silently: the other sides of its connections do not hear of it
        """
        for worker in self.workers:
            worker.abandon()
        self.loop.abandon()
        self.host.die(silently=silently)
        while self.connections:
            self.connections.pop().abandon()


def simulated_io(
    seed: int,
    disk: SimulatedDisk | None = None,
    network: SimulatedNetwork | None = None,
    name: str = "localhost",
) -> Simulation:
    """One process in a world of its own, or of ``network``'s.

    Losing the power and ``stop_process`` end the run of the loop: :class:`PowerLost` or
    :class:`ProcessStopped` comes out of ``loop.run_until``.

    :param disk: from an earlier life, or None for an empty one
    :param name: the host that others connect to
    """
    random = Random(seed)
    timeline = network.loop.timeline if network is not None else Timeline()
    loop = SimulatedLoop(timeline)  # type: ignore[abstract]  # sockets, signals and processes are not simulated
    disk = disk if disk is not None else SimulatedDisk(random.getrandbits(64))
    disk.power_lost = loop.halt
    if network is None:
        network = SimulatedNetwork(loop, seed)
    messages: list[str] = []
    connections: list[Any] = []
    workers: list[SimulatedWorker] = []
    processes: list[SimulatedProcess] = []
    found = disk

    def stop_process(message: str) -> NoReturn:
        messages.append(message)
        error = ProcessStopped(message)
        loop.halt(error)
        raise error

    def start_worker(_name: str) -> SimulatedWorker:
        workers.append(SimulatedWorker(loop, Random(random.getrandbits(64))))
        return workers[-1]

    def start_process(name: str, service: Service) -> SimulatedProcess:
        processes.append(SimulatedProcess(loop, name, service, found, start_worker(name)))
        return processes[-1]

    def open_sqlite(path: str) -> SqlConnection:
        # apsw is there in development only, and only this needs it.
        from magnetar.io.simulated.sqlite import SimulatedSqlite

        connection = SimulatedSqlite(found, path)
        connections.append(connection)
        return connection

    clock = SimulatedClock(loop)
    host = network.host(loop, name)
    io = Io(
        loop=loop,
        clock=clock,
        randomness=SimulatedRandomness(Random(random.getrandbits(64))),
        disk=disk,
        network=host,
        start_worker=start_worker,
        start_process=start_process,
        open_sqlite=open_sqlite,
        stop_process=stop_process,
    )
    return Simulation(io, loop, disk, clock, host, messages, connections, workers, processes)
