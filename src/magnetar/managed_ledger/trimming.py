"""Trimming: which ledgers of a managed ledger are deleted, and when.

Rules: https://pulsar.apache.org/docs/4.0.x/cookbooks-retention-expiry/. A ledger is deleted when every
durable cursor is past it and retention permits it: the retention time since its closing is over, or the other
ledgers still have at least the retention size.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Io, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, outcome
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.cursor import oldest_mark_delete
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced
from magnetar.managed_ledger.ledgers_record import LedgersRecord
from magnetar.managed_ledger.records import LedgerSummary
from magnetar.managed_ledger.settings import RetentionSettings
from magnetar.metadata.interface import MetadataError

if TYPE_CHECKING:
    from magnetar.managed_ledger.managed_ledger import ManagedLedger


log = logging.getLogger(__name__)


def ledgers_to_trim(
    consumed: Sequence[LedgerSummary], total_size: int, retention: RetentionSettings, now_ms: int
) -> list[LedgerSummary]:
    """Returns the ledgers at the beginning of ``consumed`` that retention does not keep.

    :param consumed: closed ledgers that no durable cursor needs, oldest first
    :param total_size: the size of all ledgers in bytes, including the open ledger
    """
    going: list[LedgerSummary] = []
    off = retention.time_ms == 0 or retention.size_bytes == 0
    for summary in consumed:
        too_old = 0 <= retention.time_ms < now_ms - summary.closed_ms
        too_much = 0 <= retention.size_bytes <= total_size - summary.size
        if not (off or too_old or too_much):
            break
        total_size -= summary.size
        going.append(summary)
    return going


class Trimmer:
    """Deletes ledgers of one managed ledger that are no longer needed."""

    def __init__(self, managed_ledger: ManagedLedger, record: LedgersRecord, io: Io) -> None:
        self._known = weakref.ref(managed_ledger)
        self._owner: ManagedLedger = weakref.proxy(managed_ledger)
        """A weak reference to the managed ledger; callers and running tasks hold strong references."""
        self._record = record
        self._io = io
        owner = self._owner
        self._tasks = TaskScope(io.loop, managed_ledger.name, lambda _work, error: owner.fail(error))
        self._running: Task[None] | None = None
        self._again = False
        self.begun = False
        """Whether :meth:`begin` was called, after all entries that loading the topic needs were read."""
        self._written_through = -1
        """The id of the last ledger whose entries are summarized by stored cursor properties; -1: none
        known."""

    def begin(self) -> None:
        """Permits trimming, after all cursors are recovered and all entries that the load needs were read."""
        self.begun = True
        self.schedule()

    def schedule(self) -> None:
        """Starts trimming soon if a ledger can be trimmed."""
        if not self.begun or self._owner.lost:
            return
        if self._running is not None:
            self._again = True
        elif self.reclaimable():
            self._running = self._tasks.start(self._run(self._known()), "trimming")

    def _consumed(self) -> list[LedgerSummary]:
        """Returns closed ledgers that no durable cursor needs, oldest first."""
        owner = self._owner
        slowest = oldest_mark_delete([c for c in owner.cursors.values() if c.durable])
        until = owner.last_confirmed if slowest is None else slowest
        offloader = owner.offloader
        uploading = None if offloader is None else offloader.uploading
        found = []
        for summary in owner.ledgers.consumed_through(until):
            if summary.ledger_id == uploading:
                # It is deleted after the upload, which a user may have paid for; older ones are deleted now.
                break
            if summary.closed_ms:
                found.append(summary)
        return found

    def reclaimable(self) -> list[LedgerSummary]:
        """Returns ledgers that no durable cursor needs and retention does not keep, oldest first."""
        owner = self._owner
        consumed = self._consumed()
        if not consumed:
            return []
        total = owner.ledgers.total_size()
        return ledgers_to_trim(consumed, total, owner.retention, self._io.clock.wall_ms())

    async def _run(self, _held: ManagedLedger | None) -> None:
        try:
            while True:
                self._again = False
                await self._owner.rolling.ended()
                await self._write_cursors(self.reclaimable())
                going = [] if self._owner.lost else self.reclaimable()
                going = [summary for summary in going if summary.ledger_id <= self._written_through]
                if going:
                    await self._trim(going)
                if not self._again:
                    break
        except ManagedLedgerFenced:
            self._owner.fenced()
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            log.warning(
                "trimming failed; trying again later",
                extra={"managed_ledger": self._owner.name, "error": str(error)},
            )
        finally:
            self._running = None

    async def _write_cursors(self, going: Sequence[LedgerSummary]) -> None:
        """Stores the cursor properties that summarize entries of the ledgers about to be deleted.

        Some properties, such as the properties for deduplication, summarize the entries before the cursor. If
        a crash left neither the newer properties nor the entries, information would be lost. Cursors without
        such properties need not be stored.
        """
        if not going or self._owner.lost:
            return
        for cursor in list(self._owner.cursors.values()):
            if cursor.describe_properties():
                await cursor.flush()
        self._written_through = max(self._written_through, going[-1].ledger_id)

    async def _trim(self, going: Sequence[LedgerSummary]) -> None:
        for summary in going:
            self._owner.ledgers.remove(summary.ledger_id)
        for cursor in self._owner.cursors.values():
            if not cursor.durable:
                cursor.skip_trimmed()
        # The new list is written first, so that every listed ledger exists.
        try:
            await self._record.note_going(self._owner.name, going)
            await self._record.put()
        except (ManagedLedgerError, MetadataError):
            # The record may still list them: the next trimming tries again.
            self._owner.ledgers.put_back(going)
            for cursor in self._owner.cursors.values():
                cursor.return_to_end()
            raise
        for summary in going:
            await self._record.let_go(summary)

    async def truncate(self) -> None:
        """Deletes all ledgers that no durable cursor needs any more, regardless of retention.

        :raises LedgerError: no new ledger can be created
        :raises ManagedLedgerError: a cursor cannot be written
        :raises MetadataError: the list of ledgers cannot be written
        """
        self._owner.start_over()
        await self._owner.rolling.ended()
        await self.settle()
        self._running = self._tasks.answer(self._truncate(self._known()))
        try:
            await outcome(self._io.loop, self._running)
        finally:
            self._running = None
        self.schedule()

    async def _truncate(self, _held: ManagedLedger | None) -> None:
        if not self.begun or self._owner.lost:
            return
        try:
            await self._write_cursors(self._consumed())
            going = [] if self._owner.lost else self._consumed()
            await self._trim([summary for summary in going if summary.ledger_id <= self._written_through])
        except ManagedLedgerFenced:
            self._owner.fenced()

    async def settle(self) -> None:
        """Waits until no trimming is in progress."""
        while self._running is not None:
            await finished(self._io.loop, self._running)
