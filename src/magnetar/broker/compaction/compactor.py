"""The compaction of a topic in two passes over its entries: the first finds the newest message of each key,
the second copies these messages."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.broker.compaction import compacted_ledger
from magnetar.broker.compaction.compacted_ledger import CompactedLedger, NewLedger, OpenedRun
from magnetar.broker.compaction.elsewhere import Elsewhere, GivingWay, LatestElsewhere, QuestionPipeline
from magnetar.broker.compaction.latest_messages import Copied, Entries
from magnetar.broker.compaction.questions import GOES_ON, Beginning, EntryIds
from magnetar.broker.flow.rates import LATENCY_BOUNDS_MS, Distribution
from magnetar.io.interfaces import Io, ProcessFailed, Task
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, nobody_waits
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import EntryRun, LedgerReader, LedgerStore, Quorums
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.entry_reader import GONE
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position

log = logging.getLogger(__name__)
_READ_BYTES = 64 * 1024
"""The maximum size of one read in bytes; it is small because clients that publish meanwhile may wait for
the read."""
_READ_ENTRIES = 8_192


class CompactionTimeout(Exception):
    """A read took longer than its timeout."""


@dataclass(frozen=True)
class CompactionSettings:
    retain_keyless: bool = False
    """Whether messages without a key are kept (topicCompactionRetainNullKey)."""
    read_timeout_seconds: float = 30.0
    """The timeout of each read in the first pass, in seconds
    (brokerServiceCompactionPhaseOneLoopTimeInSeconds)."""
    memory: int = 96 * 1024 * 1024
    """The memory for keys in bytes; further keys are spilled to disk."""
    max_batch_bytes: int = 64 * 1024 * 1024
    """The maximum uncompressed size of a batch that is unpacked; a larger one is kept unchanged."""


class Compactor:
    """Compacts topics, one at a time, so that the use of memory is bounded.

    :param store: the store of compacted ledgers
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
        """Writes and closes a ledger with the newest message of each key up to ``to``; no cursor names the
        ledger yet.

        :param topic: the topic's full name
        :param partition: the topic's partition index; -1: not a partition
        :param former: the result of the last compaction, which covers all entries up to ``after``; None: the
            topic was never compacted
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
        """Makes the compaction process discard the data of a compaction; if that fails, ends the process."""
        try:
            await latest.remove()
        except ProcessFailed as failed:
            # Its memory was freed with it; the next compaction removes the files that it left on the disk.
            log.warning("compaction process failed", extra={"error": str(failed)})
            self._elsewhere.close()

    async def _copy(self, topic: str, passage: Passage, to: Position) -> NewLedger:
        ledger = await compacted_ledger.begin(self.store, self._quorums, self.io.loop, topic, to)
        try:
            await passage.copy(ledger)
            await ledger.close()
        except BaseException:
            await self.deletions.delete(ledger.ledger_id)
            raise
        return ledger

    async def in_time(self, reading: Task[Sequence[EntryRun]]) -> Sequence[EntryRun]:
        """Awaits a read and returns its result.

        :raises CompactionTimeout: the read takes longer than the timeout
        """
        limit = partial(self.io.loop.call_later, self._read_timeout_seconds)
        reading.add_done_callback(nobody_waits)
        if not await finished(self.io.loop, reading, limit):
            raise CompactionTimeout("Timeout")
        return reading.result()


class Span(NamedTuple):
    """Entries of one read, and the range of their message numbers: [number, end)."""

    ledger_id: int
    first: int
    last: int
    number: int
    end: int


class Sources(NamedTuple):
    """The store and the ledgers that a compaction reads."""

    store: LedgerStore
    managed_ledger: ManagedLedger
    former: CompactedLedger | None
    """The result of the last compaction, which covers all entries before those that are read from the topic;
    None: the topic was never compacted."""


_OpenLedger = Callable[[int], Awaitable[LedgerReader]]


class _Read(NamedTuple):
    """Entries of one read."""

    run: EntryRun
    entries: Entries
    """The entries as the topic stores them."""
    places: EntryIds


class Passage:
    """The two passes of a compaction over its input: the last compacted ledger, then the newer entries.

    The event loop reads the entries; the compaction process finds the keys and copies the messages. The next
    entries are read while the process works on the previous entries.

    :param in_time: awaits a read, with a timeout
    :param partition: the topic's partition index; -1: not a partition
    """

    def __init__(
        self,
        io: Io,
        sources: Sources,
        latest: LatestElsewhere,
        way: GivingWay,
        in_time: Callable[[Task[Sequence[EntryRun]]], Awaitable[Sequence[EntryRun]]],
        partition: int,
        figures: CompactionFigures,
    ) -> None:
        self._io = io
        self._tasks = TaskScope(io.loop, "a compaction")
        self._sources = sources
        self._latest = latest
        self._way = way
        self._in_time = in_time
        self._partition = partition
        self._figures = figures
        self._spans: list[Span] = []
        self._spans_of_former = 0
        """The number of spans, at the start of the list, that belong to the last compacted ledger."""
        self._reader: LedgerReader | None = None
        self._reader_id = -1

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader, self._reader_id = None, -1

    # Reading

    async def _open(self, ledger_id: int, open_ledger: _OpenLedger) -> LedgerReader:
        if self._reader is None or self._reader_id != ledger_id:
            self.close()
            self._reader = await open_ledger(ledger_id)
            self._reader.in_background()
            self._reader_id = ledger_id
        return self._reader

    async def _runs(
        self, ledger_id: int, first: int, last: int, open_ledger: _OpenLedger
    ) -> AsyncIterator[EntryRun]:
        while first <= last:
            until = min(last, first + _READ_ENTRIES - 1)
            for run in await self._read(ledger_id, first, until, open_ledger):
                yield run
                first = run.first_entry_id + run.count

    async def _read(
        self, ledger_id: int, first: int, last: int, open_ledger: _OpenLedger
    ) -> Sequence[EntryRun]:
        new = self._reader_id != ledger_id
        reader = await self._open(ledger_id, open_ledger)
        try:
            return await self._in_time(self._tasks.answer(_read(reader, first, last)))
        except GONE:
            if new:
                raise
        # Its local copy may have been deleted since the reader was opened; then it is in tiered storage.
        self.close()
        reader = await self._open(ledger_id, open_ledger)
        return await self._in_time(self._tasks.answer(_read(reader, first, last)))

    def _of_store(self, ledger_id: int) -> Awaitable[LedgerReader]:
        return self._sources.store.open(ledger_id, recover=False)

    async def _of_former(self, first: int, last: int) -> AsyncIterator[_Read]:
        """Reads entries of the last compacted ledger."""
        former = self._sources.former
        assert former is not None
        async for run in self._runs(former.ledger_id, first, last, self._of_store):
            opened = OpenedRun(run)
            places = EntryIds(opened.ledger_ids, opened.entry_ids)
            yield _Read(run, Entries(run.buffer, opened.starts, run.ends, run.count), places)

    async def _of_topic(self, ledger_id: int, first: int, last: int) -> AsyncIterator[_Read]:
        open_ledger = self._sources.managed_ledger.reader.open_apart
        leave_out = self._sources.managed_ledger.leave_out_aborted
        async for stored in self._runs(ledger_id, first, last, open_ledger):
            run = stored if leave_out is None else leave_out(stored)
            places = EntryIds.following(ledger_id, run.first_entry_id)
            yield _Read(run, Entries(run.buffer, run.starts, run.ends, run.count), places)

    async def _between(self, after: Position, to: Position) -> AsyncIterator[_Read]:
        """Reads the topic's entries after one position, up to and including another."""
        ledgers = self._sources.managed_ledger.ledgers
        position = ledgers.after(after)
        while position <= to:
            ledger_id, first = position
            summary = ledgers.get(ledger_id)
            end = summary.entries - 1 if summary is not None else first
            last = to[1] if ledger_id == to[0] else end
            async for read in self._of_topic(ledger_id, first, last):
                yield read
            position = ledgers.after((ledger_id, last))

    # First pass

    async def number(self, after: Position, to: Position) -> None:
        """Runs the first pass, which numbers the messages.

        :raises LedgerError: a ledger cannot be read
        :raises ProcessFailed: the compaction process fails
        """
        pipeline = QuestionPipeline(self._numbered_to)
        former = self._sources.former
        if former is not None:
            async for read in self._of_former(0, await former.entries() - 1):
                await pipeline.put(read, self._latest.number(read.entries))
                await self._way.rest()
            await pipeline.end()
            self._spans_of_former = len(self._spans)
        async for read in self._between(after, to):
            await pipeline.put(read, self._latest.number(read.entries))
            await self._way.rest()
        await pipeline.end()

    async def _numbered_to(self, read: _Read, end: int) -> None:
        run, entries = read.run, read.entries
        before = self._spans[-1].end if self._spans else 0
        self._spans.append(Span(run.ledger_id, run.first_entry_id, run.last_entry_id, before, end))
        self._figures.read_bytes += entries.ends[entries.count - 1] - entries.starts[0]

    # Second pass

    async def copy(self, ledger: NewLedger) -> None:
        """Runs the second pass, which copies the messages that compaction keeps.

        :raises LedgerError: a ledger cannot be read or written
        :raises ProcessFailed: the compaction process fails
        """
        pipeline = QuestionPipeline(self._write)
        stay = await self._latest.staying([(span.number, span.end) for span in self._spans])
        for index, span in enumerate(self._spans):
            if not stay[index]:
                continue
            if index < self._spans_of_former:
                reads = self._of_former(span.first, span.last)
            else:
                reads = self._of_topic(span.ledger_id, span.first, span.last)
            number = span.number
            async for read in reads:
                asked = self._latest.copy(read.entries, read.places, self._partition, number)
                await pipeline.put(ledger, asked)
                number = GOES_ON
                await self._way.rest()
        await pipeline.end()

    async def _write(self, ledger: NewLedger, copied: Copied) -> None:
        figures, clock = self._figures, self._io.clock
        figures.read_bytes += copied.read_bytes
        figures.written_bytes += len(copied.buffer) - copied.start
        began = clock.monotonic()
        await ledger.append(copied)
        if self._way.gives():
            # The step includes the work of the disk, and so determines the length of the rest after it.
            await ledger.settle()
        if copied.ends:
            figures.write_latency.add((clock.monotonic() - began) * 1000, len(copied.ends))


async def _read(reader: LedgerReader, first: int, last: int) -> Sequence[EntryRun]:
    return await reader.read(first, last, _READ_BYTES)


class CompactionFigures:
    """The statistics of a topic's compactions since the topic was loaded. Names ending in ``_ms`` have times
    in milliseconds since 1970, except ``duration_ms``, a duration in milliseconds."""

    def __init__(self) -> None:
        self.removed = 0
        """The number of messages that the last compaction left out."""
        self.removed_total = 0
        self.succeeded_ms = 0
        self.failed_ms = 0
        self.duration_ms = 0
        self.succeeded = 0
        self.failed = 0
        self.entries = 0
        """The number of entries in the ledger that the last compaction wrote; :attr:`size` is the number of
        bytes."""
        self.size = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.write_latency = Distribution(LATENCY_BOUNDS_MS)
        self.busy_seconds = 0.0
        """The total duration of all compactions, in seconds."""
