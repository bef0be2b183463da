"""The world in memory and in virtual time: one seed replays a whole run, power cuts included."""

from __future__ import annotations

from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, NoReturn

from magnetar.io.interfaces import Io, Service, SqlConnection
from magnetar.lazy_dataclass import dataclass
from simulated_io.disk import PowerLost, SimulatedDisk, SimulatedFile
from simulated_io.endpoint import Conditions
from simulated_io.loop import Deadlock, SimulatedClock, SimulatedLoop, SimulatedRandomness, Timeline
from simulated_io.network import SimulatedHost, SimulatedNetwork
from simulated_io.worker import ProcessStopped, SimulatedProcess, SimulatedWorker

if TYPE_CHECKING:
    from simulated_io.sqlite import SimulatedSqlite

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
    """An :class:`Io` and handles to what is behind it."""

    io: Io
    loop: SimulatedLoop
    disk: SimulatedDisk
    clock: SimulatedClock
    host: SimulatedHost
    stop_messages: list[str] = field(default_factory=list)
    """The messages of all calls of ``stop_process``."""
    connections: list[SimulatedSqlite] = field(default_factory=list)
    """All opened SQLite connections."""
    workers: list[SimulatedWorker] = field(default_factory=list)
    """All started workers."""
    processes: list[SimulatedProcess] = field(default_factory=list)
    """All started child processes."""

    def abandon(self, *, silently: bool = False) -> None:
        """Ends everything that runs here abruptly, like the end of a process.

        :param silently: the other sides of its connections are not notified
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
    """Makes one process in its own world, or in that of ``network``.

    A power cut and ``stop_process`` end the run of the loop: ``loop.run_until`` raises :class:`PowerLost` or
    :class:`ProcessStopped`.

    :param disk: of an earlier process, or None for an empty one
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
    connections: list[SimulatedSqlite] = []
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
        # apsw is installed for development only, and only this needs it.
        from simulated_io.sqlite import SimulatedSqlite

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
