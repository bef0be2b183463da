"""Damaged data directories give an error by name, or what is left whole: never a crash, never a hang."""

from __future__ import annotations

import asyncio
import os
import shutil
from array import array
from pathlib import Path
from random import Random

import pytest
from fuzz_files import Entries, damage, look_at_everything

from magnetar.broker.namespaces.registry import Namespaces, bootstrap
from magnetar.io.real import real_io
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.naming.topic_name import TopicName

_SEEDS = int(os.environ.get("MAGNETAR_FUZZ_FILE_SEEDS", "300"))
_SETTINGS = ManagedLedgerSettings(max_entries_per_ledger=5, min_rollover_ms=0)


def make_directory(folder: Path) -> None:
    """Three topics with ledgers, cursors with holes, batches in part, and partitions."""
    asyncio.run(_make(folder))


async def _make(folder: Path) -> None:
    io = real_io(asyncio.get_running_loop(), folder)
    settings = EmbeddedSettings(segment_bytes=64 << 10, first_segment_bytes=64 << 10, reserve_bytes=0)
    store = await EmbeddedLedgerStore.open_store(io, "ledgers", settings)
    io.disk.make_directory("metadata")
    metadata = await EmbeddedMetadataStore.open_store(io, "metadata/metadata.sqlite")
    await bootstrap(metadata, "standalone", "http://h:1", "pulsar://h:2", 4)
    name = TopicName.parse("persistent://public/default/parts")
    await Namespaces(io, metadata).create_partitioned(name, 3, {"key": "value"})
    managed = ManagedLedgerFactory(io, TimerWheel(io.loop), store, metadata, _SETTINGS, EntryCacheSettings())
    for number in range(3):
        ledger = await managed.open(f"public/default/persistent/t{number}", create=True)
        cursors = [await managed.open_cursor(ledger, f"c{i}", EARLIEST, {"a": "b"}) for i in range(2)]
        for _ in range(30):
            await _append(ledger, 2)
        first = ledger.ledgers.first_id()
        cursors[0].delete(first, 2)
        cursors[0].delete(first, 4)
        cursors[0].consume_batch_indexes(first, 1, 5, 3)
        cursors[1].mark_delete_to((first, 3))
        await cursors[0].flush()
        await cursors[1].flush()
        await managed.close(ledger)
    await store.close()
    await metadata.close()


async def _append(ledger: ManagedLedger, count: int) -> None:
    size = 400
    wanted = ledger.ledgers.total_entries() + count
    starts = array("q", range(0, size * count, size))
    ends = array("q", range(size, size * count + size, size))
    ledger.append(os.urandom(size * count), starts, ends, count, size * count, None)
    for _ in range(20_000):
        if ledger.ledgers.total_entries() >= wanted:
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("the appends never became durable")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    make_directory(folder)
    return folder


def test_a_sound_directory_has_no_errors(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "data")
    assert look_at_everything(tmp_path / "data") == []


@pytest.mark.parametrize("tenth", range(10))
def test_damage_is_named(sound: Path, tmp_path: Path, tenth: int) -> None:
    stored: Entries = {}
    shutil.copytree(sound, tmp_path / "data")
    look_at_everything(tmp_path / "data", stored)
    shutil.rmtree(tmp_path / "data")
    for seed in range(tenth, _SEEDS, 10):
        # A store of a process that had to stop is not closed: its threads may go on for a moment.
        folder = tmp_path / f"data-{seed}"
        shutil.copytree(sound, folder)
        what = damage(Random(seed), folder)
        read: Entries = {}
        try:
            found = look_at_everything(folder, read)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {what}") from error
        assert all(found), (seed, what)
        if what.startswith("ledgers/"):
            # Other bytes than were stored are worse than none.
            assert all(stored.get(place) == entry for place, entry in read.items()), (seed, what)
            assert found or read == stored, (seed, what, "entries are missing and nobody says so")
        shutil.rmtree(folder, ignore_errors=True)
