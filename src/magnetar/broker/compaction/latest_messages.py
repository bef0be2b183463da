"""Finds and copies the messages that compaction keeps: two passes over the entries, in a separate process.

The compiled module ``magnetar.protocol.hot_compaction`` handles the common case; this module handles
compressed batches and chunked messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from magnetar.io.interfaces import Disk, File
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.compression import compress
from magnetar.protocol.errors import EntryError, ProtocolError
from magnetar.protocol.hot_compaction import PARTS, SHELVES, LatestKeys, put_raw
from magnetar.protocol.metadata import Entry, build_entry, chunks_follow, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata, CompressionType

_AT_ONCE = 64 * 1024
"""The number of bytes of entries after which the memory use of the keys is checked."""
_BITS_AT_ONCE = 64 * 1024
_MOST_CHUNKS = 200_000
"""The maximum number of chunks that are remembered; there is a limit because a client can send any number of
chunks without ever sending a last chunk.
"""
DIRECTORY = "compaction"
"""The directory below the data directory; the next compaction removes files that a crash leaves in it."""
KEY_COST = 200
"""The memory per key in bytes, in addition to the key."""
_NOTED_BYTES = 8 * 1024 * 1024
"""The number of bytes of spilled keys that are gathered before they are written to disk."""
_BLOCK = 32 * 1024
_MOST_SHARES = 1 << 20
"""The maximum number of shares into which a part of the spilled keys is divided if the part does not fit in
memory.
"""


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of the topic or of its compacted ledger, at least one: entry i is
    ``buffer[starts[i]:ends[i]]``."""

    buffer: bytes
    starts: array[int]
    ends: array[int]
    count: int


@dataclass(frozen=True, slots=True)
class Copied:
    """Consecutive entries for a compacted ledger; the first begins at ``start`` in ``buffer``."""

    buffer: bytes | bytearray
    ends: array[int]
    read_bytes: int
    start: int = 0


class LatestMessages:
    """Finds and copies the messages that compaction keeps. All entries go through
    :meth:`number`; after :meth:`settle`, the same entries go through :meth:`copy`.

    :param retain_keyless: whether messages without a key are kept
    :param memory: bytes for keys; further keys are spilled to disk
    :param max_size: the maximum uncompressed size of a batch that is unpacked; a larger batch is kept
        unchanged
    """

    def __init__(self, disk: Disk, *, retain_keyless: bool, memory: int, max_size: int) -> None:
        self._latest = LatestKeys(retain_keyless)
        self._keys = SpilledKeys(disk, self._latest, memory)
        self._max_size = max_size
        self._chunks: dict[tuple[str, str], list[int]] = {}
        """The numbers of the chunks of messages whose last chunk has not been read yet."""
        self._chunked: list[tuple[int, list[int]]] = []
        """The number of each last chunk, and the numbers of the earlier chunks of its message."""
        self._remembered = 0
        """The number of chunks in ``_chunks`` and ``_chunked`` together."""
        self.count = 0
        """The number of messages that have been numbered so far."""
        self.kept = 0
        """The number of messages that compaction keeps."""

    # First pass

    def number(self, entries: Entries) -> int:
        """Gives numbers to the messages of entries; returns how many messages have a number by now.

        :raises OSError: keys that do not fit in memory cannot be written to disk
        """
        latest = self._latest
        index = 0
        while index < entries.count:
            end = _end_of_step(entries, index)
            index = latest.number(entries.buffer, entries.starts, entries.ends, index, end)
            if index < end:
                self._open(entries.buffer[entries.starts[index] : entries.ends[index]])
                index += 1
            self._keys.keep_within()
        self.count = latest.count
        return self.count

    def _open(self, data: bytes) -> None:
        try:
            entry = parse_entry(data, verify_checksum=False)
        except EntryError:
            self._latest.number_whole()
            return
        if entry.batch_size is not None:
            self._open_batch(entry)
        else:
            self._take_chunk(entry, data)

    def _open_batch(self, entry: Entry) -> None:
        try:
            payload = entry.uncompressed_payload(self._max_size)
        except ProtocolError:
            self._latest.number_whole()
            return
        if not self._latest.number_batch(payload, 0, len(payload), entry.metadata.num_messages_in_batch):
            self._latest.number_whole()

    def _take_chunk(self, entry: Entry, data: bytes) -> None:
        """Gives a number to a chunk. A message is kept or removed with all its chunks; an incomplete message
        is kept.

        Chunks that exceed the limit of remembered chunks are kept, too.
        """
        metadata, latest = entry.metadata, self._latest
        if self._remembered >= _MOST_CHUNKS:
            latest.number_kept()
            return
        self._remembered += 1
        message = metadata.producer_name, metadata.uuid
        if chunks_follow(metadata):
            self._chunks.setdefault(message, []).append(latest.number_kept())
            return
        latest.look(data, 0, len(data))
        number = latest.number_keyed(data, len(data))
        self._chunked.append((number, self._chunks.pop(message, [])))

    # Between the passes

    def parts(self) -> int:
        """Returns the number of parts of spilled keys; :meth:`settle_part` must be called for each part
        before :meth:`settle`. 0 if no keys were spilled."""
        if not self._keys.spilled:
            return 0
        self._keys.begin_taking()
        return PARTS

    def settle_part(self, part: int) -> None:
        """Finds the newest messages of one part of the spilled keys; must be called for every part before
        :meth:`settle`.

        :raises OSError: spilled keys cannot be read back
        """
        self._keys.take(part)

    def settle(self) -> None:
        """Decides which messages compaction keeps."""
        for last, chunks in self._chunked:
            if not self._latest.stays(last):
                for number in chunks:
                    self._latest.drop(number)
        self._chunked, self._chunks = [], {}
        latest = self._latest
        for shelf in range(SHELVES):
            latest.forget(shelf)
        latest.begin_copy()
        size = len(latest.bits)
        self.kept = sum(latest.staying(at, at + _BITS_AT_ONCE) for at in range(0, size, _BITS_AT_ONCE))
        self._keys.remove()

    def remove(self) -> None:
        """Removes the files of spilled keys."""
        self._keys.remove()

    # Second pass

    def any_stay(self, first: int, end: int) -> bool:
        """Whether compaction keeps any of the messages numbered [first, end); if not, they need not be
        read again."""
        return self._latest.any_stay(first, end)

    def pass_by(self, end: int) -> None:
        """Skips the messages before number ``end`` that were not copied: compaction keeps none of these
        messages.
        """
        self._latest.pass_by(end)

    def copy(self, entries: Entries, ledger_ids: array[int], entry_ids: array[int], partition: int) -> Copied:
        """Copies the messages that compaction keeps into entries for a compacted ledger; each entry has the
        id that it has in the topic.

        :raises EntryError: the entries differ from those that were numbered
        """
        latest = self._latest
        out = bytearray()
        ends = array("q")
        buffer, starts, stops, count = entries.buffer, entries.starts, entries.ends, entries.count
        index = 0
        while index < count:
            end = _end_of_step(entries, index)
            index = latest.copy(
                ledger_ids, entry_ids, buffer, starts, stops, index, end, partition, out, ends
            )
            if index < end:
                repacked = self._repack(buffer[starts[index] : stops[index]])
                put_raw(out, ends, ledger_ids[index], entry_ids[index], partition, repacked)
                index += 1
        return Copied(out, ends, stops[count - 1] - starts[0] if count else 0)

    def _repack(self, data: bytes) -> bytes:
        """Returns the batch with an empty message instead of each removed message."""
        entry = parse_entry(data, verify_checksum=False)
        metadata = entry.metadata
        payload = self._latest.left_of(entry.uncompressed_payload(self._max_size))
        metadata.uncompressed_size = len(payload)
        if metadata.compression != CompressionType.NONE:
            payload = compress(metadata.compression, payload)
        return _broker_metadata(entry.broker_metadata) + build_entry(metadata, payload)


def _end_of_step(entries: Entries, index: int) -> int:
    """Returns the index after the last entry of the step that begins at ``index``. A step has at least one
    entry, and about :data:`_AT_ONCE` bytes.
    """
    end = bisect_right(entries.ends, entries.starts[index] + _AT_ONCE, index, entries.count)
    return max(end, index + 1)


def _broker_metadata(known: BrokerEntryMetadata | None) -> bytes:
    if known is None:
        return b""
    raw = known.SerializeToString()
    return b"\x0e\x02" + len(raw).to_bytes(4, "big") + raw


class SpilledKeys:
    """Keys that do not fit in memory: spilled to disk in parts by their hash, and read back part by part.

    The keys themselves are compared; hashes only determine the part of a key. An instance is for one
    compaction. All methods block, so they must run on a worker.

    :param budget: bytes of memory for keys
    """

    def __init__(self, disk: Disk, latest: LatestKeys, budget: int) -> None:
        self._disk = disk
        self._latest = latest
        self._budget = budget
        self._files: list[File] = []
        self._sizes = [0] * PARTS

    def full(self) -> bool:
        """Whether the keys in memory exceed the budget."""
        latest = self._latest
        return latest.key_bytes + KEY_COST * latest.key_count > self._budget

    def keep_within(self) -> None:
        """Spills keys if memory is full; called regularly while messages are numbered.

        :raises OSError: the keys cannot be written to disk
        """
        if self._latest.parts is None:
            if not self.full():
                return
            self._disk.make_directory(DIRECTORY)
            for part in range(PARTS):
                file = self._disk.open(_path(part), create=True)
                file.truncate(0)
                self._files.append(file)
            self._latest.parts = [bytearray() for _ in range(PARTS)]
            for shelf in range(SHELVES):
                self._latest.spill(shelf)
        if self._latest.part_bytes > _NOTED_BYTES:
            self._write()

    def _write(self) -> None:
        parts = self._latest.parts or []
        for part, noted in enumerate(parts):
            if noted:
                self._files[part].write(noted, self._sizes[part])
                self._sizes[part] += len(noted)
                noted.clear()
        self._latest.part_bytes = 0

    @property
    def spilled(self) -> bool:
        return bool(self._files)

    def begin_taking(self) -> None:
        """Ends the numbering; each part is read back with :meth:`take` afterwards."""
        self._write()
        self._latest.parts = None

    def take(self, part: int) -> None:
        """Finds the newest message of each key in a part; the key's older messages will not be kept.

        :raises OSError: the keys cannot be read back
        """
        left = [(0, 1)]
        while left:
            share, shares = left.pop()
            if not self._take_share(part, share, shares):
                # The part's keys do not fit in memory: they are taken in two halves.
                left += (share, 2 * shares), (share + shares, 2 * shares)

    def _take_share(self, part: int, share: int, shares: int) -> bool:
        latest = self._latest
        position, rest = 0, b""
        while position < self._sizes[part]:
            block = rest + self._files[part].read(min(_BLOCK, self._sizes[part] - position), position)
            position += len(block) - len(rest)
            rest = block[latest.take_noted(block, share, shares) :]
            if self.full() and shares < _MOST_SHARES:
                for shelf in range(SHELVES):
                    latest.drop_keys(shelf)
                return False
        for shelf in range(SHELVES):
            latest.forget(shelf)
        return True

    def remove(self) -> None:
        """Removes the files, including those of a compaction that a crash ended."""
        for file in self._files:
            file.close()
        self._files = []
        if self._disk.exists(DIRECTORY):
            for name in self._disk.names(DIRECTORY):
                self._disk.unlink(f"{DIRECTORY}/{name}")


def _path(part: int) -> str:
    return f"{DIRECTORY}/keys-{part}"
