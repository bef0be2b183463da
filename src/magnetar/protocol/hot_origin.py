"""Reads from the metadata of entries where they come from, for replication between clusters.

A hot module: plain Python that is also compiled, with the C types in ``hot_origin.pxd``. Nothing here raises
because of the content of an entry: a field that cannot be read counts as missing.
"""

from __future__ import annotations

from array import array

POSITION = 1
"""The mark of an entry that has a source position."""
REPLICATED = 2
"""The mark of an entry in which ``replicated_from`` is set."""
MARKER = 4
"""The mark of an entry in which ``marker_type`` is set, because brokers write it for each other."""
ENCRYPTED = 8
"""The mark of an entry that has encryption keys."""
LACKING = 4
"""In the result of :func:`read_origins`, the marks that at least one entry lacks are shifted left by this
number of bits.
"""

# The property with the source position, as in magnetar.naming.replicators, and the size of its name.
_KEY = b"__MSG_PROP_REPL_SOURCE_POSITION"
_KEY_SIZE = len(_KEY)

# Tags of the metadata: properties, replicated_from, encryption_keys and marker_type.
_PROPERTIES = 0x22
_REPLICATED_FROM = 0x2A
_ENCRYPTION_KEYS = 0x6A
_MARKER_TYPE = 0xA0

# A number with this many digits always fits into 63 bits.
_DIGITS = 18


def read_origins(
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
    ledger_ids: array[int],
    entry_ids: array[int],
    marks: array[int],
) -> int:
    """Reads the metadata of entries [first, first + count); element i of the last three arrays is for entry
    first + i.

    :param ledger_ids: receives ledger ids of source positions; -1 for an entry without a source position of
        the form ``LEDGER:ENTRY``
    :param entry_ids: receives entry ids of source positions; -1 in the same cases
    :param marks: receives sums of POSITION, REPLICATED, MARKER and ENCRYPTED
    :return: the marks that at least one entry has and, shifted by LACKING, the marks that at least one lacks
    """
    index = 0
    some = 0
    lacking = 0
    while index < count:
        found = _look(buffer, starts[first + index], ends[first + index], ledger_ids, entry_ids, index)
        marks[index] = found
        some |= found
        lacking |= found ^ 15
        index += 1
    return some | (lacking << LACKING)


def first_foreign(buffer: bytes, starts: array[int], ends: array[int], count: int) -> int:
    """Returns the index of the first of ``count`` entries that only brokers may send (a replicated entry or a
    marker); -1: no such entry.
    """
    index = 0
    while index < count:
        if _is_foreign(buffer, starts[index], ends[index]):
            return index
        index += 1
    return -1


def _is_foreign(buffer: bytes, start: int, end: int) -> bool:
    position = _metadata_at(buffer, start, end)
    if position < 0:
        return False
    end = position + 4 + _size_at(buffer, position)
    position += 4
    while position < end:
        tag = buffer[position]
        after = position + 1
        if tag > 127:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return False
            tag = _varint(buffer, position, after)
        if tag in (_REPLICATED_FROM, _MARKER_TYPE):
            return True
        position = _skip(buffer, after, end, tag)
        if position < 0:
            return False
    return False


def _look(
    buffer: bytes, start: int, end: int, ledger_ids: array[int], entry_ids: array[int], index: int
) -> int:
    """Returns the marks of one entry; writes its source position to element ``index`` of both arrays."""
    ledger_ids[index] = -1
    entry_ids[index] = -1
    position = _metadata_at(buffer, start, end)
    if position < 0:
        return 0
    found = 0
    end = position + 4 + _size_at(buffer, position)
    position += 4
    while position < end:
        tag = buffer[position]
        after = position + 1
        if tag > 127:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return found
            tag = _varint(buffer, position, after)
        position = _skip(buffer, after, end, tag)
        if position < 0:
            return found
        if tag == _PROPERTIES:
            value = _position_at(buffer, _varint_end(buffer, after, position), position)
            if value >= 0:
                # The last one applies: a client may have copied that of a message that it consumed.
                found &= ~POSITION
                if _put(buffer, value, position, ledger_ids, entry_ids, index):
                    found |= POSITION
        elif tag == _REPLICATED_FROM:
            found |= REPLICATED
        elif tag == _MARKER_TYPE:
            found |= MARKER
        elif tag == _ENCRYPTION_KEYS:
            found |= ENCRYPTED
    return found


def _position_at(buffer: bytes, position: int, end: int) -> int:
    """Returns where the value of the source position begins in the property at [position, end).

    Returns -1 for a property with another key, and ``end`` if the value does not directly follow the key, as
    all clients write it.
    """
    if position < 0 or end - position < _KEY_SIZE + 4:
        return -1
    if buffer[position] != 0x0A or buffer[position + 1] != _KEY_SIZE:
        return -1
    position += 2
    if buffer[position : position + _KEY_SIZE] != _KEY:
        return -1
    position += _KEY_SIZE
    if buffer[position] != 0x12 or buffer[position + 1] != end - position - 2:
        return end
    return position + 2


def _put(
    buffer: bytes, position: int, end: int, ledger_ids: array[int], entry_ids: array[int], index: int
) -> bool:
    """Reads ``LEDGER:ENTRY`` in [position, end) into element ``index``; for any other value, writes -1 and
    returns False.
    """
    ledger_ids[index] = -1
    entry_ids[index] = -1
    middle = _number_end(buffer, position, end)
    if middle < 0 or middle >= end or buffer[middle] != 0x3A:
        return False
    if _number_end(buffer, middle + 1, end) != end:
        return False
    ledger_ids[index] = _number(buffer, position, middle)
    entry_ids[index] = _number(buffer, middle + 1, end)
    return True


def _number_end(buffer: bytes, position: int, end: int) -> int:
    """Returns the position after the decimal digits at ``position``; -1 if there are none or too many."""
    start = position
    while position < end and 0x30 <= buffer[position] <= 0x39:
        position += 1
    return position if 0 < position - start <= _DIGITS else -1


def _number(buffer: bytes, position: int, end: int) -> int:
    value = 0
    while position < end:
        value = value * 10 + (buffer[position] - 0x30)
        position += 1
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
    """Returns the varint in [position, end), of at most 63 bits; larger numbers become negative."""
    value = 0
    shift = 0
    while position < end and shift < 63:
        byte = buffer[position] & 127
        value |= byte << shift
        shift += 7
        position += 1
    return value if position == end else -1


def _skip(buffer: bytes, position: int, end: int, tag: int) -> int:
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
