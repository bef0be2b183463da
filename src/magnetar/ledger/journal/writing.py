"""Writes the metadata journal: a copy of the metadata in ledgers, at most one transaction behind."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable

from magnetar.io.interfaces import Cancellable, Future, Io, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerClosed, LedgerError, LedgerWriter, Quorums
from magnetar.ledger.journal.reading import Journal
from magnetar.ledger.journal.records import (
    COMPONENT,
    CONTINUES,
    Header,
    RecordKind,
    encode_edits,
    encode_part,
)
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataError
from magnetar.metadata.progress import Edits, NodeRange, Progress

log = logging.getLogger(__name__)

_RETRY_SECONDS = 10.0
_LEAST_BYTES = 4 << 20
"""The size below which a journal is not replaced."""
_MOST_LEDGERS = 64
_PARTS_IN_FLIGHT = 8


class MetadataJournal:
    """Appends each transaction of the metadata to a ledger, before the transaction is reported as done.

    The log is written in order. So an entry that is acknowledged after a change of the metadata is never
    durable without that change. A journal begins with a snapshot of all nodes. When the transactions since
    the snapshot take more bytes than the snapshot, a new journal replaces this one, which is then deleted.
    """

    def __init__(self, io: Io, store: EmbeddedLedgerStore, metadata: EmbeddedMetadataStore) -> None:
        self._io = io
        self._store = store
        self._metadata = metadata
        self._current: _Target | None = None
        self._following: _Target | None = None
        """The journal that is being started; both journals are written until it is complete. None: no journal
        is being started."""
        self._before: list[int] = []
        """The ids of ledgers of earlier journals, which are deleted once the next journal is complete."""
        self._tasks = TaskScope(io.loop, "the metadata journal", lambda _work, error: self._try_later(error))
        self._task: Task[None] | None = None
        self._timer: Cancellable | None = None
        self._stopped = False
        self.snapshots = 0
        """The number of snapshots that were started and completed since the start of the process."""
        metadata.listen_for_edits(self._edited)

    @property
    def behind(self) -> bool:
        """Whether some of the metadata is not in the ledgers now."""
        return self._current is None

    @property
    def durable(self) -> bool:
        """Whether all acknowledged transactions are durable in the ledgers."""
        return self._current is not None and self._current.is_durable

    async def start(self, found: list[Journal]) -> None:
        """Continues the journal that ends at the current generation of the metadata, or starts a new one.

        Returns when the ledgers contain all metadata, or when the attempt has failed, for example because the
        device is full; another attempt is made later.
        """
        progress = self._metadata.progress
        going_on = next((one for one in found if one.ends_at(progress.generation, progress.tally)), None)
        self._before = [ledger_id for one in found if one is not going_on for ledger_id in one.ledgers]
        try:
            if going_on is not None and len(going_on.ledgers) < _MOST_LEDGERS:
                target = await self._new_target(continues=going_on.ledgers[-1])
                target.ledgers = [*going_on.ledgers, target.writer.ledger_id]
                target.complete = True
                self._current = target
                await self._delete_before()
                return
            if going_on is not None:
                self._before += going_on.ledgers
            await self._begin()
        except (LedgerError, MetadataError) as error:
            self._try_later(error)

    async def stop(self) -> None:
        """Stops writing. Transactions appended earlier become durable at the latest when the ledger store is
        closed."""
        self._stopped = True
        self._metadata.stop_listening_for_edits(self._edited)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await finished(self._io.loop, self._task)

    def _edited(self, edits: Edits) -> None:
        for target in (self._current, self._following):
            if target is not None:
                target.edits(edits)
        current = self._current
        if current is not None and current.is_large and self._timer is None:
            self._start_task()

    def _start_task(self) -> None:
        self._timer = None
        if self._task is None and not self._stopped:
            self._task = self._tasks.start(self._run(), "the start of a journal")

    async def _run(self) -> None:
        try:
            await self._begin()
        except (LedgerError, MetadataError) as error:
            self._try_later(error)
        finally:
            self._task = None

    def _try_later(self, error: BaseException) -> None:
        if self._stopped:
            return
        log.warning(
            "cannot update the copy of the metadata in the ledgers; trying again",
            extra={"error": str(error)},
        )
        if self._timer is None:
            self._timer = self._io.loop.call_later(_RETRY_SECONDS, self._start_task)

    async def _begin(self) -> None:
        """Starts a journal, and deletes earlier ones when it is complete."""
        target = self._following = await self._new_target(continues=None)
        target.ledgers = [target.writer.ledger_id]
        try:
            await self._write_snapshot(target)
        except BaseException:
            self._following = None
            if target.writer.ledger_id not in self._before:
                self._before.append(target.writer.ledger_id)
            raise
        if self._current is not None:
            self._before += self._current.ledgers
        self._current, self._following = target, None
        self.snapshots += 1
        await self._delete_before()

    async def _write_snapshot(self, target: _Target) -> None:
        after: str | None = ""
        parts = 0
        while after is not None and not self._stopped:
            taken: list[NodeRange] = []

            def take(part: NodeRange) -> None:
                taken.append(part)  # noqa: B023 - called before the next round
                target.part(part)

            await self._metadata.read_part(after, take)
            parts += 1
            if parts % _PARTS_IN_FLIGHT == 0:
                await target.durable()
            after = taken[0].upto or None
        if self._stopped:
            raise LedgerClosed("the metadata journal is stopping")
        target.complete = True
        target.edits(Edits(self._metadata.progress, []))
        await target.durable()

    async def _new_target(self, continues: int | None) -> _Target:
        custom = {"component": COMPONENT, "application": b"magnetar"}
        if continues is not None:
            custom[CONTINUES] = b"%d" % continues
        writer = await self._store.create(Quorums(), custom, high_priority=True)
        return _Target(self._io, writer, self._failed)

    def _failed(self, target: _Target, reason: LedgerError) -> None:
        if target is self._current:
            self._current = None
            self._before += target.ledgers
            self._try_later(reason)

    async def _delete_before(self) -> None:
        before, self._before = self._before, []
        for ledger_id in before:
            try:
                await self._store.delete(ledger_id)
            except LedgerError as error:
                # The next start finds it, and tries again.
                log.warning(
                    "cannot delete an old copy of the metadata",
                    extra={"ledger": ledger_id, "error": str(error)},
                )


class _Target:
    """The ledger to which a journal is written."""

    def __init__(self, io: Io, writer: LedgerWriter, failed: Callable[[_Target, LedgerError], None]) -> None:
        self.writer = writer
        self.ledgers: list[int] = []
        """The ids of all ledgers of the journal; the last one is the ledger of ``writer``."""
        self.complete = False
        self._io = io
        self._failed = failed
        self._error: LedgerError | None = None
        self._last = self._durable = -1
        self._waiter: Future[None] | None = None
        self._snapshot_bytes = self._edit_bytes = 0
        writer.set_listener(self)

    @property
    def is_large(self) -> bool:
        return self.complete and self._edit_bytes > max(_LEAST_BYTES, self._snapshot_bytes)

    @property
    def is_durable(self) -> bool:
        return self._durable == self._last

    def part(self, part: NodeRange) -> None:
        entry = encode_part(self._header(part.progress), part.after, part.upto, part.edits)
        self._snapshot_bytes += len(entry)
        self._append(entry)

    def edits(self, edits: Edits) -> None:
        for entry in encode_edits(self._header(edits.progress), edits.edits):
            self._edit_bytes += len(entry)
            self._append(entry)

    def _header(self, progress: Progress) -> Header:
        return Header(
            RecordKind.EDITS, self.complete, progress.metadata_id, progress.generation, progress.tally
        )

    def _append(self, entry: bytes) -> None:
        if self._error is not None:
            return
        try:
            self._last = self.writer.append(entry, array("q", (0,)), array("q", (len(entry),)), 0, 1)
        except LedgerClosed as error:
            self._end(error)

    async def durable(self) -> None:
        """Waits until all appended entries are durable.

        :raises LedgerError: the ledger failed
        """
        while self._durable < self._last or self._error is not None:
            if self._error is not None:
                raise self._error
            self._waiter = self._io.loop.create_future()
            await self._waiter

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        self._durable = last_entry_id
        self._wake()

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        self._end(reason)

    def _end(self, reason: LedgerError) -> None:
        if self._error is None:
            self._error = reason
            self._failed(self, reason)
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
