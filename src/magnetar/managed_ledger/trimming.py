"""Which ledgers of a managed ledger may go.

Rules: https://pulsar.apache.org/docs/4.0.x/cookbooks-retention-expiry/. A ledger goes when every durable
cursor is past it and retention lets it: its time is exceeded, or the retained size without it still reaches
the limit.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from magnetar.io.interfaces import Io
from magnetar.io.waiting import finished, outcome
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.cursor import Cursor, oldest_mark_delete
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.ledgers_record import LedgersRecord
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import LedgerSummary
from magnetar.managed_ledger.settings import RetentionSettings
from magnetar.metadata.interface import MetadataError

log = logging.getLogger(__name__)


def ledgers_to_trim(
    consumed: Sequence[LedgerSummary], total_size: int, retention: RetentionSettings, now_ms: int
) -> list[LedgerSummary]:
    """The oldest of ``consumed`` (closed ledgers no cursor needs, oldest first) that retention does not keep.

    :param total_size: bytes of all ledgers, the open one included
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


class TrimmedLedger(Protocol):
    """What trimming asks of a managed ledger, which has a trimmer and so is made of this module."""

    name: str
    ledgers: LedgerList
    retention: RetentionSettings
    last_confirmed: Position

    @property
    def cursors(self) -> Mapping[str, Cursor]: ...

    @property
    def lost(self) -> bool: ...

    async def rolled(self) -> None: ...
    def start_over(self) -> None: ...
    def fenced(self) -> None: ...


class Trimmer:
    """Lets ledgers of one managed ledger go when nobody needs them."""

    def __init__(self, managed_ledger: TrimmedLedger, record: LedgersRecord, io: Io) -> None:
        self._known = weakref.ref(managed_ledger)
        self._owner: TrimmedLedger = weakref.proxy(managed_ledger)
        """Held by whoever calls, and by what runs here."""
        self._record = record
        self._io = io
        self._running: Any = None
        self._again = False
        self._begun = False
        self._written_through = -1
        """Ledgers up to this one are behind what is written of the cursors that say something of them."""

    def begin(self) -> None:
        """All durable cursors are there, and whoever looks at what was stored last has done so: from now on
        ledgers that no cursor needs may go."""
        self._begun = True
        self.schedule()

    def schedule(self) -> None:
        """Looks whether something may go, soon."""
        if not self._begun or self._owner.lost:
            return
        if self._running is not None:
            self._again = True
        elif self.reclaimable():
            self._running = self._io.loop.create_task(self._run(self._known()))

    def _consumed(self) -> list[LedgerSummary]:
        """Closed ledgers that no durable cursor needs, oldest first."""
        owner = self._owner
        slowest = oldest_mark_delete([c for c in owner.cursors.values() if c.durable])
        until = owner.last_confirmed if slowest is None else slowest
        return [s for s in owner.ledgers.consumed_through(until) if s.closed_ms]

    def reclaimable(self) -> list[LedgerSummary]:
        """Ledgers that nobody needs and retention does not keep, oldest first."""
        owner = self._owner
        consumed = self._consumed()
        if not consumed:
            return []
        total = owner.ledgers.total_size()
        return ledgers_to_trim(consumed, total, owner.retention, self._io.clock.wall_ms())

    async def _run(self, _held: TrimmedLedger | None) -> None:
        try:
            while True:
                self._again = False
                await self._owner.rolled()
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
                "trimming failed, trying again later",
                extra={"managed_ledger": self._owner.name, "error": str(error)},
            )
        finally:
            self._running = None

    async def _write_cursors(self, going: Sequence[LedgerSummary]) -> None:
        """Makes durable what cursors' properties say of ledgers that are about to go.

        Such properties stand for the entries before the cursor (deduplication's do); with neither the newer
        properties nor the entries, a crash would forget them. Other cursors lose nothing.
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
        # The new list first: a ledger that is listed exists.
        try:
            await self._record.put()
        except (ManagedLedgerError, MetadataError):
            # They may still be listed: whoever trims next tries again.
            self._owner.ledgers.put_back(going)
            raise
        for summary in going:
            await self._record.let_go(summary)

    async def truncate(self) -> None:
        """Lets everything go that durable cursors have consumed, whatever retention says; goes on in a new
        ledger for that.

        :raises LedgerError: there is no new ledger
        :raises ManagedLedgerError: a cursor cannot be written
        :raises MetadataError: the list of ledgers cannot be written
        """
        self._owner.start_over()
        await self._owner.rolled()
        await self.settle()
        self._running = self._io.loop.create_task(self._truncate(self._known()))
        try:
            await outcome(self._io.loop, self._running)
        finally:
            self._running = None
        self.schedule()

    async def _truncate(self, _held: TrimmedLedger | None) -> None:
        if not self._begun or self._owner.lost:
            return
        try:
            await self._write_cursors(self._consumed())
            going = [] if self._owner.lost else self._consumed()
            await self._trim([summary for summary in going if summary.ledger_id <= self._written_through])
        except ManagedLedgerFenced:
            self._owner.fenced()

    async def settle(self) -> None:
        """Returns when nothing is being trimmed."""
        while self._running is not None:
            await finished(self._io.loop, self._running)
