"""Compacting a topic: the newest message of each key is found, then copied to a new ledger."""

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
    """A read took longer than it may."""


@dataclass(frozen=True)
class CompactionSettings:
    retain_keyless: bool = False
    """Whether messages without a key stay (topicCompactionRetainNullKey)."""
    read_timeout_seconds: float = 30.0
    """For each read of the first way through (brokerServiceCompactionPhaseOneLoopTimeInSeconds)."""
    memory: int = 96 * 1024 * 1024
    """Bytes for keys; what goes beyond is noted on the disk."""
    max_batch_bytes: int = 64 * 1024 * 1024
    """Of a batch, uncompressed; a larger one is kept whole."""


class Compactor:
    """Compacts one topic at a time, so that its memory is bounded.

    :param store: where compacted ledgers lie
    :param published: how often anybody has published so far, on any topic
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
        """Ends its process."""
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
        """A new ledger, closed, with the newest messages up to ``to``; nothing names it yet.

        :param topic: its full name
        :param partition: its index, -1 for none
        :param former: what the last compaction left; it stands for everything up to ``after``
        :raises LedgerError: something cannot be read or written; there is no new ledger then
        :raises CompactionTimeout: a read takes too long
        :raises ProcessFailed: the process that looks for keys has ended, or cannot do what it should:
            neither memory nor disk take them, above all
        :raises OSError: no such process can be started
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
                # It may be what is wrong, or in the middle of something: the next compaction has another one.
                self._elsewhere.close()
                raise
            finally:
                self._elsewhere.rest()

    async def _leave(self, latest: LatestElsewhere) -> None:
        """Leaves nothing of a compaction in the process."""
        try:
            await latest.remove()
        except ProcessFailed as failed:
            # It is gone, and its memory with it; what it left on the disk goes with the next compaction.
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
        """What a task comes to, if it does not take too long.

        :raises CompactionTimeout: it does
        """
        limit = partial(self.io.loop.call_later, self._read_timeout_seconds)
        reading.add_done_callback(nobody_waits)
        if not await finished(self.io.loop, reading, limit):
            raise CompactionTimeout("Timeout")
        return reading.result()
