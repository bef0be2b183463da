"""Compaction goes by thresholds, intervals and rates, and hurries when space is short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from ledger_stores import MINIATURE, Listener, all_entries, append
from simulated_io import SimulatedDisk, simulated_io

from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import Quorums

SCHEDULED = replace(
    MINIATURE,
    small_segments=1000,
    sort_behind=1000,
    gc_wait_seconds=10.0,
    minor_compaction_interval=60.0,
    major_compaction_threshold=0.5,
    major_compaction_interval=600.0,
)


async def fill(store: EmbeddedLedgerStore, kept_of_ten: int) -> list[int]:
    """Segments of which so many tenths are wanted; answers the ledgers that are left."""
    ledgers, gone = [], []
    for number in range(10):
        writer = await store.create(Quorums(), {})
        listener = Listener()
        writer.set_listener(listener)
        ledgers.append((writer, listener))
        if number >= kept_of_ten:
            gone.append(writer.ledger_id)
    for entry in range(100):
        for writer, _ in ledgers:
            append(writer, b"%d" % entry * 200)
        for _, listener in ledgers:
            await listener.reached(entry)
    for ledger_id in gone:
        await store.delete(ledger_id)
    return [writer.ledger_id for writer, _ in ledgers if writer.ledger_id not in gone]


def run(settings: EmbeddedSettings, scenario: Callable[[EmbeddedLedgerStore], Awaitable[None]]) -> None:
    simulation = simulated_io(5)

    async def whole() -> None:
        store = await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", settings)
        await scenario(store)
        await store.close()

    simulation.loop.run_until(whole())


async def after(store: EmbeddedLedgerStore, seconds: float) -> tuple[int, int]:
    """Segments that minor and major compactions rewrote until then."""
    await asyncio.sleep(seconds)
    done = store.space().compactions
    return done.minor, done.major


def test_what_holds_little_goes_at_the_minor_interval() -> None:
    async def scenario(store: EmbeddedLedgerStore) -> None:
        left = await fill(store, 1)
        assert await after(store, 40) == (0, 0)
        minor, major = await after(store, 40)
        assert minor > 3
        assert major == 0
        for ledger_id in left:
            found = await all_entries(await store.open(ledger_id, recover=False))
            assert found == [b"%d" % entry * 200 for entry in range(100)]

    run(SCHEDULED, scenario)


def test_what_holds_more_waits_for_the_major_one() -> None:
    async def scenario(store: EmbeddedLedgerStore) -> None:
        left = await fill(store, 4)
        assert await after(store, 500) == (0, 0)
        before = store.space()
        minor, major = await after(store, 200)
        assert minor == 0
        assert major > 3
        space = store.space()
        assert space.compactions.reclaimed_bytes > 0
        assert space.stored_bytes < before.stored_bytes
        assert space.wanted_bytes == before.wanted_bytes
        for ledger_id in left:
            found = await all_entries(await store.open(ledger_id, recover=False))
            assert found == [b"%d" % entry * 200 for entry in range(100)]

    run(SCHEDULED, scenario)


def test_a_threshold_of_zero_switches_it_off() -> None:
    async def scenario(store: EmbeddedLedgerStore) -> None:
        await fill(store, 1)
        assert await after(store, 5000) == (0, 0)

    run(replace(SCHEDULED, minor_compaction_threshold=0.0, major_compaction_threshold=0.0), scenario)


def test_space_that_is_short_waits_for_no_interval() -> None:
    async def scenario(store: EmbeddedLedgerStore) -> None:
        await fill(store, 4)
        assert await after(store, 30) == (0, 0)
        store.hurry(True)
        assert (await after(store, 5))[1] > 3

    run(SCHEDULED, scenario)


@pytest.mark.parametrize(
    "bounded",
    [
        replace(SCHEDULED, compaction_bytes_per_second=5_000.0),
        replace(SCHEDULED, compaction_entries_per_second=20.0),
    ],
)
def test_rates_bound_it(bounded: EmbeddedSettings) -> None:
    times: list[float] = []
    for each in (SCHEDULED, bounded):
        settings = replace(each, compaction_group_bytes=4096)

        async def scenario(store: EmbeddedLedgerStore) -> None:
            await fill(store, 2)
            store.hurry(True)
            await asyncio.sleep(0)
            store.hurry(False)
            began = asyncio.get_running_loop().time()
            while store.space().compactions.written_bytes < 12_000:  # noqa: ASYNC110 - simulated time
                await asyncio.sleep(0.1)
            times.append(asyncio.get_running_loop().time() - began)

        run(replace(settings, minor_compaction_threshold=0.3, minor_compaction_interval=0.0), scenario)
    fast, slow = times
    assert slow > fast + 1


def test_a_damaged_segment_is_left_out_and_the_others_are_rewritten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk(5)
    simulation = simulated_io(5, disk)

    async def whole() -> None:
        store = await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", SCHEDULED)
        await fill(store, 1)
        sealed = [path for path in disk.paths("ledgers/segment-") if path.endswith(".log")][:-2]
        damaged = sealed[1]
        for offset in range(64, disk.size_of(damaged), 16):
            disk.bit_flip(damaged, offset)
        minor, _ = await after(store, 80)
        assert minor > 3
        left = set(disk.paths("ledgers/segment-"))
        assert left & set(sealed) == {damaged}
        await asyncio.sleep(600)
        await store.close()

    simulation.loop.run_until(whole())
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1
    assert "keeping it" in told[0]
