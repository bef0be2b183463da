"""Storage of packages: a record in the metadata store for each version, and a ledger with its bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from hashlib import sha256

from magnetar.errors import MetadataFailure
from magnetar.io.interfaces import Loop
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerError, LedgerReader, LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.single_entry import SingleEntries
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    MetadataError,
    MetadataStore,
    NodeMissing,
    NodeNotEmpty,
    may_have_happened,
)
from magnetar.naming.package_name import PackageName
from magnetar.naming.topic_name import decode_path_piece, encode_path_piece

ROOT = "/magnetar/packages"
PIECE_BYTES = 128 * 1024
"""The maximum size of an entry in bytes; it is small because clients that publish to topics wait while the
entry is written to disk."""


def _path(*pieces: str) -> str:
    return "/".join((ROOT, *map(encode_path_piece, pieces)))


def _above(name: PackageName) -> str:
    return _path(name.type, name.tenant, name.namespace, name.name)


def _place(name: PackageName) -> str:
    return _path(name.type, name.tenant, name.namespace, name.name, name.version)


class PackageStorage:
    """Stores the packages of a cluster, such as functions and connectors, in ledgers.

    :param deletions: deletes ledgers of ``store``
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

    async def find(self, name: PackageName) -> tuple[PackageRecord, int] | None:
        """Returns a package's record and the version of its node; None if the package does not exist.

        :raises MetadataFailure: the record is damaged
        """
        path = _place(name)
        node = await self._metadata.get(path)
        return None if node is None else (decode_record(node.value, path), node.version)

    async def begin(self, name: PackageName) -> NewPackage:
        """Starts a package, which is invisible until it is finished.

        :raises LedgerError: no ledger can be created for the package
        """
        custom = {
            "component": b"package",
            "application": b"pulsar",
            "magnetar/package": str(name).encode(),
        }
        writer = await self._store.create(self._quorums, custom)
        return NewPackage(self._loop, writer, self._metadata, self._deletions, name)

    async def change(self, name: PackageName, record: PackageRecord, version: int) -> None:
        """Replaces the record of a package.

        :param version: the version of the previous record, as :meth:`find` returned it
        :raises BadVersion: the record was changed or deleted in the meantime
        """
        await self._metadata.put(_place(name), encode_record(record), version)

    async def delete(self, name: PackageName) -> bool:
        """Deletes a package; returns whether it existed. If its ledger cannot be deleted now, the ledger is
        deleted later."""
        found = await self.find(name)
        if found is None:
            return False
        record, version = found
        try:
            await self._metadata.delete(_place(name), version)
        except NodeMissing:
            return False
        await self._deletions.delete(record.ledger_id)
        # Other versions may exist, or another request may have deleted the last one already.
        with suppress(NodeMissing, NodeNotEmpty):
            await self._metadata.delete(_above(name))
        return True

    async def open(self, record: PackageRecord) -> LedgerReader:
        """Opens a package for reading.

        :raises NoSuchLedger: the package was deleted in the meantime
        """
        return await self._store.open(record.ledger_id, recover=False)

    async def names(self, kind: str, tenant: str, namespace: str) -> Sequence[str]:
        """Returns the names of the packages of one type in a namespace, sorted."""
        found = map(decode_path_piece, await self._metadata.children(_path(kind, tenant, namespace)))
        return [name for name in sorted(found) if await self.versions(kind, tenant, namespace, name)]

    async def versions(self, kind: str, tenant: str, namespace: str, name: str) -> Sequence[str]:
        """Returns the versions of a package, sorted; empty if the package does not exist."""
        pieces = await self._metadata.children(_path(kind, tenant, namespace, name))
        return sorted(map(decode_path_piece, pieces))

    async def ledger_ids(self) -> set[int]:
        """Returns the ids of the ledgers of all packages.

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
                found.add(decode_record(node.value, below).ledger_id)
            else:
                await self._collect(below, found)


class NewPackage:
    """A package that is being stored; ended by either :meth:`finish` or :meth:`abandon`."""

    def __init__(
        self,
        loop: Loop,
        writer: LedgerWriter,
        metadata: MetadataStore,
        deletions: DeletionQueue,
        name: PackageName,
    ) -> None:
        self._writer = writer
        self._entries = SingleEntries(loop, writer)
        self._metadata = metadata
        self._deletions = deletions
        self._name = name
        self._gathered = bytearray()
        self._digest = sha256()
        self._named = False
        """Whether the package's record may have been stored, so that the ledger must be kept."""
        self.length = 0

    async def append(self, data: bytes) -> None:
        """Appends data to the package; whole entries are durable when this returns.

        :raises LedgerError: the bytes cannot be stored
        """
        self.length += len(data)
        self._gathered += data
        while len(self._gathered) >= PIECE_BYTES:
            await self._store(PIECE_BYTES)

    async def _store(self, size: int) -> None:
        piece = bytes(memoryview(self._gathered)[:size])
        del self._gathered[:size]
        self._digest.update(piece)
        await self._entries.append_durably(piece)

    async def finish(self, metadata: PackageMetadata) -> None:
        """Makes the package visible; it is durable when this returns.

        :raises BadVersion: a package of that name was stored in the meantime
        :raises LedgerError: the bytes cannot be stored
        :raises MetadataError: the record cannot be stored
        """
        if self._gathered:
            await self._store(len(self._gathered))
        await self._writer.close()
        record = PackageRecord(
            self._writer.ledger_id, self._entries.count, self.length, self._digest.hexdigest(), metadata
        )
        try:
            await self._metadata.put(_place(self._name), encode_record(record), MUST_NOT_EXIST)
        except MetadataError as error:
            self._named = may_have_happened(error)
            raise
        self._named = True

    async def abandon(self) -> None:
        """Deletes the data stored so far."""
        if self._named:
            return
        # The writer may have failed already; what matters is that the ledger is deleted.
        with suppress(LedgerError):
            await self._writer.close()
        await self._deletions.delete(self._writer.ledger_id)


@dataclass(frozen=True, slots=True)
class PackageMetadata:
    """The metadata that the publisher of a package gives: Pulsar's record of the same name."""

    description: str = ""
    contact: str | None = None
    create_time_ms: int = 0
    modification_time_ms: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PackageRecord:
    ledger_id: int
    entries: int
    length: int
    """The number of bytes of all entries together."""
    sha256: str
    """The SHA-256 of all bytes, in hexadecimal digits."""
    metadata: PackageMetadata


def encode_record(record: PackageRecord) -> bytes:
    return json.dumps(asdict(record), separators=(",", ":"), ensure_ascii=False).encode()


def decode_record(value: bytes, path: str) -> PackageRecord:
    """Returns the record of a package.

    :raises MetadataFailure: the value is not a package's record
    """
    try:
        found = json.loads(value)
        told = found.pop("metadata")
        return PackageRecord(**found, metadata=PackageMetadata(**told))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MetadataFailure(f"{path}: the stored value is not a package") from error
