"""Encodes the rows of Arrow columns as payloads of batches, without creating an object per row.

This module is plain Python that is also compiled, with the C types in ``hot_batches.pxd``.
"""

from __future__ import annotations

from array import array

# Upper bound of the bytes of a message in a batch, without key, properties and content.
_ROOM = 56
# The same for a pair of properties.
_PAIR_ROOM = 18

_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PAD = 61

# Constants, because larger literals would be objects in the compiled form.
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


class Columns:
    """The buffers of one Arrow batch: payload, key, event time and serialized properties of each row.

    Offsets have one more item than there are rows. Null buffers contain a byte for each row, which is not 0
    if the row is null; an empty buffer means that no row is null. Keys, event times and properties
    (``heads``) are empty if there is no such column.
    """

    def __init__(
        self,
        count: int,
        values: tuple[memoryview, memoryview, memoryview],
        keys: tuple[memoryview, memoryview, memoryview],
        heads: tuple[memoryview, memoryview],
        event_times: memoryview,
        binary_keys: bool,
    ) -> None:
        """:param values: the payloads: offsets, bytes and nulls

        :param keys: the keys: offsets, bytes and nulls
        :param heads: the properties, each as the beginning of serialized ``SingleMessageMetadata``: offsets
            and bytes
        :param event_times: event times in milliseconds since 1970; 0: not set
        :param binary_keys: whether keys are binary and sent in Base64
        """
        self.count = count
        self._value_offsets = values[0]
        self._value_data = values[1]
        self._value_nulls = values[2]
        self._key_offsets = keys[0]
        self._key_data = keys[1]
        self._key_nulls = keys[2]
        self._head_offsets = heads[0]
        self._head_data = heads[1]
        self._event_times = event_times
        self._binary_keys = binary_keys
        self._has_keys = len(keys[0]) > 0
        self._has_heads = len(heads[0]) > 0
        self._has_events = len(event_times) > 0
        self._has_value_nulls = len(values[2]) > 0
        self._has_key_nulls = len(keys[2]) > 0


def cut(columns: Columns, first: int, max_messages: int, max_bytes: int) -> int:
    """Returns the exclusive end of the batch that begins at row ``first``, within the limits; the batch has
    at least one row.
    """
    size = _row_bound(columns, first)
    end = first + 1
    last = min(columns.count, first + max_messages)
    while end < last:
        size += _row_bound(columns, end)
        if size > max_bytes:
            break
        end += 1
    return end


def _row_bound(columns: Columns, row: int) -> int:
    """Returns an upper bound of the bytes that a row takes in a batch."""
    size = _ROOM + columns._value_offsets[row + 1] - columns._value_offsets[row]
    if columns._has_keys:
        key = columns._key_offsets[row + 1] - columns._key_offsets[row]
        size += (key + 2) // 3 * 4 if columns._binary_keys else key
    if columns._has_heads:
        size += columns._head_offsets[row + 1] - columns._head_offsets[row]
    return size


def encode(columns: Columns, first: int, end: int) -> bytearray:
    """Returns the uncompressed payload of a batch with the rows ``[first, end)``."""
    bound = 0
    row = first
    while row < end:
        bound += _row_bound(columns, row)
        row += 1
    out = bytearray(bound)
    size = _put_rows(out, columns, first, end)
    del out[size:]
    return out


def _put_rows(out: bytearray, columns: Columns, first: int, end: int) -> int:
    position = 0
    row = first
    while row < end:
        position = _put_row(out, position, columns, row)
        row += 1
    return position


def _put_row(out: bytearray, start: int, columns: Columns, row: int) -> int:
    """Writes the size of the metadata, the metadata and the payload of one message; returns the position
    after them.
    """
    position = start + 4
    if columns._has_heads:
        at = columns._head_offsets[row]
        size = columns._head_offsets[row + 1] - at
        out[position : position + size] = columns._head_data[at : at + size]
        position += size
    keyed = columns._has_keys and not (columns._has_key_nulls and columns._key_nulls[row] != 0)
    if keyed:
        position = _put_key(out, position, columns, row)
    at = columns._value_offsets[row]
    size = columns._value_offsets[row + 1] - at
    null = columns._has_value_nulls and columns._value_nulls[row] != 0
    if null:
        size = 0
    out[position] = 0x18
    position = _put_varint(out, position + 1, size)
    if columns._has_events and columns._event_times[row] > 0:
        out[position] = 0x28
        position = _put_varint(out, position + 1, columns._event_times[row])
    if keyed and columns._binary_keys:
        out[position] = 0x30
        out[position + 1] = 1
        position += 2
    if null:
        out[position] = 0x48
        out[position + 1] = 1
        position += 2
    metadata = position - start - 4
    out[start] = (metadata >> 24) & 255
    out[start + 1] = (metadata >> 16) & 255
    out[start + 2] = (metadata >> 8) & 255
    out[start + 3] = metadata & 255
    if size > 0:
        out[position : position + size] = columns._value_data[at : at + size]
    return position + size


def _put_key(out: bytearray, position: int, columns: Columns, row: int) -> int:
    at = columns._key_offsets[row]
    size = columns._key_offsets[row + 1] - at
    out[position] = 0x12
    if columns._binary_keys:
        position = _put_varint(out, position + 1, (size + 2) // 3 * 4)
        return _put_base64(out, position, columns, at, size)
    position = _put_varint(out, position + 1, size)
    if size > 0:
        out[position : position + size] = columns._key_data[at : at + size]
    return position + size


def _put_base64(out: bytearray, position: int, columns: Columns, at: int, size: int) -> int:
    end = at + size
    while at < end:
        left = end - at
        group = columns._key_data[at] << 16
        if left > 1:
            group |= columns._key_data[at + 1] << 8
        if left > 2:
            group |= columns._key_data[at + 2]
        out[position] = _BASE64[group >> 18]
        out[position + 1] = _BASE64[(group >> 12) & 63]
        out[position + 2] = _BASE64[(group >> 6) & 63] if left > 1 else _PAD
        out[position + 3] = _BASE64[group & 63] if left > 2 else _PAD
        position += 4
        at += 3
    return position


def _put_varint(out: bytearray, position: int, value: int) -> int:
    """Writes a non-negative number as a varint; returns the position after it."""
    while value > 127:
        out[position] = (value & 127) | 128
        value >>= 7
        position += 1
    out[position] = value
    return position + 1


def property_heads(
    rows: memoryview,
    nulls: memoryview,
    keys: tuple[memoryview, memoryview],
    values: tuple[memoryview, memoryview],
    ends: array[int],
) -> bytearray:
    """Returns the properties of all rows, each serialized as the beginning of ``SingleMessageMetadata``.

    :param rows: for each row, the index of its first key/value pair; one more item than there are rows
    :param nulls: a byte for each row, not 0 for a row without properties; or empty
    :param keys: the keys of the pairs: offsets and bytes
    :param values: the values of the pairs: offsets and bytes
    :param ends: receives the offset of each row in the result, beginning with 0; one more item than there are
        rows
    """
    count = len(rows) - 1
    first = rows[0]
    last = rows[count]
    out = bytearray(
        keys[0][last] - keys[0][first] + values[0][last] - values[0][first] + _PAIR_ROOM * (last - first)
    )
    size = _put_pairs(out, rows, nulls, keys[0], keys[1], values[0], values[1], ends)
    del out[size:]
    return out


def _put_pairs(
    out: bytearray,
    rows: memoryview,
    nulls: memoryview,
    key_offsets: memoryview,
    key_data: memoryview,
    value_offsets: memoryview,
    value_data: memoryview,
    ends: array[int],
) -> int:
    count = len(rows) - 1
    has_nulls = len(nulls) > 0
    position = 0
    row = 0
    while row < count:
        pair = rows[row]
        end = rows[row + 1]
        if has_nulls and nulls[row] != 0:
            pair = end
        while pair < end:
            key_at = key_offsets[pair]
            key_size = key_offsets[pair + 1] - key_at
            value_at = value_offsets[pair]
            value_size = value_offsets[pair + 1] - value_at
            out[position] = 0x0A
            inner = 2 + _varint_size(key_size) + key_size + _varint_size(value_size) + value_size
            position = _put_varint(out, position + 1, inner)
            out[position] = 0x0A
            position = _put_varint(out, position + 1, key_size)
            if key_size > 0:
                out[position : position + key_size] = key_data[key_at : key_at + key_size]
            position += key_size
            out[position] = 0x12
            position = _put_varint(out, position + 1, value_size)
            if value_size > 0:
                out[position : position + value_size] = value_data[value_at : value_at + value_size]
            position += value_size
            pair += 1
        row += 1
        ends[row] = position
    return position


def _varint_size(value: int) -> int:
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


def route(columns: Columns, partitions: int, out: array[int]) -> None:
    """Fills ``out`` with the index of each row's partition, which depends on the key as in official clients;
    -1 for rows without a key.
    """
    row = 0
    while row < columns.count:
        if columns._has_key_nulls and columns._key_nulls[row] != 0:
            out[row] = -1
        else:
            at = columns._key_offsets[row]
            end = columns._key_offsets[row + 1]
            if columns._binary_keys:
                text = bytearray((end - at + 2) // 3 * 4)
                _put_base64(text, 0, columns, at, end - at)
                out[row] = _hash(text, 0, len(text)) % partitions
            else:
                out[row] = _hash(columns._key_data, at, end) % partitions
        row += 1


def _hash(text: memoryview | bytearray, at: int, end: int) -> int:
    """Returns Java's ``String.hashCode`` of valid UTF-8, without the sign bit."""
    value = 0
    while at < end:
        unit = text[at]
        if unit < 0x80:
            at += 1
        elif unit < 0xE0:
            unit = (unit & 31) << 6 | (text[at + 1] & 63)
            at += 2
        elif unit < 0xF0:
            unit = (unit & 15) << 12 | (text[at + 1] & 63) << 6 | (text[at + 2] & 63)
            at += 3
        else:
            unit = (
                (unit & 7) << 18 | (text[at + 1] & 63) << 12 | (text[at + 2] & 63) << 6 | (text[at + 3] & 63)
            )
            unit -= 0x10000
            value = (value * 31 + (0xD800 | unit >> 10)) & _MASK
            unit = 0xDC00 | (unit & 1023)
            at += 4
        value = (value * 31 + unit) & _MASK
    return value & _POSITIVE
