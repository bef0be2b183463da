"""Rebuilds the metadata of a stopped standalone broker from its ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from magnetar.config.settings import Settings
from magnetar.io.interfaces import Io
from magnetar.io.real import real_io
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError
from magnetar.ledger.journal.reading import Journal, Tree, find_journals, newest, read_journal
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.progress import IDENTITY_BYTES, Edit, Numbered, Progress
from magnetar.metadata.sqlite_nodes import build_database
from magnetar.server.embedded_stores import LEDGERS, METADATA, METADATA_FILE
from magnetar.server.ledger_salvage import Salvage
from magnetar.server.settings import embedded_settings

Tell = Callable[[str], None]
_NEW_FILE = f"{METADATA}/recovered.sqlite"
_SUFFIXES = ("", "-wal", "-shm")


class NotRecovered(Exception):
    """The metadata could not be rebuilt; the text says why. Nothing was changed."""


def recover_metadata(settings: Settings, data_dir: Path, tell: Tell, *, check: bool) -> None:
    """Rebuilds the metadata, and keeps the old files beside the new ones.

    :param tell: gets a sentence about each step
    :param check: only says what would be rebuilt
    :raises NotRecovered: the data directory has no ledgers
    :raises StoreLocked: a broker uses the data directory
    :raises LedgerError: the ledger store cannot be opened
    :raises OSError: the data directory cannot be used
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(rebuild(real_io(loop, data_dir), settings, data_dir, tell, check=check))
    finally:
        loop.close()


async def rebuild(io: Io, settings: Settings, data_dir: Path, tell: Tell, *, check: bool) -> None:
    """The asynchronous part of :func:`recover_metadata`."""
    if not io.disk.exists(LEDGERS):
        raise NotRecovered(f"{data_dir} has no ledgers of a broker")
    ledgers = await EmbeddedLedgerStore.open_store(io, LEDGERS, embedded_settings(settings))
    try:
        journals = await find_journals(ledgers)
        found = await _newest_readable(ledgers, journals, tell)
        last = newest(journals)
        if found is None:
            tell("no metadata journal found: topics, cursors and schemas are rebuilt from their ledgers")
        elif last is not None and found.generation < last.generation:
            missing = last.generation - found.generation
            tell(f"the journal lacks the last {missing} changes: what is missing is read from the ledgers")
        progress = Progress(
            io.randomness.token(IDENTITY_BYTES) if last is None else last.metadata_id,
            # A new generation, so that the next start begins a journal.
            1 if last is None else last.generation + 1,
            ledger_store=ledgers.store_id,
            next_ledger_id=ledgers.durable_next_ledger_id,
        )
        exact = found is not None and last is not None and found.generation == last.generation
        io.disk.make_directory(METADATA)
        _remove(io, _NEW_FILE)
        _build(io, Tree() if found is None else found.tree, progress)
        if not exact:
            await _salvage(io, settings, ledgers, tell)
        if check:
            _remove(io, _NEW_FILE)
            tell("nothing was changed")
        else:
            _replace(io, tell)
    finally:
        await ledgers.close()


class _Found(NamedTuple):
    tree: Tree
    generation: int


async def _newest_readable(
    ledgers: EmbeddedLedgerStore, journals: list[Journal], tell: Tell
) -> _Found | None:
    def last_generation(journal: Journal) -> int:
        return -1 if journal.last is None else journal.last.generation

    for journal in sorted(journals, key=last_generation, reverse=True):
        if not journal.whole:
            continue
        try:
            tree, header = await read_journal(ledgers, journal)
        except LedgerError as error:
            tell(f"skipped: {error}")
            continue
        tell(
            f"read the metadata journal in ledgers {', '.join(map(str, journal.ledgers))}: "
            f"{len(tree.nodes)} nodes, after change {header.generation}"
        )
        return _Found(tree, header.generation)
    return None


def _build(io: Io, tree: Tree, progress: Progress) -> None:
    connection = io.open_sqlite(_NEW_FILE)
    try:
        connection.start()
        build_database(connection, _edits(tree), progress)
    finally:
        connection.close()


def _edits(tree: Tree) -> Iterable[Edit]:
    yield from tree.nodes.values()
    for parent, following in tree.numbers.items():
        yield Numbered(parent, following)


async def _salvage(io: Io, settings: Settings, ledgers: EmbeddedLedgerStore, tell: Tell) -> None:
    metadata = await EmbeddedMetadataStore.open_store(io, _NEW_FILE)
    try:
        await Salvage(io, settings, ledgers, metadata, tell).run()
    finally:
        await metadata.close()


def _replace(io: Io, tell: Tell) -> None:
    """Replaces the files. Moves the old ones first: a start after a crash in between is refused."""
    now = datetime.fromtimestamp(io.clock.wall_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    for suffix in _SUFFIXES:
        path = f"{METADATA_FILE}{suffix}"
        if io.disk.exists(path):
            io.disk.rename(path, f"{METADATA_FILE}.{now}{suffix}")
            tell(f"kept the old {path} as {METADATA_FILE}.{now}{suffix}")
    io.disk.rename(_NEW_FILE, METADATA_FILE)
    io.disk.sync_directory(METADATA)
    tell(f"wrote {METADATA_FILE}")


def _remove(io: Io, path: str) -> None:
    for suffix in _SUFFIXES:
        if io.disk.exists(f"{path}{suffix}"):
            io.disk.unlink(f"{path}{suffix}")
