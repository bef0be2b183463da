"""Which messages stay: two ways through the same entries, in a process of its own.

What the hot module cannot look into is opened here: compressed batches, and messages in chunks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from magnetar.broker.compaction.spilled_keys import SpilledKeys
from magnetar.io.interfaces import Disk
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.compression import compress
from magnetar.protocol.errors import EntryError, ProtocolError
from magnetar.protocol.hot_compaction import PARTS, SHELVES, LatestKeys, put_raw
from magnetar.protocol.metadata import Entry, build_entry, chunks_follow, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata, CompressionType

_AT_ONCE = 64 * 1024
"""Bytes of entries after which is looked whether their keys still fit in memory."""

_BITS_AT_ONCE = 64 * 1024

_MOST_CHUNKS = 200_000
"""So many are remembered: any client can send small ones that never end."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of the topic, from itself or from its compacted ledger: ``buffer[starts[i]:ends[i]]``.

    There is one at least.
    """

    buffer: bytes
    starts: array[int]
    ends: array[int]
    count: int


@dataclass(frozen=True, slots=True)
class Copied:
    """Entries for a compacted ledger, one after another: the first begins in ``buffer`` at ``start``."""

    buffer: bytes | bytearray
    ends: array[int]
    read_bytes: int
    start: int = 0


class LatestMessages:
    """All entries go through :meth:`number`; then :meth:`settle`; then the same through :meth:`copy`.

    :param retain_keyless: whether messages without a key stay
    :param memory: bytes for keys; what goes beyond is noted on the disk
    :param max_size: of a batch, uncompressed; a larger one stays whole
    """

    def __init__(self, disk: Disk, *, retain_keyless: bool, memory: int, max_size: int) -> None:
        self._latest = LatestKeys(retain_keyless)
        self._keys = SpilledKeys(disk, self._latest, memory)
        self._max_size = max_size
        self._chunks: dict[tuple[str, str], list[int]] = {}
        """Numbers of the chunks of messages of which the last chunk has not come yet."""
        self._chunked: list[tuple[int, list[int]]] = []
        """The number of a last chunk, and those of the chunks before it."""
        self._remembered = 0
        """Chunks in both."""
        self.count = 0
        """Messages numbered."""
        self.kept = 0
        """Of these, those that stay."""

    # The first way through

    def number(self, entries: Entries) -> int:
        """Numbers messages; returns how many there are so far.

        :raises OSError: the disk does not take what does not fit in memory
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
        """A message in chunks stays, or goes, with all of them; one whose end is not there yet stays.

        So do those that come when there are too many to remember.
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

    # Between

    def parts(self) -> int:
        """How many are to be settled one by one with :meth:`settle_part`, before :meth:`settle`."""
        if not self._keys.spilled:
            return 0
        self._keys.begin_taking()
        return PARTS

    def settle_part(self, part: int) -> None:
        """:raises OSError: the disk does not give back what was written"""
        self._keys.take(part)

    def settle(self) -> None:
        """It is known what stays."""
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
        """Leaves nothing on the disk."""
        self._keys.remove()

    # The second way through

    def any_stay(self, first: int, end: int) -> bool:
        """Whether any of the messages numbered [first, end) stays; else nobody needs to read them."""
        return self._latest.any_stay(first, end)

    def pass_by(self, end: int) -> None:
        """The messages before number ``end`` that were not copied are not to be: none of them stays."""
        self._latest.pass_by(end)

    def copy(self, entries: Entries, ledger_ids: array[int], entry_ids: array[int], partition: int) -> Copied:
        """What stays of entries, each with its id.

        :raises EntryError: they are others than those that were numbered
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
        """The batch with what stays of it, and empty messages in place of those that go."""
        entry = parse_entry(data, verify_checksum=False)
        metadata = entry.metadata
        payload = self._latest.left_of(entry.uncompressed_payload(self._max_size))
        metadata.uncompressed_size = len(payload)
        if metadata.compression != CompressionType.NONE:
            payload = compress(metadata.compression, payload)
        return _broker_metadata(entry.broker_metadata) + build_entry(metadata, payload)


def _end_of_step(entries: Entries, index: int) -> int:
    """Where the part ends that begins at ``index`` and is looked at in one call; one entry at least."""
    end = bisect_right(entries.ends, entries.starts[index] + _AT_ONCE, index, entries.count)
    return max(end, index + 1)


def _broker_metadata(known: BrokerEntryMetadata | None) -> bytes:
    if known is None:
        return b""
    raw = known.SerializeToString()
    return b"\x0e\x02" + len(raw).to_bytes(4, "big") + raw
