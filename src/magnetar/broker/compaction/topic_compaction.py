"""The compaction of one topic: the last compacted ledger, the running compaction if any, and the last
outcome."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from magnetar.broker.compaction.compacted_ledger import CompactedLedger, NewLedger
from magnetar.broker.compaction.compactor import CompactionFigures, CompactionTimeout, Compactor
from magnetar.errors import BrokerError, Conflict, ServiceNotReady
from magnetar.io.interfaces import ProcessFailed, Task
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import finished
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.side_ledgers import COMPACTED_LEDGER, COMPACTION_CURSOR
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.errors import ProtocolError

log = logging.getLogger(__name__)


class CompactionStatus(Enum):
    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class TopicCompaction:
    def __init__(
        self,
        topic: TopicName,
        managed_ledger: ManagedLedger,
        compactor: Compactor,
        threshold: int,
        open_cursor: Callable[[], Awaitable[Cursor]],
    ) -> None:
        """:param threshold: bytes of backlog at which the broker compacts the topic; 0: only system topics
            are compacted automatically

        :param open_cursor: returns the compaction's cursor, and creates it if needed
        """
        self._topic = str(topic)
        self._partition = topic.partition_index
        self._always = topic.reserved
        self.threshold = threshold
        self._managed_ledger = managed_ledger
        self._compactor = compactor
        self._open_cursor = open_cursor
        self.current: CompactedLedger | None = None
        """The result of the last compaction; None: the topic was never compacted."""
        self._former: list[CompactedLedger] = []
        """Replaced compacted ledgers that the stored cursor may still name, so that they are kept."""
        self._tasks = TaskScope(compactor.io.loop, self._topic, owner_goes_on)
        self._running: Task[None] | None = None
        self._stopped = False
        self.status = CompactionStatus.NOT_RUN
        self.last_error = ""
        self.figures: CompactionFigures | None = None
        """The statistics of compactions since the topic was loaded; None: no compaction was started."""
        cursor = managed_ledger.cursors.get(COMPACTION_CURSOR)
        if cursor is not None:
            ledger_id = cursor.describe_properties().get(COMPACTED_LEDGER)
            if ledger_id is not None:
                self.current = self._ledger(ledger_id, cursor.mark_delete)

    def _ledger(self, ledger_id: int, horizon: Position) -> CompactedLedger:
        compactor = self._compactor
        return CompactedLedger(compactor.io.loop, compactor.store, compactor.deletions, ledger_id, horizon)

    @property
    def cursor(self) -> Cursor | None:
        return self._managed_ledger.cursors.get(COMPACTION_CURSOR)

    def backlog_bytes(self) -> int:
        """Returns an estimate of the bytes that are not compacted yet."""
        cursor = self.cursor
        return cursor.backlog_bytes() if cursor is not None else self._managed_ledger.ledgers.total_size()

    # Running

    @property
    def running(self) -> bool:
        return self._running is not None

    @property
    def automatic(self) -> bool:
        """Whether the broker compacts the topic by itself: at a threshold, and system topics always."""
        return self.threshold > 0 or self._always

    def start_if_due(self) -> None:
        """Starts a compaction if the backlog since the last compaction exceeds the threshold."""
        due = self.automatic and self._running is None and not self._stopped
        if due and self.backlog_bytes() > self.threshold:
            self.start()

    def start(self) -> None:
        """Starts a compaction; :attr:`status` shows when it has finished.

        :raises Conflict: a compaction of the topic is running
        :raises ServiceNotReady: the topic is being closed, or its compacted data is being removed
        """
        if self._running is not None:
            raise Conflict("Compaction already in progress")
        if self._stopped:
            raise ServiceNotReady("Topic is being closed, so it is not compacted: try again later")
        self.status, self.last_error = CompactionStatus.RUNNING, ""
        self._running = self._tasks.start(self._run(), "its compaction")

    async def _run(self) -> None:
        clock = self._compactor.io.clock
        began = clock.monotonic()
        if self.figures is None:
            self.figures = CompactionFigures()
        figures = self.figures
        try:
            await self._compact(figures)
        except (
            BrokerError,
            LedgerError,
            ManagedLedgerError,
            MetadataError,
            ProtocolError,
            CompactionTimeout,
            ProcessFailed,
            OSError,
        ) as error:
            log.warning("cannot compact the topic", extra={"topic": self._topic, "error": str(error)})
            self.status, self.last_error = CompactionStatus.ERROR, str(error) or type(error).__name__
            figures.failed += 1
            figures.failed_ms = clock.wall_ms()
        except BaseException:
            self.status, self.last_error = CompactionStatus.ERROR, "the compaction was interrupted"
            raise
        else:
            self.status = CompactionStatus.SUCCESS
            figures.succeeded += 1
            figures.succeeded_ms = clock.wall_ms()
        finally:
            self._running = None
            took = clock.monotonic() - began
            figures.duration_ms = int(took * 1000)
            figures.busy_seconds += took

    async def _compact(self, figures: CompactionFigures) -> None:
        cursor = await self._open_cursor()
        after, to = cursor.mark_delete, self._managed_ledger.max_read_position
        if not cursor.backlog():
            log.info("nothing to compact", extra={"topic": self._topic})
            return
        former = self.current
        if former is not None:
            former.use()
        try:
            ledger = await self._compactor.compact(
                self._topic, self._partition, self._managed_ledger, former, after, to, figures
            )
        finally:
            if former is not None:
                former.release()
        await self._install(cursor, ledger, to)
        figures.entries, figures.size = ledger.entries, ledger.size
        log.info(
            "topic compacted",
            extra={"topic": self._topic, "ledger": ledger.ledger_id, "entries": ledger.entries},
        )

    async def _install(self, cursor: Cursor, ledger: NewLedger, to: Position) -> None:
        """Makes the new ledger replace the topic's entries up to a position.

        Ledgers of the topic can only be trimmed after the cursor was written. So a crash leaves either the
        old compacted ledger with the newer entries, or the new compacted ledger.
        """
        storage = cursor.storage
        assert storage is not None
        former, self.current = self.current, self._ledger(ledger.ledger_id, to)
        if former is not None:
            self._former.append(former)
        storage.properties = {**storage.properties, COMPACTED_LEDGER: ledger.ledger_id}
        cursor.mark_delete_to(to)
        # If this fails it is unknown which ledger the stored cursor names: both are kept.
        await cursor.flush()
        for old in self._former:
            old.replaced()
        self._former = []

    async def stop(self) -> None:
        """Cancels a running compaction and allows no further one; none runs when this returns."""
        self._stopped = True
        running = self._running
        if running is not None:
            running.cancel()
            await finished(self._compactor.io.loop, running)
        if self.current is not None:
            self.current.close()

    def go_on(self) -> None:
        """Allows compactions again, after the closing of the topic has failed."""
        self._stopped = False

    def forget(self) -> None:
        """Resets the state after the cursor was deleted with the ledger that it named: the topic counts as
        never compacted."""
        self.current = None
        self._stopped = False
        self.status, self.last_error = CompactionStatus.NOT_RUN, ""
