"""Where schemas are: a locator in the metadata, and a ledger of one entry for each version."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.schemas.data import StoredSchema
from magnetar.broker.schemas.records import (
    IndexEntry,
    decode_locator,
    decode_schema,
    encode_locator,
    encode_schema,
)
from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import LedgerError, LedgerMetadata, LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.single_entry import SingleEntries
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    MetadataError,
    MetadataStore,
    NodeMissing,
    may_have_happened,
)

ROOT = "/schemas"


class SchemaStorage:
    """Knows no rules: whoever calls sees to it that a schema id has one writer at a time.

    :param deletions: of ledgers in ``store``
    """

    def __init__(
        self,
        loop: Loop,
        store: LedgerStore,
        metadata: MetadataStore,
        quorums: Quorums,
        deletions: DeletionQueue,
    ) -> None:
        self._loop = loop
        self._store = store
        self._metadata = metadata
        self._quorums = quorums
        self._deletions = deletions

    async def index(self, schema_id: str) -> tuple[list[IndexEntry], int]:
        """Where all versions are, the oldest first, and the version of the record; nothing is no versions.

        :raises MetadataFailure: the record is damaged
        """
        path = f"{ROOT}/{schema_id}"
        node = await self._metadata.get(path)
        if node is None:
            return [], MUST_NOT_EXIST
        return decode_locator(node.value, path), node.version

    async def read(self, entry: IndexEntry) -> StoredSchema:
        """One version.

        :raises LedgerError: it cannot be read
        :raises MetadataFailure: what is stored is no schema
        """
        reader = await self._store.open(entry.ledger_id, recover=True)
        try:
            runs = await reader.read(entry.entry_id, entry.entry_id, 1)
        finally:
            reader.close()
        return decode_schema(runs[0].entry(0), entry.version, f"ledger {entry.ledger_id}:{entry.entry_id}")

    async def append(
        self, schema_id: str, schema: StoredSchema, index: Sequence[IndexEntry], record: int
    ) -> None:
        """Stores one more version; durable when this returns.

        :param index: the versions before it, as :meth:`index` told them
        :param record: the version of the record, likewise
        :raises BadVersion: somebody else stored one meanwhile
        :raises LedgerError: it cannot be stored
        """
        custom = {
            "component": b"schema",
            "application": b"pulsar",
            "pulsar/schemaId": schema_id.encode(),
        }
        writer = await self._store.create(self._quorums, custom, high_priority=True)
        try:
            entry_id = await self._write(writer, encode_schema(schema_id, schema, index))
            entry = IndexEntry(schema.version, writer.ledger_id, entry_id, schema.data.hash)
            await self._metadata.put(f"{ROOT}/{schema_id}", encode_locator([*index, entry]), record)
        except (LedgerError, MetadataError) as error:
            # A ledger that the record may name stays.
            if not may_have_happened(error):
                await self._deletions.delete(writer.ledger_id)
            raise

    async def _write(self, writer: LedgerWriter, entry: bytes) -> int:
        entry_id = await SingleEntries(self._loop, writer).append_durably(entry)
        await writer.close()
        return entry_id

    async def delete(self, schema_id: str) -> int:
        """Removes all versions; returns how many there were. Ledgers that cannot be deleted now go later.

        :raises BadVersion: somebody else stored one meanwhile; nothing was removed
        """
        index, record = await self.index(schema_id)
        if not index:
            return 0
        try:
            await self._metadata.delete(f"{ROOT}/{schema_id}", record)
        except NodeMissing:
            return 0
        for entry in index:
            await self._deletions.delete(entry.ledger_id)
        return len(index)

    async def ledgers(self, schema_id: str) -> list[LedgerMetadata]:
        """What is known of the ledgers of a schema, the oldest version first.

        :raises LedgerError: one cannot be read
        """
        index, _record = await self.index(schema_id)
        found = []
        for entry in index:
            reader = await self._store.open(entry.ledger_id, recover=True)
            found.append(reader.metadata)
            reader.close()
        return found

    async def ledger_ids(self) -> set[int]:
        """The ledgers of all schemas.

        :raises MetadataFailure: a record is damaged
        """
        found: set[int] = set()
        await self._collect(ROOT, found)
        return found

    async def _collect(self, path: str, found: set[int]) -> None:
        for child in await self._metadata.children(path):
            below = f"{path}/{child}"
            node = await self._metadata.get(below)
            if node is not None and node.value:
                found.update(entry.ledger_id for entry in decode_locator(node.value, below))
            await self._collect(below, found)
