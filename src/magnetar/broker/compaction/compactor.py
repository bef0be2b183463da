"""Compacting a topic: the newest message of each key is found, then copied to a new ledger.

Both ways through the topic read what the last compaction left, then what came since. Reading and writing
belong to the loop; looking for keys and copying to a worker, a few entries at a time, so that the loop gets
the interpreter whenever it wants it.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from magnetar.broker.compaction import new_ledger
from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.compaction.figures import CompactionFigures
from magnetar.broker.compaction.latest_messages import Entries, LatestMessages
from magnetar.broker.compaction.new_ledger import NewLedger
from magnetar.io.interfaces import Io, Worker
from magnetar.io.jobs import run_job
from magnetar.io.mutex import Mutex
from magnetar.io.waiting import finished, nobody_waits
from magnetar.ledger.interface import LedgerReader, LedgerStore, Quorums
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position

log = logging.getLogger(__name__)

T = TypeVar("T")

_READ_BYTES = 1 << 20
_READ_ENTRIES = 8_192


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


class Span(NamedTuple):
    """Entries that were read at once, and the numbers of their messages."""

    ledger_id: int
    first: int
    last: int
    number: int
    end: int


class Compactor:
    """Compacts one topic at a time, so that its memory is bounded.

    :param store: where compacted ledgers lie
    """

    def __init__(
        self,
        io: Io,
        store: LedgerStore,
        quorums: Quorums,
        deletions: DeletionQueue,
        settings: CompactionSettings,
    ) -> None:
        self.io = io
        self.store = store
        self.deletions = deletions
        self.settings = settings
        self._quorums = quorums
        self._turn = Mutex(io.loop)
        self._worker: Worker | None = None

    def close(self) -> None:
        """Ends its thread."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    async def run(self, job: Callable[[], T]) -> T:
        """What a job comes to that runs beside the loop."""
        if self._worker is None:
            self._worker = self.io.start_worker("compaction")
        return await run_job(self.io.loop, self._worker, job)

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
        :raises OSError: keys do not fit in memory, and the disk does not take them
        """
        async with self._turn:
            settings = self.settings
            latest = LatestMessages(
                self.io.disk,
                retain_keyless=settings.retain_keyless,
                memory=settings.memory,
                max_size=settings.max_batch_bytes,
            )
            passage = _Passage(self, managed_ledger, former, partition, latest, figures)
            try:
                await passage.number(after, to)
                for part in await self.run(latest.parts):
                    await self.run(partial(latest.settle_part, part))
                await self.run(latest.settle)
                figures.removed = latest.count - latest.kept
                figures.removed_total += figures.removed
                return await self._copy(topic, passage, to)
            finally:
                passage.close()
                if self._worker is not None:
                    await self.run(latest.remove)

    async def _copy(self, topic: str, passage: _Passage, to: Position) -> NewLedger:
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
        limit = partial(self.io.loop.call_later, self.settings.read_timeout_seconds)
        reading.add_done_callback(nobody_waits)
        if not await finished(self.io.loop, reading, limit):
            raise CompactionTimeout("Timeout")
        return reading.result()


class _Passage:
    """The two ways through what one compaction looks at."""

    def __init__(
        self,
        compactor: Compactor,
        managed_ledger: ManagedLedger,
        former: CompactedLedger | None,
        partition: int,
        latest: LatestMessages,
        figures: CompactionFigures,
    ) -> None:
        self._compactor = compactor
        self._managed_ledger = managed_ledger
        self._former = former
        self._partition = partition
        self._latest = latest
        self._figures = figures
        self._of_former: list[Span] = []
        self._of_topic: list[Span] = []
        self._reader: LedgerReader | None = None
        self._reader_id = -1

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # Reading

    async def _open(self, ledger_id: int) -> LedgerReader:
        if self._reader is None or self._reader_id != ledger_id:
            self.close()
            self._reader = await self._compactor.store.open(ledger_id, recover=False)
            self._reader_id = ledger_id
        return self._reader

    async def _topic_runs(self, after: Position, to: Position) -> AsyncIterator[tuple[int, int, Entries]]:
        """Runs of the topic behind one position, up to another; each with its ledger and first entry."""
        ledgers = self._managed_ledger.ledgers
        position = ledgers.after(after)
        while position <= to:
            ledger_id, first = position
            summary = ledgers.get(ledger_id)
            end = summary.entries - 1 if summary is not None else first
            last = to[1] if ledger_id == to[0] else end
            async for run in self._ledger_runs(ledger_id, first, last):
                yield run
            position = ledgers.after((ledger_id, last))

    async def _ledger_runs(
        self, ledger_id: int, first: int, last: int
    ) -> AsyncIterator[tuple[int, int, Entries]]:
        reader = await self._open(ledger_id)
        while first <= last:
            until = min(last, first + _READ_ENTRIES - 1)
            reading = self._compactor.io.loop.create_task(_read(reader, first, until))
            for run in await self._compactor.in_time(reading):
                yield ledger_id, run.first_entry_id, Entries(run.buffer, run.starts, run.ends, run.count)
                first = run.first_entry_id + run.count

    # The first way through

    async def number(self, after: Position, to: Position) -> None:
        """:raises LedgerError: something cannot be read"""
        former = self._former
        if former is not None:
            at, count = 0, await former.entries()
            while at < count:
                run = await former.read(at, count - 1, _READ_BYTES)
                entries = Entries(run.buffer, run.starts, run.ends, run.count)
                await self._number(self._of_former, former.ledger_id, run.first, entries)
                at = run.first + run.count
        async for ledger_id, first, entries in self._topic_runs(after, to):
            await self._number(self._of_topic, ledger_id, first, entries)

    async def _number(self, spans: list[Span], ledger_id: int, first: int, entries: Entries) -> None:
        number = self._latest.count
        end = await self._compactor.run(partial(self._latest.number, entries))
        spans.append(Span(ledger_id, first, first + entries.count - 1, number, end))
        self._figures.read_bytes += entries.ends[entries.count - 1] - entries.starts[0]

    # The second way through

    async def copy(self, ledger: NewLedger) -> None:
        """:raises LedgerError: something cannot be read or written"""
        former = self._former
        for span in self._of_former:
            if former is None or self._latest.skip(span.number, span.end):
                continue
            at = span.first
            while at <= span.last:
                run = await former.read(at, span.last, _READ_BYTES)
                entries = Entries(run.buffer, run.starts, run.ends, run.count)
                await self._write(ledger, entries, run.ledger_ids, run.entry_ids)
                at = run.first + run.count
        for span in self._of_topic:
            if self._latest.skip(span.number, span.end):
                continue
            async for ledger_id, first, entries in self._ledger_runs(span.ledger_id, span.first, span.last):
                ledger_ids = array("q", (ledger_id,)) * entries.count
                entry_ids = array("q", range(first, first + entries.count))
                await self._write(ledger, entries, ledger_ids, entry_ids)

    async def _write(
        self, ledger: NewLedger, entries: Entries, ledger_ids: array[int], entry_ids: array[int]
    ) -> None:
        job = partial(self._latest.copy, entries, ledger_ids, entry_ids, self._partition)
        copied = await self._compactor.run(job)
        figures, clock = self._figures, self._compactor.io.clock
        figures.read_bytes += copied.read_bytes
        figures.written_bytes += len(copied.buffer)
        began = clock.monotonic()
        await ledger.append(copied)
        if copied.ends:
            figures.write_latency.add((clock.monotonic() - began) * 1000, len(copied.ends))


async def _read(reader: LedgerReader, first: int, last: int) -> Any:
    return await reader.read(first, last, _READ_BYTES)
