"""A small, scripted life of a ledger store on a simulated disk."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Coroutine
from typing import Any, TypeVar

from ledger_workload import MINIATURE
from simulated_io import SimulatedDisk, Simulation, simulated_io

from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError, LedgerWriter, Quorums

T = TypeVar("T")


class Listener:
    def __init__(self) -> None:
        self.last = -1
        self.failed: tuple[int, LedgerError] | None = None

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        self.last = last_entry_id

    def on_failed(self, _ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        self.failed = (first_entry_id, reason)


class Life:
    """One process: a simulation, a store and the writers made in it."""

    def __init__(
        self, disk: SimulatedDisk | None = None, seed: int = 1, settings: EmbeddedSettings = MINIATURE
    ) -> None:
        """Opens the store."""
        self.simulation: Simulation = simulated_io(seed, disk)
        self.disk = self.simulation.disk
        self.loop = self.simulation.loop
        self.store: EmbeddedLedgerStore = self.run(
            EmbeddedLedgerStore.open_store(self.simulation.io, "ledgers", settings)
        )
        self.listeners: dict[int, Listener] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until(coroutine)

    def create(self) -> LedgerWriter:
        writer = self.run(self.store.create(Quorums(), {}))
        self.listeners[writer.ledger_id] = Listener()
        writer.set_listener(self.listeners[writer.ledger_id])
        return writer

    def acknowledged(self, writer: LedgerWriter) -> int:
        return self.listeners[writer.ledger_id].last

    def entries(self, ledger_id: int) -> list[bytes]:
        """All entries of a ledger, which is recovered."""
        return self._read(ledger_id, recover=True)

    def entries_there(self, ledger_id: int) -> list[bytes]:
        """All entries of a ledger that are durable now."""
        return self._read(ledger_id, recover=False)

    def _read(self, ledger_id: int, *, recover: bool) -> list[bytes]:
        async def read() -> list[bytes]:
            reader = await self.store.open(ledger_id, recover=recover)
            found: list[bytes] = []
            while len(found) <= (await reader.last_add_confirmed()):
                for run in await reader.read(len(found), 1 << 40, 5000):
                    found += [run.entry(index) for index in range(run.count)]
            return found

        return self.run(read())

    def killed(self) -> SimulatedDisk:
        """Ends the life without a goodbye."""
        self.simulation.abandon()
        self.disk.power_lost = None
        return self.disk.killed()

    def stopped(self) -> SimulatedDisk:
        """Ends the life cleanly."""
        self.run(self.store.close())
        return self.killed()


def append(writer: LedgerWriter, *entries: bytes) -> None:
    buffer = b"".join(entries)
    starts, ends = array("q"), array("q")
    at = 0
    for entry in entries:
        starts.append(at)
        at += len(entry)
        ends.append(at)
    writer.append(buffer, starts, ends, 0, len(entries))


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    return copy.deepcopy(disk)
