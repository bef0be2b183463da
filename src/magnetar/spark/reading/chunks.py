"""Assembles chunked messages.

The position of a chunked message is the position of its last chunk, so the task that reads this chunk
assembles the message. If earlier chunks precede the range of the task, the task reads backwards to the first
chunk. Therefore the result is independent of how a topic is split into parts or batches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from magnetar.client.chunks import MAX_BYTES, Chunk, ChunkedMessage, is_chunk, unchunked
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_entry
from magnetar.spark.codec.hot_rows import REASONS, RowBuilder
from magnetar.spark.codec.rows import EntryPart
from magnetar.spark.connection import Connection
from magnetar.spark.ledgers import Layout, Range, layout_of
from magnetar.spark.reading.entries import entries_of

__all__ = ["TopicChunks"]

MAX_MESSAGES = 1000
"""Maximum number of incomplete messages that a task keeps; the chunks of older ones are read again when they
are needed.
"""
FIRST_WINDOW = 16
LARGEST_WINDOW = 1024
"""Maximum number of entries that are read backwards in one step."""
FARTHEST = 100_000
"""Maximum number of entries that are read backwards for one message."""


class TopicChunks:
    """The chunked messages of one topic in one task, in the order of entries."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._layout: Layout | None = None
        self._open: OrderedDict[str, ChunkedMessage] = OrderedDict()

    def add(self, rows: RowBuilder, part: EntryPart) -> str:
        """Adds a chunk; if it is the last chunk, adds the message to ``rows``.

        :returns: the problem; empty: no problem
        :raises CompressionError: the message cannot be decompressed
        :raises DataLoss: earlier chunks were trimmed while they were read
        """
        chunk = _parsed(part.ledger_id, part.entry_id, part.data)
        if chunk is None:
            return "the metadata of the chunk contradicts itself"
        message = self._known(chunk)
        if message is not None:
            is_again = message.expected > chunk.metadata.chunk_id > 0
            is_whole = message.add(chunk)
            self._bound()
            if is_again:
                return ""
            if is_whole:
                return _too_large(chunk) or self._row(rows, part, chunk, message)
        if not chunk.is_last or part.first > 0 or part.end == 0:
            return ""
        return _too_large(chunk) or self._read_back(rows, part, chunk)

    def _known(self, chunk: Chunk) -> ChunkedMessage | None:
        """Returns the incomplete message to which a chunk belongs; None: this task has not seen the message's
        first chunk, or has dropped the message.
        """
        uuid = chunk.metadata.uuid
        if chunk.metadata.chunk_id == 0 and uuid not in self._open:
            self._open[uuid] = ChunkedMessage()
        return self._open.get(uuid)

    def _bound(self) -> None:
        """Drops the oldest incomplete messages while their number or their total size exceeds its maximum."""
        while len(self._open) > MAX_MESSAGES or sum(each.held for each in self._open.values()) > MAX_BYTES:
            self._open.popitem(last=False)

    def _row(self, rows: RowBuilder, part: EntryPart, last: Chunk, message: ChunkedMessage) -> str:
        content = message.content()
        if len(content) != message.size:
            return f"its chunks have {len(content)} bytes instead of {message.size}"
        raw = unchunked(last.metadata).SerializeToString()
        entry = len(raw).to_bytes(4, "big") + raw + content
        before = rows.count
        found = rows.add(part.ledger_id, part.entry_id, entry, part.first, part.end)
        if rows.count > before:
            rows.name_first_chunk(*message.first)
        return REASONS[found] if found else ""

    # Reading back

    def _read_back(self, rows: RowBuilder, part: EntryPart, last: Chunk) -> str:
        """Reads backwards from the last chunk of a message to its first chunk, and adds the message; returns
        the problem, or an empty string.
        """
        total = last.metadata.num_chunks_from_msg
        found: list[Chunk] = []
        seen = held = 0
        for window in self._windows_before(part.ledger_id, part.entry_id):
            seen += window.entries
            inside = list(self._chunks_in(window, last.metadata.uuid))
            held += sum(len(each.payload) for each in inside)
            found = inside + found
            if any(each.metadata.chunk_id == 0 for each in inside) or held > 2 * MAX_BYTES:
                break
            if seen > FARTHEST:
                return f"its first chunk of {total} is not among the {seen} entries before"
        message = ChunkedMessage()
        if not any(each.metadata.chunk_id == 0 for each in found):
            return f"its first chunk of {total} is missing: it was deleted, or never sent"
        begin = max(place for place, each in enumerate(found) if each.metadata.chunk_id == 0)
        was_whole = [message.add(each) for each in found[begin:]]
        if any(was_whole):
            return ""
        if message.add(last):
            return self._row(rows, part, last, message)
        missing = message.expected if message.missing < 0 else message.missing
        return f"chunk {missing + 1} of {total} is missing"

    def _windows_before(self, ledger_id: int, entry_id: int) -> Iterator[Range]:
        if self._layout is None or not self._layout.has(ledger_id):
            self._layout = layout_of(self._connection.admin, self._topic)
        size = FIRST_WINDOW
        for ledger, count in reversed(self._layout.ledgers):
            if ledger > ledger_id:
                continue
            end = entry_id if ledger == ledger_id else count
            while end > 0:
                first = max(0, end - size)
                yield Range(ledger, first, 0, end)
                end, size = first, min(LARGEST_WINDOW, 2 * size)

    def _chunks_in(self, window: Range, uuid: str) -> Iterator[Chunk]:
        for part in self._read(window):
            chunk = _parsed(part.ledger_id, part.entry_id, part.data)
            if chunk is not None and chunk.metadata.uuid == uuid:
                yield chunk

    def _read(self, window: Range) -> Iterator[EntryPart]:
        return entries_of(self._connection, self._topic, [window], window.entries)


def _too_large(chunk: Chunk) -> str:
    size = chunk.metadata.total_chunk_msg_size
    if size <= MAX_BYTES:
        return ""
    return f"the message of {size} bytes in chunks is larger than the maximum of {MAX_BYTES} bytes"


def _parsed(ledger_id: int, entry_id: int, data: bytes) -> Chunk | None:
    """Parses a chunk; None: the entry is not a chunk, or is damaged."""
    try:
        entry = parse_entry(data, verify_checksum=False)
    except EntryError:
        return None
    if not is_chunk(entry.metadata):
        return None
    return Chunk(ledger_id, entry_id, entry.metadata, entry.payload)
