"""What every ledger store promises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from ledger_stores import STORES, Listener, all_entries, append
from simulated_io import SimulatedDisk, simulated_io

from magnetar.ledger.interface import (
    LedgerClosed,
    LedgerFenced,
    LedgerState,
    LedgerStore,
    LedgerWriter,
    NoSuchEntry,
    NoSuchLedger,
    Quorums,
    StoreClosed,
)

Life = Callable[[LedgerStore], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture(params=list(STORES))
def run(request: pytest.FixtureRequest) -> Run:
    """Runs lives of a store, one after the other; ``kill`` ends each but the last without closing."""

    def run_lives(*lives: Life, kill: bool = False) -> None:
        disk = SimulatedDisk(1)
        opened = STORES[request.param]()
        for number, life in enumerate(lives):
            simulation = simulated_io(number, disk)

            async def scenario(
                life: Life = life, simulation: object = simulation, number: int = number
            ) -> None:
                store = await opened(simulation)  # type: ignore[arg-type]
                await life(store)
                if not kill or number == len(lives) - 1:
                    await store.close()

            simulation.loop.run_until(scenario())
            simulation.abandon()
            disk = disk.killed()

    return run_lives


@pytest.fixture
def most_told(request: pytest.FixtureRequest) -> Callable[[], int]:
    """Returns how often a writer that appends ten times may be told what is durable."""
    # Each of five bookies answers each append.
    several = any(name in request.node.callspec.id for name in ("striped", "version-3"))
    return lambda: 52 if several else 12


async def _create(store: LedgerStore) -> tuple[LedgerWriter, Listener]:
    writer = await store.create(Quorums(), {})
    listener = Listener()
    writer.set_listener(listener)
    return writer, listener


async def _until(listener: Listener, last: int) -> None:
    await asyncio.wait_for(listener.reached(last), 60)


@pytest.mark.parametrize("kill", [False, True])
def test_entries_survive_the_process(run: Run, most_told: Callable[[], int], kill: bool) -> None:
    entries = [b"%d" % number * (number % 50) for number in range(500)]

    async def write(store: LedgerStore) -> None:
        writer = await store.create(Quorums(3, 2, 2), {"component": b"test", "none": b""})
        listener = Listener()
        writer.set_listener(listener)
        for first in range(0, 500, 50):
            assert append(writer, *entries[first : first + 50]) == first
            await asyncio.sleep(0.001)
        await _until(listener, 499)
        assert len(listener.told) <= most_told(), "once a commit"
        reader = await store.open(writer.ledger_id, recover=False)
        assert reader.metadata.state is LedgerState.OPEN
        assert await all_entries(reader) == entries

    async def read(store: LedgerStore) -> None:
        (ledger_id,) = await store.ledger_ids()
        for _ in range(2):
            reader = await store.open(ledger_id, recover=True)
            metadata = reader.metadata
            assert (metadata.ledger_id, metadata.state) == (ledger_id, LedgerState.CLOSED)
            assert (metadata.last_entry_id, metadata.length) == (499, sum(map(len, entries)))
            assert dict(metadata.custom) == {"component": b"test", "none": b""}
            assert metadata.ctime_ms > 0
            for max_bytes in (1, 100, 3000, 1 << 20):
                assert await all_entries(reader, max_bytes) == entries
            reader.close()

    run(write, read, kill=kill)


def test_reads_keep_to_their_bounds(run: Run) -> None:
    async def life(store: LedgerStore) -> None:
        writer, listener = await _create(store)
        append(writer, *(bytes([number]) * 100 for number in range(100)))
        await _until(listener, 99)
        reader = await store.open(writer.ledger_id, recover=False)
        for first in (0, 1, 50, 98, 99):
            for last in (first, first + 3, 10_000):
                for max_bytes in (0, 1, 100, 101, 299, 300, 100_000):
                    runs = await reader.read(first, last, max_bytes)
                    count = sum(run.count for run in runs)
                    assert runs[0].first_entry_id == first
                    limit = min(last, 99) - first + 1
                    assert count == max(1, min(limit, max_bytes // 100))
                    assert all(run.entry(0) == bytes([run.first_entry_id]) * 100 for run in runs)
        for first in (-1, 100, 5000):
            with pytest.raises(NoSuchEntry):
                await reader.read(first, first + 10, 1000)

    run(life)


def test_a_reader_sees_no_entry_before_it_is_durable(run: Run) -> None:
    async def life(store: LedgerStore) -> None:
        writer, listener = await _create(store)
        reader = await store.open(writer.ledger_id, recover=False)
        assert (await reader.last_add_confirmed()) == -1
        with pytest.raises(NoSuchEntry):
            await reader.read(0, 0, 100)
        append(writer, b"one")
        assert (await reader.last_add_confirmed()) == -1
        await _until(listener, 0)
        assert (await reader.last_add_confirmed()) == 0
        append(writer, b"two")
        await _until(listener, 1)
        assert await all_entries(reader) == [b"one", b"two"]

    run(life)


def test_large_and_empty_entries(run: Run) -> None:
    entries = [b"", bytes(100_000), b"", b"x" * 70_000, b"y", b""]

    async def write(store: LedgerStore) -> None:
        writer, listener = await _create(store)
        append(writer, *entries)
        append(writer, *entries)
        assert await writer.close() == (11, 340_002)
        assert listener.last == 11

    async def read(store: LedgerStore) -> None:
        (ledger_id,) = await store.ledger_ids()
        assert await all_entries(await store.open(ledger_id, recover=False), 10) == entries * 2

    run(write, read)


def test_close_waits_for_what_is_in_flight(run: Run) -> None:
    async def life(store: LedgerStore) -> None:
        writer, listener = await _create(store)
        for number in range(30):
            append(writer, b"%d" % number)
        assert await writer.close() == (29, 50)
        assert listener.last == 29
        with pytest.raises(LedgerClosed):
            append(writer, b"late")
        reader = await store.open(writer.ledger_id, recover=False)
        assert reader.metadata.state is LedgerState.CLOSED
        empty, _ = await _create(store)
        assert await empty.close() == (-1, 0)

    run(life)


def test_recovery_fences_a_living_writer(run: Run) -> None:
    async def life(store: LedgerStore) -> None:
        for settle in (0.0, 0.0005, 0.002, 0.1):
            writer, listener = await _create(store)
            append(writer, b"first")
            await _until(listener, 0)
            append(writer, b"in flight")
            await asyncio.sleep(settle)
            append(writer, b"queued")
            readers = await asyncio.gather(
                store.open(writer.ledger_id, recover=True), store.open(writer.ledger_id, recover=True)
            )
            last = readers[0].metadata.last_entry_id
            told = listener.last
            assert last >= told
            for reader in readers:
                assert reader.metadata.state is LedgerState.CLOSED
                assert reader.metadata.last_entry_id == last
                assert await all_entries(reader) == [b"first", b"in flight", b"queued"][: last + 1]
            await asyncio.sleep(0.2)
            assert listener.last <= last
            assert listener.failed is not None
            assert isinstance(listener.failed[1], LedgerFenced)
            assert listener.failed[0] == listener.last + 1
            with pytest.raises(LedgerClosed):
                append(writer, b"too late")
            with pytest.raises(LedgerFenced):
                await writer.close()

    run(life)


def test_deletion(run: Run) -> None:
    async def life(store: LedgerStore) -> None:
        writer, listener = await _create(store)
        append(writer, b"one")
        await _until(listener, 0)
        reader = await store.open(writer.ledger_id, recover=False)
        other, _ = await _create(store)
        await asyncio.gather(store.delete(writer.ledger_id), store.delete(writer.ledger_id))
        await store.delete(writer.ledger_id)
        await store.delete(123_456)
        assert list(await store.ledger_ids()) == [other.ledger_id]
        for recover in (False, True):
            with pytest.raises(NoSuchLedger):
                await store.open(writer.ledger_id, recover=recover)
        with pytest.raises(NoSuchLedger):
            await reader.read(0, 0, 100)
        await asyncio.sleep(0.2)
        with pytest.raises(LedgerClosed):
            append(writer, b"two")

    async def later(store: LedgerStore) -> None:
        assert len(await store.ledger_ids()) == 1

    run(life, later, kill=True)


def test_ids_are_never_used_again(run: Run) -> None:
    seen: set[int] = set()

    async def life(store: LedgerStore) -> None:
        writers = await asyncio.gather(*(_create(store) for _ in range(5)))
        ids = {writer.ledger_id for writer, _ in writers}
        assert len(ids) == 5
        assert not ids & seen
        assert not seen or min(ids) > max(seen)
        seen.update(ids)
        for ledger_id in ids:
            await store.delete(ledger_id)

    run(life, life, life)


def test_what_is_forgotten_may_go_and_the_rest_stays(run: Run) -> None:
    entries = [b"%d" % number * 100 for number in range(600)]

    async def write(store: LedgerStore) -> None:
        writer, listener = await _create(store)
        for number, entry in enumerate(entries):
            append(writer, entry)
            if number % 20 == 0:
                await _until(listener, number)
                writer.forget_before(min(number, 400))
        await _until(listener, 599)
        await asyncio.sleep(1)

    async def read(store: LedgerStore) -> None:
        (ledger_id,) = await store.ledger_ids()
        reader = await store.open(ledger_id, recover=True)
        assert (await reader.last_add_confirmed()) == 599
        position = 400
        while position < 600:
            for run_found in await reader.read(position, 599, 4000):
                for index in range(run_found.count):
                    assert run_found.entry(index) == entries[position]
                    position += 1

    run(write, read)


def test_a_closed_store_says_so(run: Run) -> None:
    async def life(store: LedgerStore) -> None:
        writer, listener = await _create(store)
        append(writer, b"one")
        await asyncio.gather(store.close(), store.close())
        assert listener.failed is None
        with pytest.raises(LedgerClosed):
            append(writer, b"two")
        for operation in (store.create(Quorums(), {}), store.open(1, recover=False), store.delete(1)):
            with pytest.raises(StoreClosed):
                await operation

    async def later(store: LedgerStore) -> None:
        (ledger_id,) = await store.ledger_ids()
        assert await all_entries(await store.open(ledger_id, recover=True)) == [b"one"]

    run(life, later)
