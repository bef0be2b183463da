"""A simulated world with managed ledgers in it; a crash is a new world on the same disk."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from faulty_metadata import FaultyMetadataStore
from simulated_io import SimulatedDisk, Simulation, simulated_io

from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.io.interfaces import Loop
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerStore, Quorums
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings
from magnetar.managed_ledger.tiered_storage import OpenDriver
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.passing_on import ResolvingStore

T = TypeVar("T")

NAME = "t/n/persistent/topic"
STORE = EmbeddedSettings(segment_bytes=256 << 10, first_segment_bytes=64 << 10, reserve_bytes=0)
SMALL = ManagedLedgerSettings(max_entries_per_ledger=5, min_rollover_ms=0, read_max_entries=3)


class Listener:
    """Remembers what a managed ledger told."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, int]] = []
        self.contexts: list[Any] = []
        self.failed: list[Exception] = []
        self.fenced = False

    def on_durable(self, appends: Sequence[Append]) -> None:
        for operation in appends:
            self.contexts.append((operation.context, operation.first, operation.count))
            self.stored += [
                (operation.ledger_id, operation.first_entry_id + i) for i in range(operation.count)
            ]

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        self.failed.append(error)

    def on_fenced(self) -> None:
        self.fenced = True

    def fail(self, error: BaseException) -> None:
        raise error


class World:
    """One life of a process.

    :param wrap: puts something between the managed ledgers and the ledger store

    :param store: of the embedded store

    :param scan: whether ledgers that nothing names are looked for at the start

    :param open_driver: makes drivers of tiered storage
    """

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        settings: ManagedLedgerSettings = SMALL,
        cache: EntryCacheSettings | None = None,
        wrap: Callable[[LedgerStore, Loop], LedgerStore] | None = None,
        store: EmbeddedSettings = STORE,
        scan: bool = True,
        open_driver: OpenDriver | None = None,
    ) -> None:
        self._store_settings = store
        self._open_driver = open_driver
        self.simulation: Simulation = simulated_io(1, disk if disk is not None else SimulatedDisk(1))
        self._settings = settings
        self._cache = cache or EntryCacheSettings()
        self._wrap = wrap
        self._scan = scan
        self.run(self._open())

    async def _open(self) -> None:
        io = self.simulation.io
        self.store = await EmbeddedLedgerStore.open_store(io, "ledgers", self._store_settings)
        used: LedgerStore = self._wrap(self.store, io.loop) if self._wrap is not None else self.store
        io.disk.make_directory("metadata")
        embedded = await EmbeddedMetadataStore.open_store(io, "metadata/metadata.sqlite")
        self.faulty_metadata = FaultyMetadataStore(embedded, io.loop)
        self.metadata = ResolvingStore(self.faulty_metadata, io.loop)
        wheel = TimerWheel(io.loop)
        self.managed = ManagedLedgerFactory(
            io, wheel, used, self.metadata, self._settings, self._cache, self._open_driver
        )
        if not self._scan:
            return
        schemas = SchemaStorage(io.loop, self.store, self.metadata, Quorums(), self.managed.deletions)
        self.orphans = await self.managed.orphaned_ledgers(0).look(
            await self.store.ledger_ids(), await schemas.ledger_ids()
        )

    def run(self, work: Awaitable[T]) -> T:
        return self.simulation.loop.run_until(work)

    def wait(self, seconds: float) -> None:
        self.simulation.loop.run_for(seconds)

    def open(self, name: str = NAME, *, create: bool = True) -> tuple[ManagedLedger, Listener]:
        ledger = self.run(self.managed.open(name, create=create))
        listener = Listener()
        ledger.listener = listener
        return ledger, listener

    def publish(
        self, ledger: ManagedLedger, listener: Listener, count: int, *, together: bool = True
    ) -> None:
        """Appends ``count`` entries and waits until they are durable."""
        wanted = len(listener.stored) + count
        for size in [count] if together else [1] * count:
            append(ledger, size)
        for _ in range(1000):
            if len(listener.stored) >= wanted:
                return
            self.wait(0.01)
        raise AssertionError("the appends never became durable")

    def drain(self, cursor: Cursor) -> list[tuple[int, int]]:
        """Every position the cursor has left to deliver."""
        found: list[tuple[int, int]] = []
        while cursor.has_more():
            run = self.run(cursor.read(100, 1 << 20))
            assert run is not None
            for first, end in cursor.unconsumed_parts(run):
                found += [(run.ledger_id, run.first_entry_id + i) for i in range(first, end)]
        return found

    def crash(self) -> SimulatedDisk:
        """Ends the process as SIGKILL does; what it wrote is on the disk that is returned."""
        self.simulation.abandon()
        return self.simulation.disk.killed()

    def stop(self) -> SimulatedDisk:
        """A clean stop."""

        async def close() -> None:
            for ledger in list(self.managed.opened.values()):
                await self.managed.close(ledger)
            await self.store.close()
            await self.metadata.close()

        self.run(close())
        self.simulation.abandon()
        return self.simulation.disk.power_cut()


def append(ledger: ManagedLedger, count: int, context: Any = None) -> None:
    """One append of ``count`` entries of ten bytes."""
    starts = array("q", range(0, 10 * count, 10))
    ends = array("q", range(10, 10 * count + 10, 10))
    ledger.append(bytes(10 * count), starts, ends, count, 10 * count, context)
