"""What the metadata say of a managed ledger: its ledgers, its end, its properties."""

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
    """The record as it is to be written, and the ledgers that go once it does not name them."""

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

        :param forget: told of each ledger that goes
        :param owns_ledgers: False: the ledgers belong to another managed ledger; this record does not name
            them, and they are not deleted with it
        """
        self._forget = forget
        self._owns_ledgers = owns_ledgers
        self._metadata = metadata
        self._deletions = deletions
        self.stored = stored
        """What cursors are made and deleted below."""
        self._rest = record.rest
        self._perhaps_named: list[LedgerSummary] = []
        """Ledgers made in vain, which the record may name: its write was not answered."""
        self.ledgers = LedgerList(record.ledgers)
        self.terminated: Position | None = record.terminated
        """The last position, once its end is durable."""
        self._ending: Position | None = None
        """The last position while its end is being written, whoever writes the record meanwhile."""
        self.properties: Mapping[str, str] = record.properties

    async def put(self) -> None:
        """Writes it.

        :raises ManagedLedgerFenced: somebody else wrote it
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
        """Ends it for ever at a position; durable when this returns.

        When it fails the record may say so all the same, until it is written again.

        :raises ManagedLedgerFenced: somebody else wrote the record
        :raises MetadataError: it cannot be written, or was not answered
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
        """Other properties, None for one less; they count when the record is written."""
        merged = {**self.properties, **changes}
        self.properties = {key: value for key, value in merged.items() if value is not None}

    async def not_listed(self, summary: LedgerSummary, error: Exception) -> None:
        """A ledger was made that the record could not be made to name."""
        if perhaps_written(error):
            # The record may name it: it goes when one has been written for certain that does not.
            self._perhaps_named.append(summary)
        else:
            await self.let_go(summary)

    async def let_go(self, summary: LedgerSummary) -> None:
        """Deletes a ledger that the record does not name, now or later."""
        self._forget(summary.ledger_id)
        await self._deletions.delete(summary.ledger_id)

    def abandon(self) -> None:
        """It belongs to somebody else, or to nobody here: neither it nor a cursor's is written any more."""
        self.stored.tenure.end()

    async def still_owned(self) -> bool:
        """Whether the record is as it was last written here.

        :raises MetadataUnavailable: the store does not say
        """
        return await self.stored.still_owned(self._names_the_last)

    def _names_the_last(self, value: bytes) -> bool:
        """Whether a record of the same version is this one: ids of ledgers are never used again."""
        last = self.ledgers.last()
        found = decode_managed_ledger(value, self.stored.path).ledgers
        return last is None or last.ledger_id in {each.ledger_id for each in found}

    async def delete(self, cursors: Sequence[CursorStorage]) -> bool:
        """Removes it with all ledgers and cursors; whether there was one.

        :raises ManagedLedgerFenced: it belongs to somebody else, and so do its cursors
        """
        there = await delete_records(self._metadata, self.stored, cursors)
        if self._owns_ledgers:
            for summary in list(self.ledgers):
                await self.let_go(summary)
        await self._delete_perhaps_named()
        return there
