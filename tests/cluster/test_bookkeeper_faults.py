"""Ledgers under load while real bookies are killed, stopped for a while, or another process takes over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bookkeeper_servers import BookieServer, BookKeeperServers
from ledger_load import RUN, Load, Process, payload
from polling import until_true

from magnetar.ledger.interface import Quorums

PATIENCE = 120.0
TWO_OF_THREE = Quorums(2, 2, 2)


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


async def ensembles(load: Load, process: Process) -> list[Sequence[str]]:
    """Of the ledger, from its first entry on."""
    found = await process.store.records.read(load.writer.ledger_id)
    return [segment.ensemble for segment in found.record.segments]


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


def test_a_bookie_that_turns_read_only_is_replaced_and_taken_again(
    cluster: BookKeeperServers, tmp_path: Path
) -> None:
    """It still answers what it is asked, and says that it takes nothing."""
    turning = cluster.bookies[0]
    turning.close()
    turning.administer()
    turning.start()

    async def life(load: Load, ours: Process, theirs: Process) -> None:
        while turning.address not in (await ensembles(load, ours))[-1]:
            await load.stop()
            load = Load(await ours.store.create(TWO_OF_THREE, {}))
        await load.more()
        turning.turn(read_only=True)
        await load.more()
        assert [turning.address in each for each in await ensembles(load, theirs)] == [True, False]
        await until_true(lambda: turning.address in ours.store.bookies.read_only)
        assert turning.address not in ours.store.placement.ensemble(TWO_OF_THREE)
        await nothing_is_missing(load, theirs)
        await load.is_fenced()
        turning.turn(read_only=False)
        await until_true(lambda: turning.address in ours.store.bookies.writable)
        again = Load(await ours.store.create(Quorums(3, 3, 2), {}))
        await again.more(RUN)
        await again.stop()

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
