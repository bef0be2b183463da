"""Storage of schemas: a locator in the metadata store, and a ledger with one entry for each version, in
Pulsar's format."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from magnetar.broker.schemas import records_pb2 as pb
from magnetar.broker.schemas.data import SchemaData, SchemaType, StoredSchema
from magnetar.errors import MetadataFailure
from magnetar.io.interfaces import Loop
from magnetar.lazy_dataclass import dataclass
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
    """Stores schemas without compatibility checks. The caller ensures that a schema id has one writer at a
    time.

    :param deletions: the queue that deletes ledgers of ``store``
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
        """Returns the positions of all versions of a schema, the oldest first, and the version of the
        locator's node in the metadata store; an empty list and ``MUST_NOT_EXIST`` if there is no locator.

        :raises MetadataFailure: the locator is damaged
        """
        path = f"{ROOT}/{schema_id}"
        node = await self._metadata.get(path)
        if node is None:
            return [], MUST_NOT_EXIST
        return decode_locator(node.value, path), node.version

    async def read(self, entry: IndexEntry) -> StoredSchema:
        """Reads one version.

        :raises LedgerError: the entry cannot be read
        :raises MetadataFailure: the entry is not a schema
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

        :param index: the positions of the earlier versions, as :meth:`index` returned them
        :param record: the version of the locator's node, from the same call
        :raises BadVersion: another broker stored a version at the same time
        :raises LedgerError: the entry cannot be stored
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
            # If the record may name the ledger, the ledger is kept.
            if not may_have_happened(error):
                await self._deletions.delete(writer.ledger_id)
            raise

    async def _write(self, writer: LedgerWriter, entry: bytes) -> int:
        entry_id = await SingleEntries(self._loop, writer).append_durably(entry)
        await writer.close()
        return entry_id

    async def delete(self, schema_id: str) -> int:
        """Deletes all versions; returns their number. A ledger that cannot be deleted now is deleted later.

        :raises BadVersion: another broker stored a version at the same time; nothing was deleted
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
        """Returns the metadata of a schema's ledgers, the oldest version first.

        :raises LedgerError: the metadata of a ledger cannot be read
        """
        index, _record = await self.index(schema_id)
        found = []
        for entry in index:
            reader = await self._store.open(entry.ledger_id, recover=True)
            found.append(reader.metadata)
            reader.close()
        return found

    async def ledger_ids(self) -> set[int]:
        """Returns the ids of the ledgers of all schemas.

        :raises MetadataFailure: a locator is damaged
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


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The position of a stored version."""

    version: int
    ledger_id: int
    entry_id: int
    hash: bytes
    """SHA-256 of the definition."""


def encode_locator(index: Sequence[IndexEntry]) -> bytes:
    """Returns the locator of a schema: the record with the positions of its versions.

    :param index: all versions, the oldest first; at least one
    """
    locator = pb.SchemaLocator()
    _fill(locator.info, index[-1])
    for entry in index:
        _fill(locator.index.add(), entry)
    return locator.SerializeToString()


def _fill(record: pb.IndexEntry, entry: IndexEntry) -> None:
    record.version = entry.version
    record.position.ledgerId = entry.ledger_id
    record.position.entryId = entry.entry_id
    record.hash = entry.hash


def decode_locator(value: bytes, path: str) -> list[IndexEntry]:
    """Returns the positions of all versions in a locator, the oldest version first.

    :raises MetadataFailure: the value is not a locator
    """
    try:
        locator = pb.SchemaLocator.FromString(value)
    except DecodeError as error:
        raise MetadataFailure(f"{path}: not a schema locator") from error
    found = {
        each.version: IndexEntry(each.version, each.position.ledgerId, each.position.entryId, each.hash)
        for each in (*locator.index, locator.info)
    }
    return [found[version] for version in sorted(found)]


def encode_schema(schema_id: str, schema: StoredSchema, index: Sequence[IndexEntry]) -> bytes:
    """Returns the ledger entry that stores a version.

    :param index: the positions of the earlier versions, the oldest version first
    """
    info = pb.SchemaInfo(
        schema_id=schema_id,
        user=schema.data.user,
        schema=schema.data.data,
        timestamp=schema.timestamp_ms,
        deleted=schema.deleted,
    )
    info.type = schema.data.type + 1  # type: ignore[assignment]
    for key, value in schema.data.properties.items():
        info.props.add(key=key, value=value)
    entry = pb.SchemaEntry(schema_data=info.SerializeToString())
    for before in index:
        _fill(entry.index.add(), before)
    return entry.SerializeToString()


def decode_schema(entry: bytes, version: int, where: str) -> StoredSchema:
    """Returns the schema in an entry.

    :raises MetadataFailure: the entry is not a schema
    """
    try:
        info = pb.SchemaInfo.FromString(pb.SchemaEntry.FromString(entry).schema_data)
    except DecodeError as error:
        raise MetadataFailure(f"{where}: the entry is not a schema: {error}") from error
    properties = {pair.key: pair.value for pair in info.props}
    data = SchemaData(SchemaType(info.type - 1), info.schema, properties, info.user)
    return StoredSchema(version, data, info.timestamp, info.deleted)
