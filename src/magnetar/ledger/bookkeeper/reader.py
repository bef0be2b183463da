"""Opens ledgers for reading, and reads them from their bookies."""

from __future__ import annotations

import hmac
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from magnetar.io.interfaces import Clock, Loop
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.waiting import finished, nobody_waits, sleep
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.digests import Digest
from magnetar.ledger.bookkeeper.ledger_record import BookiesUnavailable, LedgerRecord, WrongPassword
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.placement import Placement
from magnetar.ledger.bookkeeper.question import (
    BATCH_ENTRY_OVERHEAD,
    BATCH_OVERHEAD,
    LastEntries,
    Question,
    ReadingMemory,
    RequestContext,
    StoredEntry,
    all_answered,
)
from magnetar.ledger.bookkeeper.recovery import RecoveryParts, recovered
from magnetar.ledger.interface import (
    DataDamaged,
    EntryLost,
    EntryRun,
    LedgerMetadata,
    LedgerState,
    NoSuchEntry,
    NoSuchLedger,
    StoreClosed,
)

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.writer import BookKeeperWriter


_TRY_AGAIN_SECONDS = (0.3, 1.0)
"""The delays in seconds before failed reads are tried again; longer than the time for which no new connection
to a bookie is opened after a failure."""
_SINGLES = 16
"""The number of entries that are requested at the same time without batch reads; these entries have at most
80 MiB together.
"""
_BATCH_BYTES = 5 << 20
"""The maximum size of a bookie's answer to a batch read."""
_BATCH_ENTRIES = 10_000


class ReadSettings(NamedTuple):
    speculative_seconds: float = 0.0
    """The delay in seconds before another bookie is asked as well; 0: never
    (bookkeeperClientSpeculativeReadTimeoutInMillis)."""
    sticky: bool = True
    """Whether a reader continues to read from one bookie of the ensemble as long as this bookie answers
    (bookkeeperEnableStickyReads)."""
    batches: bool = True


class ReadParts(NamedTuple):
    """The objects that all readers of a store share."""

    loop: Loop
    records: LedgerRecords
    bookie: Callable[[str], Bookie]
    """Returns the connection for reading from a bookie. No writer may share this connection, because the
    bookie may close it after an unknown request."""
    written: Callable[[int], BookKeeperWriter | None]
    """Returns the writer of a ledger; None: the writer is not in this process, or has ended."""
    memory: ReadingMemory
    settings: ReadSettings


class LedgerFate:
    """The state that all readers of a ledger in this process share."""

    __slots__ = ("__weakref__", "closed", "deleted")

    def __init__(self) -> None:
        self.deleted = False
        """Whether the ledger was deleted in this process. Other deletions are noticed when bookies have
        dropped the entries."""
        self.closed = False
        """Whether the store was closed."""


class BookKeeperReader:
    """A ``LedgerReader``. The ledger's metadata is read again when none of its bookies answers."""

    def __init__(self, ledger_id: int, record: LedgerRecord, fate: LedgerFate, parts: ReadParts) -> None:
        self.ledger_id = ledger_id
        self._fate = fate
        self._record = record
        self._parts = parts
        digest = Digest(record.digest, record.password)
        self._asking = RequestContext(
            parts.loop,
            ledger_id,
            digest,
            parts.bookie,
            parts.memory,
            speculative_seconds=parts.settings.speculative_seconds,
        )
        self._sticky = ledger_id % record.quorums.ensemble
        self._confirmed = record.last_entry_id
        self._confirmed_length = record.length
        self._entry_bytes = 0
        """The size of the largest entry of the last read."""
        self._closed = False

    @property
    def metadata(self) -> LedgerMetadata:
        record = self._record
        self._hear_writer()
        return LedgerMetadata(
            self.ledger_id,
            record.state,
            self._confirmed,
            self._confirmed_length,
            record.ctime_ms,
            record.custom,
        )

    def close(self) -> None:
        self._closed = True

    def in_background(self) -> None:
        """Does nothing, because bookies write to another device than they read from."""

    def has_confirmed(self, entry_id: int) -> None:
        """Records that entries up to ``entry_id`` are confirmed; bookies learn this only with the next
        entry."""
        if not self._is_closed():
            self._has_confirmed(entry_id, None)

    async def last_add_confirmed(self) -> int:
        self._still_there()
        if self._is_closed() or self._hear_writer():
            return self._confirmed
        await self._read_record()
        if self._is_closed():
            return self._confirmed
        found = LastEntries(self._asking, self._record)
        await found.ask()
        self._still_there()
        if not found.covered and found.confirmed <= self._confirmed:
            raise BookiesUnavailable(
                f"the last confirmed entry of ledger {self.ledger_id} cannot be determined: {found.story()}"
            )
        self._has_confirmed(found.confirmed, found.confirmed_length)
        return self._confirmed

    async def read(self, first: int, last: int, max_bytes: int) -> Sequence[EntryRun]:
        self._still_there()
        self._hear_writer()
        if first > self._confirmed and first <= last:
            await self.last_add_confirmed()
        if first < 0 or first > min(last, self._confirmed):
            raise NoSuchEntry(
                f"ledger {self.ledger_id} has no entry {first}: the last confirmed entry is {self._confirmed}"
            )
        last = min(last, self._confirmed)
        taken: list[StoredEntry] = []
        left, more = max_bytes, True
        while more and first <= last:
            try:
                entries = await self._read_some(first, last, left)
            except (BookiesUnavailable, DataDamaged, EntryLost):
                if not taken:
                    raise
                # The next read of that entry raises the error.
                break
            self._entry_bytes = max(entry.payload_bytes for entry in entries)
            for entry in entries:
                left -= entry.payload_bytes
                if left < 0 and taken:
                    more = False
                    break
                taken.append(entry)
                first += 1
            more = more and left > 0
        self._note_confirmed(taken[-1])
        return [_run(self.ledger_id, taken)]

    def _still_there(self) -> None:
        if self._closed or self._fate.closed:
            raise StoreClosed(f"the reader of ledger {self.ledger_id} is closed")
        if self._fate.deleted:
            raise NoSuchLedger(self.ledger_id)

    def _is_closed(self) -> bool:
        return self._record.state is LedgerState.CLOSED

    def _hear_writer(self) -> bool:
        """Takes the last-add-confirmed from a writer in this process; returns False without such a writer."""
        writer = None if self._is_closed() else self._parts.written(self.ledger_id)
        if writer is None:
            return False
        self._has_confirmed(writer.last_add_confirmed, writer.confirmed_length)
        return True

    def _has_confirmed(self, entry_id: int, length: int | None) -> None:
        if entry_id > self._confirmed:
            self._confirmed = entry_id
            self._confirmed_length = length if length is not None else self._confirmed_length

    def _note_confirmed(self, entry: StoredEntry) -> None:
        """Takes the last-add-confirmed in an entry of an open ledger."""
        if not self._is_closed():
            self._has_confirmed(entry.said.last_add_confirmed, None)

    async def _read_some(self, first: int, last: int, max_bytes: int) -> list[StoredEntry]:
        """Returns entry ``first``, and possibly some entries after it, up to ``last``."""
        pauses = list(_TRY_AGAIN_SECONDS)
        while True:
            record = self._record
            questions = self._questions(first, last, max_bytes)
            await all_answered(self._parts.loop, questions)
            self._still_there()
            found: list[StoredEntry] = []
            for question in questions:
                if not question.entries:
                    break
                found += question.entries
            if found:
                return found
            await self._read_record()
            if self._record.ensemble_of(first) != record.ensemble_of(first):
                continue
            if not pauses or questions[0].missing == len(questions[0].refused):
                self._give_up(questions[0])
            await sleep(self._parts.loop, pauses.pop(0))

    def _questions(self, first: int, last: int, max_bytes: int) -> list[Question]:
        record = self._record
        last = min(last, record.end_of_segment(first))
        max_bytes = max(max_bytes, 0)
        average = self._confirmed_length // (self._confirmed + 1)
        largest = max(average, self._entry_bytes)
        if first < last and self._may_ask_batch(bookies := self._bookies(first)):
            # Enough entries to see which one does not fit any more.
            expected = min(last - first + 1, max_bytes // average + 2 if average else _BATCH_ENTRIES)
            around = self._asking.digest.start + BATCH_ENTRY_OVERHEAD
            limit = min(BATCH_OVERHEAD + max_bytes + largest + expected * around, _BATCH_BYTES)
            count = min(last - first + 1, 2 * expected, _BATCH_ENTRIES)
            return [Question(self._asking, bookies, first, count, limit)]
        count = min(last - first + 1, max_bytes // largest + 2 if largest else _SINGLES, _SINGLES)
        return [
            Question(self._asking, self._bookies(entry_id), entry_id)
            for entry_id in range(first, first + count)
        ]

    def _may_ask_batch(self, bookies: Sequence[str]) -> bool:
        """Whether all of the bookies have all entries of the segment, and the first bookie supports batch
        reads.
        """
        parts, quorums = self._parts, self._record.quorums
        each_has_all = quorums.ensemble == quorums.write
        return parts.settings.batches and each_has_all and parts.memory.takes_batches(bookies[0])

    def _bookies(self, entry_id: int) -> list[str]:
        record = self._record
        ensemble = record.ensemble_of(entry_id)
        indexes = record.write_set(entry_id)
        if self._parts.settings.sticky and self._sticky in indexes:
            at = indexes.index(self._sticky)
            indexes = indexes[at:] + indexes[:at]
        return self._parts.memory.in_order([ensemble[index] for index in indexes])

    async def _read_record(self) -> None:
        self._record = (await self._parts.records.read(self.ledger_id)).record
        self._still_there()
        if self._is_closed():
            self._confirmed, self._confirmed_length = self._record.last_entry_id, self._record.length

    def _give_up(self, question: Question) -> None:
        where = f"entry {question.first} of ledger {self.ledger_id}"
        if question.damage is not None:
            raise question.damage
        if question.missing == len(question.refused):
            raise EntryLost(f"{where} was acknowledged, but no bookie has it: {question.story()}")
        raise BookiesUnavailable(f"{where} cannot be read: {question.story()}")


def _run(ledger_id: int, entries: Sequence[StoredEntry]) -> EntryRun:
    """Joins the entries of a batch into one buffer, as the entry cache expects."""
    starts, ends = array("q"), array("q")
    at = 0
    for said, data in entries:
        starts.append(at + said.start)
        at += len(data)
        ends.append(at)
    buffer = entries[0].data if len(entries) == 1 else b"".join(entry.data for entry in entries)
    return EntryRun(ledger_id, entries[0].said.entry_id, len(entries), buffer, starts, ends)


class OpeningParts(NamedTuple):
    """The parts of a store that opening a ledger needs."""

    loop: Loop
    clock: Clock
    records: LedgerRecords
    reading: Callable[[str], Bookie]
    """Returns the connection to a bookie that no writer shares: an unknown request may make the bookie close
    it."""
    recovering: Callable[[str], Bookie]
    """Returns a connection to a bookie; only recoveries use this connection."""
    placement: Placement
    written: Callable[[int], BookKeeperWriter | None]
    """Returns the writer of a ledger; None: the writer is not in this process, or has ended."""
    fencing: Callable[[int], object]
    """Called before the bookies of a ledger are fenced."""
    password: bytes = b""
    settings: ReadSettings = ReadSettings()


class LedgerOpening:
    """Opens the readers of a store."""

    def __init__(self, parts: OpeningParts) -> None:
        self._loop = parts.loop
        self._records = parts.records
        self._password = parts.password
        memory = ReadingMemory(parts.clock)
        self._read_parts = ReadParts(
            parts.loop, parts.records, parts.reading, parts.written, memory, parts.settings
        )
        self._recovery_parts = RecoveryParts(
            parts.loop, parts.records, parts.recovering, parts.placement, memory, parts.fencing
        )
        self._tasks = TaskScope(parts.loop, "recoveries of ledgers")
        self._recovering: KeyedTasks[int, Versioned] = KeyedTasks(self._tasks)
        self._fates: WeakValueDictionary[int, LedgerFate] = WeakValueDictionary()

    async def open(self, ledger_id: int, *, recover: bool) -> BookKeeperReader:
        """Opens a ledger; see ``LedgerStore.open``.

        :raises WrongPassword: the ledger was created with another password
        """
        # Before the read, so that a deletion from here on is reported to this reader.
        fate = self._fates.get(ledger_id)
        if fate is None:
            fate = self._fates[ledger_id] = LedgerFate()
        found = await self._records.read(ledger_id)
        if not hmac.compare_digest(found.record.password, self._password):
            raise WrongPassword(
                f"ledger {ledger_id} was created with another password; set managedLedgerPassword to it"
            )
        if recover and found.record.state is not LedgerState.CLOSED:
            found = await self._recovered(ledger_id)
        return BookKeeperReader(ledger_id, found.record, fate, self._read_parts)

    def deleted(self, ledger_id: int) -> None:
        """Ends the readers of a ledger whose metadata is deleted."""
        fate = self._fates.get(ledger_id)
        if fate is not None:
            fate.deleted = True

    async def close(self) -> None:
        """Stops recoveries in progress, like a crash: the next client that opens such a ledger continues its
        recovery."""
        self._tasks.cancel()
        for fate in list(self._fates.values()):
            fate.closed = True

    async def _recovered(self, ledger_id: int) -> Versioned:
        task = self._recovering.answer(ledger_id, lambda: recovered(ledger_id, self._recovery_parts))
        # This caller may be cancelled meanwhile.
        task.add_done_callback(nobody_waits)
        await finished(self._loop, task)
        if task.cancelled():
            raise StoreClosed(f"ledger {ledger_id} was being recovered when the store closed")
        return task.result()
