"""The two passes of a compaction over its input: the last compacted ledger, then the newer entries.

Reading belongs to the event loop, finding keys and copying to the compaction process. The next entries are
read while the process works on the previous ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from magnetar.broker.compaction.compacted_ledger import CompactedLedger, OpenedRun
from magnetar.broker.compaction.elsewhere import LatestElsewhere, QuestionPipeline
from magnetar.broker.compaction.figures import CompactionFigures
from magnetar.broker.compaction.giving_way import GivingWay
from magnetar.broker.compaction.latest_messages import Copied, Entries
from magnetar.broker.compaction.new_ledger import NewLedger
from magnetar.broker.compaction.questions import GOES_ON, EntryIds
from magnetar.io.interfaces import Io
from magnetar.ledger.entry_run import EntryRun
from magnetar.ledger.interface import LedgerReader, LedgerStore
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position

_READ_BYTES = 64 * 1024
"""Bytes per read: a client that publishes meanwhile may wait until they are read and scanned."""

_READ_ENTRIES = 8_192


class Span(NamedTuple):
    """Entries of one read, and the numbers of their messages: [number, end)."""

    ledger_id: int
    first: int
    last: int
    number: int
    end: int


class Sources(NamedTuple):
    """What a compaction reads."""

    store: LedgerStore
    managed_ledger: ManagedLedger
    former: CompactedLedger | None
    """The result of the last compaction; it covers everything before the part of the topic that is read."""


class _Read(NamedTuple):
    """Entries of one read."""

    run: EntryRun
    entries: Entries
    """The entries as the topic stores them."""
    places: EntryIds


class Passage:
    """:param in_time: awaits a read, with a timeout

    :param partition: the topic's index, -1 for none
    """

    def __init__(
        self,
        io: Io,
        sources: Sources,
        latest: LatestElsewhere,
        way: GivingWay,
        in_time: Callable[[Any], Awaitable[Any]],
        partition: int,
        figures: CompactionFigures,
    ) -> None:
        self._io = io
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
            self._reader = None

    # Reading

    async def _open(self, ledger_id: int) -> LedgerReader:
        if self._reader is None or self._reader_id != ledger_id:
            self.close()
            self._reader = await self._sources.store.open(ledger_id, recover=False)
            self._reader.in_background()
            self._reader_id = ledger_id
        return self._reader

    async def _runs(self, ledger_id: int, first: int, last: int) -> AsyncIterator[EntryRun]:
        reader = await self._open(ledger_id)
        while first <= last:
            until = min(last, first + _READ_ENTRIES - 1)
            reading = self._io.loop.create_task(_read(reader, first, until))
            for run in await self._in_time(reading):
                yield run
                first = run.first_entry_id + run.count

    async def _of_former(self, first: int, last: int) -> AsyncIterator[_Read]:
        """Reads entries of the last compacted ledger."""
        former = self._sources.former
        assert former is not None
        async for run in self._runs(former.ledger_id, first, last):
            opened = OpenedRun(run)
            places = EntryIds(opened.ledger_ids, opened.entry_ids)
            yield _Read(run, Entries(run.buffer, opened.starts, run.ends, run.count), places)

    async def _of_topic(self, ledger_id: int, first: int, last: int) -> AsyncIterator[_Read]:
        async for run in self._runs(ledger_id, first, last):
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
        """The first pass.

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
        """The second pass.

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


async def _read(reader: LedgerReader, first: int, last: int) -> Any:
    return await reader.read(first, last, _READ_BYTES)
