"""A model ZooKeeper and model bookies as processes of a simulated network."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any

from model_bookie import ModelBookie
from model_zookeeper import ModelZooKeeper
from simulated_io import SimulatedNetwork, Simulation, simulated_io

from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import BookiesSettings
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

ZOOKEEPER = "zk:zookeeper:2181"
ROOT = "/ledgers"
_PORT = 3181
SEVERAL = 0.4
"""Of the seeds have a ZooKeeper of several servers."""
SETTINGS = BookKeeperSettings(
    bookies=BookiesSettings(BookieSettings(request_seconds=3.0, connect_seconds=2.0), quarantine_seconds=10.0)
)
"""With time-outs that do not make stories long."""


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits for something")


class ZooKeeperProcess:
    """Nodes and sessions outlive it, as those of an ensemble do."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.model = ModelZooKeeper(network.loop)
        self._network = network
        self._simulation: Simulation | None = None

    @property
    def alive(self) -> bool:
        return self._simulation is not None

    def start(self) -> None:
        self._simulation = simulated_io(2181, network=self._network, name="zookeeper")
        model = self.model
        model.loop = self._simulation.loop
        at_once(self._simulation.host.listen("", 2181, model.factory))
        for session in model.sessions.values():
            session.heard_at = model.loop.time()
            model.loop.call_soon(model.watch_session, session)

    def kill(self, *, silently: bool = False) -> None:
        assert self._simulation is not None
        self._simulation.abandon(silently=silently)
        self._simulation = None
        self.model.connections.clear()
        for session in self.model.sessions.values():
            session.connection = None

    def move(self, network: SimulatedNetwork) -> None:
        """Starts again in another world, when the time-outs of all sessions have passed."""
        for session in list(self.model.sessions.values()):
            session.connection = None
            self.model.end_session(session)
        self.model.connections.clear()
        self.model.settle(network.loop)
        self._network = network
        self.start()


def spread(zookeeper: ZooKeeperProcess, seed: int) -> None:
    """Has some seeds' ZooKeeper be several servers; drawn apart from what else a seed decides."""
    random = Random(f"servers of seed {seed}")
    if random.random() < SEVERAL:
        zookeeper.model.spread(random)


class BookieProcess:
    """A bookie, and its registration, which goes when its session would have ended."""

    def __init__(self, network: SimulatedNetwork, zookeeper: ZooKeeperProcess, number: int) -> None:
        self.name = f"bookie{number}"
        self.bookie_id = f"{self.name}:{_PORT}"
        self.model = ModelBookie(network.loop)
        self._network = network
        self._zookeeper = zookeeper
        self._simulation: Simulation | None = None

    @property
    def alive(self) -> bool:
        return self._simulation is not None

    def start(self) -> None:
        self._simulation = simulated_io(_PORT, network=self._network, name=self.name)
        self.model.loop = self._simulation.loop
        at_once(self._simulation.host.listen("", _PORT, self.model.factory))
        model, path = self._zookeeper.model, f"{ROOT}/available/{self.bookie_id}"
        if path not in model.nodes:
            model.create(path, b"", 0, 0)

    def kill(self, written: int = 0, *, silently: bool = False, forgotten_after: float = 3.0) -> None:
        """:param written: so many writes that were under way are durable all the same

        :param silently: as when its machine loses its power
        """
        assert self._simulation is not None
        self._simulation.abandon(silently=silently)
        self._simulation = None
        self.model.crash(self._network.loop, written)
        self._network.loop.call_later(forgotten_after, self._forget)

    def move(self, network: SimulatedNetwork) -> None:
        """Starts again in another world."""
        self._network = network
        self.model.crash(network.loop)
        self.start()

    def _forget(self) -> None:
        model, path = self._zookeeper.model, f"{ROOT}/available/{self.bookie_id}"
        if not self.alive and path in model.nodes:
            model.delete(path, -1)


class SimulatedServers:
    """A cluster's servers, all of which live."""

    def __init__(self, network: SimulatedNetwork, bookies: int = 3) -> None:
        self.zookeeper = ZooKeeperProcess(network)
        for path in (ROOT, f"{ROOT}/available", f"{ROOT}/available/readonly", f"{ROOT}/idgen"):
            self.zookeeper.model.create(path, b"", 0, 0)
        self.bookies = [BookieProcess(network, self.zookeeper, number) for number in range(bookies)]
        self.zookeeper.start()
        for bookie in self.bookies:
            bookie.start()

    def move(self, network: SimulatedNetwork) -> None:
        """To a world that begins when all clients of the one before are gone."""
        self.zookeeper.move(network)
        for bookie in self.bookies:
            bookie.move(network)

    def of(self, bookie_id: str) -> BookieProcess:
        return next(bookie for bookie in self.bookies if bookie.bookie_id == bookie_id)


async def open_bookkeeper_store(
    simulation: Simulation, settings: BookKeeperSettings = SETTINGS
) -> BookKeeperLedgerStore:
    """For a process of the servers' network.

    :raises LedgerError: the metadata does not answer
    :raises MetadataError: it does not let itself be connected with
    """
    io = simulation.io
    outside = Outside(io.loop, io.clock, io.randomness, io.network)
    zookeeper = await ZooKeeperMetadataStore.open_store(
        outside, ensemble_address(ZOOKEEPER), SessionSettings(6000), wait_seconds=5
    )
    return await BookKeeperLedgerStore.open_store(io, ResolvingStore(zookeeper, io.loop), settings)
