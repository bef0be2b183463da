"""The metadata record of a managed ledger: its ledgers, its termination, its properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.owned_record import OwnedRecord, perhaps_written
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.record_deletion import delete_records
from magnetar.managed_ledger.records import (
    LedgerSummary,
    ManagedLedgerRecord,
    decode_managed_ledger,
    encode_managed_ledger,
)
from magnetar.metadata.interface import MetadataStore


class LedgersRecord:
    """The content of the record, and the deletion of ledgers that it no longer names."""

    def __init__(
        self,
        metadata: MetadataStore,
        stored: OwnedRecord,
        record: ManagedLedgerRecord,
        deletions: DeletionQueue,
        forget: Callable[[int], None],
        *,
        owns_ledgers: bool = True,
    ) -> None:
        """:param stored: where ``record`` was read, or is to be written

        :param forget: called with each ledger that is deleted
        :param owns_ledgers: False: the ledgers belong to another managed ledger; this record does not name
            them, and they are not deleted with it
        """
        self._forget = forget
        self._owns_ledgers = owns_ledgers
        self._metadata = metadata
        self._deletions = deletions
        self.stored = stored
        """Cursors are created and deleted below this record."""
        self._rest = record.rest
        self._perhaps_named: list[LedgerSummary] = []
        """Unused new ledgers that the record may name, because a write of it was not answered."""
        self.ledgers = LedgerList(record.ledgers)
        self.terminated: Position | None = record.terminated
        """The last position, once the termination is durable."""
        self._ending: Position | None = None
        """The last position while the termination is being written, also by other writes of the record."""
        self.properties: Mapping[str, str] = record.properties

    async def put(self) -> None:
        """Writes the record.

        :raises ManagedLedgerFenced: another process has written it
        """
        await self.stored.put(lambda: encode_managed_ledger(self._now()))
        await self._delete_perhaps_named()

    def _now(self) -> ManagedLedgerRecord:
        properties = dict(self.properties)
        if not self._owns_ledgers:
            return ManagedLedgerRecord(properties=properties, rest=self._rest)
        end = self.terminated or self._ending
        return ManagedLedgerRecord(list(self.ledgers), end, properties, self._rest)

    async def terminate(self, end: Position) -> None:
        """Terminates the managed ledger at a position; durable when this returns.

        After a failure the stored record may nevertheless be terminated, until it is written again.

        :raises ManagedLedgerFenced: another process has written the record
        :raises MetadataError: it cannot be written, or the write was not answered
        """
        self._ending = end
        try:
            await self.put()
            self.terminated = end
        finally:
            self._ending = None

    async def _delete_perhaps_named(self) -> None:
        in_vain, self._perhaps_named = self._perhaps_named, []
        for summary in in_vain:
            await self.let_go(summary)

    def merge(self, changes: Mapping[str, str | None]) -> None:
        """Merges properties, None removes one; they are stored when the record is written."""
        merged = {**self.properties, **changes}
        self.properties = {key: value for key, value in merged.items() if value is not None}

    async def not_listed(self, summary: LedgerSummary, error: Exception) -> None:
        """Handles a new ledger whose listing in the record failed."""
        if perhaps_written(error):
            # The record may name it: it is deleted after a confirmed write of a record that does not.
            self._perhaps_named.append(summary)
        else:
            await self.let_go(summary)

    async def let_go(self, summary: LedgerSummary) -> None:
        """Deletes a ledger that the record does not name, now or later."""
        self._forget(summary.ledger_id)
        await self._deletions.delete(summary.ledger_id)

    def abandon(self) -> None:
        """Stops all writes of the record and of cursors: they belong to another broker, or to none."""
        self.stored.tenure.end()

    async def still_owned(self) -> bool:
        """Whether the stored record is the one last written here.

        :raises MetadataUnavailable: the store does not answer
        """
        return await self.stored.still_owned(self._names_the_last)

    def _names_the_last(self, value: bytes) -> bool:
        """Whether a record of the same version is this one: ids of ledgers are never reused."""
        last = self.ledgers.last()
        found = decode_managed_ledger(value, self.stored.path).ledgers
        return last is None or last.ledger_id in {each.ledger_id for each in found}

    async def delete(self, cursors: Sequence[CursorStorage]) -> bool:
        """Deletes the record with all ledgers and cursors; returns whether it existed.

        :raises ManagedLedgerFenced: another broker owns it with its cursors
        """
        there = await delete_records(self._metadata, self.stored, cursors)
        if self._owns_ledgers:
            for summary in list(self.ledgers):
                await self.let_go(summary)
        await self._delete_perhaps_named()
        return there
