"""A data folder with a history, and damage to single files of it."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from ledger_workload import MINIATURE
from simulated_io import SimulatedDisk, Simulation, simulated_io

from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings
from magnetar.metadata.interface import MetadataError
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.server.embedded_stores import EmbeddedStores

T = TypeVar("T")
SUBSCRIPTION = "reads-nothing"
"""It keeps every entry of its topic."""
REFUSALS = (LedgerError, ManagedLedgerError, MetadataError)
_SMALL = ManagedLedgerSettings(max_entries_per_ledger=9, min_rollover_ms=0, read_max_entries=5)
_CACHE = EntryCacheSettings(max_bytes=16 << 10)
Entries = dict[str, list[bytes]]
"""By topic."""


class Life:
    """One process on a data folder: both stores and the managed ledgers on them, as a broker opens them."""

    def __init__(self, disk: SimulatedDisk, seed: int = 1) -> None:
        self.simulation: Simulation = simulated_io(seed, disk)
        self.disk = disk
        self.loop = self.simulation.loop
        io = self.simulation.io
        self.stores = EmbeddedStores(io, MINIATURE)
        try:
            self.run(self.stores.open())
            self.metadata = ResolvingStore(self.stores.metadata, io.loop)
            wheel = TimerWheel(io.loop)
            self.managed = ManagedLedgerFactory(io, wheel, self.stores.ledgers, self.metadata, _SMALL, _CACHE)
            self.orphans = self.managed.orphaned_ledgers(72 * 3_600_000)
            self.run(self.orphans.look(self.run(self.stores.ledgers.ledger_ids())))
        except BaseException:
            self.simulation.abandon()
            disk.power_lost = None
            raise
        self._opened: dict[str, tuple[ManagedLedger, _Listener]] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until(work)

    def publish(self, topic: str, entries: Sequence[bytes]) -> None:
        """Returns when all are acknowledged."""
        if topic not in self._opened:
            ledger = self.run(self.managed.open(topic, create=True))
            ledger.listener = listener = _Listener()
            self.run(self.managed.open_cursor(ledger, SUBSCRIPTION, EARLIEST, {}))
            self._opened[topic] = ledger, listener
        ledger, listener = self._opened[topic]
        for entry in entries:
            ledger.append(entry, array("q", (0,)), array("q", (len(entry),)), 1, len(entry), None)
        wanted = listener.stored + len(entries)
        for _ in range(2000):
            if listener.durable >= wanted:
                listener.stored = wanted
                return
            self.loop.run_for(0.005)
        raise AssertionError("not acknowledged")

    def entries(self, topic: str) -> list[bytes]:
        """All that the subscription gets. :raises LedgerError: something does not read back"""
        ledger = self.run(self.managed.open(topic, create=False))
        cursor = ledger.cursors.get(SUBSCRIPTION)
        if cursor is None:
            return []
        found: list[bytes] = []
        while cursor.has_more():
            run = self.run(cursor.read(100, 1 << 20))
            assert run is not None
            for first, end in cursor.unconsumed_parts(run):
                found += [run.entry(index) for index in range(first, end)]
        return found

    def stopped(self) -> SimulatedDisk:
        async def stop() -> None:
            for ledger, _ in self._opened.values():
                await self.managed.close(ledger)
            await self.stores.close()

        self.run(stop())
        return self.killed()

    def killed(self) -> SimulatedDisk:
        self.simulation.abandon()
        self.disk.power_lost = None
        return self.disk.killed()


class _Listener:
    def __init__(self) -> None:
        self.durable = self.stored = 0

    def on_durable(self, appends: Sequence[Append]) -> None:
        self.durable += sum(operation.count for operation in appends)

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        raise AssertionError(f"not stored: {error}")

    def on_fenced(self) -> None:
        raise AssertionError("nobody else is there")

    def fail(self, error: BaseException) -> None:
        raise error


@dataclass
class History:
    """What was acknowledged, the folder at the end, and its files as they were before."""

    disk: SimulatedDisk
    entries: Entries
    earlier: list[dict[str, bytes]] = field(default_factory=list)


def history(end: str, seed: int = 7) -> History:
    """Several lives with topics that come, entries, and rewritten segments.

    :param end: of the last one: ``stopped``, ``killed``, or ``killed at once`` after the last receipts
    """
    random, disk = Random(seed), SimulatedDisk(seed)
    entries: Entries = {}
    earlier = []
    for number in range(4):
        life = Life(disk, seed + number)
        for step in range(3):
            name = f"t/n/persistent/topic-{number}-{step % 2}"
            for topic in [name, *random.sample(sorted(entries), min(2, len(entries)))]:
                known = entries.setdefault(topic, [])
                new = [
                    f"{topic} {len(known) + i} ".encode() + random.randbytes(random.randrange(900))
                    for i in range(random.randrange(4, 15))
                ]
                life.publish(topic, new)
                known += new
            if (number, step, end) != (3, 2, "killed at once"):
                life.loop.run_for(2.5)
            earlier.append(files_of(life.disk))
        disk = life.stopped() if (end == "stopped" if number == 3 else number % 2) else life.killed()
        earlier.append(files_of(disk))
    return History(disk, entries, earlier)


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    return {path: bytes(read_file(disk, path)) for path in disk.paths("")}


def read_file(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def write_file(disk: SimulatedDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write(data, 0)
    file.sync()
    file.close()
    disk.sync_directory(path.rpartition("/")[0])


def damaged(disk: SimulatedDisk, random: Random, earlier: list[dict[str, bytes]]) -> tuple[str, str]:
    """Damages one file; answers its path, and what was done, in words."""
    path = random.choice([path for path in disk.paths("") if "-shm" not in path])
    data = read_file(disk, path)
    older = [files[path] for files in earlier if path in files and files[path] != data]
    kind = random.choice(("remove", "empty", "truncate", "flip", "flip", *(("earlier",) * 2 * bool(older))))
    if kind == "remove":
        disk.unlink(path)
        disk.sync_directory(path.rpartition("/")[0])
    elif kind == "empty" or not data:
        write_file(disk, path, b"")
    elif kind == "truncate":
        # Where there is something, rather than in the zeros behind it.
        used = len(data.rstrip(b"\0")) or len(data)
        kept = random.randrange(used)
        write_file(disk, path, data[:kept])
        kind = f"truncate to {kept} of {len(data)} bytes"
    elif kind == "earlier":
        which = random.randrange(len(older))
        write_file(disk, path, older[which])
        kind = f"earlier copy {which} of {len(older)}"
    else:
        used = len(data.rstrip(b"\0")) or len(data)
        offset, length = random.randrange(used), random.choice((1, 16, 64, 512))
        changed = bytearray(data)
        noise = random.randbytes(len(changed[offset : offset + length]))
        changed[offset : offset + length] = noise
        write_file(disk, path, bytes(changed))
        kind = f"{len(noise)} bytes at {offset} of {len(data)}"
    return path, kind


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    return copy.deepcopy(disk)
