"""A compacted ledger: for each key, the newest message of the topic up to a position, the horizon; each entry
keeps its id in the topic."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.broker.compaction.latest_messages import Copied
from magnetar.io.interfaces import Future, Loop, Task
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import fail, outcome, settle
from magnetar.ledger.interface import (
    DataDamaged,
    EntryRun,
    LedgerError,
    LedgerReader,
    LedgerStore,
    LedgerWriter,
    Quorums,
)
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.hot_codec import publish_time
from magnetar.protocol.hot_compaction import consecutive, open_raw
from magnetar.protocol.metadata import parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import MessageIdData

log = logging.getLogger(__name__)
_MOST_ENTRIES = 1_024
"""The maximum number of entries in one read."""
_MOST_REMEMBERED = 4_096
"""The maximum number of entries whose positions are remembered after a search has read them."""
_PIECE_BYTES = 128 * 1024
"""The target size of one append in bytes; it is small because clients that publish meanwhile wait for the
append."""
_MOST_BYTES = 256 * 1024
"""The maximum number of bytes that are appended and not yet durable."""
COMPONENT = b"compacted-ledger"


class OpenedRun:
    """Consecutive entries of a compacted ledger: entry i, in the form in which the topic stores it, is
    ``buffer[starts[i]:ends[i]]``."""

    __slots__ = ("buffer", "count", "ends", "entry_ids", "first", "ledger_ids", "starts")

    def __init__(self, run: EntryRun) -> None:
        """Splits the entries of a compacted ledger.

        :raises DataDamaged: an entry does not have the format of a compacted ledger
        """
        count = run.count
        self.first = run.first_entry_id
        self.count = count
        self.buffer = run.buffer
        self.ends = run.ends
        self.ledger_ids = array("q", bytes(8 * count))
        self.entry_ids = array("q", bytes(8 * count))
        self.starts = array("q", bytes(8 * count))
        sound = open_raw(
            run.buffer, run.starts, run.ends, count, self.ledger_ids, self.entry_ids, self.starts
        )
        if sound != count:
            raise DataDamaged(
                f"entry {run.ledger_id}:{run.first_entry_id + sound} is not a compacted message"
            )

    def position(self, index: int) -> Position:
        return self.ledger_ids[index], self.entry_ids[index]

    def runs(self) -> list[EntryRun]:
        """Returns the entries as runs of consecutive positions in the topic."""
        found = []
        at = 0
        while at < self.count:
            count = consecutive(self.ledger_ids, self.entry_ids, at, self.count)
            end = at + count
            found.append(
                EntryRun(
                    self.ledger_ids[at],
                    self.entry_ids[at],
                    count,
                    self.buffer,
                    self.starts[at:end],
                    self.ends[at:end],
                )
            )
            at = end
        return found


class CompactedLedger:
    """Reads a compacted ledger, and deletes it once it has been replaced and has no users."""

    def __init__(
        self, loop: Loop, store: LedgerStore, deletions: DeletionQueue, ledger_id: int, horizon: Position
    ) -> None:
        """:param horizon: the last position of the topic that the ledger covers"""
        self.ledger_id = ledger_id
        self.horizon = horizon
        self._loop = loop
        self._store = store
        self._deletions = deletions
        self._tasks = TaskScope(loop, "a compacted ledger", owner_goes_on)
        self._opening: Task[LedgerReader] | None = None
        self._reader: LedgerReader | None = None
        self._users = 0
        self._replaced = False
        self._positions: dict[int, Position] = {}
        """The topic's position of each entry that a search has read, by the entry's index. They are
        remembered because all binary searches begin with the same entries."""

    # Users

    def use(self) -> None:
        """Prevents the deletion of the ledger until :meth:`release` is called."""
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        self._go_if_unused()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Prevents the deletion of the ledger inside the ``with`` block, for operations of several steps."""
        self.use()
        try:
            yield
        finally:
            self.release()

    def replaced(self) -> None:
        """Reports that no cursor names the ledger any more; the ledger is deleted once it has no users."""
        self._replaced = True
        self._go_if_unused()

    def _go_if_unused(self) -> None:
        if self._replaced and not self._users:
            self._replaced = False
            self.close()
            self._tasks.start(self._deletions.delete(self.ledger_id), "its deletion")

    def close(self) -> None:
        """Closes the reader, if one is open."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # Reading

    async def _opened(self) -> LedgerReader:
        if self._reader is None:
            if self._opening is None:
                self._opening = self._tasks.answer(self._store.open(self.ledger_id, recover=True))
            opening = self._opening
            try:
                reader: LedgerReader = await outcome(self._loop, opening)
            finally:
                if self._opening is opening and opening.done():
                    self._opening = None
            if self._reader is None:
                self._reader = reader
        return self._reader

    async def entries(self) -> int:
        """Returns the number of entries in the ledger.

        :raises LedgerError: the ledger cannot be opened
        """
        with self.held():
            return (await self._opened()).metadata.last_entry_id + 1

    async def size(self) -> int:
        """Returns the ledger's size in bytes.

        :raises LedgerError: the ledger cannot be opened
        """
        with self.held():
            return (await self._opened()).metadata.length

    async def read(self, first: int, last: int, max_bytes: int) -> OpenedRun:
        """Reads the entries ``first`` to ``last`` of the ledger; may return only some of them, from ``first``
        on.

        :raises LedgerError: the entries cannot be read
        """
        reader = await self._opened()
        runs = await reader.read(first, min(last, first + _MOST_ENTRIES - 1), max_bytes)
        return OpenedRun(runs[0])

    async def find(self, position: Position) -> int:
        """Returns the index of the first entry at or after a position of the topic; if there is no such
        entry, the number of entries.

        :raises LedgerError: the ledger cannot be read
        """
        low, high = 0, await self.entries()
        while low < high:
            middle = (low + high) // 2
            if await self._position(middle) < position:
                low = middle + 1
            else:
                high = middle
        return low

    async def _position(self, index: int) -> Position:
        known = self._positions.get(index)
        if known is None:
            known = (await self.read(index, index, 1)).position(0)
            if len(self._positions) < _MOST_REMEMBERED:
                self._positions[index] = known
        return known

    async def last(self) -> tuple[Position, int] | None:
        """Returns the position of the last message and the message's index in its batch, -1 outside a batch;
        None for an empty ledger.

        :raises LedgerError: the ledger cannot be read
        """
        with self.held():
            count = await self.entries()
            if not count:
                return None
            run = await self.read(count - 1, count - 1, 1)
        return run.position(0), _last_index(run.buffer[run.starts[0] : run.ends[0]])

    async def first_published_at(self, time_ms: int) -> Position | None:
        """Returns the topic's position of the first entry published at or after ``time_ms`` (milliseconds
        since 1970), by binary search; None if all entries are older.

        :raises LedgerError: the ledger cannot be read
        """
        found: Position | None = None
        with self.held():
            low, high = 0, await self.entries()
            while low < high:
                middle = (low + high) // 2
                run = await self.read(middle, middle, 1)
                if publish_time(run.buffer, run.starts[0], run.ends[0]) < time_ms:
                    low = middle + 1
                else:
                    high = middle
                    found = run.position(0)
        return found


_MOST_LOOKED_INTO = 8 << 20
"""The maximum uncompressed size of a batch that this module unpacks, because the event loop waits
meanwhile."""


def _last_index(data: bytes) -> int:
    """Returns the index in its batch of the last message that compaction has kept; -1 outside a batch.

    A batch that is encrypted or too large is not unpacked; the result is then the index of the batch's last
    message, kept or not.
    """
    try:
        entry = parse_entry(data, verify_checksum=False)
        if entry.batch_size is None:
            return -1
        if entry.metadata.encryption_keys or entry.metadata.uncompressed_size > _MOST_LOOKED_INTO:
            return entry.batch_size - 1
        messages = split_batch(entry.uncompressed_payload(), entry.batch_size)
    except ProtocolError:
        # Compaction copies an entry that it cannot parse unchanged, so it is reported without looking inside.
        return -1
    left = [index for index, message in enumerate(messages) if not message.metadata.compacted_out]
    return left[-1] if left else -1


async def begin(store: LedgerStore, quorums: Quorums, loop: Loop, topic: str, to: Position) -> NewLedger:
    """Creates a compacted ledger.

    :param to: the last position of the topic that the ledger will cover
    :raises LedgerError: the store cannot create a ledger
    """
    horizon = MessageIdData(ledgerId=to[0], entryId=to[1], partition=-1).SerializeToString()
    custom = {
        "component": COMPONENT,
        "application": b"pulsar",
        "pulsar/compactedTopic": topic.encode(),
        "pulsar/compactedTo": horizon,
    }
    return NewLedger(loop, await store.create(quorums, custom))


class NewLedger:
    """Writes one compacted ledger, with a limit on the bytes that are not durable yet. It is the listener of
    the ledger's writer.
    """

    def __init__(self, loop: Loop, writer: LedgerWriter) -> None:
        self._loop = loop
        self._writer = writer
        self.ledger_id = writer.ledger_id
        self._on_way: deque[tuple[int, int]] = deque()
        """The last entry id and the size of each append that is not durable yet."""
        self._on_way_bytes = 0
        self._waiter: Future[None] | None = None
        self._failure: LedgerError | None = None
        self.entries = 0
        self.size = 0
        writer.set_listener(self)

    async def append(self, copied: Copied) -> None:
        """Appends entries; returns once few enough bytes are not durable yet that more can be appended.

        :raises LedgerError: the ledger cannot be written
        """
        buffer, ends, begin = bytes(copied.buffer), copied.ends, copied.start
        starts = array("q", (begin,)) + ends[:-1]
        index, count = 0, len(ends)
        while index < count:
            after = max(index + 1, bisect_right(ends, begin + _PIECE_BYTES, index))
            first = self._writer.append(buffer, starts, ends, index, after - index)
            size = ends[after - 1] - begin
            self._on_way.append((first + after - index - 1, size))
            self._on_way_bytes += size
            self.entries += after - index
            self.size += size
            index, begin = after, ends[after - 1]
            await self._until_at_most(_MOST_BYTES)

    async def settle(self) -> None:
        """Waits until all appended entries are durable.

        :raises LedgerError: the ledger cannot be written
        """
        await self._until_at_most(0)

    async def _until_at_most(self, on_way: int) -> None:
        """Waits until at most ``on_way`` bytes are not durable yet."""
        while self._on_way_bytes > on_way:
            await self._wait()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        await self._waiter

    async def close(self) -> None:
        """Closes the ledger; everything in it is durable when this returns.

        :raises LedgerError: the ledger cannot be written
        """
        await self._writer.close()

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        while self._on_way and self._on_way[0][0] <= last_entry_id:
            self._on_way_bytes -= self._on_way.popleft()[1]
        if self._waiter is not None:
            settle(self._waiter)

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        self._failure = reason
        if self._waiter is not None:
            fail(self._waiter, reason)
