"""A managed ledger: an unlimited sequence of entries, stored in one ledger after another.

Appends go to the last ledger. When it is full, a new ledger is created, and later appends wait in order. If
no ledger can be created, the waiting appends fail, and later appends wait until the pause before the next
attempt is over. A managed ledger belongs to one broker: the next broker that opens it fences the last ledger,
and the former owner's next change of the metadata record fails.
"""

from __future__ import annotations

import logging
import weakref
from array import array
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from magnetar.invariants import must, violated
from magnetar.io.interfaces import Io
from magnetar.io.waiting import report
from magnetar.ledger.interface import (
    EntryRun,
    EntryTooLarge,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerStore,
    Quorums,
    StoreFull,
)
from magnetar.managed_ledger.append import Append, AppendListener, AppendQueue, RefusedAppends
from magnetar.managed_ledger.current_ledger import CurrentLedger
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.ending import FOLLOWING, Ending, Rolling, State
from magnetar.managed_ledger.entry_cache import EntryCache, LedgerCache
from magnetar.managed_ledger.entry_reader import EntryReader, LostData
from magnetar.managed_ledger.errors import (
    ManagedLedgerClosed,
    ManagedLedgerError,
    ManagedLedgerFenced,
    ManagedLedgerTerminated,
)
from magnetar.managed_ledger.ledgers_record import LedgersRecord
from magnetar.managed_ledger.owned_record import OwnedRecord
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import LedgerSummary, ManagedLedgerRecord
from magnetar.managed_ledger.settings import ManagedLedgerSettings, OffloadPolicy, RetentionSettings
from magnetar.managed_ledger.trimming import Trimmer
from magnetar.metadata.interface import MetadataError, MetadataStore

if TYPE_CHECKING:
    from magnetar.managed_ledger.offloading import Offloader
    from magnetar.managed_ledger.tiered_storage import TieredStorage


log = logging.getLogger(__name__)


class ManagedLedger:
    """A managed ledger, opened by :class:`magnetar.managed_ledger.factory.ManagedLedgerFactory`."""

    _owns_ledgers = True
    """Whether the managed ledger's ledgers are in its own record, and are deleted with it."""

    def __init__(
        self,
        name: str,
        io: Io,
        store: LedgerStore,
        metadata: MetadataStore,
        settings: ManagedLedgerSettings,
        cache: EntryCache,
        record: ManagedLedgerRecord,
        stored: OwnedRecord,
        retention: RetentionSettings,
        deletions: DeletionQueue,
        lost_data: LostData,
        tiered: Callable[[], TieredStorage],
    ) -> None:
        self.name = name
        self.path = stored.path
        self._io = io
        self.settings = settings
        self.retention = retention
        self.lost_data = lost_data
        # Its parts have weak references to it, so that reference counting alone frees it.
        own: ManagedLedger = weakref.proxy(self)
        self._record = LedgersRecord(
            metadata,
            stored,
            record,
            deletions,
            tiered,
            lambda gone: own.reader.forget(gone),
            owns_ledgers=self._owns_ledgers,
        )
        self.ledgers = self._record.ledgers
        self.cache = LedgerCache(cache, name, lambda error: own.fail(error))
        self.reader = EntryReader(name, store, self.ledgers, self.cache, settings, tiered)
        self.cursors = Cursors(
            io.loop,
            self.ledgers,
            self.cache,
            settings.backlogged_threshold,
            lambda: own.trimmer.schedule(),
            lambda: own.fenced(),
            lambda error: own.fail(error),
        )
        self.leave_out_aborted: Callable[[EntryRun], EntryRun] | None = None
        """Replaces entries of aborted transactions by markers, for readers other than dispatchers; None:
        there are no transactions."""
        self.listener: AppendListener | None = None
        self.properties_with_ledgers: Callable[[], Mapping[str, str]] | None = None
        """Called whenever a new ledger is started; returns properties to merge into the record. None: there
        are no such properties."""
        self.write_summaries: Callable[[], Awaitable[None]] | None = None
        """Durably writes summaries of the data that the next load would otherwise read from stored entries;
        called before local copies of offloaded ledgers are deleted. Raises a LedgerError or
        ManagedLedgerError.
        """
        self._current = CurrentLedger(io.clock, store, name, lambda error: own.fail(error))
        self.appends = AppendQueue()
        """Appends that are not durable yet, in order."""
        self._refused = RefusedAppends(lambda append, error: own._append_failed(append, error))
        self.rolling = Rolling(self, self._record, io, store)
        self.trimmer = Trimmer(self, self._record, io)
        self._tiered = tiered
        self.offloader: Offloader | None = None
        """Offloads ledgers; None: the managed ledger has never had a policy for tiered storage."""
        self._ending = Ending(self, self._record, self._current, io.loop)
        self.state = State.TERMINATED if record.terminated is not None else State.NEEDS_LEDGER
        self.last_confirmed: Position = self.ledgers.last_stored()
        """The last durable position: the end of acknowledgements, counts and administrative operations."""
        self.hidden_from: Position | None = None
        """The first position that must not be read yet, because a transaction is open; None: nothing is
        hidden."""
        self.entries_added = 0
        self.bytes_added = 0
        self.append_errors = 0
        self._checked_confirmed: Position = (-1, -1)
        """The value of ``last_confirmed`` at the last check."""

    @property
    def terminated(self) -> Position | None:
        """The last position if the managed ledger is terminated, otherwise None."""
        return self._record.terminated

    @property
    def stored_record(self) -> OwnedRecord:
        """The metadata record, whose owner also owns the cursors."""
        return self._record.stored

    @property
    def properties(self) -> Mapping[str, str]:
        return self._record.properties

    @property
    def max_read_position(self) -> Position:
        """The last position that dispatchers, readers, replicators and compaction may read."""
        hidden = self.hidden_from
        if hidden is None or hidden > self.last_confirmed:
            return self.last_confirmed
        return self.ledgers.before(hidden)

    async def refresh_ledgers(self) -> None:
        """Removes trimmed ledgers from :attr:`ledgers`; called when a read has found that an entry is gone.

        Does nothing in this class, because only this object trims its ledgers.
        """

    @property
    def current_ledger(self) -> LedgerSummary | None:
        return self._current.summary

    @property
    def last_ledger_made_ms(self) -> int:
        """The time when the last ledger was created, in ms since 1970; 0: no ledger was created since the
        managed ledger was opened.
        """
        return self._current.made_ms

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the appends, ledgers and cursors are inconsistent
        """
        name, last, before = self.name, self.last_confirmed, self._checked_confirmed
        must(last >= before, name, "went back from", before, "to", last)
        self._checked_confirmed = last
        self._current.check()
        must(
            self.state is not State.OPEN or self._current.writer is not None, name, "is open without a writer"
        )
        # Only during a roll, or shortly before one, may appends wait although the ledger is open.
        must(
            self.state is not State.OPEN or not self.appends.waiting or self.rolling.expected,
            name,
            "is open, and appends wait for nothing",
        )
        self.appends.check(name, last)
        self.cache.check()
        for cursor in self.cursors.values():
            cursor.check()

    # Appending

    def append(
        self, buffer: bytes, starts: array[int], ends: array[int], count: int, size: int, context: Any
    ) -> None:
        """Appends entries ``buffer[starts[i]:ends[i]]``; the listener gets their outcomes with ``context``.

        :param size: the size of all entries together, in bytes
        :raises ManagedLedgerTerminated: the managed ledger is terminated
        :raises ManagedLedgerClosed: the managed ledger is closed or owned by another broker
        """
        operation = Append(buffer, starts, ends, 0, count, size, context)
        if self.state is State.OPEN and not self.appends.waiting:
            self._write(operation)
            return
        if self.state is State.TERMINATED:
            raise ManagedLedgerTerminated(f"{self.name} is terminated")
        if self.state in (State.CLOSED, State.FENCED):
            raise ManagedLedgerClosed(f"{self.name} is closed")
        self.appends.waiting.append(operation)
        if self.state is State.NEEDS_LEDGER:
            self.start_roll()

    def _write(self, operation: Append) -> None:
        current = self._current
        room = current.room(self.settings)
        if room == 0:
            self.appends.waiting.appendleft(operation)
            self.start_roll()
            return
        full = operation.count > room
        if full:
            self.appends.waiting.appendleft(operation.split(room))
        writer = current.writer
        if writer is None:
            violated(self.fail, f"managed ledger {self.name} in state {self.state.name}", "a writer", writer)
        try:
            operation.first_entry_id = writer.append(
                operation.buffer, operation.starts, operation.ends, operation.first, operation.count
            )
        except LedgerClosed:
            # The writer has ended, and on_failed will follow: this append is written again with the others.
            self.appends.waiting.appendleft(operation)
            self.enter(State.NEEDS_LEDGER)
            self.start_roll()
            return
        except EntryTooLarge as error:
            self._refuse_entry(operation, error)
            return
        except LedgerError as error:
            self._refuse(operation, error)
            if full:
                self.start_roll()
            return
        operation.ledger_id = writer.ledger_id
        if operation.first_entry_id != current.entries:
            what = f"managed ledger {self.name}: first id of entries appended to ledger {writer.ledger_id}"
            violated(self.fail, what, current.entries, operation.first_entry_id)
        current.entries += operation.count
        current.size += operation.size
        self.appends.written.append(operation)
        if full:
            self.start_roll()

    def _refuse_entry(self, operation: Append, error: EntryTooLarge) -> None:
        """Refuses the one entry that is too large; the entries before and after it are written."""
        waiting = self.appends.waiting
        before = error.index - operation.first
        if before > 0:
            waiting.appendleft(operation.split(before))
            waiting.appendleft(operation)
        else:
            if operation.count > 1:
                waiting.appendleft(operation.split(1))
            self._refuse(operation, error)
        self.drain()

    def _refuse(self, operation: Append, error: Exception) -> None:
        """Fails an append; the listener gets the error after the outcomes of all earlier appends."""
        self.append_errors += 1
        self._refused.add(self._current.entries, operation, error)
        if not self.appends.written:
            # Not within the call of append, whose caller may not have noted yet what it appended.
            self._io.loop.call_soon(self._report_refused)

    def _report_refused(self) -> None:
        if not self.appends.written:
            self._refused.report_all()

    def _append_failed(self, append: Append, error: Exception) -> None:
        if self.listener is not None:
            self.listener.on_failed([append], error)

    def on_durable(self, ledger_id: int, last_entry_id: int) -> None:
        """Handles durable entries of the current ledger; late calls of a former ledger's writer have no
        effect."""
        current = self._current.summary
        if current is None or current.ledger_id != ledger_id:
            return
        try:
            if self._refused:
                self._report_between(current, last_entry_id)
            if last_entry_id >= current.entries:
                self._confirm(current, last_entry_id)
            if self._current.room(self.settings) == 0 and self.state is State.OPEN:
                self.start_roll()
        except Exception as error:
            # Receipts may be missing: the producers get them from the topic that is loaded next.
            self.fail(error)
            raise

    def _report_between(self, current: LedgerSummary, last_entry_id: int) -> None:
        """Reports refused and durable appends to the listener, in the order in which they were appended."""
        while (before := self._refused.next_before()) <= last_entry_id + 1:
            if before > current.entries:
                self._confirm(current, int(before) - 1)
            self._refused.report_next()

    def _confirm(self, current: LedgerSummary, last_entry_id: int) -> None:
        """Records that all entries of the current ledger up to ``last_entry_id`` are durable."""
        done = self.appends.durable_through(last_entry_id)
        count, size = self._current.confirm(current, done, last_entry_id)
        self.entries_added += count
        self.bytes_added += size
        self.last_confirmed = (current.ledger_id, last_entry_id)
        self.cursors.appended(done)
        if self.listener is not None:
            self.listener.on_durable(done)

    def on_failed(self, ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        """Handles a failed ledger: entries that are not durable are written again to a new ledger.

        They fail instead if the store is full, or if several ledgers in a row have stored nothing.
        """
        current = self._current.summary
        if current is None or current.ledger_id != ledger_id:
            return
        log.warning(
            "ledger failed; continuing in a new one",
            extra={"managed_ledger": self.name, "first_entry": first_entry_id, "reason": str(reason)},
        )
        self.append_errors += 1
        self._current.writer = None
        self.write_again()
        if isinstance(reason, LedgerFenced):
            # A broker that takes over writes the record first; the roll checks whether one did.
            self.rolling.writer_fenced = True
        if isinstance(reason, StoreFull):
            # A new ledger would have no space either; one is created with the next append.
            if self.state is State.OPEN:
                self.enter(State.NEEDS_LEDGER)
            self.fail_waiting(reason)
            return
        fruitless = self.rolling.creation.count_failure(first_entry_id)
        if self.state is State.OPEN:
            self.enter(State.NEEDS_LEDGER)
        if fruitless and self.state in (State.NEEDS_LEDGER, State.ROLLING):
            log.error(
                "ledgers failed in a row without storing entries; failing the waiting entries",
                extra={"managed_ledger": self.name, "reason": str(reason)},
            )
            self.fail_waiting(reason)
        elif self.state is State.NEEDS_LEDGER:
            self.start_roll()
        elif self.state not in (State.ROLLING, State.TERMINATING):
            self.fail_waiting(ManagedLedgerClosed(f"{self.name} accepts no more entries: {reason}"))

    # Rolling

    def start_roll(self) -> None:
        """Starts a new ledger, at once or after the pause that follows a failure."""
        self.rolling.start()

    async def roll(self) -> None:
        """Closes the current ledger and starts a new one."""
        writer = await self.rolling.creation.make(self.settings.quorums)
        if writer.ledger_id <= self.last_confirmed[0]:
            what = f"managed ledger {self.name}: id of a new ledger"
            violated(self.fail, what, f"above that of {self.last_confirmed}", writer.ledger_id)
        summary = LedgerSummary(writer.ledger_id)
        gone: LedgerSummary | None = None
        now = self._io.clock.wall_ms()
        try:
            await self._current.close()
        except LedgerError:
            await self._record.let_go(summary)
            raise
        current = self._current.summary
        if current is not None and not current.entries and current.ledger_id in self.ledgers:
            gone = current
            self.ledgers.remove(current.ledger_id)
        self.ledgers.add(summary)
        if self.properties_with_ledgers is not None:
            self._record.merge(self.properties_with_ledgers())
        try:
            await self._record.put()
        except (ManagedLedgerError, MetadataError) as error:
            self.ledgers.remove(summary.ledger_id)
            if gone is not None and not self.lost:
                self.ledgers.add(gone)
            await self._record.not_listed(summary, error)
            raise
        self.rolling.listed(summary.ledger_id)
        if gone is not None:
            await self._record.let_go(gone)
        # What the last ledger did not confirm is written again: its stored count excludes it.
        self.write_again()
        writer.set_listener(self)
        self._current.begin(writer, summary, now)
        if self.state in (State.ROLLING, State.NEEDS_LEDGER):
            self.enter(State.OPEN)
        if self.last_confirmed[1] < 0:
            self.last_confirmed = (summary.ledger_id, -1)
        self.trimmer.schedule()
        if self.offloader is not None:
            self.offloader.schedule()

    @property
    def lost(self) -> bool:
        """Whether the managed ledger is closed or owned by another broker, so that its record must not be
        written."""
        return self.state in (State.CLOSED, State.FENCED)

    def write_again(self) -> None:
        """Queues the entries that the current ledger has not confirmed, to write them to the next ledger."""
        self.appends.write_again()
        self._refused.report_all()

    def drain(self) -> None:
        """Writes waiting appends while there is an open ledger. If an append cannot be written, only that
        append fails."""
        while self.appends.waiting and self.state is State.OPEN:
            operation = self.appends.waiting.popleft()
            try:
                self._write(operation)
            except Exception as error:  # noqa: BLE001 - reported, and passed to the listener
                report(self._io.loop, self._write, error)
                self._refuse(operation, error)
        if self.state in (State.CLOSED, State.FENCED, State.TERMINATED):
            self.fail_waiting(ManagedLedgerClosed(f"{self.name} is closed"))

    def fail_waiting(self, error: Exception) -> None:
        """Fails all appends that wait for a new ledger; their outcome is ``error``."""
        self._refused.report_all()
        failed = list(self.appends.waiting)
        self.appends.waiting.clear()
        if failed and self.listener is not None:
            self.listener.on_failed(failed, error)

    def fenced(self) -> None:
        """Stops all appends because another broker owns the managed ledger."""
        self.fail_waiting(ManagedLedgerFenced(f"{self.name} is now owned by another broker"))
        if self.lost:
            return
        log.error("managed ledger lost to another owner", extra={"managed_ledger": self.name})
        self.end_ownership()

    def disown(self) -> None:
        """Stops all writes because the session that owned the managed ledger has ended."""
        self.fail_waiting(ManagedLedgerFenced(f"{self.name} is no longer owned by this broker"))
        if not self.lost:
            self.end_ownership()

    def end_ownership(self) -> None:
        """Stops all writes, and notifies the listener that another broker is the owner."""
        self.enter(State.FENCED)
        self.abandon()
        if self.listener is not None:
            self.listener.on_fenced()

    def enter(self, state: State) -> None:
        """Changes the state of the managed ledger.

        :raises BrokenInvariant: the state cannot follow the current state, or does not fit the other fields
        """
        if state not in FOLLOWING[self.state] and state is not self.state:
            expected = ", ".join(sorted(each.name for each in FOLLOWING[self.state]))
            violated(
                self.fail, f"managed ledger {self.name} in state {self.state.name}", expected, state.name
            )
        self.state = state
        if state is State.OPEN and self._current.writer is None:
            violated(self.fail, f"managed ledger {self.name} in state {state.name}", "a writer", None)

    def abandon(self) -> None:
        """Stops all writes of the record and the cursors; this cannot be undone."""
        self._record.abandon()
        self.cursors.abandon()

    def fail(self, error: BaseException) -> None:
        """Reports an internal error, which may have left the state wrong, to the listener."""
        if self.listener is not None:
            self.listener.fail(error)

    async def _put_or_lose(self) -> None:
        try:
            await self._record.put()
        except ManagedLedgerFenced:
            self.fenced()
            raise

    async def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Merges properties into the record; None removes a property; durable when this returns.

        :raises ManagedLedgerFenced: another broker owns the managed ledger
        """
        await self.rolling.ended()
        self._record.merge(changes)
        await self._put_or_lose()

    def use_retention(self, retention: RetentionSettings) -> None:
        """Changes the retention."""
        if retention != self.retention:
            self.retention = retention
            self.trimmer.schedule()

    def use_offload(self, policy: OffloadPolicy | None) -> None:
        """Changes when and where ledgers are offloaded; None: ledgers are not offloaded."""
        self.reader.offload_policy = policy
        if self.offloader is not None or policy is not None:
            self._offloads().use(policy)

    def offload_before(self, position: Position) -> None:
        """Starts offloading all closed ledgers before the ledger that contains ``position``, regardless of
        thresholds.

        :raises OffloadInProgress: an earlier request is still being carried out
        :raises NoOwnLedgers: the ledgers belong to another managed ledger
        """
        self._offloads().offload_before(position)

    def _offloads(self) -> Offloader:
        if self.offloader is None:
            # Most brokers do not offload.
            from magnetar.managed_ledger.offloading import Offloader

            self.offloader = Offloader(self, self._record, self._io, self._tiered())
        return self.offloader

    def use_quorums(self, quorums: Quorums) -> None:
        """Sets the quorums of ledgers created from now on, including the ledgers of cursors."""
        if quorums != self.settings.quorums:
            self.settings = replace(self.settings, quorums=quorums)
            self.cursors.use_quorums(quorums)

    def check_rollover(self) -> None:
        """Starts a new ledger if the current ledger has reached its maximum age, and offloads ledgers that
        are due; called regularly.
        """
        if self.offloader is not None:
            self.offloader.schedule()
        if self.state is State.OPEN and self._current.entries and self._current.room(self.settings) == 0:
            self.start_roll()

    def start_over(self) -> None:
        """Starts a new ledger, unless the current ledger is empty."""
        if self.state is State.OPEN and self._current.entries:
            self.start_roll()

    # Ending

    async def terminate(self) -> Position:
        """Terminates the managed ledger; returns the last position. Idempotent.

        If this fails, the managed ledger continues: appends that came meanwhile are written to a new ledger.

        :raises ManagedLedgerFenced: another broker owns the managed ledger
        :raises ManagedLedgerClosed: the managed ledger is closed
        :raises LedgerError: the last ledger can neither be closed nor recovered
        :raises MetadataError: the termination cannot be written
        """
        return await self._ending.terminate()

    async def close(self) -> None:
        """Waits for appends in flight, writes all cursors, and releases all resources. Idempotent."""
        await self._ending.close()

    async def delete(self) -> None:
        """Deletes the managed ledger with all cursors and ledgers; does nothing if the record does not exist.

        :raises ManagedLedgerFenced: another broker owns the managed ledger
        """
        await self._ending.delete()
