"""What is particular to the embedded store: space, locks, formats, limits, the real disk."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger_stores import MINIATURE, Listener, all_entries, append
from simulated_io import SimulatedDisk, Simulation, simulated_io
from simulated_io.disk import SimulatedFile

from magnetar.io.interfaces import Io
from magnetar.io.real import real_io
from magnetar.ledger.embedded.identity import StoreLocked, UnknownFormat
from magnetar.ledger.embedded.ledger_table import LedgerRow, encode_created
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import (
    DataDamaged,
    LedgerUnreadable,
    LedgerWriter,
    Quorums,
    StoreClosed,
    StoreFull,
)


async def _open(io: Io, settings: EmbeddedSettings = MINIATURE) -> EmbeddedLedgerStore:
    return await EmbeddedLedgerStore.open_store(io, "ledgers", settings)


async def _create(store: EmbeddedLedgerStore) -> tuple[LedgerWriter, Listener]:
    writer = await store.create(Quorums(), {})
    listener = Listener()
    writer.set_listener(listener)
    return writer, listener


def _stored(disk: SimulatedDisk) -> int:
    return disk.quota - disk.free_bytes()


def _simulated(disk: SimulatedDisk | None = None) -> Simulation:
    return simulated_io(3, disk)


def test_on_the_real_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        for settings in (MINIATURE, EmbeddedSettings()):
            store = await _open(io, settings)
            writers = [await _create(store) for _ in range(3)]
            entries = [b"%d" % number * 10 for number in range(300)]
            for number in range(0, 300, 5):
                for writer, _ in writers:
                    append(writer, *entries[number : number + 5])
                await asyncio.sleep(0)
            for writer, listener in writers:
                assert (await writer.close())[0] == 299
                assert listener.last == 299
            await store.close()
            store = await _open(io, settings)
            for writer, _ in writers:
                assert await all_entries(await store.open(writer.ledger_id, recover=False), 5000) == entries
                await store.delete(writer.ledger_id)
            await store.close()

    asyncio.run(scenario())


def test_what_one_listener_raises_keeps_no_other_ledger_of_the_commit_from_hearing(tmp_path: Path) -> None:
    reported: list[object] = []

    class Failing(Listener):
        def on_durable(self, _ledger_id: int, _last_entry_id: int) -> None:
            raise RuntimeError("of one topic")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        store = await _open(real_io(loop, tmp_path))
        (one, _), (other, heard) = await _create(store), await _create(store)
        one.set_listener(Failing())
        append(one, b"entry")
        append(other, b"entry")
        assert await other.close() == (0, 5)
        assert heard.last == 0
        assert [str(error) for error in reported] == ["of one topic"]
        await store.close()

    asyncio.run(scenario())


def test_a_second_store_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        store = await _open(io)
        with pytest.raises(StoreLocked, match="in use"):
            await _open(real_io(asyncio.get_running_loop(), tmp_path))
        await store.close()
        await (await _open(io)).close()

    asyncio.run(scenario())


def test_newer_and_broken_versions_are_refused_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        await (await _open(io)).close()
        path = tmp_path / "ledgers" / "VERSION"
        fields = json.loads(path.read_text())
        assert fields["format"] == 1
        path.write_text(json.dumps(fields | {"format": 2, "writer": "magnetar 9.9"}))
        with pytest.raises(UnknownFormat, match=r"format 2, written by magnetar 9\.9"):
            await _open(io)
        path.write_text("{}")
        with pytest.raises(DataDamaged, match="VERSION"):
            await _open(io)

    asyncio.run(scenario())


def test_space_of_forgotten_and_deleted_entries_comes_back() -> None:
    simulation = _simulated()

    async def scenario() -> None:
        store = await _open(simulation.io)
        keeper, kept = await _create(store)
        writer, listener = await _create(store)
        most = 0
        for number in range(3000):
            append(writer, bytes(1000))
            if number % 100 == 0:
                append(keeper, b"%d" % number)
            if number % 10 == 0:
                await listener.reached(number)
                writer.forget_before(number)
                most = max(most, _stored(simulation.disk))
        assert most < 20 * MINIATURE.segment_bytes
        await store.delete(writer.ledger_id)
        await asyncio.sleep(5)
        # The active segment, the prepared one, the free ones, and what the keeper's entries take.
        assert _stored(simulation.disk) < 6 * MINIATURE.segment_bytes
        assert kept.last == 29
        reader = await store.open(keeper.ledger_id, recover=False)
        assert await all_entries(reader) == [b"%d" % number for number in range(0, 3000, 100)]
        await store.close()

    simulation.loop.run_until(scenario())


def test_interleaved_ledgers_are_rewritten_in_order() -> None:
    simulation = _simulated()
    settings = EmbeddedSettings(
        segment_bytes=1 << 20,
        first_segment_bytes=1 << 20,
        group_bytes=64 << 10,
        run_bytes=16 << 10,
        sort_behind=1,
        reserve_bytes=0,
    )

    async def scenario() -> None:
        store = await _open(simulation.io, settings)
        writers = [await _create(store) for _ in range(20)]
        for number in range(1000):
            for writer, _ in writers:
                append(writer, b"%d" % number * 20)
            if number % 5 == 0:
                await asyncio.sleep(0.003)
        for _, listener in writers:
            await listener.reached(999)
        await asyncio.sleep(30)
        sealed = store._segments.sealed()
        rewritten = [segment for segment in sealed if segment.kind == 1]
        assert len(rewritten) >= len(sealed) - 1 - settings.sort_behind
        assert all(segment.stored / segment.runs > 4096 for segment in rewritten)
        for writer, _ in writers:
            reader = await store.open(writer.ledger_id, recover=False)
            assert await all_entries(reader) == [b"%d" % number * 20 for number in range(1000)]
        await store.close()

    simulation.loop.run_until(scenario())


def test_a_segment_somebody_reads_from_outside_is_not_used_again() -> None:
    simulation = _simulated()
    disk = simulation.disk

    async def scenario() -> None:
        store = await _open(simulation.io)
        writer, listener = await _create(store)
        outside: dict[str, tuple[object, bytes]] = {}
        for number in range(2000):
            append(writer, b"%d" % number * 200)
            await listener.reached(number)
            writer.forget_before(number)
            for name in disk.names("ledgers"):
                if name.endswith(".log") and name not in outside and len(outside) < 8:
                    file = disk.open(f"ledgers/{name}", write=False)
                    assert file.lock(exclusive=False)
                    outside[name] = (file, file.read(4096, 0))
        assert len(outside) == 8
        for file, header in outside.values():
            assert file.read(4096, 0) == header  # type: ignore[attr-defined]
        await store.close()

    simulation.loop.run_until(scenario())


def test_reads_in_flight_are_bounded() -> None:
    simulation = _simulated()
    settings = EmbeddedSettings(
        segment_bytes=1 << 20,
        first_segment_bytes=1 << 20,
        group_bytes=8192,
        run_bytes=8192,
        reads_in_flight_bytes=10_000,
        reserve_bytes=0,
    )
    simulation.disk.cached_fraction = 0.0

    async def scenario() -> None:
        store = await _open(simulation.io, settings)
        writer, listener = await _create(store)
        for _ in range(20):
            append(writer, bytes(8000))
        await listener.reached(19)
        reader = await store.open(writer.ledger_id, recover=False)
        most = 0
        reading = [asyncio.ensure_future(reader.read(number, number, 8000)) for number in range(20)]
        reading[7].cancel()
        while not all(future.done() for future in reading):
            most = max(most, store._reads._in_flight)
            await asyncio.sleep(0.0001)
        assert 8000 <= most <= 10_000
        assert store._reads._in_flight == 0
        assert all(future.cancelled() or len(future.result()) == 1 for future in reading)
        await store.close()

    simulation.loop.run_until(scenario())


@pytest.mark.parametrize("cached", [0.0, 1.0])
def test_a_device_that_does_not_read_fails_the_read_as_ledgers_fail(
    monkeypatch: pytest.MonkeyPatch, cached: float
) -> None:
    """Dispatchers try again after errors of ledgers; after any other they never read again."""
    simulation = _simulated()
    simulation.disk.cached_fraction = cached
    failing: list[SimulatedFile] = []
    read = SimulatedFile.read

    def fail(file: SimulatedFile, _length: int, _offset: int) -> bytes:
        failing.append(file)
        raise OSError(errno.EIO, "Input/output error")

    async def scenario() -> None:
        store = await _open(simulation.io)
        writer, _ = await _create(store)
        append(writer, b"entry")
        await writer.close()
        await store.close()
        store = await _open(simulation.io)
        reader = await store.open(writer.ledger_id, recover=False)
        for known in (False, True):
            monkeypatch.setattr(SimulatedFile, "read", fail)
            for _ in range(3):
                with pytest.raises(
                    LedgerUnreadable, match=r"segment-\w+\.log cannot be read: Input/output error"
                ):
                    await reader.read(0, 0, 100)
            assert all(file._open is known for file in failing), "files that nobody knows stay open"
            failing.clear()
            monkeypatch.setattr(SimulatedFile, "read", read)
            assert await all_entries(reader, 100) == [b"entry"]
        await store.close()

    simulation.loop.run_until(scenario())


def test_without_files_to_open_a_read_fails_as_ledgers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = _simulated()
    disk = simulation.disk
    opened = disk.open

    def refuse(path: str, *, write: bool = True, **options: Any) -> SimulatedFile:
        if not write:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return opened(path, **options)

    async def scenario() -> None:
        store = await _open(simulation.io)
        writer, _ = await _create(store)
        append(writer, b"entry")
        await writer.close()
        await store.close()
        store = await _open(simulation.io)
        reader = await store.open(writer.ledger_id, recover=False)
        monkeypatch.setattr(disk, "open", refuse)
        with pytest.raises(LedgerUnreadable, match="Too many open files"):
            await reader.read(0, 0, 100)
        monkeypatch.setattr(disk, "open", opened)
        assert await all_entries(reader, 100) == [b"entry"]
        await store.close()

    simulation.loop.run_until(scenario())


@pytest.mark.parametrize("refused", ["open", "sync_directory"])
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_clients_that_take_all_descriptors_end_no_process(
    monkeypatch: pytest.MonkeyPatch, refused: str, code: int
) -> None:
    """What has no segment to go to is refused; when files can be opened again, all goes on."""
    simulation = _simulated()
    settings = replace(MINIATURE, reserve_bytes=64 << 10)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    async def scenario() -> None:
        store = await _open(simulation.io, settings)
        short: list[str] = []
        store.listen_for_shortage(short.append)
        stored: dict[int, int] = {}
        for round_ in range(6):
            writer, listener = await _create(store)
            with monkeypatch.context() as patched:
                for number in range(200):
                    if number == 20:
                        patched.setattr(simulation.disk, refused, refuse)
                    if listener.failed is None:
                        append(writer, b"%d" % number * 500)
                    await asyncio.sleep(0.001)
                assert isinstance(listener.failed, tuple), "all of it had room"
                assert isinstance(listener.failed[1], StoreFull)
                assert os.strerror(code) in store.shortage
            stored[writer.ledger_id] = listener.last
            if round_ % 2:
                await store.delete(min(stored))
                del stored[min(stored)]
            await asyncio.sleep(120.0)
            store.hurry(urgent=False)
            await asyncio.sleep(5.0)
            assert (store.shortage, short[-1]) == ("", "")
            store.check()
        await store.close()
        store = await _open(simulation.io, settings)
        for ledger_id, last in stored.items():
            found = await all_entries(await store.open(ledger_id, recover=True), 10_000)
            assert found == [b"%d" % number * 500 for number in range(len(found))]
            assert len(found) > last > 0
        await store.close()
        files = len(simulation.disk.paths("ledgers/segment-")) + len(simulation.disk.paths("ledgers/free-"))
        assert files < 40

    simulation.loop.run_until(scenario())
    assert not simulation.stop_messages


def test_what_was_asked_for_before_the_end_writes_nothing_after_it() -> None:
    """It went to a segment that was sealed, or to a file that was closed, which ended the process."""
    simulation = _simulated()

    async def scenario() -> None:
        store = await _open(simulation.io)
        writer, _ = await _create(store)
        append(writer, b"entry")
        await asyncio.sleep(0)
        recovering = asyncio.ensure_future(store.open(writer.ledger_id, recover=True))
        creating = asyncio.ensure_future(store.create(Quorums(), {}))
        closing = asyncio.ensure_future(store.close())
        for late in (recovering, creating):
            with pytest.raises(StoreClosed):
                await late
        await closing
        store = await _open(simulation.io)
        assert await all_entries(await store.open(writer.ledger_id, recover=True), 100) == [b"entry"]
        await store.close()

    simulation.loop.run_until(scenario())
    assert not simulation.stop_messages


def test_opening_reads_no_more_when_there_is_more_data() -> None:
    def reads_of_an_opening(entries: int) -> int:
        simulation = _simulated()

        async def write() -> None:
            store = await _open(simulation.io)
            writer, listener = await _create(store)
            for number in range(entries):
                append(writer, bytes(900))
                if number % 20 == 0:
                    await listener.reached(number)
            await store.close()

        simulation.loop.run_until(write())
        disk = simulation.disk.killed()
        again = _simulated(disk)
        count = 0
        looking = disk._looking

        def counted() -> None:
            nonlocal count
            count += 1
            looking()

        disk._looking = counted  # type: ignore[method-assign]
        again.loop.run_until(_open(again.io))
        return count

    assert reads_of_an_opening(2000) <= reads_of_an_opening(200) + 5


def test_an_idle_ledger_takes_little_memory() -> None:
    created = encode_created(1_700_000_000_000, {"component": b"managed-ledger", "application": b"pulsar"})
    row = LedgerRow(1, created)
    row.add_run(7, 0, 10, 1000, 960)
    size = sys.getsizeof(row) + sum(
        sys.getsizeof(getattr(row, name))
        for name in ("created", "parts", "ledger_id", "last_entry_id", "length")
    )
    assert size < 700


def test_an_idle_log_confirms_itself_once_and_then_rests() -> None:
    simulation = _simulated()

    async def scenario() -> None:
        store = await _open(simulation.io)
        writer, listener = await _create(store)
        append(writer, b"one")
        await listener.reached(0)
        await asyncio.sleep(1)
        operations = simulation.disk.operations
        end = store._log.segment.end
        await asyncio.sleep(100)
        assert (simulation.disk.operations, store._log.segment.end) == (operations, end)
        await store.close()

    simulation.loop.run_until(scenario())


@pytest.mark.parametrize(
    "wrong",
    [{"segment_bytes": 100}, {"segment_bytes": 1 << 40}, {"group_bytes": 0}, {"segment_runs": 0}],
)
def test_senseless_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EmbeddedSettings(**wrong)  # type: ignore[arg-type]


def test_a_ledger_is_written_as_long_as_its_writer_lives() -> None:
    simulation = _simulated()

    async def scenario() -> int:
        store = await _open(simulation.io)
        (left, _), (closed, _), (fenced, _) = [await _create(store) for _ in range(3)]
        ids = [left.ledger_id, closed.ledger_id, fenced.ledger_id]
        assert [store.may_be_written(ledger_id) for ledger_id in ids] == [True, True, True]
        await closed.close()
        await store.open(fenced.ledger_id, recover=True)
        assert [store.may_be_written(ledger_id) for ledger_id in ids] == [True, False, False]
        return left.ledger_id

    left = simulation.loop.run_until(scenario())
    simulation.abandon()
    again = _simulated(simulation.disk.killed())

    async def reopened() -> None:
        store = await _open(again.io)
        assert left in await store.ledger_ids()
        assert not store.may_be_written(left)
        await store.close()

    again.loop.run_until(reopened())
