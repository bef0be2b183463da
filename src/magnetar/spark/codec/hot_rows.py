"""Splits stored entries into column buffers in Arrow's format (offsets and bytes), without creating an object
per message.

This module is plain Python that is also compiled, with the C types in ``hot_rows.pxd``. It repeats the
functions that read numbers, because compiled modules do not share C functions.
"""

from __future__ import annotations

from array import array
from binascii import Error, a2b_base64
from collections.abc import Callable, Sequence

INTACT = 0
DAMAGED = 1
ENCRYPTED = 2
CHUNK = 3
BATCH_DAMAGED = 4
KEY_DAMAGED = 5
TIME_BEYOND = 6

REASONS = {
    DAMAGED: "the entry, or its metadata, is damaged",
    ENCRYPTED: "the payload is encrypted",
    CHUNK: "it is a chunk of a larger message",
    BATCH_DAMAGED: "the batch is damaged or has too few messages",
    KEY_DAMAGED: "the key is marked as Base64 but is not",
    TIME_BEYOND: "its publish or event time is outside the range of timestamps",
}
"""Descriptions of the problems that :meth:`RowBuilder.add` returns."""

_NO_LIMIT = 0x7FFFFFFFFFFFFFFF
# In milliseconds; the largest time whose microseconds fit into 64 bits.
_LAST_TIME = 9223372036854775


class Bytes:
    """A growing column of byte strings.

    Value i is ``data[offsets[i]:offsets[i + 1]]``; it is null if bit i of ``valid`` is 0.
    """

    def __init__(self, rows: int, size: int) -> None:
        self.data = bytearray(size)
        self.offsets = array("i", bytes(4 * (rows + 1)))
        self.valid = bytearray((rows + 7) // 8)
        self.rows = rows
        self.size = size
        self.end = 0
        # The same objects again: when compiled, these are views without the cost of taking them.
        self._data = memoryview(self.data)
        self._offsets = self.offsets
        self._valid = self.valid

    def _need(self, more: int) -> None:
        """Ensures room for ``more`` bytes."""
        if self.end + more > self.size:
            self.size = max(2 * self.size, self.end + more)
            grown = bytearray(self.size)
            grown[: self.end] = memoryview(self.data)[: self.end]
            self.data = grown
            self._data = memoryview(grown)

    def _need_rows(self, rows: int) -> None:
        """Ensures room for ``rows`` rows in total."""
        if rows > self.rows:
            rows = max(rows, 2 * self.rows)
            offsets = array("i", bytes(4 * (rows + 1)))
            offsets[: self.rows + 1] = self.offsets
            valid = bytearray((rows + 7) // 8)
            valid[: len(self.valid)] = self.valid
            self.offsets = offsets
            self.valid = valid
            self._offsets = offsets
            self._valid = valid
            self.rows = rows

    def _put(self, row: int, source: memoryview, start: int, end: int) -> None:
        """Sets row ``row``, which must be the next row, to ``source[start:end]``."""
        after = self.end + end - start
        if after > self.size:
            self._need(end - start)
        if end > start:
            self._data[self.end : after] = source[start:end]
        self.end = after
        self._offsets[row + 1] = after
        self._valid[row >> 3] |= 1 << (row & 7)

    def _put_null(self, row: int) -> None:
        """Sets row ``row``, which must be the next row, to null."""
        self._offsets[row + 1] = self.end
        self._valid[row >> 3] &= 255 ^ (1 << (row & 7))

    def _put_number(self, tag: int, value: int) -> None:
        """Appends a protobuf field to the next row; there must be room for 11 bytes."""
        end = self.end
        self._data[end] = tag
        end += 1
        while value > 127:
            self._data[end] = 128 | (value & 127)
            end += 1
            value >>= 7
        self._data[end] = value
        self.end = end + 1

    def _close(self, row: int) -> None:
        """Completes row ``row``, whose bytes were appended in pieces."""
        self._offsets[row + 1] = self.end
        self._valid[row >> 3] |= 1 << (row & 7)

    def _truncate(self, rows: int) -> None:
        """Drops all rows except the first ``rows``."""
        self.end = self._offsets[rows]


class RowBuilder:
    """Builds the columns for messages. Times are in microseconds since 1970; an event time of 0 means that it
    is not set.
    """

    def __init__(
        self,
        partition: int,
        decompress: Callable[[int, bytes, int], bytes],
        rows: int = 8192,
        size: int = 1 << 20,
    ) -> None:
        """:param partition: index of the topic's partition, for message ids; -1: the topic is not partitioned

        :param decompress: decompresses data: gets codec, data and uncompressed size, and returns the
            uncompressed data; :meth:`add` raises its exceptions
        :param rows: initial capacity in rows
        :param size: initial capacity for values, in bytes
        """
        self.partition = partition
        self._decompress = decompress
        self.rows = rows
        self.count = 0
        """Number of rows so far."""
        self.taken = 0
        """Number of messages so far, including those that the filters excluded."""
        self.values = Bytes(rows, size)
        self.keys = Bytes(rows, 1 << 16)
        self.ids = Bytes(rows, 1 << 18)
        self.names = Bytes(64, 1 << 12)
        self.contents = Bytes(64, 1 << 12)
        self.properties = array("i", bytes(4 * (rows + 1)))
        self.publish_times = array("q", bytes(8 * rows))
        self.event_times = array("q", bytes(8 * rows))
        self.versions = array("i", bytes(4 * rows))
        """The schema version of each row, as an index into ``schema_versions``."""
        self.schema_versions: list[bytes] = [b""]
        """The different schema versions so far; the first one stands for messages without a version."""
        self.times_from = 0
        self.times_to = _NO_LIMIT
        """Only messages that were published before this time are added; in milliseconds since 1970."""
        self.wanted_keys: Bytes | None = None
        self.wanted_count = 0
        self._properties = self.properties
        self._publish_times = self.publish_times
        self._event_times = self.event_times
        self._versions = self.versions
        self._property_count = 0
        self._version_start = 0
        self._version_end = 0
        self._clear()

    def want_keys(self, keys: Sequence[bytes]) -> None:
        """From now on, adds only messages with one of these keys."""
        wanted = Bytes(len(keys), 1 << 10)
        for index, key in enumerate(keys):
            wanted._put(index, memoryview(key), 0, len(key))
        self.wanted_keys = wanted
        self.wanted_count = len(keys)

    def add(self, ledger_id: int, entry_id: int, data: bytes, first: int, end: int) -> int:
        """Adds messages of a stored entry.

        :param first: batch index of the first message to add
        :param end: the batch index after the last message to add; -1: all messages from ``first`` on
        :returns: INTACT, or the first problem; after a problem, no message of the entry is added
        """
        before = self.count
        entry = memoryview(data)
        limit = len(data)
        start = _metadata_at(entry, limit)
        if start < 0:
            return DAMAGED
        payload = start + 4 + _size_at(entry, start)
        if payload > limit:
            return DAMAGED
        if not self._read_metadata(entry, start + 4, payload):
            self._cut(before)
            return DAMAGED
        if self._marker:
            self._cut(before)
            return INTACT
        if self._encrypted or self._chunk:
            self._cut(before)
            return ENCRYPTED if self._encrypted else CHUNK
        if self._publish_time < self.times_from or self._publish_time >= self.times_to:
            self.taken += self._batch_size if self._batch_size > 0 else 1
            self._cut(before)
            return INTACT
        self._version = self._version_index(data[self._version_start : self._version_end])
        if self._codec:
            data = self._decompress(self._codec, data[payload:], self._uncompressed)
            body = memoryview(data)
            payload = 0
            limit = len(data)
        else:
            body = entry
        if self._batch_size < 0:
            found = INTACT
            if first <= 0 and (end < 0 or end > 0):
                found = self._row(entry, body, ledger_id, entry_id, -1, payload, limit)
        else:
            self._forget_properties()
            found = self._batch(body, payload, limit, ledger_id, entry_id, first, end)
        if found != INTACT:
            self._cut(before)
        return found

    def _batch(
        self, body: memoryview, position: int, limit: int, ledger_id: int, entry_id: int, first: int, end: int
    ) -> int:
        """Adds the messages of a decompressed batch."""
        count = self._batch_size
        if end < 0 or end > count:
            end = count
        for index in range(end):
            if limit - position < 4:
                return BATCH_DAMAGED
            start = position + 4
            size = _size_at(body, position)
            if size > limit - start:
                return BATCH_DAMAGED
            content = start + size
            self._clear_own()
            if not self._read_own(body, start, content):
                return BATCH_DAMAGED
            if self._payload_size < 0 or self._payload_size > limit - content:
                return BATCH_DAMAGED
            position = content + self._payload_size
            if index < first or self._compacted_out:
                self._forget_properties()
                continue
            found = self._row(body, body, ledger_id, entry_id, index, content, position)
            if found != INTACT:
                return found
        return INTACT

    def _row(
        self,
        head: memoryview,
        body: memoryview,
        ledger_id: int,
        entry_id: int,
        index: int,
        start: int,
        end: int,
    ) -> int:
        """Adds one message, with the metadata that was read from ``head`` and the payload
        ``body[start:end]``.
        """
        row = self.count
        self.taken += 1
        if self._publish_time > _LAST_TIME or self._event_time > _LAST_TIME or self._event_time < -_LAST_TIME:
            return TIME_BEYOND
        if row >= self.rows:
            self._grow()
        if not self._has_key or self._null_key:
            self.keys._put_null(row)
        elif self._key_encoded:
            try:
                key = a2b_base64(bytes(head[self._key_start : self._key_end]))
            except Error:
                return KEY_DAMAGED
            self.keys._put(row, memoryview(key), 0, len(key))
        else:
            self.keys._put(row, head, self._key_start, self._key_end)
        if self.wanted_keys is not None and not self._is_wanted(row):
            self.keys._truncate(row)
            self._forget_properties()
            return INTACT
        if self._null_value:
            self.values._put_null(row)
        else:
            self.values._put(row, body, start, end)
        self._put_id(row, ledger_id, entry_id, index)
        self._publish_times[row] = self._publish_time * 1000
        self._event_times[row] = self._event_time * 1000
        self._versions[row] = self._version
        self._properties[row + 1] = self._property_count
        self.count = row + 1
        return INTACT

    def _is_wanted(self, row: int) -> bool:
        wanted = self.wanted_keys
        keys = self.keys
        if wanted is None or not self._has_key or self._null_key:
            return False
        start = keys._offsets[row]
        size = keys._offsets[row + 1] - start
        for each in range(self.wanted_count):
            begin = wanted._offsets[each]
            if wanted._offsets[each + 1] - begin != size:
                continue
            place = 0
            while place < size and wanted._data[begin + place] == keys._data[start + place]:
                place += 1
            if place == size:
                return True
        return False

    def _put_id(self, row: int, ledger_id: int, entry_id: int, index: int) -> None:
        """Writes the message id as serialized ``MessageIdData``, the form in which clients serialize ids."""
        ids = self.ids
        if ids.end + 60 > ids.size:
            ids._need(60)
        ids._put_number(0x08, ledger_id)
        ids._put_number(0x10, entry_id)
        if self.partition >= 0:
            ids._put_number(0x18, self.partition)
        if index >= 0:
            ids._put_number(0x20, index)
            ids._put_number(0x30, self._batch_size)
        ids._close(row)

    def name_first_chunk(self, ledger_id: int, entry_id: int) -> None:
        """Adds the position of the first chunk to the id of the last row."""
        ids = self.ids
        if ids.end + 60 > ids.size:
            ids._need(60)
        ids._put_number(0x3A, 0)
        start = ids.end
        ids._put_number(0x08, ledger_id)
        ids._put_number(0x10, entry_id)
        if self.partition >= 0:
            ids._put_number(0x18, self.partition)
        ids._data[start - 1] = ids.end - start
        ids._close(self.count - 1)

    def _grow(self) -> None:
        rows = 2 * self.rows
        self.values._need_rows(rows)
        self.keys._need_rows(rows)
        self.ids._need_rows(rows)
        properties = array("i", bytes(4 * (rows + 1)))
        properties[: self.rows + 1] = self.properties
        publish_times = array("q", bytes(8 * rows))
        publish_times[: self.rows] = self.publish_times
        event_times = array("q", bytes(8 * rows))
        event_times[: self.rows] = self.event_times
        versions = array("i", bytes(4 * rows))
        versions[: self.rows] = self.versions
        self.properties = properties
        self.publish_times = publish_times
        self.event_times = event_times
        self.versions = versions
        self._properties = properties
        self._publish_times = publish_times
        self._event_times = event_times
        self._versions = versions
        self.rows = rows

    def _cut(self, rows: int) -> None:
        """Drops all rows after the first ``rows``."""
        self.count = rows
        self.values._truncate(rows)
        self.keys._truncate(rows)
        self.ids._truncate(rows)
        self._forget_properties()

    def _forget_properties(self) -> None:
        """Drops properties that were read, but whose message was not added."""
        self._property_count = self._properties[self.count]
        self.names._truncate(self._property_count)
        self.contents._truncate(self._property_count)

    def _version_index(self, version: bytes) -> int:
        known = self.schema_versions
        if version == known[len(known) - 1]:
            return len(known) - 1
        if version not in known:
            known.append(version)
        return known.index(version)

    # Metadata

    def _clear(self) -> None:
        self._publish_time = 0
        self._batch_size = -1
        self._codec = 0
        self._uncompressed = 0
        self._encrypted = False
        self._chunk = False
        self._marker = False
        self._version = 0
        self._version_start = 0
        self._version_end = 0
        self._clear_own()

    def _clear_own(self) -> None:
        """Resets the fields of one message."""
        self._has_key = False
        self._key_start = 0
        self._key_end = 0
        self._key_encoded = False
        self._null_key = False
        self._null_value = False
        self._event_time = 0
        self._payload_size = -1
        self._compacted_out = False

    def _read_metadata(self, entry: memoryview, position: int, end: int) -> bool:
        """Reads the metadata of an entry; returns False if it is damaged."""
        self._clear()
        while position < end:
            after = _varint_end(entry, position, end)
            if after < 0:
                return False
            tag = _varint(entry, position, after)
            start, position = after, _skip(entry, after, end, tag)
            if position < 0:
                return False
            if tag & 7 == 0:
                self._take_number(tag >> 3, _varint(entry, start, position))
            elif tag & 7 == 2:
                start = _varint_end(entry, start, end)
                if not self._take_bytes(tag >> 3, entry, start, position):
                    return False
        return True

    def _take_number(self, field: int, value: int) -> None:
        if field == 3:
            self._publish_time = value
        elif field == 8:
            self._codec = value
        elif field == 9:
            self._uncompressed = value
        elif field == 11:
            self._batch_size = value if value >= 0 else 0
        elif field == 12:
            self._event_time = value
        elif field == 17:
            self._key_encoded = value != 0
        elif field == 20:
            self._marker = True
        elif field == 25:
            self._null_value = value != 0
        elif field == 27:
            self._chunk = value > 1
        elif field == 30:
            self._null_key = value != 0

    def _take_bytes(self, field: int, entry: memoryview, start: int, end: int) -> bool:
        if field == 4:
            return self._read_property(entry, start, end)
        if field == 6:
            self._has_key = True
            self._key_start = start
            self._key_end = end
        elif field == 13:
            self._encrypted = True
        elif field == 16:
            self._version_start = start
            self._version_end = end
        return True

    def _read_own(self, body: memoryview, position: int, end: int) -> bool:
        """Reads the metadata of a message in a batch; returns False if it is damaged."""
        while position < end:
            after = _varint_end(body, position, end)
            if after < 0:
                return False
            tag = _varint(body, position, after)
            start, position = after, _skip(body, after, end, tag)
            if position < 0:
                return False
            if tag == 0x18:
                self._payload_size = _varint(body, start, position)
            elif tag == 0x0A:
                start = _varint_end(body, start, end)
                if not self._read_property(body, start, position):
                    return False
            elif tag == 0x12:
                self._has_key = True
                self._key_start = _varint_end(body, start, end)
                self._key_end = position
            elif tag == 0x20:
                self._compacted_out = _varint(body, start, position) != 0
            elif tag == 0x28:
                self._event_time = _varint(body, start, position)
            elif tag == 0x30:
                self._key_encoded = _varint(body, start, position) != 0
            elif tag == 0x48:
                self._null_value = _varint(body, start, position) != 0
            elif tag == 0x50:
                self._null_key = _varint(body, start, position) != 0
        return True

    def _read_property(self, source: memoryview, position: int, end: int) -> bool:
        """Reads a property; returns False if it is damaged."""
        name = name_end = content = content_end = 0
        while position < end:
            after = _varint_end(source, position, end)
            if after < 0:
                return False
            tag = _varint(source, position, after)
            start, position = after, _skip(source, after, end, tag)
            if position < 0:
                return False
            if tag == 0x0A:
                name = _varint_end(source, start, end)
                name_end = position
            elif tag == 0x12:
                content = _varint_end(source, start, end)
                content_end = position
        row = self._property_count
        if row >= self.names.rows:
            self.names._need_rows(row + 1)
            self.contents._need_rows(row + 1)
        self.names._put(row, source, name, name_end)
        self.contents._put(row, source, content, content_end)
        self._property_count = row + 1
        return True


def _metadata_at(entry: memoryview, limit: int) -> int:
    """Returns the position of the metadata size, which follows the broker entry metadata and the checksum;
    -1: the entry is damaged.
    """
    start = 0
    if limit >= 6 and entry[0] == 0x0E and entry[1] == 0x02:
        start = 6 + _size_at(entry, 2)
    if limit - start >= 6 and entry[start] == 0x0E and entry[start + 1] == 0x01:
        start += 6
    return start if limit - start >= 4 else -1


def _size_at(buffer: memoryview, position: int) -> int:
    size = buffer[position]
    size = (size << 8) | buffer[position + 1]
    size = (size << 8) | buffer[position + 2]
    return (size << 8) | buffer[position + 3]


def _varint_end(buffer: memoryview, position: int, end: int) -> int:
    """Returns the position after the varint at ``position``; -1 if it is incomplete or exceeds 64 bits."""
    index = position
    while index < end and index < position + 10:
        if buffer[index] < 128:
            if index == position + 9 and buffer[index] > 1:
                return -1
            return index + 1
        index += 1
    return -1


def _varint(buffer: memoryview, position: int, end: int) -> int:
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


def _skip(buffer: memoryview, position: int, end: int, tag: int) -> int:
    """Returns the position after the value of a field with ``tag``; -1 if the value ends after ``end``."""
    wire = tag & 7
    if wire == 0:
        return _varint_end(buffer, position, end)
    if wire == 2:
        after = _varint_end(buffer, position, end)
        if after < 0:
            return -1
        size = _varint(buffer, position, after)
        if size < 0 or size > end - after:
            return -1
        return after + size
    if wire == 1:
        return position + 8 if end - position >= 8 else -1
    if wire == 5:
        return position + 4 if end - position >= 4 else -1
    return -1
