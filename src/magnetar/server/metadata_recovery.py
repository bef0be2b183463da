"""Rebuilds the metadata of a stopped standalone broker from its ledgers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.policies.namespaces import divided, new_policies
from magnetar.broker.schemas.storage import ROOT as SCHEMAS
from magnetar.broker.schemas.storage import IndexEntry, decode_schema, encode_locator
from magnetar.config.settings import Settings
from magnetar.errors import MetadataFailure
from magnetar.io.interfaces import Io
from magnetar.io.real import real_io
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError, LedgerMetadata
from magnetar.ledger.journal.reading import Journal, Tree, find_journals, newest, read_journal
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.records import (
    ROOT,
    CursorRecord,
    LedgerSummary,
    ManagedLedgerRecord,
    decode_managed_ledger,
    encode_cursor,
    encode_managed_ledger,
)
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataStore
from magnetar.metadata.progress import IDENTITY_BYTES, Edit, Numbered, Progress
from magnetar.metadata.sqlite_nodes import build_database
from magnetar.naming.namespace_name import LOCAL_POLICIES, POLICIES
from magnetar.naming.topic_name import decode_path_piece, encode_path_piece
from magnetar.server.embedded_stores import LEDGERS, METADATA, METADATA_FILE
from magnetar.server.settings import embedded_settings

Tell = Callable[[str], None]
_NEW_FILE = f"{METADATA}/recovered.sqlite"
_SUFFIXES = ("", "-wal", "-shm")
HOLDER = "magnetar-recovered"
"""The subscription that recovery creates at the beginning of each restored topic. It keeps the topic's
messages for subscriptions that were lost; otherwise the messages would be deleted when the topic is loaded.
"""


class NotRecovered(Exception):
    """The metadata could not be rebuilt; the message says why. No data was changed."""


def recover_metadata(settings: Settings, data_dir: Path, tell: Tell, *, check: bool) -> None:
    """Rebuilds the metadata of a stopped broker from its ledgers, and keeps the old files under other names.

    :param tell: called with a sentence about each step
    :param check: whether only to report what would be rebuilt
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
    """Implements :func:`recover_metadata` as a coroutine."""
    if not io.disk.exists(LEDGERS):
        raise NotRecovered(f"{data_dir} contains no ledgers of a broker; give the broker's data directory")
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
    """Replaces the metadata files. The old files are moved first, so that a broker cannot start if a crash
    interrupts the replacement."""
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


class Salvage:
    """Adds information from ledgers to the metadata; in existing records, only lists of ledgers are changed.
    Each ledger records the name of its topic, subscription or schema. Information outside of ledgers is
    lost: policies, permissions, and cursors that an orderly stop moved into the metadata.
    """

    def __init__(
        self,
        io: Io,
        settings: Settings,
        ledgers: EmbeddedLedgerStore,
        metadata: MetadataStore,
        tell: Callable[[str], None],
    ) -> None:
        self._io = io
        self._settings = settings
        self._ledgers = ledgers
        self._metadata = metadata
        self._tell = tell
        self._topics: dict[str, list[LedgerMetadata]] = {}
        self._cursors: dict[tuple[str, str], LedgerMetadata] = {}
        self._schemas: dict[str, list[LedgerMetadata]] = {}
        self._restored: list[str] = []
        """The paths of topics that were not in the metadata before."""

    async def run(self) -> None:
        bundles = self._settings.default_number_of_namespace_bundles
        await bootstrap(self._metadata, self._settings.cluster_name, "", "", bundles)
        for ledger_id in await self._ledgers.ledger_ids():
            reader = await self._ledgers.open(ledger_id, recover=False)
            self._sort(reader.metadata)
            reader.close()
        for name, found in self._topics.items():
            await self._restore_topic(name, found)
        for (name, cursor), ledger in self._cursors.items():
            await self._restore_cursor(name, cursor, ledger)
        for name in self._restored:
            await self._hold(name)
        await self._restore_partitions()
        for schema_id, found in self._schemas.items():
            await self._restore_schema(schema_id, found)

    def _sort(self, ledger: LedgerMetadata) -> None:
        if ledger.last_entry_id < 0:
            return
        told = {key: value.decode("utf-8", "replace") for key, value in ledger.custom.items()}
        topic, cursor, schema = (
            told.get(key) for key in ("pulsar/managed-ledger", "pulsar/cursor", "pulsar/schemaId")
        )
        if topic is not None and cursor is not None:
            self._cursors[topic, cursor] = ledger
        elif topic is not None:
            self._topics.setdefault(topic, []).append(ledger)
        elif schema is not None:
            self._schemas.setdefault(schema, []).append(ledger)

    async def _restore_topic(self, name: str, found: list[LedgerMetadata]) -> None:
        path = f"{ROOT}/{name}"
        node = await self._metadata.get(path)
        record = ManagedLedgerRecord() if node is None else decode_managed_ledger(node.value, path)
        last = record.ledgers[-1].ledger_id if record.ledgers else -1
        # Older ledgers that are not listed were consumed and waited for their deletion.
        new = [ledger for ledger in found if ledger.ledger_id > last]
        if not new:
            return
        now = self._io.clock.wall_ms()
        for summary in record.ledgers[-1:]:
            if not summary.closed_ms:
                await self._close(summary, found, now)
        for ledger in new:
            record.ledgers.append(
                LedgerSummary(ledger.ledger_id, ledger.last_entry_id + 1, ledger.length, now)
            )
        if node is None:
            self._restored.append(name)
            await self._restore_namespace(name)
        await self._metadata.put(path, encode_managed_ledger(record), -1 if node is None else node.version)
        self._tell(f"topic {name}: ledgers {', '.join(str(ledger.ledger_id) for ledger in new)}")

    @staticmethod
    async def _close(summary: LedgerSummary, found: list[LedgerMetadata], now: int) -> None:
        for ledger in found:
            if ledger.ledger_id == summary.ledger_id:
                summary.entries, summary.size = ledger.last_entry_id + 1, ledger.length
                summary.closed_ms = now

    async def _restore_namespace(self, name: str) -> None:
        pieces = name.split("/")
        namespace = "/".join(pieces[:-2])
        cluster, bundles = self._settings.cluster_name, self._settings.default_number_of_namespace_bundles
        tenant = {"adminRoles": [], "allowedClusters": [cluster]}
        division = divided(bundles)
        await self._put_new(f"{POLICIES}/{pieces[0]}", tenant)
        await self._put_new(f"{LOCAL_POLICIES}/{namespace}", {"bundles": division, "migrated": False})
        await self._put_new(f"{POLICIES}/{namespace}", new_policies([cluster], division))

    async def _put_new(self, path: str, value: Mapping[str, object]) -> None:
        node = await self._metadata.get(path)
        if node is None or not node.value:
            data = json.dumps(value, separators=(",", ":")).encode()
            await self._metadata.put(path, data, -1 if node is None else node.version)

    async def _restore_cursor(self, name: str, cursor: str, ledger: LedgerMetadata) -> None:
        """Restores a cursor, whose newest state is the last entry of its ledger."""
        path = f"{ROOT}/{name}/{encode_path_piece(cursor)}"
        if not await self._metadata.exists(f"{ROOT}/{name}") or await self._metadata.exists(path):
            return
        first = (await self._record(name)).ledgers[0].ledger_id
        record = CursorRecord(ledger.ledger_id, AcknowledgedState((first, -1)))
        await self._metadata.put(path, encode_cursor(record, 0, 0), -1)
        self._tell(f"subscription {cursor} of {name}: its state in ledger {ledger.ledger_id}")

    async def _record(self, name: str) -> ManagedLedgerRecord:
        path = f"{ROOT}/{name}"
        node = await self._metadata.get(path)
        return ManagedLedgerRecord() if node is None else decode_managed_ledger(node.value, path)

    async def _hold(self, name: str) -> None:
        path = f"{ROOT}/{name}"
        ledgers = (await self._record(name)).ledgers
        record = CursorRecord(-1, AcknowledgedState((ledgers[0].ledger_id, -1)))
        await self._metadata.put(f"{path}/{HOLDER}", encode_cursor(record, 0, 0), -1)
        self._tell(f"topic {name}: the subscription {HOLDER} keeps its messages until it is deleted")

    async def _restore_partitions(self) -> None:
        counts: dict[str, int] = {}
        for name in self._topics:
            *above, encoded = name.split("/")
            local = decode_path_piece(encoded)
            base, found, index = local.rpartition("-partition-")
            if found and index.isascii() and index.isdigit():
                domain = above.pop()
                path = "/".join(("/admin/partitioned-topics", *above, domain, encode_path_piece(base)))
                counts[path] = max(counts.get(path, 0), int(index) + 1)
        for path, count in counts.items():
            if not await self._metadata.exists(path):
                await self._put_new(path, {"partitions": count, "deleted": False, "properties": {}})
                self._tell(f"{path}: at least {count} partitions")

    async def _restore_schema(self, schema_id: str, found: list[LedgerMetadata]) -> None:
        path = f"{SCHEMAS}/{schema_id}"
        if await self._metadata.exists(path):
            return
        index: list[IndexEntry] = []
        for ledger in found:
            where = f"ledger {ledger.ledger_id}"
            try:
                reader = await self._ledgers.open(ledger.ledger_id, recover=False)
                runs = await reader.read(0, 0, 1)
                reader.close()
                schema = decode_schema(runs[0].entry(0), len(index), where)
            except (LedgerError, MetadataFailure) as error:
                self._tell(f"schema {schema_id}: skipped {where}: {error}")
                continue
            index.append(IndexEntry(len(index), ledger.ledger_id, 0, schema.data.hash))
        if index:
            await self._metadata.put(path, encode_locator(index), -1)
            self._tell(f"schema {schema_id}: {len(index)} versions")
