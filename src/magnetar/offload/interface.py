"""The contract of offload drivers, which copy closed ledgers to other storage and read them back.

The order of an offload: the caller records a new UUID and calls :meth:`OffloadDriver.begin`; the entries that
it appends are uploaded in blocks; :meth:`OffloadWriter.finish` reads all data back from the store, compares
it with the written data, and then returns. Only then may the caller record the ledger as offloaded.
:meth:`OffloadDriver.discard` removes the objects of an interrupted attempt by its recorded UUID.

All calls block and may be made from any thread, but an :class:`OffloadWriter` and an :class:`OffloadedReader`
serve one call at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
    from magnetar.ledger.interface import EntryRun


class OffloadError(Exception):
    """An operation on offloaded ledgers failed; subclasses give the reason. No message contains a secret."""


class OffloadUnavailable(OffloadError):
    """The store does not answer, is overloaded, or its answer was lost, so that another attempt may succeed.
    The store may have executed the request."""


class OffloadRefused(OffloadError):
    """The store refuses the credentials, or they do not permit the request, so that an operator must change
    them before another attempt."""


class OffloadMisconfigured(OffloadError):
    """A driver or one of its settings is missing, invalid or not supported; the message names the setting."""


class OffloadedLedgerMissing(OffloadError):
    """An object or a file of an offloaded ledger does not exist; the message names it."""


class OffloadedLedgerDamaged(OffloadError):
    """An object or a file is not what an offload wrote, or belongs to another ledger.

    The message names the object, the position in it, the expected content and the content found.
    """

    def __init__(self, name: str, position: int, expected: str, found: str) -> None:
        """:param position: the offset in the object in bytes"""
        super().__init__(
            f"{name} is damaged, or belongs to another ledger: at byte {position}: expected {expected}, "
            f"found {found}"
        )
        self.name = name
        self.position = position
        self.expected = expected
        self.found = found


class OffloadKey(NamedTuple):
    """The identity of one attempt to offload one ledger."""

    managed_ledger: str
    """The name of the managed ledger, such as ``public/default/persistent/topic``; some drivers use it in
    paths."""
    ledger_id: int
    uuid: UUID


class FoundObject(NamedTuple):
    """An object whose name is that of an offloaded ledger or of its index; any program may have stored it."""

    name: str
    uri: str
    ledger_id: int
    uuid: str
    size: int
    modified_ms: int
    metadata: Mapping[str, str]
    """The metadata that was stored with the object, with names in lower case."""


@dataclass(frozen=True)
class OffloadedLedger:
    """The size of an offloaded ledger, in entries and in bytes."""

    entries: int
    entry_bytes: int
    """The size of all entries in bytes, as in the length of the ledger."""
    stored_bytes: int
    """The size of all objects or files in bytes."""
    blocks: int


class OffloadWriter(ABC):
    """Writes one ledger. After an error, only :meth:`abort` may be called."""

    @property
    @abstractmethod
    def upload_id(self) -> str:
        """The store's id of the unfinished upload; empty: uploads of this driver have no ids."""

    @abstractmethod
    def append(self, first_entry_id: int, entries: Sequence[bytes | memoryview]) -> int:
        """Appends entries ``first_entry_id`` … in order and without gaps, and uploads each full block.

        :return: the total size, in bytes, of the entries whose upload the store has confirmed by now
        :raises OffloadError: the upload failed
        :raises ValueError: ``first_entry_id`` is not the next entry
        """

    @abstractmethod
    def finish(self) -> OffloadedLedger:
        """Uploads the last block and the index, and compares both objects with what the store returns.

        :raises OffloadedLedgerDamaged: the store returns other data than was written
        :raises OffloadError: the upload failed
        :raises ValueError: the number of appended entries or bytes differs from the metadata of the ledger
        """

    @abstractmethod
    def abort(self) -> None:
        """Ends the upload and removes the objects stored so far. Idempotent.

        :raises OffloadError: some objects may be left; :meth:`OffloadDriver.discard` removes them later
        """


class OffloadedReader(ABC):
    """Reads one offloaded ledger."""

    @property
    @abstractmethod
    def record(self) -> LedgerRecord:
        """The metadata that was stored with the ledger; the state of the ledger is always CLOSED."""

    @property
    @abstractmethod
    def first_entry_id(self) -> int:
        """The id of the first stored entry: 0, unless an object of several ledgers begins within this
        ledger."""

    @property
    @abstractmethod
    def last_entry_id(self) -> int: ...

    @property
    @abstractmethod
    def length(self) -> int:
        """The size of all entries in bytes."""

    @property
    @abstractmethod
    def requests(self) -> int:
        """The number of requests for entries that were sent to the store so far; reads that the cache answers
        do not count."""

    @abstractmethod
    def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        """Returns entries from ``first`` on, in order, without gaps, at most up to ``last``.

        Returns at least one entry; stops before the entry that would exceed ``max_bytes``. Reads ahead if
        ``first`` follows the previous read. Checksums of blocks and entries have been verified.

        :raises NoSuchEntry: ``first`` is not among the stored entries
        :raises OffloadError: the entries cannot be read
        """

    @abstractmethod
    def close(self) -> None:
        """Closes files; the cache keeps pieces that were read."""


class OffloadDriver(ABC):
    """One kind of storage with its configuration."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the driver, as in ``managedLedgerOffloadDriver``."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, str]:
        """The location that is recorded with each offloaded ledger (``OffloadContext.driverMetadata``), so
        that the ledger can be found after a change of the configuration. It contains no credentials."""

    @abstractmethod
    def begin(self, key: OffloadKey, record: LedgerRecord) -> OffloadWriter:
        """Starts to offload a ledger.

        :param record: the metadata of the ledger, which is closed and has entries
        :raises OffloadError: the upload cannot be started
        :raises ValueError: the ledger is open or empty
        """

    @abstractmethod
    def open(self, key: OffloadKey) -> OffloadedReader:
        """Opens an offloaded ledger.

        :raises OffloadedLedgerMissing: the ledger does not exist in the store
        :raises OffloadedLedgerDamaged: the index is damaged, or belongs to another ledger
        :raises OffloadError: the ledger cannot be read now
        """

    @abstractmethod
    def delete(self, key: OffloadKey) -> None:
        """Deletes an offloaded ledger; does nothing if it does not exist.

        :raises OffloadError: some objects may be left
        """

    @abstractmethod
    def discard(self, key: OffloadKey, upload_id: str = "") -> None:
        """Removes all objects of an attempt that has not finished, also after a crash.

        :param upload_id: the id of the attempt's upload; empty: the store is asked for unfinished uploads of
            exactly this key
        :raises OffloadError: some objects may be left
        """

    def listed(self, after: str) -> tuple[Sequence[FoundObject], str]:
        """Returns the next objects in the store, whichever program stored them, in the order of their names.

        The list is shown to users; nothing else depends on it.

        :param after: the position that the previous call returned; empty: the beginning
        :return: the objects, and the position for the next call (empty: there are no more objects)
        :raises OffloadMisconfigured: the driver cannot list its store
        :raises OffloadError: the store cannot be listed
        """
        raise OffloadMisconfigured(
            f"driver {self.name} cannot list its objects: list the files or the bucket"
        )

    @abstractmethod
    def close(self) -> None:
        """Closes connections. Readers and writers must not be used afterwards."""
