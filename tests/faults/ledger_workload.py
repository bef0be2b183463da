"""Random use of a ledger store, and a memory of what it acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulated_io import Simulation

from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerStore,
    LedgerWriter,
    NoSuchEntry,
    NoSuchLedger,
    Quorums,
    StoreClosed,
)

MINIATURE = EmbeddedSettings(
    segment_bytes=64 << 10,
    first_segment_bytes=16 << 10,
    segment_runs=60,
    group_bytes=4096,
    run_bytes=1024,
    commit_bytes=16 << 10,
    zero_fill_bytes=16 << 10,
    idle_seconds=0.02,
    reads_in_flight_bytes=16 << 10,
    coalesce_gap_bytes=512,
    index_cache_bytes=2000,
    open_segments=2,
    free_segments=2,
    reserve_bytes=0,
    sort_behind=2,
    sorted_run_bytes=2048,
    small_segments=3,
)

Opener = Callable[[Simulation], Awaitable[LedgerStore]]


async def open_miniature(simulation: Simulation) -> EmbeddedLedgerStore:
    return await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", MINIATURE)


async def open_default(simulation: Simulation) -> EmbeddedLedgerStore:
    settings = EmbeddedSettings(reserve_bytes=0)
    return await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", settings)


@dataclass
class Known:
    """What the workload knows of a ledger."""

    ledger_id: int
    custom: dict[str, bytes]
    entries: list[bytes] = field(default_factory=list)
    acknowledged: int = -1
    closed: tuple[int, int] | None = None
    forgotten: int = 0
    delete_asked: bool = False
    deleted: bool = False
    fenced: bool = False
    failed: bool = False
    writer: LedgerWriter | None = None

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        assert not self.fenced, f"ledger {self.ledger_id}: {last_entry_id} acknowledged after fencing"
        assert not self.failed, f"ledger {self.ledger_id}: {last_entry_id} acknowledged after a failure"
        assert self.acknowledged < last_entry_id < len(self.entries)
        self.acknowledged = last_entry_id

    def on_failed(self, _ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        assert first_entry_id == self.acknowledged + 1
        self.failed = True


class LedgerWorkload:
    """A ``Workload``: several actors that create, append, read, close, recover, forget and delete."""

    def __init__(self, seed: int, opener: Opener = open_miniature, actors: int = 3) -> None:
        self._random = Random(seed)
        self._opener = opener
        self._actors = actors
        self._store: LedgerStore
        self._known: dict[int, Known] = {}
        self._seen_ids: set[int] = set()
        self._creating = 0
        """Creates whose outcome is not known, over all lives."""
        self._orphans: set[int] = set()
        """Ledgers that came of such creates, until they are deleted."""
        self._count = 0
        self.checked_entries = 0

    async def begin(self, simulation: Simulation) -> None:
        self._store = await self._opener(simulation)
        ids = set(await self._store.ledger_ids())
        await self._check_unknown(ids - self._known.keys())
        for known in list(self._known.values()):
            known.writer = None
            if known.deleted:
                assert known.ledger_id not in ids, f"ledger {known.ledger_id} was deleted and is back"
            elif known.ledger_id not in ids:
                assert known.delete_asked, f"ledger {known.ledger_id} is missing"
                known.deleted = True
            else:
                await self._check(known)

    async def work(self) -> None:
        await asyncio.gather(*(self._act() for _ in range(self._actors)))

    async def end(self) -> None:
        await self._store.close()
        await self._store.close()

    async def _check_unknown(self, ids: set[int]) -> None:
        """Ledgers whose creation was cut short: they may be there, empty, and under a new id."""
        new = ids - self._orphans
        assert len(new) <= self._creating, f"ledgers {new} were never asked for"
        assert not new & self._seen_ids, f"ids {new & self._seen_ids} were used twice"
        self._creating = 0
        self._orphans |= new
        self._seen_ids |= new
        for ledger_id in ids:
            reader = await self._store.open(ledger_id, recover=True)
            assert (await reader.last_add_confirmed()) == -1
            await self._store.delete(ledger_id)
            self._orphans.discard(ledger_id)

    async def _check(self, known: Known) -> None:
        """Recovers a ledger and compares all of it."""
        reader = await self._store.open(known.ledger_id, recover=True)
        metadata = reader.metadata
        last = metadata.last_entry_id
        assert dict(metadata.custom) == known.custom
        assert last == (await reader.last_add_confirmed())
        assert known.acknowledged <= last < len(known.entries), (
            f"ledger {known.ledger_id}: ends at {last}, acknowledged {known.acknowledged}, "
            f"appended {len(known.entries)}"
        )
        del known.entries[last + 1 :]
        known.acknowledged = last
        length = sum(map(len, known.entries))
        assert metadata.length == length
        assert known.closed in (None, (last, length)), (
            f"{known.ledger_id}: closed at {known.closed}, is {last}"
        )
        known.closed = (last, length)
        await self._compare(reader, known, known.forgotten, last)

    async def _compare(self, reader: Any, known: Known, first: int, last: int) -> None:
        while first <= last:
            max_bytes = self._random.choice((1, 300, 5000, 100_000))
            runs = await reader.read(first, last, max_bytes)
            total = 0
            for run in runs:
                assert (run.ledger_id, run.first_entry_id) == (known.ledger_id, first)
                for index in range(run.count):
                    assert run.entry(index) == known.entries[first], f"{known.ledger_id}:{first} differs"
                    first += 1
                total += run.size()
                self.checked_entries += run.count
            assert first - 1 <= last
            assert total <= max_bytes or sum(run.count for run in runs) == 1

    async def _act(self) -> None:
        random = self._random
        actions = (
            [self._append] * 12
            + [self._read] * 3
            + [self._create] * 2
            + [self._close, self._recover, self._forget, self._delete, self._pause]
        )
        while True:
            # Another actor may end, delete or recover the ledger meanwhile.
            with contextlib.suppress(LedgerClosed, LedgerFenced, NoSuchLedger, StoreClosed):
                await random.choice(actions)()
            if isinstance(self._store, EmbeddedLedgerStore):
                self._store.check()
            await asyncio.sleep(random.random() * 0.004)

    def _pick(self, *, writable: bool = False) -> Known:
        candidates = [
            known
            for known in self._known.values()
            if not known.delete_asked and (not writable or (known.writer is not None and not known.failed))
        ]
        if not candidates:
            raise NoSuchLedger(-1)
        return self._random.choice(candidates)

    async def _create(self) -> None:
        if sum(not known.deleted for known in self._known.values()) > 12:
            return
        self._creating += 1
        self._count += 1
        custom = {"name": str(self._count).encode(), "empty": b""}
        writer = await self._store.create(Quorums(), custom)
        self._creating -= 1
        assert writer.ledger_id not in self._seen_ids, f"id {writer.ledger_id} was used twice"
        self._seen_ids.add(writer.ledger_id)
        known = Known(writer.ledger_id, custom, writer=writer)
        writer.set_listener(known)
        self._known[writer.ledger_id] = known

    async def _append(self) -> None:
        random = self._random
        known = self._pick(writable=True)
        assert known.writer is not None
        sizes = [
            random.choice((0, 1, 20, 100, 700, 3000)) if random.random() < 0.98 else 20_000
            for _ in range(random.choice((1, 1, 3, 10)))
        ]
        buffer = bytearray(b"gap")
        starts, ends = array("q", [0]), array("q", [3])
        for size in sizes:
            self._count += 1
            starts.append(len(buffer))
            buffer += (b"%d;" % self._count * (size // 2 + 1))[:size]
            ends.append(len(buffer))
            buffer += b"gap"
        first = known.writer.append(bytes(buffer), starts, ends, 1, len(sizes))
        assert first == len(known.entries)
        known.entries += [bytes(buffer[start:end]) for start, end in zip(starts[1:], ends[1:], strict=True)]
        starts[1] = ends[1] = 0

    async def _read(self) -> None:
        known = self._pick()
        reader = await self._store.open(known.ledger_id, recover=False)
        last = await reader.last_add_confirmed()
        assert last >= known.acknowledged
        if last < 0:
            return
        first = self._random.randrange(last + 1)
        if first < known.forgotten:
            return
        try:
            await self._compare(reader, known, first, last)
        except NoSuchEntry:
            assert first < known.forgotten

    async def _close(self) -> None:
        known = self._pick(writable=True)
        assert known.writer is not None
        closed = await known.writer.close()
        assert closed == (len(known.entries) - 1, sum(map(len, known.entries)))
        assert known.acknowledged == closed[0]
        known.closed = closed
        known.writer = None

    async def _recover(self) -> None:
        known = self._pick()
        reader = await self._store.open(known.ledger_id, recover=True)
        known.fenced = True
        known.writer = None
        last = reader.metadata.last_entry_id
        assert last >= known.acknowledged
        if known.closed is not None:
            assert known.closed[0] == last
        del known.entries[last + 1 :]
        known.acknowledged = last
        known.closed = (last, reader.metadata.length)

    async def _forget(self) -> None:
        known = self._pick(writable=True)
        assert known.writer is not None
        known.forgotten = max(known.forgotten, self._random.randrange(known.acknowledged + 2))
        known.writer.forget_before(known.forgotten)

    async def _delete(self) -> None:
        known = self._pick()
        known.delete_asked = True
        await self._store.delete(known.ledger_id)
        await self._store.delete(known.ledger_id)
        known.deleted = True

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.random() * 0.1)
