"""Offloading: closed ledgers are copied to tiered storage, and their local copies are deleted later.

Rules: https://pulsar.apache.org/docs/4.0.x/tiered-storage-overview/. Each step is in the record of the
managed ledger before the next one begins: first the name of the objects, then that they are complete, then
that the local copy is deleted. So every object whose upload was begun is named by a record, or by a note of
:mod:`magnetar.managed_ledger.offload_deletions`. Buckets, which other programs may share, need not be listed.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Cancellable, Io, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced, OffloadInProgress
from magnetar.managed_ledger.ledgers_record import LedgersRecord
from magnetar.managed_ledger.measures import TIERED_KEPT, RecentBytes, Timings
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.records import LedgerSummary, Offload
from magnetar.managed_ledger.settings import OffloadPolicy
from magnetar.managed_ledger.tiered_storage import TieredStorage, TieredStorageError
from magnetar.metadata.interface import MetadataError

if TYPE_CHECKING:
    from magnetar.managed_ledger.managed_ledger import ManagedLedger


log = logging.getLogger(__name__)
_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 600.0
"""The longest time between two attempts in seconds; pauses double while uploads fail."""


_NO_STORE = (
    "the topic has no tiered storage: set managedLedgerOffloadDriver, or the offload policies of the topic "
    "or its namespace"
)


class OffloadStatus(Enum):
    """The state of an offload that a user has requested; the names are Pulsar's."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class Offloader:
    """Offloads ledgers of one managed ledger, one after another, oldest first."""

    def __init__(
        self, managed_ledger: ManagedLedger, record: LedgersRecord, io: Io, tiered: TieredStorage
    ) -> None:
        self._known = weakref.ref(managed_ledger)
        self._owner: ManagedLedger = weakref.proxy(managed_ledger)
        """A weak reference to the managed ledger; callers and running tasks hold strong references."""
        self._record = record
        self._io = io
        self._tiered = tiered
        owner = self._owner
        self._tasks = TaskScope(io.loop, managed_ledger.name, lambda _work, error: owner.fail(error))
        self._running: Task[None] | None = None
        self._again = False
        self._begun = False
        self._stopped = False
        self._pause = _FIRST_PAUSE
        self._timer: Cancellable | None = None
        self.policy: OffloadPolicy | None = None
        self.uploading: int | None = None
        """The ledger that is being copied now, which must not be trimmed; None: no ledger."""
        self.status = OffloadStatus.NOT_RUN
        """The state of the last offload that a user requested."""
        self.last_error = ""
        self.first_not_offloaded: Position = EARLIEST
        """The first position that the last successful request of a user did not offload."""
        self._wanted_below = -1
        """Ledgers with ids below this id are to be offloaded, as a user has requested; -1: no request."""
        self.last_ledger_id = 0
        """The last ledger that was offloaded; 0: no ledger."""
        self.last_success_ms = 0
        self.last_failure_ms = 0
        self.written_bytes = 0
        """Bytes of entries that were offloaded since the topic was loaded."""
        self.recent = RecentBytes()
        """Bytes of entries that were offloaded in the last minute."""
        self.read_times = Timings(TIERED_KEPT)
        """Durations of reads from the ledger store for uploads."""
        self.failures = 0
        self.store_failures = 0
        """The number of attempts that failed because of tiered storage."""
        self.last_failure = ""
        """The reason why the last attempt failed; empty if it succeeded."""

    @property
    def bytes(self) -> int:
        """The number of bytes in tiered storage."""
        return sum(
            summary.size for summary in self._owner.ledgers if summary.offload and summary.offload.complete
        )

    def use(self, policy: OffloadPolicy | None) -> None:
        """Applies the policy of the topic; None: from now on, no ledgers are offloaded, and no local copies
        are deleted."""
        if policy != self.policy:
            self.policy = policy
            self._skip_pause()
            if policy is not None and (self._begun or policy.on_load):
                self.schedule()

    def offload_before(self, position: Position) -> None:
        """Starts offloading all closed ledgers before the ledger that contains ``position``, regardless of
        thresholds.

        :raises OffloadInProgress: an earlier request is still being carried out
        """
        if self.status is OffloadStatus.RUNNING:
            raise OffloadInProgress("Offload already in progress")
        self.status, self.last_error = OffloadStatus.RUNNING, ""
        if self.policy is None and any(
            summary.closed_ms and summary.entries and summary.ledger_id < position[0]
            for summary in self._owner.ledgers
            if summary.offload is None or not summary.offload.complete
        ):
            self.status, self.last_error = OffloadStatus.ERROR, _NO_STORE
            return
        self._wanted_below = position[0]
        self._skip_pause()
        self.schedule()
        if self._running is None:
            self._end_request()

    def schedule(self) -> None:
        """Starts offloading and deleting local copies if any are due; called after changes and regularly."""
        self._begun = True
        if self._stopped or self._owner.lost:
            return
        if self._running is not None:
            self._again = True
        elif self._timer is None and (self._next() is not None or self._deletable()):
            self._running = self._tasks.start(self._run(self._known()), "offloading")

    async def stop(self) -> None:
        """Ends the upload in progress; its objects are deleted by the next attempt, or with the topic."""
        self._stopped = True
        self._skip_pause()
        if self._running is not None:
            self._running.cancel()
        while self._running is not None:
            await finished(self._io.loop, self._running)

    def _next(self) -> LedgerSummary | None:
        """Returns the oldest ledger that is due to be offloaded; None: no ledger is due."""
        policy = self.policy
        if policy is None:
            return None
        return next(self._due(policy), None)

    def _due(self, policy: OffloadPolicy) -> Iterator[LedgerSummary]:
        now = self._io.clock.wall_ms()
        left = self._owner.ledgers.total_size()
        for summary in self._owner.ledgers:
            # The bytes of this ledger and all younger ones.
            kept, left = left, left - summary.size
            offload = summary.offload
            if not summary.closed_ms or not summary.entries or (offload is not None and offload.complete):
                continue
            if (
                0 <= policy.threshold_bytes < kept
                or 0 <= policy.threshold_seconds * 1000 <= now - summary.closed_ms
                or summary.ledger_id < self._wanted_below
            ):
                yield summary

    def _deletable(self) -> list[LedgerSummary]:
        """Returns ledgers whose local copies have been kept for long enough."""
        policy = self.policy
        if policy is None or not self._owner.trimmer.begun:
            # A topic that is being loaded may have to read them, and tiered storage may be unavailable.
            return []
        until = self._io.clock.wall_ms() - policy.deletion_lag_ms
        return [
            summary
            for summary in self._owner.ledgers
            if (offload := summary.offload) is not None
            and offload.complete
            and not offload.local_deleted
            and offload.completed_ms <= until
        ]

    async def _run(self, _held: ManagedLedger | None) -> None:
        try:
            while not self._owner.lost:
                self._again = False
                await self._owner.rolling.ended()
                summary = self._next()
                if summary is not None:
                    await self._offload(summary)
                    self._succeeded(summary)
                elif due := self._deletable():
                    await self._delete_local(due)
                elif not self._again:
                    break
            self._end_request()
        except ManagedLedgerFenced:
            self._owner.fenced()
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            self._failed(error)
        finally:
            self._running = None
            self.uploading = None

    def _succeeded(self, summary: LedgerSummary) -> None:
        self._pause = _FIRST_PAUSE
        self.last_ledger_id, self.last_success_ms = summary.ledger_id, self._io.clock.wall_ms()
        self.last_failure = ""
        self.written_bytes += summary.size
        self.recent.add(self._io.clock.monotonic(), summary.size)
        log.info(
            "ledger offloaded",
            extra={
                "managed_ledger": self._owner.name,
                "ledger": summary.ledger_id,
                "entries": summary.entries,
                "bytes": summary.size,
            },
        )

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.store_failures += isinstance(error, TieredStorageError)
        self.last_failure_ms, self.last_failure = self._io.clock.wall_ms(), str(error)
        log.warning(
            "offloading failed; trying again later",
            extra={"managed_ledger": self._owner.name, "error": str(error), "seconds": self._pause},
        )
        if self.status is OffloadStatus.RUNNING:
            self.status, self.last_error, self._wanted_below = OffloadStatus.ERROR, str(error), -1
        if not self._stopped and not self._owner.lost:
            self._timer = self._io.loop.call_later(self._pause, self._end_pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _skip_pause(self) -> None:
        """Forgets earlier failures, so that the next attempt need not wait."""
        self._pause = _FIRST_PAUSE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_pause(self) -> None:
        self._timer = None
        self.schedule()

    def _end_request(self) -> None:
        """Records that all ledgers of a user's request are offloaded."""
        if self.status is not OffloadStatus.RUNNING:
            return
        self.status = OffloadStatus.SUCCESS
        later = [s.ledger_id for s in self._owner.ledgers if s.ledger_id >= self._wanted_below]
        last = self._owner.ledgers.last()
        first = later[0] if later else last.ledger_id if last is not None else -1
        self.first_not_offloaded = (first, 0)
        self._wanted_below = -1

    async def _offload(self, summary: LedgerSummary) -> None:
        """Copies a ledger to tiered storage.

        :raises TieredStorageError: the copy cannot be stored
        :raises LedgerError: the ledger cannot be read
        :raises ManagedLedgerFenced: another broker owns the managed ledger
        :raises MetadataError: a step cannot be recorded
        """
        policy, name, ledger_id = self.policy, self._owner.name, summary.ledger_id
        if policy is None:
            return
        self.uploading = ledger_id
        former = summary.offload
        place = await self._tiered.new_place(policy.storage)
        if former is not None:
            # An attempt that did not end: its objects must be found after the record no longer names them.
            await self._tiered.deletions.note(name, ledger_id, former)
        await self._note(summary, place)
        if former is not None:
            self._tiered.deletions.start()
        await self._tiered.upload(policy.storage, name, ledger_id, place, self.read_times)
        complete = replace(place, complete=True, completed_ms=self._io.clock.wall_ms())
        await self._note(summary, complete)
        self.uploading = None
        # It may have been waiting for the end of the upload.
        self._owner.trimmer.schedule()

    async def _note(self, summary: LedgerSummary, offload: Offload) -> None:
        """Records a step of an offload durably. After a failure, the stored record may still contain the
        step."""
        before = summary.offload
        summary.offload = offload
        try:
            await self._record.put()
        except (ManagedLedgerError, MetadataError):
            summary.offload = before
            raise

    async def _delete_local(self, due: list[LedgerSummary]) -> None:
        """Deletes the local copies of ledgers, after checking the objects again.

        :raises TieredStorageError: an object is missing or incomplete
        :raises LedgerError: a summary of the entries cannot be written
        :raises ManagedLedgerFenced: another broker owns the managed ledger
        :raises MetadataError: the step cannot be recorded
        """
        storage = None if self.policy is None else self.policy.storage
        for summary in due:
            await self._tiered.confirm(self._owner.name, summary, storage)
        if self._owner.write_summaries is not None:
            await self._owner.write_summaries()
        before = [(summary, summary.offload) for summary in due if summary.ledger_id in self._owner.ledgers]
        for summary, offload in before:
            if offload is not None:
                summary.offload = replace(offload, local_deleted=True)
        try:
            await self._record.put()
        except (ManagedLedgerError, MetadataError):
            for summary, offload in before:
                summary.offload = offload
            raise
        for summary, _offload in before:
            self._owner.reader.local_copy_deleted(summary.ledger_id)
            await self._record.delete_local(summary.ledger_id)
