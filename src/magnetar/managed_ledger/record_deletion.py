"""Deletes the records of a managed ledger and of its cursors together, and only by their owner.

The next owner writes the managed ledger's record before anything else: each request of the deletion has the
condition that this has not happened. Several requests are sent if the cursors do not fit into one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack

from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.owned_record import OwnedRecord
from magnetar.metadata.interface import (
    MAX_STEPS_BYTES,
    BadVersion,
    Check,
    Delete,
    MetadataStore,
    NodeMissing,
    step_bytes,
)

log = logging.getLogger(__name__)

_MOST_BYTES = MAX_STEPS_BYTES // 2
"""Of cursors in one request; the other half is for long root paths of the store."""


async def delete_records(metadata: MetadataStore, own: OwnedRecord, cursors: Sequence[CursorStorage]) -> bool:
    """Deletes the records of all cursors, and that of the managed ledger with the last of them.

    Then the ledgers that the cursors named are deleted. A cursor without a record is no error.

    :param own: of the managed ledger
    :returns: whether the record existed; if not, its cursors do not exist either
    :raises ManagedLedgerFenced: another process owns it; none of its records are deleted
    :raises NodeNotEmpty: it has a cursor that is not known here
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
    """Yields at least one part, each small enough for a request."""
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
