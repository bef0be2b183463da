"""Compaction by key: finds the latest message of each key, and copies these messages out of their entries.

A hot module, with the C types in ``hot_compaction.pxd``. Messages are numbered in the order of the topic,
including those inside batches; one bit for each number records whether the message stays.
"""

from __future__ import annotations

from array import array
from binascii import crc32

PARTS = 64
"""The number of parts into which keys are divided if they do not fit in memory."""

COPIED_OUT = b"\x00\x00\x00\x04\x18\x00\x20\x01"
"""Replaces a removed message in a batch: metadata with payload_size 0 and compacted_out."""

SHELVES = 256
"""The number of shelves: the dicts among which the keys in memory are divided, by hash."""

PLAIN = 0
BATCH = 1
OPENED = 2
"""Kind of entry: a batch that must be decompressed, or a chunk; the caller handles it."""
WHOLE = 3
"""Kind of entry: it cannot be opened, or its sizes are invalid; it stays unchanged."""
MARKER = 4
"""Kind of entry: a marker, which brokers write for each other; it is removed."""
_MOST_ADDED = 1 << 20
"""The bitmap grows by half of its size, but by at most this number of bytes; in addition by 4096 bytes."""


class LatestKeys:
    """Gives numbers to messages, remembers the latest message of each key, and copies the messages that stay.

    First all entries go through :meth:`number`, in order; then, after :meth:`begin_copy`, the same entries go
    through :meth:`copy`.
    """

    def __init__(self, retain_keyless: bool) -> None:
        """:param retain_keyless: whether compaction keeps messages without a key"""
        self.retain_keyless = retain_keyless
        self.shelves: list[dict[bytes, int]] = [{} for _ in range(SHELVES)]
        """By shelf and key: the number of the latest message with this key."""
        self.key_count = 0
        self.key_bytes = 0
        """The total size of all keys in memory, in bytes."""
        self.bits = bytearray()
        self.count = 0
        """The number of messages numbered so far; during the copy, the number of the next message."""
        self.whole = array("q")
        """The message numbers of entries that count as one message although their metadata says otherwise."""
        self.whole_at = 0
        self.parts: list[bytearray] | None = None
        """The records of keys to write to disk, by part; None: all keys are in memory."""
        self.part_bytes = 0
        self.payload = 0
        self.key = -1
        self.key_end = -1
        self.messages = 1
        self.size = -1

    # The first pass

    def number(self, buffer: bytes, starts: array[int], ends: array[int], first: int, end: int) -> int:
        """Gives numbers to the messages of entries [first, end); returns the index of the first entry that
        the caller must open, or ``end``."""
        index = first
        while index < end:
            kind = self.look(buffer, starts[index], ends[index])
            if kind == PLAIN:
                self._number_one(buffer, ends[index])
            elif kind == BATCH:
                if not self.number_batch(buffer, self.payload, ends[index], self.messages):
                    self.number_whole()
            elif kind == OPENED:
                return index
            elif kind == WHOLE:
                self.number_whole()
            else:
                self._next(False)
            index += 1
        return index

    def _number_one(self, buffer: bytes, end: int) -> None:
        size = self.size if self.size >= 0 else end - self.payload
        if self.key < 0:
            self._next(self.retain_keyless)
        else:
            self._put(buffer[self.key : self.key_end], self.count, size > 0)
            self._next(False)

    def number_keyed(self, buffer: bytes, end: int) -> int:
        """Gives one number to the entry that :meth:`look` has examined last; returns the number."""
        self._number_one(buffer, end)
        return self.count - 1

    def number_whole(self) -> None:
        """Gives one number to an entry that cannot be opened; it counts as one message, which stays."""
        self.whole.append(self.count)
        self._next(True)

    def number_kept(self) -> int:
        """Gives a number to one message that stays, regardless of its key; returns the number."""
        self._next(True)
        return self.count - 1

    def _next(self, stays: bool) -> None:
        number = self.count
        if (number >> 3) >= len(self.bits):
            self.bits.extend(bytes(4096 + min(len(self.bits) >> 1, _MOST_ADDED)))
        if stays:
            self.bits[number >> 3] |= 1 << (number & 7)
        self.count = number + 1

    def _put(self, key: bytes, number: int, stays: bool) -> None:
        if (number >> 3) >= len(self.bits):
            self.bits.extend(bytes(4096 + min(len(self.bits) >> 1, _MOST_ADDED)))
        if self.parts is not None:
            self._note(key, number, stays)
        else:
            self._take(key, number, stays)

    def _note(self, key: bytes, number: int, stays: bool) -> None:
        parts = self.parts
        assert parts is not None
        part = parts[crc32(key) & (PARTS - 1)]
        size = len(key)
        part += ((number << 1) | stays).to_bytes(8, "little") + size.to_bytes(4, "little") + key
        self.part_bytes += 12 + size

    def spill(self, number: int) -> None:
        """Adds the keys of shelf ``number`` to :attr:`parts`; must be called for all shelves before the next
        message is numbered."""
        shelf = self.shelves[number]
        for key, latest in shelf.items():
            former: int = latest
            self.bits[former >> 3] &= 255 ^ (1 << (former & 7))
            self._note(key, former, True)
        self.forget(number)

    def forget(self, number: int) -> None:
        """Forgets the keys of shelf ``number``."""
        shelf = self.shelves[number]
        self.key_count -= len(shelf)
        self.shelves[number] = {}
        if not self.key_count:
            self.key_bytes = 0

    def drop_keys(self, number: int) -> None:
        """Marks the messages of the keys on shelf ``number`` as removed, and forgets the keys."""
        shelf = self.shelves[number]
        for latest in shelf.values():
            former: int = latest
            self.bits[former >> 3] &= 255 ^ (1 << (former & 7))
        self.forget(number)

    def take_noted(self, records: bytes, share: int, shares: int) -> int:
        """Takes keys of one part from ``records``; returns the total size of the complete records, in bytes.

        :param share: which of the ``shares`` divisions of the part's keys to take, counted from 0
        """
        position = 0
        end = len(records)
        while end - position >= 12:
            size = int.from_bytes(records[position + 8 : position + 12], "little")
            if end - position - 12 < size:
                break
            key = records[position + 12 : position + 12 + size]
            if shares == 1 or (crc32(key) >> 6) % shares == share:
                number = int.from_bytes(records[position : position + 8], "little")
                self._take(key, number >> 1, number & 1 == 1)
            position += 12 + size
        return position

    def _take(self, key: bytes, number: int, stays: bool) -> None:
        shelf = self.shelves[hash(key) & (SHELVES - 1)]
        found = shelf.get(key)
        if found is not None:
            former: int = found
            self.bits[former >> 3] &= 255 ^ (1 << (former & 7))
        elif stays:
            self.key_bytes += len(key)
            self.key_count += 1
        if stays:
            shelf[key] = number
            self.bits[number >> 3] |= 1 << (number & 7)
        elif found is not None:
            del shelf[key]
            self.key_bytes -= len(key)
            self.key_count -= 1

    def number_batch(self, payload: bytes, position: int, end: int, count: int) -> bool:
        """Gives numbers to the messages of a batch; if sizes are invalid, gives no numbers and returns False.

        :param position: the beginning of the batch in ``payload``
        """
        at = position
        for _index in range(count):
            at = self._single(payload, at, end)
            if at < 0:
                return False
        for _index in range(count):
            position = self._single(payload, position, end)
            if self.messages:
                # An earlier compaction removed it.
                self._next(False)
            elif self.key < 0:
                self._next(self.retain_keyless)
            else:
                self._put(payload[self.key : self.key_end], self.count, self.size > 0)
                self._next(False)
        return True

    def _single(self, payload: bytes, position: int, end: int) -> int:
        """Examines one message of a batch; returns the offset of the next message; -1 if sizes are invalid.

        Sets ``messages`` to 1 if an earlier compaction removed the message, otherwise to 0.
        """
        self.key = self.key_end = -1
        self.size = 0
        self.messages = 0
        if end - position < 4:
            return -1
        stop = _size_at(payload, position)
        position += 4
        if stop > end - position:
            return -1
        stop += position
        while position < stop:
            after = _varint_end(payload, position, stop)
            if after < 0:
                return -1
            tag = _varint(payload, position, after)
            position = after
            if tag & 7 == 2:
                after = _varint_end(payload, position, stop)
                if after < 0:
                    return -1
                size = _varint(payload, position, after)
                if size < 0 or size > stop - after:
                    return -1
                if tag == 0x12:
                    self.key, self.key_end = after, after + size
                position = after + size
            elif tag & 7 == 0:
                after = _varint_end(payload, position, stop)
                if after < 0:
                    return -1
                if tag == 0x18:
                    self.size = _varint(payload, position, after)
                elif tag == 0x20:
                    self.messages = 1 if _varint(payload, position, after) else 0
                position = after
            elif tag & 7 == 1:
                position += 8
            elif tag & 7 == 5:
                position += 4
            else:
                return -1
        if position != stop or self.size < 0 or self.size > end - stop:
            return -1
        return stop + self.size

    def look(self, buffer: bytes, start: int, end: int) -> int:
        """Returns the kind of entry ``buffer[start:end]``; sets the offsets of its key and payload."""
        self.key = self.key_end = self.size = -1
        self.messages = 1
        position = _metadata_at(buffer, start, end)
        if position < 0:
            return WHOLE
        stop = position + 4 + _size_at(buffer, position)
        position += 4
        self.payload = stop
        batch = compressed = encrypted = marker = chunks = False
        while position < stop:
            tag = buffer[position]
            after = position + 1
            if tag > 127:
                after = _varint_end(buffer, position, stop)
                if after < 0:
                    return WHOLE
                tag = _varint(buffer, position, after)
            position = after
            if tag & 7 == 2:
                after = _varint_end(buffer, position, stop)
                if after < 0:
                    return WHOLE
                size = _varint(buffer, position, after)
                if size < 0 or size > stop - after:
                    return WHOLE
                if tag == 0x32:
                    self.key, self.key_end = after, after + size
                elif tag == 0x6A:
                    encrypted = True
                position = after + size
            elif tag & 7 == 0:
                after = _varint_end(buffer, position, stop)
                if after < 0:
                    return WHOLE
                value = _varint(buffer, position, after)
                if tag == 0x40:
                    compressed = value != 0
                elif tag == 0x48:
                    self.size = value & 0xFFFFFFFF
                elif tag == 0x58:
                    batch = True
                    self.messages = value
                elif tag == 0xA0:
                    marker = True
                elif tag == 0xD8:
                    chunks = value > 1
                position = after
            elif tag & 7 == 1:
                position += 8
            elif tag & 7 == 5:
                position += 4
            else:
                return WHOLE
        if position != stop:
            return WHOLE
        if marker:
            return MARKER
        if batch:
            if encrypted or self.messages < 1:
                return WHOLE
            return OPENED if compressed else BATCH
        return OPENED if chunks else PLAIN

    # The second pass

    def begin_copy(self) -> None:
        """Starts the second pass; all entries have been numbered."""
        self.count = self.whole_at = 0

    def staying(self, first: int, end: int) -> int:
        """Returns how many messages stay, among those whose bits are in the bytes [first, end) of the
        bitmap."""
        return int.from_bytes(self.bits[first:end], "little").bit_count()

    def stays(self, number: int) -> bool:
        return self.bits[number >> 3] >> (number & 7) & 1 == 1

    def drop(self, number: int) -> None:
        """Marks a message as one that compaction removes."""
        self.bits[number >> 3] &= 255 ^ (1 << (number & 7))

    def any_stay(self, first: int, end: int) -> bool:
        """Whether any of the messages [first, end) stays."""
        number = first
        while number < end:
            if number & 7 == 0 and end - number >= 8:
                if self.bits[number >> 3]:
                    return True
                number += 8
            else:
                if self.bits[number >> 3] >> (number & 7) & 1:
                    return True
                number += 1
        return False

    def pass_by(self, end: int) -> None:
        """Skips the messages before number ``end``, because none of them stays."""
        self.count = end
        whole = self.whole
        while self.whole_at < len(whole) and whole[self.whole_at] < end:
            self.whole_at += 1

    def copy(
        self,
        ledger_ids: array[int],
        entry_ids: array[int],
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        first: int,
        end: int,
        partition: int,
        out: bytearray,
        out_ends: array[int],
    ) -> int:
        """Appends to ``out`` those entries of [first, end) whose messages all stay, each with its id; appends
        the end offset of each to ``out_ends``. Stops at an entry of which only some messages stay.

        :return: the index of the entry where the call stopped (see :meth:`left_of`), or ``end``
        """
        index = first
        while index < end:
            messages = self._messages(buffer, starts[index], ends[index])
            kept = 0
            number = self.count
            while number < self.count + messages:
                kept += self.bits[number >> 3] >> (number & 7) & 1
                number += 1
            if kept == messages:
                put_raw(
                    out,
                    out_ends,
                    ledger_ids[index],
                    entry_ids[index],
                    partition,
                    buffer[starts[index] : ends[index]],
                )
            elif kept:
                self.messages = messages
                return index
            self.count += messages
            index += 1
        return index

    def _messages(self, buffer: bytes, start: int, end: int) -> int:
        if self.whole_at < len(self.whole) and self.whole[self.whole_at] == self.count:
            self.whole_at += 1
            return 1
        kind = self.look(buffer, start, end)
        return self.messages if kind in (BATCH, OPENED) else 1

    def left_of(self, payload: bytes) -> bytes:
        """Returns the uncompressed batch at which :meth:`copy` stopped, with removed messages replaced."""
        count = self.messages
        out = bytearray()
        position = 0
        number = self.count
        for _index in range(count):
            after = self._single(payload, position, len(payload))
            if after < 0:
                raise ValueError("a batch changed between the two reads of compaction")
            if self.bits[number >> 3] >> (number & 7) & 1:
                out += payload[position:after]
            else:
                out += COPIED_OUT
            position = after
            number += 1
        self.count += count
        return bytes(out)


def put_raw(
    out: bytearray, out_ends: array[int], ledger_id: int, entry_id: int, partition: int, entry: bytes
) -> None:
    """Appends an entry in the form of compacted ledgers: sizes, its id in the topic, the entry."""
    start = len(out)
    out += b"\x00\x00\x00\x00\x08"
    _append_varint(out, ledger_id)
    out += b"\x10"
    _append_varint(out, entry_id)
    out += b"\x18"
    _append_varint(out, partition)
    size = len(out) - start - 4
    out[start + 3] = size
    out += len(entry).to_bytes(4, "big")
    out += entry
    out_ends.append(len(out))


def open_raw(
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    count: int,
    ledger_ids: array[int],
    entry_ids: array[int],
    opened_starts: array[int],
) -> int:
    """Splits entries of a compacted ledger into their ids and the offsets of the topic's entries in
    ``buffer``.

    :return: the number of valid entries before the first damaged entry; ``count`` if none is damaged
    """
    index = 0
    while index < count:
        position = starts[index]
        end = ends[index]
        if end - position < 8:
            return index
        stop = _size_at(buffer, position)
        position += 4
        if stop > end - position - 4:
            return index
        stop += position
        ledger_id = entry_id = -1
        while position < stop:
            after = _varint_end(buffer, position, stop)
            if after < 0:
                return index
            tag = _varint(buffer, position, after)
            position = after
            after = _varint_end(buffer, position, stop)
            if after < 0:
                return index
            value = _varint(buffer, position, after)
            position = after
            if tag == 0x08:
                ledger_id = value
            elif tag == 0x10:
                entry_id = value
            elif tag & 7 == 2:
                if value < 0 or value > stop - position:
                    return index
                position += value
            elif tag & 7 != 0:
                return index
        if ledger_id < 0 or entry_id < 0 or _size_at(buffer, stop) != end - stop - 4:
            return index
        ledger_ids[index] = ledger_id
        entry_ids[index] = entry_id
        opened_starts[index] = stop + 4
        index += 1
    return index


def shift(offsets: array[int], by: int) -> None:
    """Adds ``by`` to each offset."""
    for index in range(len(offsets)):
        offsets[index] += by


def ascend(ends: array[int], start: int, end: int) -> bool:
    """Whether entries with these ends fill the bytes from ``start`` to ``end`` without gaps."""
    last = start
    for index in range(len(ends)):
        if ends[index] <= last:
            return False
        last = ends[index]
    return last == end


def consecutive(ledger_ids: array[int], entry_ids: array[int], first: int, count: int) -> int:
    """Returns how many of the entries [first, count) are consecutive in one ledger, from ``first`` on."""
    index = first + 1
    while (
        index < count
        and ledger_ids[index] == ledger_ids[first]
        and entry_ids[index] == entry_ids[first] + index - first
    ):
        index += 1
    return index - first


def _append_varint(out: bytearray, value: int) -> None:
    if value < 0:
        # Ten bytes, as for negative numbers: the last one is the sign.
        shift = 0
        while shift < 63:
            out.append((value >> shift & 127) | 128)
            shift += 7
        out.append(1)
    else:
        while value > 127:
            out.append((value & 127) | 128)
            value >>= 7
        out.append(value)


def _size_at(buffer: bytes, position: int) -> int:
    size = buffer[position]
    size = (size << 8) | buffer[position + 1]
    size = (size << 8) | buffer[position + 2]
    return (size << 8) | buffer[position + 3]


def _varint_end(buffer: bytes, position: int, end: int) -> int:
    """Returns the position after the varint at ``position``; -1 if it is incomplete or exceeds 64 bits."""
    index = position
    while index < end and index < position + 10:
        if buffer[index] < 128:
            if index == position + 9 and buffer[index] > 1:
                return -1
            return index + 1
        index += 1
    return -1


def _varint(buffer: bytes, position: int, end: int) -> int:
    """Returns the varint in [position, end) as a signed number; ``end`` comes from ``_varint_end``."""
    value = shift = 0
    while position < end and shift < 63:
        byte = buffer[position] & 127
        value |= byte << shift
        shift += 7
        position += 1
    if position < end and buffer[position] == 1:
        # The 64th bit, subtracted in two halves so that no step leaves the signed range.
        value = value - 0x4000000000000000 - 0x4000000000000000
    return value


def _metadata_at(buffer: bytes, start: int, end: int) -> int:
    """Returns the offset of the metadata size, after broker metadata and checksum; -1: sizes are invalid."""
    position = start
    if end - position > 6 and buffer[position] == 0x0E and buffer[position + 1] == 0x02:
        size = _size_at(buffer, position + 2)
        if size > end - position - 6:
            return -1
        position += 6 + size
    if end - position > 6 and buffer[position] == 0x0E and buffer[position + 1] == 0x01:
        position += 6
    if end - position < 4 or _size_at(buffer, position) > end - position - 4:
        return -1
    return position
