"""The broker under test: a standalone broker as a simulated process that dies and starts again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from faulty_metadata import FaultyMetadataStore
from simulated_io import (
    ProcessStopped,
    SimulatedDisk,
    SimulatedLoop,
    SimulatedNetwork,
    Simulation,
    simulated_io,
)

from magnetar.broker.service import BrokerService
from magnetar.io.interfaces import Io, Service
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.journal.writing import MetadataJournal
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataStore
from magnetar.server.addresses import bind_addresses
from magnetar.server.broker_process import BrokerSurroundings
from magnetar.server.metadata_recovery import rebuild
from magnetar.server.standalone import StandaloneBroker
from simulation.guard import Guard
from simulation.limits import Limits
from simulation.offloading import Tiered
from simulation.trace import Trace, Violation

HOST = "broker"
_STOP_SECONDS = 120.0
_TOLD_OF_FULL_DISK = ("are free on the disk of the ledgers", "no space for the metadata")
"""What an operator is told when the disk is full; nothing is damaged then."""

_TOLD_OF_METADATA = (
    "no answer to",
    "the answer to",
    "no longer owned by this broker",
    "cannot be written at present",
)
"""What an operator is told when the metadata store is away; nothing is damaged then."""

_TOLD_OF_BUCKET = ("the bucket does not answer", "the answer of the bucket is lost")
"""What an operator is told when tiered storage fails; nothing is damaged then."""

_CURSOR_NOT_WRITTEN = "cannot write the cursor before closing it"


class FaultyBroker(StandaloneBroker):
    """Its metadata go wrong when a fault says so."""

    def __init__(self, place: BrokerSurroundings) -> None:
        super().__init__(place)
        self._loop = place.io.loop
        self.faulty_metadata: FaultyMetadataStore | None = None

    def wrap_metadata(self, opened: EmbeddedMetadataStore) -> MetadataStore:
        self.faulty_metadata = FaultyMetadataStore(opened, self._loop)
        return self.faulty_metadata


@dataclass
class End:
    """How a life of the broker ended."""

    at: float
    """Virtual time."""
    clean: bool
    """An orderly stop: everything that was known was written."""


class BrokerProcess:
    """:param ended: told of each end of a life, before anything else happens

    :param host: where clients find it
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        limits: Limits,
        random: Random,
        trace: Trace,
        ended: Callable[[End], None],
        guard: Guard | None = None,
        host: str = HOST,
        tiered: Tiered | None = None,
    ) -> None:
        self.host = host
        self._loop = loop
        self._network = network
        self._limits = limits
        self._random = random
        self._trace = trace
        self._ended = ended
        self._guard = guard
        self._tiered = tiered
        self.disk = SimulatedDisk(random.getrandbits(64))
        self.disk.cached_fraction = limits.at_hand
        self.simulation: Simulation | None = None
        self.broker: FaultyBroker | None = None
        self.serving = False
        self.lives = 0
        self.start_error: BaseException | None = None
        self._waiters: list[Any] = []

    @property
    def alive(self) -> bool:
        return self.simulation is not None

    @property
    def service(self) -> BrokerService | None:
        """The broker's insides, while it serves."""
        return self.broker._broker if self.broker is not None and self.serving else None

    @property
    def metadata(self) -> FaultyMetadataStore | None:
        """While it serves."""
        return self.broker.faulty_metadata if self.broker is not None and self.serving else None

    @property
    def store(self) -> EmbeddedLedgerStore | None:
        stores = self.broker._stores if self.broker is not None else None
        return stores._ledgers if stores is not None else None

    @property
    def journal(self) -> MetadataJournal | None:
        stores = self.broker._stores if self.broker is not None else None
        return stores._journal if stores is not None else None

    async def start(self) -> bool:
        """Starts a life; False when it ended before it served."""
        seed = self._random.getrandbits(64)
        simulation = simulated_io(seed, self.disk, self._network, self.host)
        self.simulation = simulation
        self.lives += 1
        self._trace.note(f"{self.host}: starts, life", self.lives)
        settings = self._limits.settings
        place = BrokerSurroundings(
            self._with_disk_of(simulation.io),
            settings,
            {},
            self.host,
            {"http": 8080},
            bind_addresses(settings)[:1],
        )
        if self._guard is not None:
            place = replace(
                place,
                authenticator=self._guard.authenticator(place.io),
                make_authorizer=self._guard.authorizer,
            )
        self.broker = FaultyBroker(place)
        self._run(self.broker.start())
        await self._outcome()
        self.serving = self.simulation is simulation and self.start_error is None
        self._trace.note(f"{self.host}: serves" if self.serving else f"{self.host}: did not start")
        return self.serving

    def _with_disk_of(self, io: Io) -> Io:
        """The same, with workers and processes that take as long as the seed says."""

        def start_worker(name: str) -> Any:
            worker: Any = io.start_worker(name)
            worker.longest_delay = self._limits.disk_seconds
            if self._tiered is not None and name.startswith("offload"):
                worker.longest_delay = self._tiered.slowness
            return worker

        def start_process(name: str, service: Service) -> Any:
            process: Any = io.start_process(name, service)
            process.worker.longest_delay = self._limits.disk_seconds
            return process

        return replace(io, start_worker=start_worker, start_process=start_process)

    def _run(self, work: Any) -> None:
        """Runs work of the broker in its own loop; :meth:`_outcome` waits for it."""
        assert self.simulation is not None
        self.start_error = None
        task = self.simulation.loop.create_task(work)

        def finished(done: Any) -> None:
            if not done.cancelled() and done.exception() is not None:
                self.start_error = done.exception()
            self._wake()

        task.add_done_callback(finished)

    async def _outcome(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def stop(self) -> bool:
        """An orderly end of a broker that serves; False when there is none, or something else ended it first.

        A process that is told to stop while it starts, starts first.
        """
        simulation, broker = self.simulation, self.broker
        if simulation is None or broker is None or not self.serving:
            return False
        self.serving = False
        self._trace.note(f"{self.host}: stops")
        self._run(broker.stop())
        timer = self._loop.call_later(_STOP_SECONDS, self._too_long)
        await self._outcome()
        timer.cancel()
        if self.simulation is not simulation:
            return False
        if self.start_error is not None:
            raise self.start_error
        await self._settle(simulation)
        if self.simulation is not simulation:
            return False
        self._check_left(simulation)
        self._end(simulation, clean=True, silently=False)
        self.disk = self.disk.power_cut()
        return True

    async def unload(self, topic: str) -> None:
        """Closes a topic, as an operator does who wants it to be served elsewhere."""
        simulation, service = self.simulation, self.service
        assert simulation is not None
        assert service is not None
        loaded = service.topics.loaded.get(topic)
        if loaded is None:
            return
        self._trace.note(f"{self.host}: unloads", topic)
        done = self._loop.create_future()
        work = simulation.loop.create_task(service.topics.unload_topic(loaded))
        work.add_done_callback(done.set_result)
        (await done).result()

    def _too_long(self) -> None:
        raise Violation(f"the broker does not stop within {_STOP_SECONDS} seconds")

    async def _settle(self, simulation: Simulation) -> None:
        """Lets what was only just closed hear of it."""
        for _ in range(50):
            if not simulation.loop.pending_tasks() and not simulation.host.ends_open():
                return
            passed = self._loop.create_future()
            self._loop.call_later(0.5, passed.set_result, None)
            await passed
            if self.simulation is not simulation:
                return

    def _check_left(self, simulation: Simulation) -> None:
        tasks = simulation.loop.pending_tasks()
        if tasks:
            raise Violation(f"tasks left after a clean stop: {tasks}")
        if not all(worker.closed for worker in simulation.workers):
            raise Violation("a worker was not closed")

    async def recover_metadata(self) -> bool:
        """Runs ``magnetar recover-metadata`` on the disk of a broker that does not run.

        :return: False: a fault has ended it, and it has to run again
        """
        simulation = simulated_io(self._random.getrandbits(64), self.disk, self._network, self.host)
        self.simulation = simulation
        self._run(rebuild(simulation.io, self._limits.settings, Path(), self._tell, check=False))
        await self._outcome()
        if self.simulation is not simulation:
            return False
        self._end(simulation, clean=False, silently=False)
        self.disk = self.disk.killed()
        return True

    def _tell(self, sentence: str) -> None:
        self._trace.note("recovery:", sentence)

    def kill(self) -> None:
        """SIGKILL: the operating system keeps what was written, and resets the connections."""
        if self.simulation is not None:
            self._trace.note("fault: kill")
            self._end(self.simulation, clean=False, silently=False)
            self.disk = self.disk.killed()

    def power_lost(self) -> None:
        """The machine went off: what was not synced is lost, torn, or in another order."""
        assert self.simulation is not None
        self._trace.note("fault: power cut")
        self._end(self.simulation, clean=False, silently=self._random.random() < 0.5)
        self.disk = self.disk.power_cut()

    def stopped_itself(self, error: ProcessStopped) -> None:
        """It could not write or sync, and said so."""
        assert self.simulation is not None
        self._trace.note(f"{self.host}: stopped itself:", error)
        self._end(self.simulation, clean=False, silently=False)
        self.disk = self.disk.power_cut() if self._random.random() < 0.5 else self.disk.killed()

    def _end(self, simulation: Simulation, *, clean: bool, silently: bool) -> None:
        simulation.abandon(silently=silently)
        self.disk.power_lost = None
        self.simulation = self.broker = None
        self.serving = False
        self._ended(End(self._loop.time(), clean))
        self._wake()


class LogWatch(logging.Handler):
    """Errors that the broker swallowed after writing them to its log: none may be unexpected."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.unexpected: list[str] = []
        self.errors: list[str] = []
        self.disk_was_full = False
        """Since the first time on, errors may tell of that: some come when there is room again."""
        self.metadata_were_away = False
        """The same of operations on the metadata that were not answered."""
        self.cursors_not_written = False
        """A broker that stopped has reported that it could not write a cursor."""

        self.bucket_fails = False
        """Calls of tiered storage may fail."""

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.name}: {record.getMessage()} {record.__dict__.get('error', '')}"
        self.cursors_not_written |= _CURSOR_NOT_WRITTEN in text
        if record.exc_info:
            error = record.exc_info[1]
            self.unexpected.append(f"{text} ({error!r})")
        elif record.levelno >= logging.ERROR and not self._tells_of_faults(text):
            self.errors.append(text)

    def _tells_of_faults(self, text: str) -> bool:
        told = (
            *(_TOLD_OF_FULL_DISK * self.disk_was_full),
            *(_TOLD_OF_METADATA * self.metadata_were_away),
            *(_TOLD_OF_BUCKET * self.bucket_fails),
        )
        return any(each in text for each in told)
