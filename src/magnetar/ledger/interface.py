"""The contract of ledgers, which is BookKeeper's, for any ledger store.

A ledger is an append-only sequence of entries with ids 0, 1, 2, … from one writer. Once the ledger was opened
for recovery, no further append is acknowledged, and all later readers see the same entries
(https://bookkeeper.apache.org/docs/development/protocol).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from magnetar.ledger.embedded.ledger_reader import EmbeddedReadPlans


class LedgerError(Exception):
    """An operation on a ledger failed; subclasses give the reason."""


class NoSuchLedger(LedgerError):
    """The ledger was never created, or was deleted."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(f"no such ledger: {ledger_id}")
        self.ledger_id = ledger_id


class NoSuchEntry(LedgerError):
    """The entry id is beyond the last entry of the ledger, or the ledger's writer has released the entry."""


class EntryLost(LedgerError):
    """An entry that may have been acknowledged is lost: all bookies that could have it answered, and none has
    it."""


class LedgerFenced(LedgerError):
    """The ledger was opened for recovery, usually by another process, so its writer can no longer append."""


class EntryTooLarge(LedgerError):
    """An entry is larger than the store accepts; nothing of the append was stored."""

    def __init__(self, reason: str, index: int) -> None:
        """:param index: the index in ``starts`` of the first entry that is too large"""
        super().__init__(reason)
        self.index = index


class LedgerClosed(LedgerError):
    """The writer was closed, or ended by an earlier failure."""


class DataDamaged(LedgerError):
    """Acknowledged bytes do not read back as written; the message names file, offset and ledger."""


class LedgerUnreadable(LedgerError):
    """The operating system cannot read stored data, temporarily or permanently: the device fails, or a file
    cannot be opened."""


class StoreClosed(LedgerError):
    """The store is stopping."""


class StoreFull(LedgerError):
    """Storage is full, and the entries were not stored; the message gives the reason."""


class LedgerOutOfOrder(LedgerError):
    """A new ledger got an id below the id of an older ledger, but the ledger ids of a managed ledger must
    ascend.
    """


class NoSuchReadPlan(LedgerError):
    """The read plan was released or has expired."""


class TooManyReadPlans(LedgerError):
    """The maximum number of read plans is in use."""


@dataclass(frozen=True)
class Groups:
    """The isolation groups of bookies, by name."""

    first: frozenset[str]
    further: frozenset[str] = frozenset()
    """Groups whose bookies are used if the primary groups have too few."""


@dataclass(frozen=True)
class Quorums:
    """The number of copies of each entry; the embedded store keeps one copy and ignores quorums."""

    ensemble: int = 1
    write: int = 1
    ack: int = 1
    groups: Groups | None = None
    """The groups whose bookies store entries; None: the store's configuration applies."""


class LedgerState(Enum):
    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


@dataclass(frozen=True)
class LedgerMetadata:
    ledger_id: int
    state: LedgerState
    last_entry_id: int
    """The id of the last entry or, for an OPEN ledger, of the last entry that is known to be durable; -1: no
    entry.
    """
    length: int
    """Bytes of all entries up to ``last_entry_id``."""
    ctime_ms: int
    custom: Mapping[str, bytes] = field(default_factory=dict)


class LedgerListener(Protocol):
    """The owner of a writer, called on the loop and in order.

    Each call names the ledger, because a call for an earlier writer may come after the owner has switched to
    another one.
    """

    def on_durable(self, ledger_id: int, last_entry_id: int) -> None:
        """Reports, once per commit, that all entries up to ``last_entry_id`` are as durable as the quorums
        promise."""
        ...

    def on_failed(self, ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        """Reports that entries from ``first_entry_id`` on are not acknowledged and never will be; the writer
        has ended.

        Whether they are stored is unknown: the owner recovers the ledger, or closes it elsewhere.
        """
        ...


class LedgerWriter(Protocol):
    ledger_id: int

    def set_listener(self, listener: LedgerListener) -> None:
        """Sets the listener; must be called before the first append."""
        ...

    def append(self, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int) -> int:
        """Appends entries ``buffer[starts[i]:ends[i]]``, i in [first, first + count); returns the first id.

        Returns at once. The buffer must not change afterwards; the caller may reuse ``starts`` and ``ends``
        once this returns.

        :raises LedgerClosed: the writer has ended
        :raises EntryTooLarge: an entry is larger than the store accepts; nothing was appended, and the writer
            continues
        """
        ...

    async def close(self) -> tuple[int, int]:
        """Waits for the appends in flight and closes the ledger; returns (last entry id, length in bytes).

        When this returns, the listener has been called for all appends.

        :raises LedgerFenced: the ledger was recovered in the meantime
        """
        ...

    def forget_before(self, entry_id: int) -> None:
        """Hints that entries below ``entry_id`` will not be read again."""
        ...


class LedgerReader(Protocol):
    @property
    def metadata(self) -> LedgerMetadata: ...

    async def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        """Returns entries from ``first`` on, in order, without gaps, at most up to ``last``.

        Returns at least one entry; stops before the entry that would exceed ``max_bytes``.

        :raises NoSuchEntry: ``first`` is beyond the last entry that may be read, or is no longer stored
        :raises NoSuchLedger: the ledger was deleted meanwhile
        :raises DataDamaged: the stored bytes do not match their checksum
        :raises LedgerUnreadable: the operating system does not return the data
        """
        ...

    def in_background(self) -> None:
        """Declares later reads as background work, which should delay writers as little as possible.

        A read may then exceed ``max_bytes`` to return all adjacent entries, or return fewer entries than fit.
        """
        ...

    def has_confirmed(self, entry_id: int) -> None:
        """Tells the reader that the ledger's writer has confirmed all entries up to ``entry_id``; the store
        may not know this yet."""
        ...

    async def last_add_confirmed(self) -> int:
        """Returns the id of the last entry that is known to be durable now; -1: no entry. For an open ledger,
        the store is queried.

        :raises NoSuchLedger: the ledger was deleted in the meantime
        """
        ...

    def close(self) -> None: ...


class PlannedRange(NamedTuple):
    """Entries of one ledger in one file, which no longer changes."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    segment_id: int
    segment_file: str
    """The path of the segment file, relative to the store's data directory, like the path of the index
    file."""
    index_file: str


class ReadPlan(NamedTuple):
    """The files in which readers in other processes find entries. Entries outside the ranges are read through
    the store."""

    plan_id: str
    seconds: float
    """The time from now for which the files are kept; ``EmbeddedReadPlans.prolong`` extends it."""
    ranges: Sequence[PlannedRange]


class LedgerStore(Protocol):
    @property
    def read_plans(self) -> EmbeddedReadPlans | None:
        """Returns the read plans of the store; None if entries can only be read through the store."""
        ...

    cursor_write_interval: float | None
    """Seconds between two writes of a changed cursor if appends cost nearly nothing (they are part of the
    next group commit); None: the owner's own rate limit applies."""

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        """Creates a ledger with an id that was never used before; the ledger is durable when this returns.

        :param high_priority: whether entries are accepted even if the disk is too full for other ledgers;
            used for cursors, because saving their progress lets ledgers be deleted
        """
        ...

    async def open(self, ledger_id: int, *, recover: bool) -> LedgerReader:
        """Opens a ledger for reading; with ``recover``, first fences its writer durably and closes the
        ledger.

        Without ``recover``, an open ledger is read up to its last-add-confirmed, which keeps growing.

        :raises NoSuchLedger: the ledger does not exist
        """
        ...

    def may_be_written(self, ledger_id: int) -> bool:
        """Whether the ledger may have a writer; only a store that is used by one process may return False."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Deletes a ledger; does nothing if it does not exist. Durable when this returns."""
        ...

    async def ledger_ids(self) -> Sequence[int]:
        """Returns the ids of all existing ledgers, ascending, for the search for orphaned ledgers."""
        ...

    async def close(self) -> None:
        """Finishes the appends in flight and releases all resources. Idempotent."""
        ...


class EntryRun:
    """Entries ``first_entry_id`` … ``first_entry_id + count - 1`` of ``ledger_id``.

    Entry i is ``buffer[starts[i]:ends[i]]``. The buffer is immutable and may contain other bytes between the
    entries; no entry is copied until a socket or a group needs it.
    """

    __slots__ = ("buffer", "count", "ends", "first_entry_id", "ledger_id", "starts")

    def __init__(
        self,
        ledger_id: int,
        first_entry_id: int,
        count: int,
        buffer: bytes,
        starts: array[int],
        ends: array[int],
    ) -> None:
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.count = count
        self.buffer = buffer
        self.starts = starts
        self.ends = ends

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + self.count - 1

    def entry(self, index: int) -> bytes:
        """Returns a copy of the entry at ``index`` (0 … count-1)."""
        return self.buffer[self.starts[index] : self.ends[index]]

    def size(self) -> int:
        """Returns the bytes of all entries together."""
        return sum(self.ends[: self.count]) - sum(self.starts[: self.count])

    def __repr__(self) -> str:
        return f"EntryRun({self.ledger_id}:{self.first_entry_id}..{self.last_entry_id})"
