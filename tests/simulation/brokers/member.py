"""One of the cluster's brokers, as a simulated process that dies and is started again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, NoReturn

from simulated_io import SimulatedLoop, SimulatedNetwork, Simulation, simulated_io

from magnetar.broker.load.reporter import HostSample
from magnetar.broker.service import BrokerService
from magnetar.config.settings import load
from magnetar.http.metrics.rendering import MetricsOptions
from magnetar.http.routing import Application
from magnetar.http.server import HttpServer
from magnetar.io.interfaces import Clock, Io
from magnetar.server.addresses import bind_addresses
from magnetar.server.broker_process import BrokerSurroundings
from magnetar.server.cluster_broker import ClusterBroker
from simulation.trace import Trace, Violation

PORT = 6650
_HTTP_PORT = 8080
_STOP_SECONDS = 120.0


class _SimulatedHost:
    """A machine whose counters depend on the virtual time alone: each run of a seed reports the same load."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def sample(self) -> HostSample:
        return HostSample(
            processor_seconds=0.5 * self._clock.monotonic(),
            cores=2.0,
            resident_bytes=1 << 28,
            memory_bytes=1 << 32,
        )


class Member:
    """:param stops: told that it stops itself, before it does

    :param http: it serves HTTP, by which brokers ask each other
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        name: str,
        overrides: dict[str, str],
        random: Random,
        trace: Trace,
        stops: Callable[[Member], None],
        *,
        http: bool = False,
    ) -> None:
        self.name = name
        self.simulation: Simulation | None = None
        self.broker: ClusterBroker | None = None
        self.serving = False
        self.paused = False
        self.resumed_at = 0.0
        """Since then it runs."""
        self.lives = 0
        self._loop = loop
        self._network = network
        self._random = random
        self._trace = trace
        self._stops = stops
        self._http = http
        loaded = load(None, frozenset(), overrides, cluster=True)
        self._settings, self._cluster = loaded.settings, loaded.cluster

    @property
    def service(self) -> BrokerService | None:
        """Its insides, while it serves."""
        return self.broker._broker if self.broker is not None and self.serving else None

    @property
    def session(self) -> int | None:
        """The number of its session with ZooKeeper, while it has one."""
        store = self.broker._zookeeper if self.broker is not None else None
        return None if store is None else store.session.session_id

    def start(self) -> None:
        """It serves some time later, or has ended by then."""
        simulation = simulated_io(self._random.getrandbits(64), network=self._network, name=self.name)
        self.simulation = simulation
        self.lives += 1
        self.resumed_at = self._loop.time()
        self._trace.note(self.name, "starts, life", self.lives)
        place = BrokerSurroundings(
            self._stopping_io(simulation.io),
            self._settings,
            {},
            self.name,
            {"http": _HTTP_PORT},
            bind_addresses(self._settings)[:1],
            cluster=self._cluster,
        )
        broker = self.broker = ClusterBroker(place, None, _SimulatedHost(simulation.io.clock))

        def started(task: Any) -> None:
            if task.cancelled() or self.simulation is not simulation:
                return
            if task.exception() is not None:
                self._trace.note(self.name, "did not start:", repr(task.exception()))
                self._end()
            else:
                self._trace.note(self.name, "serves")
                self.serving = True

        simulation.loop.create_task(self._begin(simulation, broker)).add_done_callback(started)

    async def _begin(self, simulation: Simulation, broker: ClusterBroker) -> None:
        await broker.start()
        if self._http:
            server = HttpServer(simulation.io)
            server.serve(Application(broker.admin, broker.process, MetricsOptions("0"), "0", "simulated"))
            await server.start("", _HTTP_PORT, None)

    def _stopping_io(self, io: Io) -> Io:
        def stop_process(message: str) -> NoReturn:
            self._trace.note(self.name, "stops itself:", message)
            self._stops(self)
            return io.stop_process(message)

        return replace(io, stop_process=stop_process)

    async def stop(self) -> None:
        """An orderly end, if it serves and nothing else ends it first."""
        simulation, broker = self.simulation, self.broker
        if simulation is None or broker is None or not self.serving or self.paused:
            return
        self.serving = False
        self._trace.note(self.name, "stops")
        stopping = simulation.loop.create_task(broker.stop())
        until = self._loop.time() + _STOP_SECONDS
        while self.simulation is simulation and not stopping.done():
            if self._loop.time() > until and not self.paused:
                raise Violation(f"{self.name} does not stop within {_STOP_SECONDS} seconds")
            await self._sleep(0.1)
        if self.simulation is simulation:
            stopping.result()
            self._trace.note(self.name, "stopped")
            self._end()

    def ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Work that an operator wants of it; dies with it."""
        assert self.simulation is not None
        return self.simulation.loop.create_task(work)

    async def _sleep(self, seconds: float) -> None:
        passed = self._loop.create_future()
        self._loop.call_later(seconds, passed.set_result, None)
        await passed

    def kill(self, *, silently: bool = False) -> None:
        """:param silently: as when its machine loses its power"""
        if self.simulation is not None:
            self._trace.note(self.name, "killed", silently)
            self._end(silently=silently)

    def _end(self, *, silently: bool = False) -> None:
        assert self.simulation is not None
        self.simulation.abandon(silently=silently)
        self.simulation = self.broker = None
        self.serving = self.paused = False

    def pause(self) -> None:
        if self.simulation is not None and not self.paused:
            self._trace.note(self.name, "paused")
            self.paused = True
            self.simulation.loop.pause()

    def resume(self) -> None:
        if self.simulation is not None and self.paused:
            self._trace.note(self.name, "resumed")
            self.paused = False
            self.resumed_at = self._loop.time()
            self.simulation.loop.resume()
