"""The metadata record of a managed ledger: its ledgers, its termination, its properties, and its deletion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.owned_record import OwnedRecord, perhaps_written
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import (
    LedgerSummary,
    ManagedLedgerRecord,
    decode_managed_ledger,
    encode_managed_ledger,
)
from magnetar.metadata.interface import (
    MAX_STEPS_BYTES,
    BadVersion,
    Check,
    Delete,
    MetadataStore,
    NodeMissing,
    step_bytes,
)

if TYPE_CHECKING:
    from magnetar.managed_ledger.tiered_storage import TieredStorage


log = logging.getLogger(__name__)
_MOST_BYTES = MAX_STEPS_BYTES // 2
"""The maximum size in bytes of the cursors' paths in one request: half of the limit of a request.

The other half is for long root paths of the store.
"""


class LedgersRecord:
    """The record's content, and the deletion of ledgers that the record no longer names."""

    def __init__(
        self,
        metadata: MetadataStore,
        stored: OwnedRecord,
        record: ManagedLedgerRecord,
        deletions: DeletionQueue,
        tiered: Callable[[], TieredStorage],
        forget: Callable[[int], None],
        *,
        owns_ledgers: bool = True,
    ) -> None:
        """:param stored: the stored record from which ``record`` was read, or to which it is written
        :param forget: called with each ledger that is deleted
        :param owns_ledgers: whether the ledgers belong to this managed ledger; if not, this record does not
            name them, and they are not deleted with it
        """
        self._forget = forget
        self._owns_ledgers = owns_ledgers
        self._metadata = metadata
        self._deletions = deletions
        self._tiered = tiered
        self.stored = stored
        """The record in the metadata store; the records of cursors are created and deleted below it."""
        self._rest = record.rest
        self._perhaps_named: list[LedgerSummary] = []
        """Unused new ledgers that the record may name, because the outcome of a write is unknown."""
        self.ledgers = LedgerList(record.ledgers)
        self.terminated: Position | None = record.terminated
        """The last position, once the termination is durable; None before."""
        self._ending: Position | None = None
        """The last position while the termination is being written, because other writes of the record must
        include the termination; otherwise None."""
        self.properties: Mapping[str, str] = record.properties

    async def put(self) -> None:
        """Writes the record.

        :raises ManagedLedgerFenced: another process has written the record
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

        After a failure, the stored record may be terminated until it is written again.

        :raises ManagedLedgerFenced: another process has written the record
        :raises MetadataError: the record cannot be written, or the write was not answered
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
        """Merges properties (None removes a property), which are stored when the record is next written."""
        merged = {**self.properties, **changes}
        self.properties = {key: value for key, value in merged.items() if value is not None}

    async def not_listed(self, summary: LedgerSummary, error: Exception) -> None:
        """Handles a new ledger that could not be listed in the record."""
        if perhaps_written(error):
            # The record may name it: it is deleted after a confirmed write of a record that does not.
            self._perhaps_named.append(summary)
        else:
            await self.let_go(summary)

    async def note_going(self, name: str, going: Iterable[LedgerSummary]) -> None:
        """Records which objects in tiered storage are to be deleted, before the record is written without
        them.

        :param name: the name of the managed ledger
        :param going: the ledgers that will be removed
        :raises MetadataError: the objects cannot be recorded
        """
        for summary in going:
            if summary.offload is not None:
                await self._tiered().deletions.note(name, summary.ledger_id, summary.offload)

    async def let_go(self, summary: LedgerSummary) -> None:
        """Deletes a ledger that the record does not name and will not name."""
        self._forget(summary.ledger_id)
        await self._deletions.delete(summary.ledger_id)
        if summary.offload is not None:
            self._tiered().deletions.start()

    async def delete_local(self, ledger_id: int) -> None:
        """Deletes a ledger's copy in the ledger store; from now on the ledger is read from tiered storage."""
        await self._deletions.delete(ledger_id)

    def abandon(self) -> None:
        """Stops all writes of the record and of cursors, because this broker no longer owns them."""
        self.stored.tenure.end()

    async def delete_unlisted(self, ledger_id: int) -> None:
        """Deletes a ledger, unless the record lists it."""
        # A store that returned an id twice must not cause the loss of stored entries.
        if ledger_id not in self.ledgers:
            await self.let_go(LedgerSummary(ledger_id))

    async def still_owned(self) -> bool:
        """Whether the stored record is the record that this process last wrote.

        :raises MetadataUnavailable: the store does not answer
        """
        return await self.stored.still_owned(self._names_the_last)

    def _names_the_last(self, value: bytes) -> bool:
        """Whether ``value`` is a value of this record, and not of a newer record at the same path.

        The value must name the last ledger of this record, because ledger ids are never reused. True if this
        record has no ledgers.
        """
        last = self.ledgers.last()
        found = decode_managed_ledger(value, self.stored.path).ledgers
        return last is None or last.ledger_id in {each.ledger_id for each in found}

    async def delete(self, name: str, cursors: Sequence[CursorStorage]) -> bool:
        """Deletes the record with all ledgers and cursors; returns whether the record existed.

        :param name: the name of the managed ledger
        :raises MetadataError: the objects to delete cannot be recorded, or the outcome is unknown
        :raises ManagedLedgerFenced: another broker owns the managed ledger with its cursors
        """
        if self._owns_ledgers:
            await self.note_going(name, self.ledgers)
        there = await delete_records(self._metadata, self.stored, cursors)
        if self._owns_ledgers:
            for summary in list(self.ledgers):
                await self.let_go(summary)
        await self._delete_perhaps_named()
        return there


async def delete_records(metadata: MetadataStore, own: OwnedRecord, cursors: Sequence[CursorStorage]) -> bool:
    """Deletes the records of all cursors and, with the last of them, the record of the managed ledger.

    Only the owner may call this. The next owner writes the managed ledger's record before anything else; each
    request of the deletion has the condition that this has not happened. Several requests are sent if the
    cursors do not fit into one.

    Then the ledgers that the cursors named are deleted. A cursor without a record is no error.

    :param own: the record of the managed ledger
    :returns: whether the record existed; if not, its cursors do not exist either
    :raises ManagedLedgerFenced: another process owns the managed ledger; none of its records is deleted
    :raises NodeNotEmpty: the record has a cursor that is not in ``cursors``
    :raises MetadataUnavailable: the outcome is unknown
    """
    for cursor in cursors:
        # Permanently, even if the deletion fails: after that the next load writes them.
        await cursor.stop()
    *before, last = _parts(cursors)
    async with own.held() as version:
        if own.deleted:
            return False
        for part in before:
            await _delete(metadata, own, part, Check(own.path, version))
        there = await _delete(metadata, own, last, Delete(own.path, version))
        own.deleted = True
        # Later records of cursors at these paths will have the same versions too.
        own.tenure.end()
        return there


def _parts(cursors: Sequence[CursorStorage]) -> Iterator[list[CursorStorage]]:
    """Yields the cursors in one or more parts, each small enough for one request."""
    part: list[CursorStorage] = []
    size = 0
    for cursor in cursors:
        taken = step_bytes(Delete(cursor.path))
        if part and size + taken > _MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(cursor)
        size += taken
    yield part


async def _delete(
    metadata: MetadataStore, own: OwnedRecord, cursors: Sequence[CursorStorage], step: Check | Delete
) -> bool:
    async with AsyncExitStack() as stack:
        steps = []
        for cursor in cursors:
            record = await stack.enter_async_context(cursor.deleting())
            version = await stack.enter_async_context(record.held())
            if not record.deleted:
                steps.append(Delete(record.path, version))
        return await _delete_those_there(metadata, own, steps, step)


async def _delete_those_there(
    metadata: MetadataStore, own: OwnedRecord, steps: Sequence[Delete], last: Check | Delete
) -> bool:
    while True:
        try:
            with own.tenure.writing():
                await metadata.change_together([*steps, last])
            return True
        except NodeMissing as error:
            if error.step == len(steps):
                return False
            names = set(await metadata.children(own.path))
            left = [step for step in steps if step.path.rpartition("/")[2] in names]
            gone = len(steps) - len(left)
            log.info("cursor records already deleted", extra={"path": own.path, "cursors": gone})
            if not gone:
                # It was created again since, by another owner.
                raise ManagedLedgerFenced(f"{own.path}: {error}") from error
            steps = left
        except BadVersion as error:
            if not await metadata.exists(own.path):
                return False
            raise ManagedLedgerFenced(f"{own.path} is owned by another broker: {error}") from error
