"""Ledgers under load while real bookies are killed, stopped for a while, or another process takes over."""

from __future__ import annotations

import asyncio
import signal
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path

from bookkeeper_servers import BookieServer, BookKeeperServers
from zookeeper_server import opened

from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import BookiesSettings
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.ledger.interface import LedgerClosed, LedgerError, LedgerFenced, LedgerWriter, Quorums
from magnetar.metadata.resolving import ResolvingStore
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

PATIENCE = 120.0
REQUEST_SECONDS = 4.0
RUN = 20
TWO_OF_THREE = Quorums(2, 2, 2)


class Process:
    """A client of its own, as another process would be."""

    def __init__(self, metadata: ZooKeeperMetadataStore, store: BookKeeperLedgerStore) -> None:
        self._metadata = metadata
        self.store = store

    @classmethod
    async def start(cls, servers: BookKeeperServers, tmp_path: Path) -> Process:
        metadata = await opened(servers.metadata_store)
        loop = asyncio.get_running_loop()
        bookies = BookiesSettings(BookieSettings(REQUEST_SECONDS, 2.0, 0.2), quarantine=False)
        store = await BookKeeperLedgerStore.open_store(
            real_io(loop, tmp_path), ResolvingStore(metadata, loop), BookKeeperSettings(bookies=bookies)
        )
        return cls(metadata, store)

    async def close(self) -> None:
        await self.store.close()
        await self._metadata.close()

    async def entries(self, ledger_id: int) -> list[bytes]:
        """All that there are when the ledger is recovered."""
        reader = await self.store.open(ledger_id, recover=True)
        found: list[bytes] = []
        while len(found) <= reader.metadata.last_entry_id:
            for run in await reader.read(len(found), 1 << 60, 1 << 20):
                found += [run.entry(index) for index in range(run.count)]
        return found


def payload(entry_id: int) -> bytes:
    return b"entry %d " % entry_id * 10


class Load:
    """Appends all the time, some entries ahead of what is durable; ``told`` is the last that was."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.told = -1
        self.failed: LedgerError | None = None
        self._next = 0
        self._stopping = False
        writer.set_listener(self)
        self._task = asyncio.ensure_future(self._run())

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        assert self.failed is None
        assert self.told < last_entry_id < self._next
        self.told = last_entry_id

    def on_failed(self, _ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        assert first_entry_id == self.told + 1
        self.failed = reason

    async def _run(self) -> None:
        while not self._stopping and self.failed is None:
            if self._next - self.told < 10 * RUN:
                entries = [payload(self._next + number) for number in range(RUN)]
                ends = array("q")
                for entry in entries:
                    ends.append((ends[-1] if ends else 0) + len(entry))
                starts = array("q", [0, *ends[:-1]])
                try:
                    self.writer.append(b"".join(entries), starts, ends, 0, RUN)
                except LedgerClosed:
                    # It has ended, and is about to say so.
                    return
                self._next += RUN
            await asyncio.sleep(0.001)

    async def more(self, count: int = 2000) -> None:
        """Returns when so many more entries are durable."""
        target = self.told + count
        await until(lambda: self.failed is not None or self.told >= target)
        assert self.failed is None, self.failed

    async def is_fenced(self) -> None:
        """Returns when it has heard of it."""
        await until(lambda: self.failed is not None)
        assert isinstance(self.failed, LedgerFenced)

    async def stop(self) -> None:
        self._stopping = True
        await self._task


async def until(check: Callable[[], bool]) -> None:
    while not check():  # noqa: ASYNC110 - listeners are plain functions of the test
        await asyncio.sleep(0.005)


def live(servers: BookKeeperServers, tmp_path: Path, life: Callable[..., Awaitable[None]]) -> None:
    """Two processes, and a load on a ledger of the first."""

    async def scenario() -> None:
        ours, theirs = [await Process.start(servers, tmp_path) for _ in range(2)]
        load = Load(await ours.store.create(TWO_OF_THREE, {}))
        try:
            await load.more()
            await life(load, ours, theirs)
        finally:
            await load.stop()
            await ours.close()
            await theirs.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


async def one_of(load: Load, process: Process, servers: BookKeeperServers) -> BookieServer:
    """A bookie of the ledger."""
    found = await process.store.records.read(load.writer.ledger_id)
    bookie_id = found.record.segments[-1].ensemble[0]
    return next(bookie for bookie in servers.bookies if bookie.address == bookie_id)


async def nothing_is_missing(load: Load, process: Process) -> None:
    found = await process.entries(load.writer.ledger_id)
    assert len(found) > load.told
    assert found == [payload(entry_id) for entry_id in range(len(found))]


def test_a_bookie_that_is_killed_is_replaced(cluster: BookKeeperServers, tmp_path: Path) -> None:
    async def life(load: Load, ours: Process, theirs: Process) -> None:
        bookie = await one_of(load, ours, cluster)
        bookie.kill()
        await load.more()
        record = (await theirs.store.records.read(load.writer.ledger_id)).record
        assert bookie.address not in record.segments[-1].ensemble
        assert bookie.address in record.segments[0].ensemble
        await nothing_is_missing(load, theirs)
        await load.is_fenced()

    live(cluster, tmp_path, life)


def test_a_bookie_that_stands_still_is_replaced_and_changes_nothing_when_it_goes_on(
    cluster: BookKeeperServers, tmp_path: Path
) -> None:
    async def life(load: Load, ours: Process, theirs: Process) -> None:
        bookie = await one_of(load, ours, cluster)
        bookie.signal(signal.SIGSTOP)
        try:
            await load.more()
        finally:
            bookie.signal(signal.SIGCONT)
        await load.more()
        record = (await theirs.store.records.read(load.writer.ledger_id)).record
        assert bookie.address not in record.segments[-1].ensemble
        await load.stop()
        last, _ = await load.writer.close()
        assert last == load.told
        assert await theirs.entries(load.writer.ledger_id) == [payload(each) for each in range(last + 1)]

    live(cluster, tmp_path, life)


def test_whoever_takes_over_has_all_that_was_acknowledged(cluster: BookKeeperServers, tmp_path: Path) -> None:
    async def life(load: Load, ours: Process, theirs: Process) -> None:
        for _ in range(5):
            await nothing_is_missing(load, theirs)
            await load.is_fenced()
            load = Load(await ours.store.create(TWO_OF_THREE, {}))
            await load.more(RUN)
        await load.stop()

    live(cluster, tmp_path, life)


def test_ids_of_ledgers_that_two_processes_make_at_once_differ(
    cluster: BookKeeperServers, tmp_path: Path
) -> None:
    async def scenario() -> None:
        processes = [await Process.start(cluster, tmp_path) for _ in range(2)]
        try:
            writers = await asyncio.gather(
                *(process.store.create(TWO_OF_THREE, {}) for _ in range(20) for process in processes)
            )
            ids = [writer.ledger_id for writer in writers]
            assert len(set(ids)) == 40
            assert set(ids) <= set(await processes[0].store.ledger_ids())
            await asyncio.gather(*(processes[1].store.delete(ledger_id) for ledger_id in ids))
            assert not set(ids) & set(await processes[0].store.ledger_ids())
        finally:
            for process in processes:
                await process.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
