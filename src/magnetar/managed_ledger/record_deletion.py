"""The records of a managed ledger and of its cursors go together, and only while they belong to who deletes.

Whoever owns it next writes its record before anything else: the deletion stands under the condition that
nobody has. Cursors that are more than one request holds go in several, each under that condition.
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
"""Of cursors in one request; the other half is for roots of stores that are long."""


async def delete_records(metadata: MetadataStore, own: OwnedRecord, cursors: Sequence[CursorStorage]) -> bool:
    """Removes the records of all cursors, and that of the managed ledger with the last of them.

    What cursors have named is deleted then. A cursor whose record was gone already is fine.

    :param own: of the managed ledger
    :returns: whether it was there; with it, its cursors are gone, too
    :raises ManagedLedgerFenced: it belongs to somebody else: nothing of theirs is gone
    :raises NodeNotEmpty: it has a cursor that is not known here
    :raises MetadataUnavailable: what became of it is unknown
    """
    for cursor in cursors:
        # For good, also where it cannot be deleted: whoever loads it next writes them.
        await cursor.stop()
    *before, last = _parts(cursors)
    async with own.held() as version:
        if own.deleted:
            return False
        for part in before:
            await _delete(metadata, own, part, Check(own.path, version))
        there = await _delete(metadata, own, last, Delete(own.path, version))
        own.deleted = True
        # The next records of cursors at these paths have the same versions, too.
        own.tenure.end()
        return there


def _parts(cursors: Sequence[CursorStorage]) -> Iterator[list[CursorStorage]]:
    """One at least, each no more than a request holds."""
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
            log.info("cursor records were gone already", extra={"path": own.path, "cursors": gone})
            if not gone:
                # It was made again since: by nobody who owns this.
                raise ManagedLedgerFenced(f"{own.path}: {error}") from error
            steps = left
        except BadVersion as error:
            if not await metadata.exists(own.path):
                return False
            raise ManagedLedgerFenced(f"{own.path} is owned by another broker: {error}") from error
