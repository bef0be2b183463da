"""The contract of ledgers: BookKeeper's, whatever stores them.

A ledger is an append-only sequence of entries with ids 0, 1, 2, … written by one writer. Once somebody
opened it for recovery, no append that was not acknowledged before can be acknowledged any more, and
everybody who opens it afterwards sees the same entries (https://bookkeeper.apache.org/docs/development/protocol).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple, Protocol

from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.entry_run import EntryRun


class LedgerError(Exception):
    """An operation on a ledger failed; subclasses say how."""


class NoSuchLedger(LedgerError):
    """The ledger was never made, or is deleted."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(f"no such ledger: {ledger_id}")
        self.ledger_id = ledger_id


class NoSuchEntry(LedgerError):
    """The entry id lies beyond the last entry of the ledger."""


class EntryLost(LedgerError):
    """An entry that may have been acknowledged is nowhere: all who could have it answer, and have it not."""


class LedgerFenced(LedgerError):
    """Somebody else opened the ledger for recovery; this writer has ended."""


class EntryTooLarge(LedgerError):
    """The store takes no entry of that size; nothing of the append was stored."""

    def __init__(self, reason: str, index: int) -> None:
        """:param index: of the first entry that is too large, in the ``starts`` of the append"""
        super().__init__(reason)
        self.index = index


class LedgerClosed(LedgerError):
    """The writer was closed, or ended by an earlier failure."""


class DataDamaged(LedgerError):
    """Bytes that were acknowledged do not read back as written; names file, offset and ledger."""


class LedgerUnreadable(LedgerError):
    """The system does not give back what is stored, now or ever: a device or an opening fails."""


class StoreClosed(LedgerError):
    """The store is stopping."""


class StoreFull(LedgerError):
    """There is no room for entries; says why. They were not stored."""


class LedgerOutOfOrder(LedgerError):
    """New ledgers have ids below those of older ones, where order matters."""


class NoSuchReadPlan(LedgerError):
    """The read plan was released, or has expired."""


class TooManyReadPlans(LedgerError):
    """As many read plans are held as the store allows."""


@dataclass(frozen=True)
class Groups:
    """Groups of bookies, by name."""

    first: frozenset[str]
    further: frozenset[str] = frozenset()
    """Where there are too few bookies in the first."""


@dataclass(frozen=True)
class Quorums:
    """Copies of each entry; the embedded store keeps one and ignores all of it."""

    ensemble: int = 1
    write: int = 1
    ack: int = 1
    groups: Groups | None = None
    """Only bookies of these have any; None: as the store is set up."""


class LedgerState(Enum):
    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


@dataclass(frozen=True)
class LedgerMetadata:
    ledger_id: int
    state: LedgerState
    last_entry_id: int
    """-1 for none; of an OPEN ledger the last one known durable."""
    length: int
    """Bytes of all entries up to ``last_entry_id``."""
    ctime_ms: int
    custom: Mapping[str, bytes] = field(default_factory=dict)


class LedgerListener(Protocol):
    """The owner of a writer; called in the loop, in order.

    Each call says of which ledger: that of a writer whose owner has gone on in another one may come late.
    """

    def on_durable(self, ledger_id: int, last_entry_id: int) -> None:
        """All entries up to ``last_entry_id`` survive whatever the quorums promise. Once a commit."""
        ...

    def on_failed(self, ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        """Entries from ``first_entry_id`` on are not acknowledged and never will be; the writer has ended.

        Whether they are stored is unknown: the owner recovers the ledger, or closes it elsewhere.
        """
        ...


class LedgerWriter(Protocol):
    ledger_id: int

    def set_listener(self, listener: LedgerListener) -> None:
        """Must be called before the first append."""
        ...

    def append(self, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int) -> int:
        """Appends entries ``buffer[starts[i]:ends[i]]``, i in [first, first + count); returns the first id.

        Returns at once; the buffer must not change afterwards; ``starts`` and ``ends`` may be reused by the
        caller once this returns.

        :raises LedgerClosed: the writer has ended
        :raises EntryTooLarge: the store takes no entry of that size; nothing was appended, the writer goes on
        """
        ...

    async def close(self) -> tuple[int, int]:
        """Waits for the appends in flight and closes the ledger; returns (last entry id, length).

        The listener has been told of all of them when this returns.

        :raises LedgerFenced: somebody recovered the ledger meanwhile
        """
        ...

    def forget_before(self, entry_id: int) -> None:
        """Hints that entries below ``entry_id`` will not be read again."""
        ...


class LedgerReader(Protocol):
    @property
    def metadata(self) -> LedgerMetadata: ...

    async def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        """Entries from ``first`` on, in order, without gaps, at most to ``last``.

        At least one entry; stops before the entry that would exceed ``max_bytes``.

        :raises NoSuchEntry: ``first`` is beyond the last entry that may be read
        :raises NoSuchLedger: it was deleted meanwhile
        :raises DataDamaged: what is stored does not carry its checksum
        :raises LedgerUnreadable: the system does not give it back
        """
        ...

    def in_background(self) -> None:
        """What is read from now on is in no hurry: who writes meanwhile is to wait as little as can be.

        A read may then bring more than ``max_bytes``, as much as lies together, or less.
        """
        ...

    def has_confirmed(self, entry_id: int) -> None:
        """Whoever writes the ledger has confirmed all entries up to this one, whether the store knows it yet
        or not."""
        ...

    async def last_add_confirmed(self) -> int:
        """The last entry known durable now; -1 for none. Of an open ledger the store is asked.

        :raises NoSuchLedger: it was deleted meanwhile
        """
        ...

    def close(self) -> None: ...


class PlannedRange(NamedTuple):
    """Entries of one ledger that lie in one file, which nobody changes any more."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    segment_id: int
    segment_file: str
    """Below the store's data directory, as is the index."""
    index_file: str


class ReadPlan(NamedTuple):
    """Where readers in other processes find entries. What no range names is read through the store."""

    plan_id: str
    seconds: float
    """How long the files stay; see ``ReadPlans.prolong``."""
    ranges: Sequence[PlannedRange]


class ReadPlans(Protocol):
    """Files for readers in other processes on the same file system."""

    def make(self, ranges: Sequence[tuple[int, int, int]], seconds: float) -> ReadPlan:
        """A plan for (ledger id, first entry, last entry) of each; its files stay for ``seconds``.

        :raises TooManyReadPlans: release some, or wait until they expire
        :raises StoreClosed: the store is stopping
        """
        ...

    def prolong(self, plan_id: str, seconds: float) -> None:
        """From now on the files stay for ``seconds``.

        :raises NoSuchReadPlan: it was released or has expired
        """
        ...

    def release(self, plan_id: str) -> None:
        """The files are not needed any more. A plan that is gone is fine."""
        ...


class LedgerStore(Protocol):
    @property
    def read_plans(self) -> ReadPlans | None:
        """None: entries come through the store alone."""
        ...

    cursor_write_interval: float | None
    """Seconds between two writes of a dirty cursor when appends are nearly free (they ride along with the
    next group commit); None: the owner's own rate limit holds."""

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> LedgerWriter:
        """Makes a ledger with an id never used before; it is known durably when this returns.

        :param high_priority: its entries are stored even where there is no room for others: cursors, which
            make room
        """
        ...

    async def open(self, ledger_id: int, *, recover: bool) -> LedgerReader:
        """Opens a ledger for reading; ``recover`` first fences its writer durably and closes it there.

        Without ``recover`` an open ledger is read up to its last-add-confirmed, which goes on growing.

        :raises NoSuchLedger: it does not exist
        """
        ...

    def may_be_written(self, ledger_id: int) -> bool:
        """Whether somebody may be writing to a ledger; only a store that no other process uses may say no."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Deletes a ledger; one that does not exist is fine. Durable when this returns."""
        ...

    async def ledger_ids(self) -> Sequence[int]:
        """All ledgers that exist, in ascending order; for the scan that removes what nothing names."""
        ...

    async def close(self) -> None:
        """Finishes the appends in flight and releases everything. Idempotent."""
        ...
