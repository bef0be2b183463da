"""The embedded ledger store: all ledgers of a process in one log on the local disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from magnetar.invariants import must
from magnetar.io.interfaces import File, Future, Io
from magnetar.io.slices import let_others
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.waiting import Reminder, outcome
from magnetar.ledger.embedded.compaction import Compaction, Compactions, Segments
from magnetar.ledger.embedded.group import LEDGER_CLOSED, LEDGER_CREATED, LEDGER_DELETED
from magnetar.ledger.embedded.identity import STORE_ID_BYTES, lock_store, store_identity
from magnetar.ledger.embedded.images import StoreImages
from magnetar.ledger.embedded.index_lookup import IndexLookup
from magnetar.ledger.embedded.ledger_reader import EmbeddedReader, EmbeddedReadPlans, ReadContext
from magnetar.ledger.embedded.ledger_table import LedgerRow, LedgerTable, encode_closed, encode_created
from magnetar.ledger.embedded.ledger_writer import EmbeddedWriter, WriteContext
from magnetar.ledger.embedded.log import CommitLog
from magnetar.ledger.embedded.log_end import LogEndFile, StoreFailure
from magnetar.ledger.embedded.maintenance import LogStart, Maintenance
from magnetar.ledger.embedded.opening import open_directory
from magnetar.ledger.embedded.segment_files import SegmentFiles
from magnetar.ledger.embedded.segment_reads import SegmentReads
from magnetar.ledger.embedded.segment_supply import LogSegment, SegmentSupply
from magnetar.ledger.embedded.segment_table import SegmentState
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerMetadata,
    NoSuchLedger,
    Quorums,
    StoreClosed,
    StoreFull,
)


class SpaceUse(NamedTuple):
    """The space that a store's files take, in bytes, and the segments that were rewritten."""

    stored_bytes: int
    """The size of all segments, including deleted entries and room that is filled ahead."""
    wanted_bytes: int
    """The stored size of the entries that may still be read."""
    ahead_bytes: int
    """The size of the unused rest of the segment that is being written, of the prepared segment, and of the
    segments kept for reuse."""
    segments: int
    """The number of sealed segments."""
    ledgers: int
    compactions: Compactions


class EmbeddedLedgerStore:
    """A ``LedgerStore`` on the local disk, opened by :meth:`open_store`.

    A ledger's id is durable before it is returned, and never assigned again, because the record in the log
    that creates the ledger contains it. Appends, changes of ledgers and closes go through the same log, in
    order.
    """

    def __init__(self, io: Io, directory: str, settings: EmbeddedSettings, lock: File) -> None:
        """Takes the files of an open store; blocks. Use :meth:`open_store`."""
        self.cursor_write_interval: float | None = settings.cursor_write_interval
        self._io = io
        self._lock = lock
        self._writers: dict[int, EmbeddedWriter] = {}
        self._recovering: KeyedTasks[int, None] = KeyedTasks(TaskScope(io.loop, "recoveries of ledgers"))
        self._deleting: dict[int, Future[None]] = {}
        self._short: Callable[[str], object] = lambda _reason: None
        self._stopped: Future[None] | None = None
        failure = StoreFailure(io)
        reminder = self._reminder = Reminder(io.loop)
        store_id = store_identity(io.disk, directory, lambda: io.randomness.token(STORE_ID_BYTES))
        self.store_id = store_id
        files = self._files = SegmentFiles(io.disk, directory, settings, store_id)
        table = self._table = LedgerTable()
        found = open_directory(io.disk, directory, files, settings, store_id, table)
        segments = self._segments = found.table()
        reads = self._reads = SegmentReads(io, files, settings, reminder.remind)
        lookup = IndexLookup(files, reads, segments, settings.index_cache_bytes)
        self._context = ReadContext(table, segments, lookup, reads, files, settings.coalesce_gap_bytes)
        self.read_plans = EmbeddedReadPlans(io, self._context, settings.read_plans)
        self._log_worker = io.start_worker("ledger-log")
        space_worker = self._space_worker = io.start_worker("ledger-space")
        supply = self._supply = SegmentSupply(
            files, space_worker, settings, segments.take_id, failure, self._tell_shortage
        )
        log_end = LogEndFile(io, directory, store_id, space_worker, failure)
        log = self._log = CommitLog(
            io,
            self._log_worker,
            settings,
            table,
            supply,
            self._begun,
            self._filled,
            found.next_sequence,
            failure,
            log_end.note,
        )
        table.fail = log.fail
        access = Segments(segments, files, lookup, reads, store_id)
        compaction = self._compaction = Compaction(io, settings, access, table, failure, reminder.remind)
        self._maintenance = Maintenance(
            io,
            directory,
            space_worker,
            access,
            table,
            compaction,
            reminder,
            LogStart(log.segment.segment_id, found.next_sequence),
            supply.look_for_room,
            failure,
        )
        self.images = StoreImages(directory, log, segments, reads, files, self._maintenance)
        part_bytes = min(settings.run_bytes, settings.group_bytes)
        self._write_context = WriteContext(log, io.loop, part_bytes, self._forget, self._writer_closed)

    @classmethod
    async def open_store(cls, io: Io, directory: str, settings: EmbeddedSettings) -> EmbeddedLedgerStore:
        """Opens the store in ``directory``, which is created if it is missing.

        :raises StoreLocked: another process uses the directory
        :raises UnknownFormat: a newer release wrote the directory
        :raises DataDamaged: acknowledged bytes do not read back; the message names them
        :raises SpaceExhausted: there is not enough room for a segment
        """
        lock = lock_store(io.disk, directory)
        try:
            store = cls(io, directory, settings, lock)
            await store._maintenance.checkpoint()
        except BaseException:
            lock.close()
            raise
        # From here on nothing is urgent: neither the next segment nor the sealing of earlier ones.
        store._supply.prefetch(store._log.segment, store._log.segment)
        store._maintenance.start()
        await let_others(io.loop)
        return store

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> EmbeddedWriter:
        self._refuse_when_closed()
        if self._log.takes_changes_only:
            # A new ledger frees no room, and there would be none for its entries.
            raise StoreFull(self._supply.shortage)
        ledger_id = self._table.next_ledger_id
        self._table.next_ledger_id = ledger_id + 1
        body = encode_created(self._io.clock.wall_ms(), custom)
        await self._log.control(LEDGER_CREATED, ledger_id, body)
        # A close does not wait for the appends of a writer that is not registered.
        self._refuse_when_closed()
        row = self._row(ledger_id)
        writer = EmbeddedWriter(row, self._write_context, high_priority=high_priority)
        self._writers[ledger_id] = writer
        return writer

    async def open(self, ledger_id: int, *, recover: bool) -> EmbeddedReader:
        self._refuse_when_closed()
        row = self._row(ledger_id)
        if recover:
            await self._recover(row)
        return EmbeddedReader(row, self._context)

    def may_be_written(self, ledger_id: int) -> bool:
        # No writer outlives the process, and the lock keeps other processes away.
        return ledger_id in self._writers

    async def delete(self, ledger_id: int) -> None:
        self._refuse_when_closed()
        if ledger_id not in self._table.rows:
            return
        deleted = self._deleting.get(ledger_id)
        if deleted is None:
            self._end_writer(ledger_id, LedgerClosed(f"ledger {ledger_id} is deleted"))
            deleted = self._log.control(LEDGER_DELETED, ledger_id)
            self._deleting[ledger_id] = deleted
            deleted.add_done_callback(lambda _: self._deleted(ledger_id))
        await outcome(self._io.loop, deleted)

    async def ledger_ids(self) -> Sequence[int]:
        self._refuse_when_closed()
        return sorted(self._table.rows)

    @property
    def durable_next_ledger_id(self) -> int:
        """A number above all ledger ids whose assignment is durable, so that even a crash cannot undo it."""
        return self._table.durable_next_ledger_id

    def ledgers_of(self, component: bytes) -> list[LedgerMetadata]:
        """Returns the metadata of ledgers with this ``component`` in their custom metadata, in ascending
        order of ids."""
        rows = (row for row in self._table.rows.values() if component in row.created)
        found = (row.metadata() for row in rows)
        wanted = (known for known in found if known.custom.get("component") == component)
        return sorted(wanted, key=lambda known: known.ledger_id)

    def space(self) -> SpaceUse:
        """Returns the space that the store takes now."""
        active = self._log.segment
        ahead = active.size - active.end + self._supply.ready_bytes + self._files.free_bytes
        return SpaceUse(
            self._segments.stored_bytes() + active.end + ahead,
            sum(self._table.live_bytes.values()),
            ahead,
            len(self._segments.of(SegmentState.SEALED)),
            len(self._table.rows),
            self._compaction.done,
        )

    def hurry(self, urgent: bool) -> None:
        """Sets whether space is short; while space is short, compaction neither waits for intervals nor
        pauses."""
        self._compaction.hurry(urgent)
        self._reminder.remind()
        self._supply.look_for_room()

    @property
    def shortage(self) -> str:
        """The reason why no more entries should be accepted; empty: entries are accepted."""
        return self._supply.shortage

    def listen_for_shortage(self, listener: Callable[[str], object]) -> None:
        """Registers ``listener`` for changes of :attr:`shortage`, which is checked whenever a segment is
        prepared, one segment ahead of need."""
        self._short = listener

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: ledgers, segments, the log and readers contradict each other
        """
        for part in (self._table, self._segments, self._log, self._reads, self.read_plans):
            part.check()
        for ledger_id in self._writers:
            must(ledger_id in self._table.rows, "ledger", ledger_id, "has a writer and does not exist")
        if self._stopped is None:
            growing = list(self._segments.of(SegmentState.GROWING))
            written = self._log.segment.segment_id
            must(growing == [written], "the log writes to", written, "and", growing, "grow")
        self._check_places()

    def _check_places(self) -> None:
        """Checks that each segment with needed entries exists and is kept, and that the ledger table contains
        the entries of the segments that are being written."""
        segments = self._segments
        for segment_id in self._table.live_bytes:
            segment = segments.get(segment_id)
            must(segment is not None, "segment", segment_id, "has needed entries and does not exist")
            leaves = segment is not None and segment.state in (SegmentState.LEAVING, SegmentState.DEAD)
            must(not leaves, "segment", segment_id, "has needed entries and is being removed")
        for segment_id in segments.of(SegmentState.SEALED):
            known = segment_id in self._table.live_bytes or segment_id in self._table.emptied
            must(known, "segment", segment_id, "has no needed entries and is kept")
        for state in (SegmentState.GROWING, SegmentState.FULL):
            for segment_id, segment in segments.of(state).items():
                must(
                    self._reads.is_pinned(segment_id),
                    "segment",
                    segment_id,
                    "is being written and is not pinned",
                )
                if segment.log is not None:
                    self._check_growing(segment.log)

    def _check_growing(self, segment: LogSegment) -> None:
        for ledger_id in segment.index.ledger_ids():
            row, part = self._table.rows.get(ledger_id), segment.index.part(ledger_id)
            if row is None or part is None:
                continue
            # The log has moved on to this segment: no earlier one has anything of the ledger any more.
            must(row.last_entry_id >= part.last_entry_id, "ledger", ledger_id, "ends before what is stored")
            found = row.part_of(part.last_entry_id)
            where = (segment.segment_id, part.first_entry_id, part.last_entry_id)
            must(found == where, "ledger", ledger_id, "has", found, "and the log wrote", where)

    async def close(self) -> None:
        if self._stopped is not None:
            await outcome(self._io.loop, self._stopped)
            return
        self._stopped = self._io.loop.create_future()
        try:
            await self._stop()
        finally:
            self._stopped.set_result(None)

    async def _stop(self) -> None:
        for writer in self._writers.values():
            writer.refuse(LedgerClosed("the ledger store is closing"))
        self.read_plans.close()
        await self._log.drain()
        await self._maintenance.stop()
        if not self._log.failed:
            self._filled(self._log.segment, self._log.sequence)
            await self._maintenance.seal_last()
        self._supply.stop()
        self._log_worker.close()
        self._space_worker.close()
        self._compaction.close()
        self._reads.close()
        self._lock.close()

    def _begun(self, segment: LogSegment) -> None:
        """Registers the segment to which the log now writes."""
        self._segments.begin(segment)
        self._reads.pin(segment.segment_id)
        self._reads.adopt(segment.segment_id, segment.file)

    def _filled(self, segment: LogSegment, next_sequence: int) -> None:
        """Registers that the log has continued in the next segment."""
        self._segments.fill(segment.segment_id, next_sequence)
        self._reminder.remind()

    def _tell_shortage(self, reason: str) -> None:
        self._short(reason)

    def _row(self, ledger_id: int) -> LedgerRow:
        row = self._table.rows.get(ledger_id)
        if row is None or ledger_id in self._deleting:
            raise NoSuchLedger(ledger_id)
        return row

    def _forget(self, row: LedgerRow, entry_id: int) -> None:
        self._table.forget(row, entry_id, self._segments.may_grow)
        if self._table.emptied:
            self._reminder.remind()

    def _writer_closed(self, ledger_id: int) -> None:
        self._writers.pop(ledger_id, None)

    def _deleted(self, ledger_id: int) -> None:
        del self._deleting[ledger_id]
        self._reminder.remind()

    async def _recover(self, row: LedgerRow) -> None:
        """Ends the ledger's writer and closes the ledger durably at its last entry on disk."""
        ledger_id = row.ledger_id
        recovered = self._recovering.get(ledger_id)
        if recovered is None:
            if row.closed:
                return
            row.recovering = True
            self._end_writer(ledger_id, LedgerFenced(f"ledger {ledger_id} was opened for recovery"))
            recovered = self._recovering.answer(ledger_id, lambda: self._close_at_end(row))
        await outcome(self._io.loop, recovered)

    async def _close_at_end(self, row: LedgerRow) -> None:
        await self._log.settle()
        self._refuse_when_closed()
        self._row(row.ledger_id)
        body = encode_closed(row.last_entry_id, row.length)
        await self._log.control(LEDGER_CLOSED, row.ledger_id, body)
        self._row(row.ledger_id)

    def _end_writer(self, ledger_id: int, reason: LedgerError) -> None:
        writer = self._writers.pop(ledger_id, None)
        if writer is not None:
            writer.end(reason)

    def _refuse_when_closed(self) -> None:
        if self._stopped is not None:
            raise StoreClosed("the ledger store is closed")
