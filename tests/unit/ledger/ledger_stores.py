"""The stores the contract suite runs on, in the simulated world."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from faulty_ledgers import FaultyLedgerStore
from simulated_bookkeeper import SETTINGS, SimulatedServers, open_bookkeeper_store
from simulated_io import Simulation

from magnetar.ledger.bookkeeper.store import BookKeeperSettings
from magnetar.ledger.bookkeeper.wire import VERSION_3
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError, LedgerReader, LedgerStore, LedgerWriter, Quorums

MINIATURE = EmbeddedSettings(
    segment_bytes=64 << 10,
    first_segment_bytes=16 << 10,
    group_bytes=4096,
    run_bytes=1024,
    zero_fill_bytes=16 << 10,
    reserve_bytes=0,
    small_segments=3,
    sort_behind=2,
)
DEFAULT = EmbeddedSettings(first_segment_bytes=1 << 20)

Opener = Callable[[Simulation], Awaitable[LedgerStore]]


async def _miniature(simulation: Simulation) -> LedgerStore:
    return await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", MINIATURE)


async def _default(simulation: Simulation) -> LedgerStore:
    return await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", DEFAULT)


async def _faulty(simulation: Simulation) -> LedgerStore:
    return FaultyLedgerStore(await _miniature(simulation), simulation.loop)


async def _delayed(simulation: Simulation) -> LedgerStore:
    store = FaultyLedgerStore(await _miniature(simulation), simulation.loop)
    store.durability_delay = 0.05
    return store


class _BookKeeper:
    """Opens a store of each life on the same servers, which outlive it."""

    def __init__(
        self, bookies: int, least: Quorums | None = None, settings: BookKeeperSettings = SETTINGS
    ) -> None:
        self._bookies = bookies
        self._least = least
        self._settings = settings
        self._servers: SimulatedServers | None = None

    async def __call__(self, simulation: Simulation) -> LedgerStore:
        network = simulation.host.network
        if self._servers is None:
            self._servers = SimulatedServers(network, self._bookies)
        else:
            self._servers.move(network)
        store: LedgerStore = await open_bookkeeper_store(simulation, self._settings)
        return store if self._least is None else Copies(store, self._least)


def in_version_3(settings: BookKeeperSettings) -> BookKeeperSettings:
    """The same over version 3 of the bookies' protocol."""
    bookies = settings.bookies
    return settings._replace(bookies=bookies._replace(bookie=bookies.bookie._replace(wire=VERSION_3)))


class Copies:
    """A ledger store that makes no ledger with fewer copies of entries than these quorums ask for."""

    def __init__(self, store: LedgerStore, least: Quorums) -> None:
        self._store = store
        self._least = least

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        used = max(quorums, self._least, key=lambda each: each.write)
        return await self._store.create(used, custom, high_priority=high_priority)


STORES: dict[str, Callable[[], Opener]] = {
    "embedded": lambda: _default,
    "embedded-miniature": lambda: _miniature,
    "faulty": lambda: _faulty,
    "delayed": lambda: _delayed,
    "bookkeeper": lambda: _BookKeeper(3),
    "bookkeeper-copies": lambda: _BookKeeper(3, Quorums(3, 3, 2)),
    "bookkeeper-striped": lambda: _BookKeeper(5, Quorums(5, 3, 2)),
    "bookkeeper-version-3": lambda: _BookKeeper(5, Quorums(5, 3, 2), in_version_3(SETTINGS)),
}
"""What opens a store in each life of a process, for one test."""


class Listener:
    """Remembers what a writer was told."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.failed: tuple[int, LedgerError] | None = None
        self._progress = asyncio.Event()

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        assert self.failed is None
        assert not self.told or last_entry_id > self.told[-1]
        self.told.append(last_entry_id)
        self._progress.set()

    async def reached(self, last_entry_id: int) -> None:
        """Waits until ``last_entry_id`` is durable."""
        while self.last < last_entry_id:
            self._progress.clear()
            await self._progress.wait()

    def on_failed(self, _ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        assert self.failed is None
        self.failed = (first_entry_id, reason)

    @property
    def last(self) -> int:
        return self.told[-1] if self.told else -1


def append(writer: LedgerWriter, *entries: bytes) -> int:
    """Appends entries out of a buffer with other bytes between them."""
    buffer = bytearray()
    starts, ends = array("q"), array("q")
    for entry in entries:
        buffer += b"<<"
        starts.append(len(buffer))
        buffer += entry
        ends.append(len(buffer))
    first = writer.append(bytes(buffer), starts, ends, 0, len(entries))
    # The caller may use its arrays for something else at once.
    starts[:] = array("q", bytes(8 * len(starts)))
    return first


async def all_entries(reader: LedgerReader, max_bytes: int = 1 << 20) -> list[bytes]:
    found: list[bytes] = []
    while len(found) <= (await reader.last_add_confirmed()):
        for run in await reader.read(len(found), 1 << 60, max_bytes):
            assert run.first_entry_id == len(found)
            found += [run.entry(index) for index in range(run.count)]
    return found
