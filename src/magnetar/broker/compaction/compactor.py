"""Compacting a topic: finding the newest message of each key, then copying these to a new ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from magnetar.broker.compaction import new_ledger
from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.compaction.elsewhere import Elsewhere, LatestElsewhere
from magnetar.broker.compaction.figures import CompactionFigures
from magnetar.broker.compaction.giving_way import GivingWay
from magnetar.broker.compaction.new_ledger import NewLedger
from magnetar.broker.compaction.passage import Passage, Sources
from magnetar.broker.compaction.questions import Beginning
from magnetar.io.interfaces import Io, ProcessFailed
from magnetar.io.mutex import Mutex
from magnetar.io.waiting import finished, nobody_waits
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerStore, Quorums
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position

log = logging.getLogger(__name__)


class CompactionTimeout(Exception):
    """A read took longer than its timeout."""


@dataclass(frozen=True)
class CompactionSettings:
    retain_keyless: bool = False
    """Whether messages without a key are kept (topicCompactionRetainNullKey)."""
    read_timeout_seconds: float = 30.0
    """Timeout of each read of the first pass (brokerServiceCompactionPhaseOneLoopTimeInSeconds)."""
    memory: int = 96 * 1024 * 1024
    """Bytes of memory for keys; keys beyond it are spilled to disk."""
    max_batch_bytes: int = 64 * 1024 * 1024
    """Largest uncompressed size of a batch that is unpacked; a larger one is kept whole."""


class Compactor:
    """Compacts one topic at a time, which bounds its memory.

    :param store: where compacted ledgers are written
    :param published: returns the number of publishes so far, on all topics
    """

    def __init__(
        self,
        io: Io,
        store: LedgerStore,
        quorums: Quorums,
        deletions: DeletionQueue,
        settings: CompactionSettings,
        published: Callable[[], int],
    ) -> None:
        self.io = io
        self._published = published
        self.store = store
        self.deletions = deletions
        self._beginning = Beginning(settings.retain_keyless, settings.memory, settings.max_batch_bytes)
        self._read_timeout_seconds = settings.read_timeout_seconds
        self._quorums = quorums
        self._turn = Mutex(io.loop)
        self._elsewhere = Elsewhere(io)

    def close(self) -> None:
        """Ends the compaction process."""
        self._elsewhere.close()

    async def compact(
        self,
        topic: str,
        partition: int,
        managed_ledger: ManagedLedger,
        former: CompactedLedger | None,
        after: Position,
        to: Position,
        figures: CompactionFigures,
    ) -> NewLedger:
        """Writes a new ledger with the newest messages up to ``to``; it is closed, and no cursor names it
        yet.

        :param topic: its full name
        :param partition: its index, -1 for none
        :param former: the result of the last compaction; it covers everything up to ``after``
        :raises LedgerError: a ledger cannot be read or written; the new ledger is deleted
        :raises CompactionTimeout: a read takes too long
        :raises ProcessFailed: the compaction process has ended or reports a failure, for example because keys
            fit neither in memory nor on the disk
        :raises OSError: the compaction process cannot be started
        """
        async with self._turn:
            try:
                latest = await self._elsewhere.begin(self._beginning)
                sources = Sources(self.store, managed_ledger, former)
                way = GivingWay(self.io.loop, self.io.clock, self._published)
                passage = Passage(self.io, sources, latest, way, self.in_time, partition, figures)
                try:
                    await passage.number(after, to)
                    await latest.settle(way)
                    figures.removed = latest.count - latest.kept
                    figures.removed_total += figures.removed
                    return await self._copy(topic, passage, to)
                finally:
                    passage.close()
                    await self._leave(latest)
            except BaseException:
                # The process may be the cause, or in an undefined state: the next compaction starts another.
                self._elsewhere.close()
                raise
            finally:
                self._elsewhere.rest()

    async def _leave(self, latest: LatestElsewhere) -> None:
        """Discards what the process still holds of a compaction."""
        try:
            await latest.remove()
        except ProcessFailed as failed:
            # Its memory was freed with it; the next compaction removes the files that it left on the disk.
            log.warning("compaction process failed", extra={"error": str(failed)})
            self._elsewhere.close()

    async def _copy(self, topic: str, passage: Passage, to: Position) -> NewLedger:
        ledger = await new_ledger.begin(self.store, self._quorums, self.io.loop, topic, to)
        try:
            await passage.copy(ledger)
            await ledger.close()
        except BaseException:
            await self.deletions.delete(ledger.ledger_id)
            raise
        return ledger

    async def in_time(self, reading: Any) -> Any:
        """Awaits a read and returns its result.

        :raises CompactionTimeout: it takes longer than the timeout
        """
        limit = partial(self.io.loop.call_later, self._read_timeout_seconds)
        reading.add_done_callback(nobody_waits)
        if not await finished(self.io.loop, reading, limit):
            raise CompactionTimeout("Timeout")
        return reading.result()
