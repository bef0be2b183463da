"""Uploading, downloading and managing packages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from magnetar.broker.packages import NewPackage, PackageMetadata, PackageRecord, PackageStorage
from magnetar.broker.service import BrokerService
from magnetar.errors import (
    ConcurrentModification,
    MetadataFailure,
    NotFound,
    PersistenceFailure,
    PreconditionFailed,
    ServiceNotReady,
)
from magnetar.ledger.interface import LedgerError, LedgerReader, NoSuchLedger
from magnetar.metadata.interface import BadVersion, MetadataError
from magnetar.naming.package_name import PackageName

_READ_BYTES = 256 * 1024
"""Bytes of a package that each download holds in memory."""


class PackageAdmin:
    """Administration of packages. All methods raise ServiceNotReady if ``enablePackagesManagement`` is
    false."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker

    @property
    def _storage(self) -> PackageStorage:
        if not self._broker.settings.packages:
            raise ServiceNotReady("Packages are disabled: set enablePackagesManagement=true")
        return self._broker.packages

    async def metadata(self, name: PackageName) -> PackageMetadata:
        """Returns the metadata that the publisher of a package has given.

        :raises NotFound: no such package
        """
        return (await self._found(name))[0].metadata

    async def change_metadata(self, name: PackageName, given: PackageMetadata) -> None:
        """Replaces the metadata of a package. The creation time is kept; the modification time defaults to
        now.

        :raises NotFound: no such package
        :raises ConcurrentModification: the package was changed at the same time
        """
        record, version = await self._found(name)
        changed = replace(
            given,
            create_time_ms=given.create_time_ms or record.metadata.create_time_ms,
            modification_time_ms=given.modification_time_ms or self._broker.io.clock.wall_ms(),
        )
        with _told(name):
            try:
                await self._storage.change(name, replace(record, metadata=changed), version)
            except BadVersion as error:
                raise _changed(name) from error

    async def _found(self, name: PackageName) -> tuple[PackageRecord, int]:
        storage = self._storage
        with _told(name):
            found = await storage.find(name)
        if found is None:
            raise NotFound(f"Package '{name}' does not exist")
        return found

    async def names(self, kind: str, tenant: str, namespace: str) -> Sequence[str]:
        return await self._storage.names(kind, tenant, namespace)

    async def versions(self, kind: str, tenant: str, namespace: str, name: str) -> Sequence[str]:
        """Returns the versions of a package.

        :raises NotFound: no such package
        """
        found = await self._storage.versions(kind, tenant, namespace, name)
        if not found:
            raise NotFound(f"Package '{kind}://{tenant}/{namespace}/{name}' does not exist")
        return found

    async def delete(self, name: PackageName) -> None:
        """Deletes one version of a package.

        :raises NotFound: no such package
        :raises ConcurrentModification: the package was changed at the same time
        """
        storage = self._storage
        with _told(name):
            try:
                deleted = await storage.delete(name)
            except BadVersion as error:
                raise _changed(name) from error
        if not deleted:
            raise NotFound(f"Package '{name}' does not exist")

    @asynccontextmanager
    async def upload(self, name: PackageName) -> AsyncIterator[Upload]:
        """Starts an upload, which is discarded unless it is finished inside the ``async with`` block.

        :raises NotFound: a package of that name exists (Pulsar raises NotFound for this, too)
        """
        storage = self._storage
        with _told(name):
            if await storage.find(name) is not None:
                raise _taken(name)
            new = await storage.begin(name)
        upload = Upload(self._broker, name, new)
        try:
            yield upload
        finally:
            if not upload.finished:
                await new.abandon()

    async def download(self, name: PackageName) -> Download:
        """Begins to read the content of a package.

        :raises NotFound: no such package
        """
        record, _version = await self._found(name)
        with _told(name):
            return Download(record, await self._storage.open(record))


class Upload:
    def __init__(self, broker: BrokerService, name: PackageName, new: NewPackage) -> None:
        self._broker = broker
        self._name = name
        self._new = new
        self.finished = False

    async def append(self, data: bytes) -> None:
        """Appends data; returns when more data can be accepted.

        :raises PreconditionFailed: the package is too large
        :raises PersistenceFailure: the data cannot be stored
        """
        most = self._broker.settings.max_package_bytes
        if self._new.length + len(data) > most:
            raise PreconditionFailed(
                f"Package '{self._name}' has more than {most} bytes (magnetarMaxPackageSizeBytes)"
            )
        with _told(self._name):
            await self._new.append(data)

    async def finish(self, given: PackageMetadata) -> None:
        """Stores the package after all of its content was written.

        :raises NotFound: another upload stored a package of that name in the meantime
        """
        now = self._broker.io.clock.wall_ms()
        kept = replace(
            given,
            create_time_ms=given.create_time_ms or now,
            modification_time_ms=given.modification_time_ms or now,
        )
        with _told(self._name):
            try:
                await self._new.finish(kept)
            except BadVersion as error:
                raise _taken(self._name) from error
        self.finished = True


class Download:
    """Reads the bytes of a package in order; see ``magnetar.http.engine.message.Streamed``."""

    def __init__(self, record: PackageRecord, reader: LedgerReader) -> None:
        self.length = record.length
        self.sha256 = record.sha256
        self._entries = record.entries
        self._reader = reader
        self._next = 0
        self._closed = False
        reader.in_background()

    async def next(self) -> bytes:
        """Returns the next bytes; empty at the end.

        :raises PersistenceFailure: the package cannot be read, or was deleted
        """
        if self._closed or self._next >= self._entries:
            return b""
        try:
            runs = await self._reader.read(self._next, self._entries - 1, _READ_BYTES)
        except LedgerError as error:
            raise PersistenceFailure(f"The package cannot be read: {error}") from error
        self._next = runs[-1].last_entry_id + 1
        return b"".join(run.entry(index) for run in runs for index in range(run.count))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.close()


def _taken(name: PackageName) -> NotFound:
    return NotFound(f"Package '{name}' already exists")


def _changed(name: PackageName) -> ConcurrentModification:
    return ConcurrentModification(f"Package '{name}' was changed by another request in the meantime")


@contextmanager
def _told(name: PackageName) -> Iterator[None]:
    """Context manager: translates errors from the layers below into errors for clients."""
    try:
        yield
    except NoSuchLedger as error:
        raise NotFound(f"Package '{name}' does not exist") from error
    except LedgerError as error:
        raise PersistenceFailure(f"Package '{name}': {error}") from error
    except MetadataError as error:
        raise MetadataFailure(f"Package '{name}': {error}") from error
