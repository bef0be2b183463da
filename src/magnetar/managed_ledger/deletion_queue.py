"""The queue of unneeded ledgers whose deletion failed, recorded in the metadata store until they are
deleted."""

from __future__ import annotations

import logging

from magnetar.io.interfaces import Cancellable, Loop, Task
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import finished
from magnetar.ledger.interface import LedgerError, LedgerStore
from magnetar.metadata.interface import MetadataError, MetadataStore, NodeMissing

log = logging.getLogger(__name__)

ROOT = "/magnetar/ledgers-to-delete"
"""The parent of one node for each ledger to delete, named by the ledger's id; the nodes have no values."""

_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 600.0
"""The longest time between two attempts in seconds; pauses double while deletions fail."""


class DeletionQueue:
    """Deletes ledgers of a store, across restarts if necessary.

    Callers may only pass ledgers that no record names, now or later. Ledger ids are never reused, so deleting
    a ledger twice, or by two brokers, does no harm.
    """

    def __init__(self, loop: Loop, store: LedgerStore, metadata: MetadataStore) -> None:
        self._loop = loop
        self._store = store
        self._metadata = metadata
        self._left: dict[int, bool] = {}
        """The ledgers to delete, in order of arrival; the value is whether the metadata store has a node for
        it."""
        self._pause = _FIRST_PAUSE
        self._timer: Cancellable | None = None
        self._tasks = TaskScope(loop, "ledgers to delete", owner_goes_on)
        self._running: Task[None] | None = None
        self._stopped = False

    def __len__(self) -> int:
        """The number of ledgers that are still to be deleted."""
        return len(self._left)

    async def delete(self, ledger_id: int) -> None:
        """Deletes a ledger; a failed deletion is recorded and repeated later."""
        try:
            await self._store.delete(ledger_id)
        except LedgerError as error:
            log.warning(
                "cannot delete the ledger; trying again later",
                extra={"ledger": ledger_id, "error": str(error)},
            )
            self._left.setdefault(ledger_id, False)
            await self._note(ledger_id)
            self._schedule()

    async def resume(self) -> None:
        """Continues with the ledgers recorded before the last restart.

        :raises MetadataError: the records cannot be read
        """
        for name in await self._metadata.children(ROOT):
            if name.isascii() and name.isdigit():
                self._left[int(name)] = True
        if self._left and self._running is None and not self._stopped:
            self._start()
        if self._running is not None:
            await finished(self._loop, self._running)

    def stop(self) -> None:
        """Stops all attempts; the records stay."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None:
            self._running.cancel()

    async def _note(self, ledger_id: int) -> None:
        try:
            await self._metadata.put(f"{ROOT}/{ledger_id}", b"")
        except MetadataError as error:
            # The next attempt records it, unless that deletes the ledger.
            log.warning(
                "cannot record the ledger for later deletion",
                extra={"ledger": ledger_id, "error": str(error)},
            )
            return
        if ledger_id in self._left:
            self._left[ledger_id] = True

    def _schedule(self) -> None:
        if self._timer is None and self._running is None and not self._stopped:
            self._timer = self._loop.call_later(self._pause, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._running = self._tasks.start(self._run(), "deletions")

    async def _run(self) -> None:
        try:
            await self._attempt()
        finally:
            self._running = None
            if self._left:
                self._schedule()

    async def _attempt(self) -> None:
        for ledger_id in list(self._left):
            await self._try(ledger_id)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if self._left else _FIRST_PAUSE

    async def _try(self, ledger_id: int) -> None:
        try:
            await self._store.delete(ledger_id)
            await self._metadata.delete(f"{ROOT}/{ledger_id}")
        except NodeMissing:
            # It was never recorded, or another broker had the same record.
            del self._left[ledger_id]
        except (LedgerError, MetadataError) as error:
            log.warning(
                "still cannot delete the ledger; trying again later",
                extra={"ledger": ledger_id, "error": str(error)},
            )
            if not self._left[ledger_id]:
                await self._note(ledger_id)
        else:
            log.info("ledger deleted after further attempts", extra={"ledger": ledger_id})
            del self._left[ledger_id]
