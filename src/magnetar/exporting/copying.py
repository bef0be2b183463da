"""Copies a ledger entry by entry, and reads back what was written."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from magnetar.io.interfaces import Future, Loop
from magnetar.io.slices import let_others
from magnetar.io.waiting import fail, settle
from magnetar.ledger.interface import EntryRun, LedgerError, LedgerReader, LedgerWriter

_READ_BYTES = 1 << 20
_MOST_ON_WAY = 8 << 20
"""Bytes in flight to the target store."""

Rewrite = Callable[[bytes], bytes]
"""Returns the entry in its form for the target store."""


class LedgerContents(NamedTuple):
    """Size and digest of a ledger's entries."""

    entries: int
    size: int
    """Bytes of all entries."""
    digest: str
    """SHA-256 of all entries, each preceded by its size, in hexadecimal digits."""


class _Digest:
    def __init__(self) -> None:
        self._hash = sha256()
        self.entries = 0
        self.size = 0

    def add(self, entry: bytes | memoryview) -> None:
        self._hash.update(len(entry).to_bytes(8, "big"))
        self._hash.update(entry)
        self.entries += 1
        self.size += len(entry)

    def contents(self) -> LedgerContents:
        return LedgerContents(self.entries, self.size, self._hash.hexdigest())


class _Filling:
    """The listener of a writer, which bounds the bytes in flight."""

    def __init__(self, loop: Loop, writer: LedgerWriter) -> None:
        self._loop = loop
        self._writer = writer
        self._on_way: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._waiter: Future[None] | None = None
        self._failure: LedgerError | None = None
        writer.set_listener(self)

    async def append(
        self, buffer: bytes, starts: array[int], ends: array[int], count: int, size: int
    ) -> None:
        """:raises LedgerError: the ledger accepts no more entries"""
        first = self._writer.append(buffer, starts, ends, 0, count)
        self._on_way.append((first + count - 1, size))
        self._bytes += size
        while self._bytes > _MOST_ON_WAY:
            if self._failure is not None:
                raise self._failure
            self._waiter = self._loop.create_future()
            await self._waiter

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        while self._on_way and self._on_way[0][0] <= last_entry_id:
            self._bytes -= self._on_way.popleft()[1]
        if self._waiter is not None:
            settle(self._waiter)

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        self._failure = reason
        if self._waiter is not None:
            fail(self._waiter, reason)


async def fill(
    loop: Loop, reader: LedgerReader, last: int, writer: LedgerWriter, rewrite: Rewrite | None = None
) -> LedgerContents:
    """Writes entries 0 … ``last`` of a ledger to a new one, and closes it; durable when this returns.

    :raises LedgerError: an entry cannot be read or written
    """
    filling, digest = _Filling(loop, writer), _Digest()
    at = 0
    while at <= last:
        for run in await reader.read(at, last, _READ_BYTES):
            if run.first_entry_id != at:
                raise LedgerError(f"read entry {run.ledger_id}:{run.first_entry_id} instead of {at}")
            if rewrite is None:
                _add(digest, run)
                await filling.append(run.buffer, run.starts, run.ends, run.count, run.size())
            else:
                buffer, ends = _rewritten(digest, run, rewrite)
                starts = array("q", (0, *ends[:-1]))
                await filling.append(buffer, starts, ends, run.count, len(buffer))
            at += run.count
        await let_others(loop)
    end, length = await writer.close()
    contents = digest.contents()
    if (end + 1, length) != contents[:2]:
        raise LedgerError(
            f"ledger {writer.ledger_id} has {end + 1} entries of {length} bytes, but {contents.entries} "
            f"entries of {contents.size} bytes were written"
        )
    return contents


def _add(digest: _Digest, run: EntryRun) -> None:
    view = memoryview(run.buffer)
    for index in range(run.count):
        digest.add(view[run.starts[index] : run.ends[index]])


def _rewritten(digest: _Digest, run: EntryRun, rewrite: Rewrite) -> tuple[bytes, array[int]]:
    pieces, ends, size = [], array("q"), 0
    for index in range(run.count):
        piece = rewrite(run.entry(index))
        digest.add(piece)
        pieces.append(piece)
        size += len(piece)
        ends.append(size)
    return b"".join(pieces), ends


async def contents_of(loop: Loop, reader: LedgerReader) -> LedgerContents:
    """Reads all entries of a closed ledger.

    :raises LedgerError: the ledger cannot be read
    """
    digest = _Digest()
    last = reader.metadata.last_entry_id
    while digest.entries <= last:
        for run in await reader.read(digest.entries, last, _READ_BYTES):
            _add(digest, run)
        await let_others(loop)
    return digest.contents()
