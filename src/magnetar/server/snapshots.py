"""Snapshots of a running standalone broker: files with its whole state at one moment, which are kept for a
limited time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from magnetar.errors import (
    InvalidRequest,
    NotFound,
    PersistenceFailure,
    ServiceNotReady,
    TooManyRequests,
)
from magnetar.io.interfaces import Cancellable, Io
from magnetar.io.waiting import InProgress, finished, settle
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.images import StoreImage
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.copying import MetadataCopy
from magnetar.metadata.interface import MetadataError
from magnetar.server.embedded_stores import LEDGERS, METADATA_FILE, SNAPSHOTS, EmbeddedStores

log = logging.getLogger(__name__)

_MOST_SNAPSHOTS = 4
_LONGEST_SECONDS = 3600
_DEFAULT_SECONDS = 60
_ID_BYTES = 16
_SQLITE_SUFFIXES = ("", "-wal", "-shm")


@dataclass(slots=True)
class _HeldSnapshot:
    image: StoreImage
    expiry: Cancellable


class Snapshots:
    """The snapshots of one broker.

    A snapshot contains the state that a power cut at the same moment would leave: all data that was
    acknowledged before, in ledgers and metadata that belong together. The state of each cursor is written
    first.
    """

    def __init__(self, io: Io, stores: EmbeddedStores, write_cursors: Callable[[], Awaitable[None]]) -> None:
        self._io = io
        self._stores = stores
        self._write_cursors = write_cursors
        self._worker = io.start_worker("snapshots")
        self._held: dict[str, _HeldSnapshot] = {}
        self._starting = 0
        self._in_progress = InProgress(io.loop)
        self._closing = self._closed = False
        self.taken = 0
        """The number of snapshots taken since the start of the process."""
        self._leftovers_removed = io.loop.create_future()
        self._worker.submit(self._remove_leftovers, self._without_leftovers)

    @property
    def held(self) -> int:
        """The number of snapshots whose files are currently kept."""
        return len(self._held)

    async def take(self, seconds: int | None) -> Mapping[str, object]:
        """Takes a snapshot; its files keep their names and contents until the snapshot is released or
        expires.

        :param seconds: time to keep the snapshot, from 1 to 3600 s; None: 60 s
        :returns: a description for the HTTP interface: the snapshot's id, files, and time to keep in
            ``seconds``
        :raises InvalidRequest: ``seconds`` is out of range
        :raises TooManyRequests: four snapshots are already kept
        :raises PersistenceFailure: the disk has no space for the copy of the metadata, or a cursor cannot be
            written
        :raises ServiceNotReady: the broker is stopping
        """
        held_for = _seconds(seconds)
        if self._closed or self._closing:
            raise ServiceNotReady("The broker is stopping")
        if len(self._held) + self._starting >= _MOST_SNAPSHOTS:
            raise TooManyRequests(
                f"{_MOST_SNAPSHOTS} snapshots are already kept; wait until one is released or expires"
            )
        snapshot_id = self._io.randomness.token(_ID_BYTES).hex()
        self._starting += 1
        try:
            with self._in_progress:
                return await self._take(snapshot_id, held_for)
        except (LedgerError, ManagedLedgerError, MetadataError, OSError) as error:
            raise PersistenceFailure(f"No snapshot was taken: {error}") from error
        finally:
            self._starting -= 1
            if snapshot_id not in self._held:
                self._remove_copies(snapshot_id)

    async def _take(self, snapshot_id: str, seconds: int) -> Mapping[str, object]:
        io, images = self._io, self._stores.ledgers.images
        checkpoint, database = _copies(snapshot_id)
        # Until then, the worker would take the copies of this snapshot for leftovers.
        await finished(io.loop, self._leftovers_removed)
        io.disk.make_directory(SNAPSHOTS)
        taken: list[StoreImage] = []
        copy = MetadataCopy(io, self._stores.metadata, database)
        try:
            await copy.read()
            await self._write_cursors()
            await images.prepare(checkpoint)
            try:
                progress = await copy.finish(lambda: taken.append(images.take()))
            finally:
                images.finish()
        except BaseException:
            for image in taken:
                images.release(image)
            raise
        finally:
            copy.close()
        (image,) = taken
        expiry = io.loop.call_later(seconds, self._expire, snapshot_id)
        self._held[snapshot_id] = _HeldSnapshot(image, expiry)
        self.taken += 1
        files = [
            _file(f"{LEDGERS}/VERSION", f"{LEDGERS}/VERSION", -1, sealed=False),
            _file(f"{LEDGERS}/checkpoint", checkpoint, -1, sealed=False),
            *(_file(file.path, file.path, file.bytes, sealed=file.sealed) for file in image.files),
            _file(METADATA_FILE, database, -1, sealed=False),
        ]
        return {
            "id": snapshot_id,
            "seconds": seconds,
            "dataDirectory": io.disk.root,
            "store": self._stores.ledgers.store_id.hex(),
            "generation": progress.generation,
            "takenMs": io.clock.wall_ms(),
            "files": files,
        }

    def prolong(self, snapshot_id: str, seconds: int | None) -> Mapping[str, object]:
        """Changes the time of a snapshot's expiry to ``seconds`` from now.

        :param seconds: further time to keep the snapshot, from 1 to 3600 s; None: 60 s
        :returns: the snapshot's ``id`` and ``seconds``

        :raises NotFound: the snapshot was released, or has expired
        :raises InvalidRequest: ``seconds`` is out of range
        """
        held_for = _seconds(seconds)
        held = self._held.get(snapshot_id)
        if held is None:
            raise NotFound(
                f"Snapshot {snapshot_id} does not exist: it was released, or has expired; take a new snapshot"
            )
        held.expiry.cancel()
        held.expiry = self._io.loop.call_later(held_for, self._expire, snapshot_id)
        return {"id": snapshot_id, "seconds": held_for}

    def release(self, snapshot_id: str) -> None:
        """Releases the files of a snapshot; does nothing if the snapshot does not exist."""
        held = self._held.pop(snapshot_id, None)
        if held is not None:
            held.expiry.cancel()
            self._stores.ledgers.images.release(held.image)
            self._remove_copies(snapshot_id)

    async def close(self) -> None:
        """Takes no more snapshots, and releases all snapshots; called before the stores are closed."""
        if self._closed:
            return
        self._closing = True
        await self._in_progress.none()
        self._closed = True
        for snapshot_id in list(self._held):
            self.release(snapshot_id)
        self._worker.close()

    def _expire(self, snapshot_id: str) -> None:
        log.warning("a snapshot has expired before it was released", extra={"snapshot": snapshot_id})
        self.release(snapshot_id)

    def _remove_copies(self, snapshot_id: str) -> None:
        if not self._closed:
            self._worker.submit(lambda: self._remove(snapshot_id))

    def _remove(self, snapshot_id: str) -> None:
        checkpoint, database = _copies(snapshot_id)
        for path in (checkpoint, *(f"{database}{suffix}" for suffix in _SQLITE_SUFFIXES)):
            if self._io.disk.exists(path):
                self._io.disk.unlink(path)

    def _remove_leftovers(self) -> None:
        """Removes the snapshot files that an earlier process left behind."""
        disk = self._io.disk
        if disk.exists(SNAPSHOTS):
            for name in disk.names(SNAPSHOTS):
                disk.unlink(f"{SNAPSHOTS}/{name}")

    def _without_leftovers(self, _result: None, error: BaseException | None) -> None:
        if error is not None:
            log.warning("files of old snapshots cannot be removed", extra={"error": str(error)})
        settle(self._leftovers_removed)


def _seconds(wanted: int | None) -> int:
    """Returns the time to keep a snapshot.

    :raises InvalidRequest: ``wanted`` is out of range
    """
    if wanted is None:
        return _DEFAULT_SECONDS
    if not 1 <= wanted <= _LONGEST_SECONDS:
        raise InvalidRequest(f"seconds must be from 1 to {_LONGEST_SECONDS}, not {wanted}")
    return wanted


def _copies(snapshot_id: str) -> tuple[str, str]:
    """Returns the paths of a snapshot's copies of the checkpoint and of the metadata."""
    return f"{SNAPSHOTS}/{snapshot_id}.checkpoint", f"{SNAPSHOTS}/{snapshot_id}.sqlite"


def _file(path: str, source: str, size: int, *, sealed: bool) -> dict[str, object]:
    return {"path": path, "source": source, "bytes": size, "sealed": sealed}
