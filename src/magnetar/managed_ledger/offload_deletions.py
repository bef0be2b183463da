"""Objects in tiered storage that must be deleted, each with a note in the metadata store until it is deleted.

A note is written before the record of the managed ledger stops naming the objects, so that they are found
after a crash at any moment. They are deleted once the record does not name them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from uuid import UUID

from magnetar.io.interfaces import Cancellable, Io, Task
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError, MetadataDamaged
from magnetar.managed_ledger.records import OFFLOADS_TO_DELETE, ROOT, Offload, decode_managed_ledger
from magnetar.metadata.interface import MetadataError, MetadataStore, NodeMissing

log = logging.getLogger(__name__)

_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 600.0
"""The longest time between two attempts in seconds; pauses double while objects are left to delete."""
_COUNTED_SECONDS = 3600.0
"""How long the counts of a managed ledger are kept after the last deletion of its objects, in seconds; the
managed ledger itself may be deleted."""
Erase = Callable[[str, int, Offload], Awaitable[None]]
"""Deletes the objects of an offloaded ledger, also incomplete objects. Raises a LedgerError if that fails."""


class DeletionCounts:
    """The numbers of successful and failed deletions of offloaded ledgers of one managed ledger."""

    __slots__ = ("changed_at", "failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = self.failed = 0
        self.changed_at = 0.0
        """The time of the last deletion, in monotonic seconds."""


class OffloadDeletions:
    """Deletes objects that notes name, across restarts if necessary; several brokers may do so
    simultaneously."""

    def __init__(self, io: Io, metadata: MetadataStore, erase: Erase) -> None:
        self._loop = io.loop
        self._clock = io.clock
        self._metadata = metadata
        self._erase = erase
        self._pause = _FIRST_PAUSE
        self._timer: Cancellable | None = None
        self._tasks = TaskScope(io.loop, "offloaded ledgers to delete", owner_goes_on)
        self._running: Task[None] | None = None
        self._again = self._stopped = False
        self.left = 0
        """The number of ledgers whose objects could not be deleted in the last attempt."""
        self._counts: dict[str, DeletionCounts] = {}

    def counts(self) -> Mapping[str, DeletionCounts]:
        """Returns the counts since the start of the process, by managed ledger, without managed ledgers whose
        last deletion was long ago."""
        since = self._clock.monotonic() - _COUNTED_SECONDS
        for name in [name for name, counts in self._counts.items() if counts.changed_at < since]:
            del self._counts[name]
        return self._counts

    def _count(self, managed_ledger: str, *, succeeded: bool) -> None:
        counts = self._counts.setdefault(managed_ledger, DeletionCounts())
        counts.succeeded += succeeded
        counts.failed += not succeeded
        counts.changed_at = self._clock.monotonic()

    async def note(self, managed_ledger: str, ledger_id: int, offload: Offload) -> None:
        """Records that the objects of a ledger are to be deleted once the record does not name them.

        :raises MetadataError: the note cannot be written
        """
        found = {
            "managedLedger": managed_ledger,
            "driver": offload.driver,
            "complete": offload.complete,
            "properties": dict(offload.properties),
        }
        value = json.dumps(found, separators=(",", ":")).encode()
        await self._metadata.put(f"{OFFLOADS_TO_DELETE}/{ledger_id}-{offload.uuid}", value)

    def start(self) -> None:
        """Starts deleting the objects that notes name."""
        if self._stopped:
            return
        if self._running is not None:
            self._again = True
        else:
            self._begin()

    def stop(self) -> None:
        """Stops all attempts; the notes stay."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None:
            self._running.cancel()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._running = self._tasks.start(self._run(), "deletions")

    async def _run(self) -> None:
        failed = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self.left = await self._attempt()
            failed = self.left > 0
        except MetadataError as error:
            log.warning("cannot read the notes of offloaded ledgers to delete", extra={"error": str(error)})
        finally:
            self._running = None
            if failed and not self._stopped:
                self._timer = self._loop.call_later(self._pause, self._begin)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if failed else _FIRST_PAUSE

    async def _attempt(self) -> int:
        """Deletes what can be deleted now; returns the number of ledgers whose objects are left."""
        left = 0
        for name in await self._metadata.children(OFFLOADS_TO_DELETE):
            try:
                left += not await self._delete(name)
            except (LedgerError, ManagedLedgerError) as error:
                left += 1
                log.warning(
                    "cannot delete the objects of an offloaded ledger; trying again later",
                    extra={"offload": name, "error": str(error)},
                )
        return left

    async def _delete(self, name: str) -> bool:
        """Deletes the objects of one recorded deletion; returns False, without deleting, if the metadata of
        the managed ledger still refers to them."""
        path = f"{OFFLOADS_TO_DELETE}/{name}"
        node = await self._metadata.get(path)
        if node is None:
            return True
        ledger_id, managed_ledger, offload = _decode(path, name, node.value)
        record = await self._metadata.get(f"{ROOT}/{managed_ledger}")
        if record is not None and record.value:
            for summary in decode_managed_ledger(record.value, record.path).ledgers:
                if summary.offload is not None and summary.offload.uuid == offload.uuid:
                    return False
        try:
            await self._erase(managed_ledger, ledger_id, offload)
        except LedgerError:
            self._count(managed_ledger, succeeded=False)
            raise
        self._count(managed_ledger, succeeded=True)
        with suppress(NodeMissing):
            # Another broker may have deleted the objects as well.
            await self._metadata.delete(path)
        log.info("offloaded ledger deleted", extra={"managed_ledger": managed_ledger, "ledger": ledger_id})
        return True


def _decode(path: str, name: str, value: bytes) -> tuple[int, str, Offload]:
    """Decodes a note; returns the id of the ledger, the name of its managed ledger, and the offload.

    :raises MetadataDamaged: the value is not a note
    """
    ledger_id, _, uuid = name.partition("-")
    try:
        found = json.loads(value)
        properties = {str(key): str(each) for key, each in found["properties"].items()}
        # Notes of earlier releases do not say whether the upload was complete: more is looked for then.
        complete = found.get("complete") is True
        place = Offload(UUID(uuid), str(found["driver"]), properties, complete=complete)
        return int(ledger_id), str(found["managedLedger"]), place
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataDamaged(
            f"{path} is not a valid record of an offloaded ledger to delete: {error}"
        ) from error
