"""Opening ledgers for reading; concurrent requests to recover a ledger share one recovery."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakValueDictionary

from magnetar.io.interfaces import Clock, Loop, Task
from magnetar.io.waiting import finished, nobody_waits
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.failures import WrongPassword
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.placement import Placement
from magnetar.ledger.bookkeeper.reader import BookKeeperReader, LedgerFate, ReadParts, ReadSettings, Written
from magnetar.ledger.bookkeeper.reading_memory import ReadingMemory
from magnetar.ledger.bookkeeper.recovery import RecoveryParts, recovered
from magnetar.ledger.interface import LedgerState, StoreClosed


class OpeningParts(NamedTuple):
    """The parts of a store that opening a ledger needs."""

    loop: Loop
    clock: Clock
    records: LedgerRecords
    reading: Callable[[str], Bookie]
    """A connection apart from that of writers, as a bookie may close it because of an unknown request."""
    recovering: Callable[[str], Bookie]
    """A connection without other requests."""
    placement: Placement
    written: Callable[[int], Written | None]
    """Returns the writer of a ledger, if it is in this process and has not ended."""
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
        self._recovering: dict[int, Task[Versioned]] = {}
        self._fates: WeakValueDictionary[int, LedgerFate] = WeakValueDictionary()

    async def open(self, ledger_id: int, *, recover: bool) -> BookKeeperReader:
        """See ``LedgerStore.open``.

        :raises WrongPassword: the ledger was created with another password
        """
        # Before the read, so that a deletion from here on is reported to this reader.
        fate = self._fates.get(ledger_id)
        if fate is None:
            fate = self._fates[ledger_id] = LedgerFate()
        found = await self._records.read(ledger_id)
        if not hmac.compare_digest(found.record.password, self._password):
            raise WrongPassword(f"ledger {ledger_id} has another password")
        if recover and found.record.state is not LedgerState.CLOSED:
            found = await self._recovered(ledger_id)
        return BookKeeperReader(ledger_id, found.record, fate, self._read_parts)

    def deleted(self, ledger_id: int) -> None:
        """Must be called when the metadata of a ledger is deleted."""
        fate = self._fates.get(ledger_id)
        if fate is not None:
            fate.deleted = True

    async def close(self) -> None:
        """Ends recoveries in progress, as a crash would: the next client that opens such a ledger
        continues."""
        for task in list(self._recovering.values()):
            task.cancel()
        for fate in list(self._fates.values()):
            fate.closed = True

    async def _recovered(self, ledger_id: int) -> Versioned:
        task = self._recovering.get(ledger_id)
        if task is None:
            task = self._loop.create_task(recovered(ledger_id, self._recovery_parts))
            self._recovering[ledger_id] = task
            task.add_done_callback(lambda _task: self._recovering.pop(ledger_id, None))
            task.add_done_callback(nobody_waits)
        await finished(self._loop, task)
        if task.cancelled():
            raise StoreClosed(f"ledger {ledger_id} was being recovered when the store closed")
        found: Versioned = task.result()
        return found
