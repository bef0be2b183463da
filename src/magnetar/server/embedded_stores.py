"""Opens the ledger store and the metadata store of a data directory together, and checks that they match.

A store alone cannot detect that the other store is missing, older, or another broker's; and ledgers without a
metadata record would count as orphaned. Therefore the ledgers contain a journal of the metadata, and the
metadata contains the id of the ledger store. Each store also records the latest state of the other store: the
journal contains the number of the last change of the metadata, and the metadata contains the next ledger id.
"""

from __future__ import annotations

from magnetar.io.interfaces import Io
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError
from magnetar.ledger.journal.reading import Journal, find_journals, newest
from magnetar.ledger.journal.records import Header
from magnetar.ledger.journal.writing import MetadataJournal
from magnetar.managed_ledger.orphans import NamedLedgers
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.progress import Progress

LEDGERS = "ledgers"
METADATA = "metadata"
METADATA_FILE = f"{METADATA}/metadata.sqlite"
SNAPSHOTS = "snapshots"
"""The folder with copies of files for the snapshots of a running broker; useless once the broker has
stopped."""
RESTORING = "restoring"
"""File that exists in a data directory while ``magnetar restore`` fills the directory."""

_PUT_BACK = f"Restore the newest copy of {METADATA}/ (metadata.sqlite together with metadata.sqlite-wal)"
_HELP = f"{_PUT_BACK}, or rebuild it from the ledgers: magnetar recover-metadata --data-dir DIR"
_USED = f"the ledger store in {LEDGERS} has been used"


class StoresDisagree(LedgerError):
    """The ledger store and the metadata do not match; the message contains the file and the remedy."""


class EmbeddedStores:
    """The ledger store and the metadata store of a data directory, and the journal between them; usable once
    :meth:`open` has returned.

    The caller must call :meth:`close`, also after opening failed.
    """

    def __init__(self, io: Io, settings: EmbeddedSettings, *, reserve_bytes: int = 0) -> None:
        """:param reserve_bytes: space reserved for metadata writes while the device is full, in bytes"""
        self._io = io
        self._settings = settings
        self._reserve_bytes = reserve_bytes
        self._ledgers: EmbeddedLedgerStore | None = None
        self._metadata: EmbeddedMetadataStore | None = None
        self._journal: MetadataJournal | None = None

    @property
    def ledgers(self) -> EmbeddedLedgerStore:
        assert self._ledgers is not None, "not opened"
        return self._ledgers

    @property
    def metadata(self) -> EmbeddedMetadataStore:
        assert self._metadata is not None, "not opened"
        return self._metadata

    @property
    def journal(self) -> MetadataJournal:
        assert self._journal is not None, "not opened"
        return self._journal

    async def open(self) -> None:
        """Opens both stores, the ledger store first, because its lock excludes other processes.

        :raises StoresDisagree: one of the stores is missing, older than the other store, or another broker's,
            or a restore was interrupted
        :raises LedgerError: the ledger store cannot be opened
        :raises MetadataError: the metadata cannot be opened
        """
        if self._io.disk.exists(RESTORING):
            raise StoresDisagree(
                f"{RESTORING} exists: a restore into this directory is in progress, or was interrupted: wait "
                "until it has ended, or run the same magnetar restore command again"
            )
        ledgers = self._ledgers = await EmbeddedLedgerStore.open_store(self._io, LEDGERS, self._settings)
        journals = await find_journals(ledgers)
        metadata = await _open_metadata(self._io, ledgers, newest(journals), self._reserve_bytes)
        self._metadata = metadata
        await _check_named(ledgers, metadata, journals)
        await metadata.pair_with(ledgers.store_id, lambda: ledgers.durable_next_ledger_id)
        journal = self._journal = MetadataJournal(self._io, ledgers, metadata)
        await journal.start(journals)

    async def close(self) -> None:
        """Makes all data durable and closes both stores. Idempotent."""
        if self._journal is not None:
            await self._journal.stop()
        if self._ledgers is not None:
            await self._ledgers.close()
        if self._metadata is not None:
            await self._metadata.close()


async def _open_metadata(
    io: Io, ledgers: EmbeddedLedgerStore, seen: Header | None, reserve_bytes: int
) -> EmbeddedMetadataStore:
    used = ledgers.durable_next_ledger_id > 1
    io.disk.make_directory(METADATA)
    # Check before SQLite opens the file: it removes a write-ahead log without a database.
    if used and not _has_bytes(io, METADATA_FILE):
        raise StoresDisagree(f"{METADATA_FILE} is missing or empty, but {_USED}. {_HELP}")

    def verify(found: Progress | None) -> None:
        _verify(found, seen, ledgers, used=used)

    return await EmbeddedMetadataStore.open_store(
        io, METADATA_FILE, reserve_bytes=reserve_bytes, verify=verify
    )


def _has_bytes(io: Io, path: str) -> bool:
    if not io.disk.exists(path):
        return False
    file = io.disk.open(path, write=False)
    try:
        return file.size() > 0
    finally:
        file.close()


def _verify(found: Progress | None, seen: Header | None, ledgers: EmbeddedLedgerStore, *, used: bool) -> None:
    """Checks that metadata and ledgers belong together, and that neither store is older than the state that
    the other store has recorded of it.

    :raises StoresDisagree: the metadata does not match the ledgers
    """
    paired = found is not None and found.ledger_store == ledgers.store_id
    if found is None or (not paired and not found.tally.nodes):
        if used:
            raise StoresDisagree(f"{METADATA_FILE} has no metadata, but {_USED}. {_HELP}")
        return
    if found.ledger_store and not paired:
        raise StoresDisagree(
            f"{METADATA_FILE} belongs to the ledger store {found.ledger_store.hex()}, but the id in "
            f"{LEDGERS}/VERSION is {ledgers.store_id.hex()}. Restore both directories from the same broker"
        )
    if found.next_ledger_id > ledgers.durable_next_ledger_id:
        raise _older_ledgers(found.next_ledger_id - 1, ledgers)
    if seen is not None and found.metadata_id:
        _compare(found, seen)


def _compare(found: Progress, seen: Header) -> None:
    if found.metadata_id != seen.metadata_id:
        raise StoresDisagree(
            f"{METADATA_FILE} is from another broker: it has the metadata {found.metadata_id.hex()}, but "
            f"the ledgers in {LEDGERS} belong to the metadata {seen.metadata_id.hex()}. {_HELP}"
        )
    if found.generation < seen.generation:
        raise StoresDisagree(
            f"{METADATA_FILE} is older than the ledgers in {LEDGERS}: it ends with change "
            f"{found.generation}, the ledgers were written after change {seen.generation}. {_HELP}"
        )
    if found.generation == seen.generation and found.tally != seen.tally:
        raise StoresDisagree(
            f"{METADATA_FILE} has been changed: its {found.tally.nodes} nodes differ from the "
            f"{seen.tally.nodes} nodes that existed after change {found.generation}. {_HELP}"
        )


def _older_ledgers(last_known: int, ledgers: EmbeddedLedgerStore) -> StoresDisagree:
    return StoresDisagree(
        f"{LEDGERS} is older than {METADATA_FILE}: the metadata has ledger ids up to {last_known}, but the "
        f"ledger store has allocated ids only up to {ledgers.durable_next_ledger_id - 1}. Restore the "
        f"newest copy of {LEDGERS}/ and {METADATA}/"
    )


async def _check_named(
    ledgers: EmbeddedLedgerStore, metadata: EmbeddedMetadataStore, journals: list[Journal]
) -> None:
    """Checks data without a journal, from an old release, whose stores record less about each other.

    :raises StoresDisagree: the metadata refers to ledgers that the ledger store never contained
    """
    if journals or metadata.progress.ledger_store:
        return
    last_named = max(await NamedLedgers(ledgers, metadata).collect(), default=0)
    if last_named >= ledgers.durable_next_ledger_id:
        raise _older_ledgers(last_named, ledgers)
