"""Writing a compacted ledger, with a limit on the bytes that are not durable yet."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque

from magnetar.broker.compaction.latest_messages import Copied
from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import fail, settle
from magnetar.ledger.interface import LedgerError, LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.position import Position
from magnetar.protocol.pulsar_api_pb2 import MessageIdData

_PIECE_BYTES = 128 * 1024
"""Bytes per append: a client that publishes meanwhile waits until they are on disk."""

_MOST_BYTES = 256 * 1024
"""Bytes appended and not yet durable."""

COMPONENT = b"compacted-ledger"


async def begin(store: LedgerStore, quorums: Quorums, loop: Loop, topic: str, to: Position) -> NewLedger:
    """Creates the ledger.

    :param to: the last position that it will cover
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
    """Writes one compacted ledger; the listener of its ledger writer."""

    def __init__(self, loop: Loop, writer: LedgerWriter) -> None:
        self._loop = loop
        self._writer = writer
        self.ledger_id = writer.ledger_id
        self._on_way: deque[tuple[int, int]] = deque()
        """Last entry ids and sizes of appends that are not durable yet."""
        self._on_way_bytes = 0
        self._waiter: Future[None] | None = None
        self._failure: LedgerError | None = None
        self.entries = 0
        self.size = 0
        writer.set_listener(self)

    async def append(self, copied: Copied) -> None:
        """Appends entries; returns when there is room for more.

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
        """Returns when everything appended is durable.

        :raises LedgerError: the ledger cannot be written
        """
        await self._until_at_most(0)

    async def _until_at_most(self, on_way: int) -> None:
        """:param on_way: bytes that need not be durable yet"""
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
