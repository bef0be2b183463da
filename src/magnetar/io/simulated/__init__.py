"""The world in memory and in virtual time: one seed replays a whole run, power cuts included."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from magnetar.io.interfaces import Io, Listener, SqlConnection, StreamProtocol, Transport
from magnetar.io.simulated.disk import PowerLost, SimulatedDisk, SimulatedFile
from magnetar.io.simulated.loop import Deadlock, SimulatedLoop

__all__ = [
    "Deadlock",
    "PowerLost",
    "ProcessStopped",
    "SimulatedDisk",
    "SimulatedFile",
    "SimulatedLoop",
    "Simulation",
    "simulated_io",
]

_EPOCH_MS = 1_700_000_000_000


class ProcessStopped(BaseException):
    """The process under test has ended itself; the message says why."""


class SimulatedClock:
    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return _EPOCH_MS + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class SimulatedRandomness:
    def __init__(self, random: Random) -> None:
        self._random = random

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, length: int) -> bytes:
        return self._random.randbytes(length)


class SimulatedWorker:
    """Jobs run one after another, each whole, at moments the seed decides."""

    _LONGEST_DELAY = 0.002

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._jobs: deque[tuple[Callable[[], Any], Any]] = deque()
        self._waiting = False
        self._closed = False
        self._abandoned = False

    def submit(self, job: Callable[[], Any], done: Any = None) -> None:
        """:raises RuntimeError: the worker is closed"""
        if self._abandoned:
            return
        if self._closed:
            raise RuntimeError("the worker is closed")
        self._jobs.append((job, done))
        self._next()

    def close(self) -> None:
        self._closed = True
        while self._jobs:
            self._run()

    def abandon(self) -> None:
        """Forgets what was submitted: the process is gone."""
        self._jobs.clear()
        self._abandoned = True

    def _next(self) -> None:
        if self._jobs and not self._waiting:
            self._waiting = True
            self._loop.call_later(self._random.random() * self._LONGEST_DELAY, self._take_turn)

    def _take_turn(self) -> None:
        self._waiting = False
        if self._jobs:
            self._run()
            self._next()

    def _run(self) -> None:
        job, done = self._jobs.popleft()
        result: Any = None
        error: BaseException | None = None
        try:
            result = job()
        except (PowerLost, ProcessStopped):
            raise
        except BaseException as raised:  # noqa: BLE001 - handed to whoever submitted the job
            error = raised
        if done is not None:
            done(result, error)
        elif error is not None:
            raise error


class NoNetwork:
    """Stands where a simulated network will be."""

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> Listener:
        raise NotImplementedError("the simulated world has no network yet")

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        raise NotImplementedError("the simulated world has no network yet")


@dataclass
class Simulation:
    """An :class:`Io` and the handles to what is behind it."""

    io: Io
    loop: SimulatedLoop
    disk: SimulatedDisk
    stop_messages: list[str] = field(default_factory=list)
    """What ``stop_process`` was called with."""
    connections: list[Any] = field(default_factory=list)
    """Every SQLite connection that was opened."""
    workers: list[SimulatedWorker] = field(default_factory=list)
    """Every worker that was started."""

    def abandon(self) -> None:
        """Ends the life of everything that runs here, without any goodbye."""
        for worker in self.workers:
            worker.abandon()
        self.loop.abandon()
        while self.connections:
            self.connections.pop().abandon()


def simulated_io(seed: int, disk: SimulatedDisk | None = None) -> Simulation:
    """A world of its own; ``disk`` comes from an earlier life, or is empty.

    Losing the power and ``stop_process`` end the run of the loop: :class:`PowerLost` or
    :class:`ProcessStopped` comes out of ``loop.run_until``.
    """
    random = Random(seed)
    loop = SimulatedLoop()  # type: ignore[abstract]  # sockets, signals and processes are not simulated
    disk = disk if disk is not None else SimulatedDisk(random.getrandbits(64))
    disk.power_lost = loop.halt
    messages: list[str] = []
    connections: list[Any] = []
    workers: list[SimulatedWorker] = []
    found = disk

    def stop_process(message: str) -> NoReturn:
        messages.append(message)
        error = ProcessStopped(message)
        loop.halt(error)
        raise error

    def start_worker(name: str) -> SimulatedWorker:
        workers.append(SimulatedWorker(loop, Random(random.getrandbits(64))))
        return workers[-1]

    def open_sqlite(path: str) -> SqlConnection:
        # apsw is there in development only, and only this needs it.
        from magnetar.io.simulated.sqlite import SimulatedSqlite

        connection = SimulatedSqlite(found, path)
        connections.append(connection)
        return connection

    io = Io(
        loop=loop,
        clock=SimulatedClock(loop),
        randomness=SimulatedRandomness(Random(random.getrandbits(64))),
        disk=disk,
        network=NoNetwork(),
        start_worker=start_worker,
        open_sqlite=open_sqlite,
        stop_process=stop_process,
    )
    return Simulation(io, loop, disk, messages, connections, workers)
