"""The contract of offload drivers: what stores closed ledgers elsewhere, and reads them back.

The order of an offload: the caller records a new UUID, :meth:`OffloadDriver.begin` starts, appended entries
are uploaded in blocks, and :meth:`OffloadWriter.finish` returns once everything reads back as it was written.
Only then may the caller record the ledger as offloaded. An attempt that was interrupted is removed by its
recorded UUID with :meth:`OffloadDriver.discard`.

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
    """An operation on offloaded ledgers failed; subclasses say how. No text contains a secret."""


class OffloadUnavailable(OffloadError):
    """The store does not answer, is overloaded, or its answer was lost: trying again later may help. An
    upload may have happened."""


class OffloadRefused(OffloadError):
    """The store refuses the credentials, or they permit too little: trying again does not help before an
    operator changes something."""


class OffloadMisconfigured(OffloadError):
    """A driver or one of its settings is missing, invalid or not supported; names the setting."""


class OffloadedLedgerMissing(OffloadError):
    """An object or a file of an offloaded ledger does not exist; names it."""


class OffloadedLedgerDamaged(OffloadError):
    """An object or a file is not what an offload wrote, or belongs to another ledger.

    Names the object, the position in it, what was expected there and what was found.
    """

    def __init__(self, name: str, position: int, expected: str, found: str) -> None:
        """:param position: in bytes from the start of the object"""
        super().__init__(
            f"{name} is damaged or foreign at byte {position}: expected {expected}, found {found}"
        )
        self.name = name
        self.position = position
        self.expected = expected
        self.found = found


class OffloadKey(NamedTuple):
    """Identifies one attempt to offload one ledger."""

    managed_ledger: str
    """Its name, such as ``public/default/persistent/topic``: some drivers make it part of the path."""
    ledger_id: int
    uuid: UUID


class FoundObject(NamedTuple):
    """An object with the name of an offloaded ledger or its index; anybody may have stored it."""

    name: str
    uri: str
    ledger_id: int
    uuid: str
    size: int
    modified_ms: int
    metadata: Mapping[str, str]
    """What its owner has stored with it; names in lower case."""


@dataclass(frozen=True)
class OffloadedLedger:
    """The size of an offloaded ledger, in entries and in bytes."""

    entries: int
    entry_bytes: int
    """Bytes of all entries, as the length of the ledger counts them."""
    stored_bytes: int
    """Bytes of all objects or files."""
    blocks: int


class OffloadWriter(ABC):
    """Writes one ledger. After an error, only :meth:`abort` may be called."""

    @property
    @abstractmethod
    def upload_id(self) -> str:
        """The store's name of the unfinished upload; empty if the driver has none."""

    @abstractmethod
    def append(self, first_entry_id: int, entries: Sequence[bytes | memoryview]) -> int:
        """Appends entries ``first_entry_id`` … in order and without gaps. Uploads each block that is full.

        :return: bytes of entries whose upload the store has confirmed by now
        :raises OffloadError: the upload failed
        :raises ValueError: ``first_entry_id`` is not the next entry
        """

    @abstractmethod
    def finish(self) -> OffloadedLedger:
        """Uploads the rest and the index, and compares with what the store returns.

        :raises OffloadedLedgerDamaged: the store does not return what was written
        :raises OffloadError: the upload failed
        :raises ValueError: entries or bytes are missing, compared with the metadata of the ledger
        """

    @abstractmethod
    def abort(self) -> None:
        """Removes what was stored. Idempotent.

        :raises OffloadError: something may be left: :meth:`OffloadDriver.discard` removes it later
        """


class OffloadedReader(ABC):
    """Reads one offloaded ledger."""

    @property
    @abstractmethod
    def record(self) -> LedgerRecord:
        """The metadata of the ledger as the offload stored it; always closed."""

    @property
    @abstractmethod
    def first_entry_id(self) -> int:
        """0, except in objects of several ledgers that begin within this one."""

    @property
    @abstractmethod
    def last_entry_id(self) -> int: ...

    @property
    @abstractmethod
    def length(self) -> int:
        """Bytes of all entries."""

    @property
    @abstractmethod
    def requests(self) -> int:
        """How often the store was asked for entries so far; reads that the cache answers do not count."""

    @abstractmethod
    def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        """Returns entries from ``first`` on, in order, without gaps, at most up to ``last``.

        Returns at least one entry; stops before the entry that would exceed ``max_bytes``. Reads ahead if
        ``first`` follows the previous read. Checksums of blocks and entries have been verified.

        :raises NoSuchEntry: ``first`` is outside of what is stored
        :raises OffloadError: the entries cannot be read
        """

    @abstractmethod
    def close(self) -> None:
        """Releases files; the cache keeps what was read."""


class OffloadDriver(ABC):
    """One kind of storage with its configuration."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As in ``managedLedgerOffloadDriver``."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, str]:
        """What is recorded with each offloaded ledger (``OffloadContext.driverMetadata``), so that it is
        found again after the configuration has changed. It contains no credentials."""

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

        :raises OffloadedLedgerMissing: it is not there
        :raises OffloadedLedgerDamaged: its index is damaged, or that of another ledger
        :raises OffloadError: it cannot be read now
        """

    @abstractmethod
    def delete(self, key: OffloadKey) -> None:
        """Deletes an offloaded ledger; has no effect if it does not exist.

        :raises OffloadError: something of it may be left
        """

    @abstractmethod
    def discard(self, key: OffloadKey, upload_id: str = "") -> None:
        """Removes everything of an attempt that has not finished, also after a crash.

        :param upload_id: of the attempt, if it is known; otherwise the store is asked for unfinished uploads
            of exactly this key
        :raises OffloadError: something of it may be left
        """

    def listed(self, after: str) -> tuple[Sequence[FoundObject], str]:
        """Returns some of the objects in the store, whoever has stored them, in the order of their names.
        They are shown to people, and nothing else depends on lists.

        :param after: what the previous call has returned; empty: begin
        :return: the objects, and where to go on; empty: that was all
        :raises OffloadMisconfigured: the driver does not list its store
        :raises OffloadError: the store cannot be listed
        """
        raise OffloadMisconfigured(f"driver {self.name} does not list what is stored")

    @abstractmethod
    def close(self) -> None:
        """Closes connections. Readers and writers must not be used afterwards."""
