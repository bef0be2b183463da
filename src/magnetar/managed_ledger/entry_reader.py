"""Reads entries of a managed ledger from the cache or its ledgers, some of which may be lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from magnetar.ledger.interface import (
    EntryLost,
    EntryRun,
    LedgerError,
    LedgerReader,
    LedgerStore,
    NoSuchEntry,
    NoSuchLedger,
)
from magnetar.managed_ledger.entry_cache import LedgerCache
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.measures import TieredReads
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import LedgerSummary, Offload
from magnetar.managed_ledger.settings import ManagedLedgerSettings, OffloadPolicy, OffloadStorage

if TYPE_CHECKING:
    from magnetar.managed_ledger.tiered_storage import TieredStorage


GONE = (NoSuchLedger, EntryLost)
"""Errors that mean lost data. Any other error may be temporary, because servers come back."""


def is_in_tiered_storage_only(summary: LedgerSummary) -> bool:
    return summary.offload is not None and summary.offload.local_deleted


def slice_run(run: EntryRun, first_entry_id: int, count: int) -> EntryRun:
    """Returns the part of a run that begins at ``first_entry_id``; it shares the buffer."""
    offset = first_entry_id - run.first_entry_id
    count = min(count, run.count - offset)
    if offset == 0 and count == run.count:
        return run
    end = offset + count
    return EntryRun(
        run.ledger_id, first_entry_id, count, run.buffer, run.starts[offset:end], run.ends[offset:end]
    )


def bound_run(run: EntryRun, max_bytes: int) -> EntryRun:
    """Returns as many of the first entries of a run as fit into ``max_bytes`` bytes, but at least one."""
    if len(run.buffer) <= max_bytes:
        return run
    starts, ends = run.starts, run.ends
    total = 0
    for index in range(run.count):
        total += ends[index] - starts[index]
        if total > max_bytes and index:
            return slice_run(run, run.first_entry_id, index)
    return run


class EntryReader:
    """Reads entries of one managed ledger, and keeps the readers of its ledgers open."""

    def __init__(
        self,
        name: str,
        store: LedgerStore,
        ledgers: LedgerList,
        cache: LedgerCache,
        settings: ManagedLedgerSettings,
        tiered: Callable[[], TieredStorage],
    ) -> None:
        self._name = name
        self._store = store
        self._tiered = tiered
        self.offload_policy: OffloadPolicy | None = None
        self.prefers_local = False
        """Whether local copies are read even if the policy prefers tiered storage. True while the topic is
        being loaded, because loading must not depend on tiered storage."""
        self._ledgers = ledgers
        self._cache = cache
        self._settings = settings
        self._readers: dict[int, LedgerReader] = {}
        self._in_tiered_storage: frozenset[int] = frozenset()
        """Ledgers whose reader reads tiered storage."""
        self.tiered_reads: TieredReads | None = None
        """Counts of reads from tiered storage; None: there were no such reads."""
        self.confirmed: dict[int, int] = {}
        """The last readable entry by ledger id, for ledgers that another broker writes and whose last
        readable entry the ledger store does not report."""
        self.entries_read = 0
        self.bytes_read = 0
        self.entries_missed = 0
        self.read_errors = 0

    def read_cached(
        self, position: Position, last: Position, max_entries: int, max_bytes: int
    ) -> EntryRun | None:
        """Returns entries from ``position`` to at most ``last``; None if the first entry is not in the
        cache.
        """
        ledger_id, entry_id = position
        run = self._cache.find(ledger_id, entry_id)
        if run is None:
            return None
        end = last[1] if last[0] == ledger_id else run.last_entry_id
        count = min(max_entries, end - entry_id + 1)
        if count < 1:
            return None
        part = bound_run(slice_run(run, entry_id, count), max_bytes)
        size = part.size()
        self._cache.hit(part.count, size)
        self.entries_read += part.count
        self.bytes_read += size
        return part

    async def read(self, position: Position, last: Position, max_entries: int, max_bytes: int) -> EntryRun:
        """Reads entries like :meth:`read_cached`, from the ledger if necessary, and reads ahead into the
        cache.

        :raises NoSuchEntry: no entry is stored at ``position``
        :raises LedgerError: the ledger cannot be read
        """
        cached = self.read_cached(position, last, max_entries, max_bytes)
        if cached is not None:
            return cached
        ledger_id, entry_id = position
        summary = self._ledgers.get(ledger_id)
        if summary is None:
            raise NoSuchLedger(ledger_id)
        end = min(summary.entries - 1, last[1]) if last[0] == ledger_id else summary.entries - 1
        if entry_id > end:
            raise NoSuchEntry(f"no entry is stored at {ledger_id}:{entry_id}")
        limit = self._settings.read_max_entries
        until = min(end, entry_id + limit - 1) if limit else end
        try:
            runs = await self._runs(summary, entry_id, until, self._settings.read_ahead_bytes)
        except Exception:
            self.read_errors += 1
            raise
        if not runs or runs[0].first_entry_id != entry_id:
            self.read_errors += 1
            raise NoSuchEntry(f"the ledger store has no entry {ledger_id}:{entry_id}")
        for run in runs:
            self._cache.insert(run)
        part = bound_run(slice_run(runs[0], entry_id, max_entries), max_bytes)
        size = part.size()
        self._cache.missed(part.count, size)
        self.entries_missed += part.count
        self.entries_read += part.count
        self.bytes_read += size
        return part

    async def read_one(self, position: Position) -> EntryRun:
        """Reads a single entry without adding it to the cache.

        :raises NoSuchEntry: no entry is stored at ``position``
        :raises LedgerError: the ledger cannot be read
        """
        cached = self.read_cached(position, position, 1, 1)
        if cached is not None:
            return cached
        ledger_id, entry_id = position
        summary = self._ledgers.get(ledger_id)
        if summary is None:
            raise NoSuchLedger(ledger_id)
        if entry_id >= summary.entries:
            raise NoSuchEntry(f"no entry is stored at {ledger_id}:{entry_id}")
        runs = await self._runs(summary, entry_id, entry_id, 1)
        if not runs or runs[0].first_entry_id != entry_id:
            self.read_errors += 1
            raise NoSuchEntry(f"the ledger store has no entry {ledger_id}:{entry_id}")
        self.entries_read += 1
        self.entries_missed += 1
        self.bytes_read += runs[0].size()
        return runs[0]

    def tiered_place(self, position: Position) -> Offload | None:
        """Returns the offload from which an entry is read; None: the entry is read from the ledger store."""
        summary = self._ledgers.get(position[0])
        offload = None if summary is None else summary.offload
        if offload is None or not offload.complete:
            return None
        policy = self.offload_policy
        tiered_first = policy is not None and policy.tiered_first and not self.prefers_local
        return offload if offload.local_deleted or tiered_first else None

    async def _runs(
        self, summary: LedgerSummary, first: int, last: int, max_bytes: int
    ) -> Sequence[EntryRun]:
        ledger_id = summary.ledger_id
        tiered = False
        try:
            reader = await self._reader(summary)
            tiered = ledger_id in self._in_tiered_storage
            if ledger_id in self.confirmed:
                reader.has_confirmed(self.confirmed[ledger_id])
            return await reader.read(first, last, max_bytes)
        except LedgerError as error:
            if self._ledgers.get(ledger_id) is None:
                # It was trimmed meanwhile, which closed its reader.
                raise NoSuchLedger(ledger_id) from error
            if not isinstance(error, GONE) or tiered or not is_in_tiered_storage_only(summary):
                raise
        # Its local copy was deleted meanwhile.
        self.local_copy_deleted(ledger_id)
        reader = await self._reader(summary)
        return await reader.read(first, last, max_bytes)

    def _storage(self) -> OffloadStorage | None:
        return None if self.offload_policy is None else self.offload_policy.storage

    async def _reader(self, summary: LedgerSummary) -> LedgerReader:
        ledger_id = summary.ledger_id
        reader = self._readers.get(ledger_id)
        if reader is None:
            place = self.tiered_place((ledger_id, 0))
            reader = await self._open(ledger_id, place)
            twin = self._readers.setdefault(ledger_id, reader)
            if twin is not reader:
                reader.close()
                reader = twin
            elif place is not None:
                self._in_tiered_storage |= {ledger_id}
        return reader

    async def _open(self, ledger_id: int, place: Offload | None) -> LedgerReader:
        if place is None:
            return await self._store.open(ledger_id, recover=False)
        reads = self.tiered_reads = self.tiered_reads or TieredReads()
        return await self._tiered().open(self._name, ledger_id, place, self._storage, reads)

    async def open_apart(self, ledger_id: int) -> LedgerReader:
        """Returns a new reader for a ledger, in the ledger store or tiered storage; the caller closes it.
        Reads may raise an error of :data:`GONE` if the local copy is deleted in the meantime.

        :raises LedgerError: the ledger cannot be read
        """
        return await self._open(ledger_id, self.tiered_place((ledger_id, 0)))

    def local_copy_deleted(self, ledger_id: int) -> None:
        """Closes the reader of a ledger, unless it reads tiered storage."""
        if ledger_id not in self._in_tiered_storage:
            reader = self._readers.pop(ledger_id, None)
            if reader is not None:
                reader.close()

    def forget(self, ledger_id: int) -> None:
        """Closes the reader of a ledger and drops its cached entries."""
        self.confirmed.pop(ledger_id, None)
        self._in_tiered_storage -= {ledger_id}
        reader = self._readers.pop(ledger_id, None)
        if reader is not None:
            reader.close()
        self._cache.drop_ledger(ledger_id)

    def close(self) -> None:
        for ledger_id in list(self._readers):
            self.forget(ledger_id)
        self._cache.clear()


class LostData:
    """Lost data of all managed ledgers of a process, for example ledgers deleted by mistake, and whether
    cursors skip it."""

    def __init__(self, *, skip: bool) -> None:
        self.skip = skip
        """Whether cursors skip lost data (autoSkipNonRecoverableData). Otherwise they stop at the lost entry,
        and the error is reported."""
        self.ledgers = 0
        """The number of managed ledgers whose last ledger was lost and left out."""
        self.entries = 0
        """The number of lost entries that were skipped, counted for each cursor."""

    def metrics(self) -> Mapping[str, float]:
        return {
            "magnetar_lost_ledgers_skipped": self.ledgers,
            "magnetar_lost_entries_skipped": self.entries,
        }
