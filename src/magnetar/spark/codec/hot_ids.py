"""Converts message ids to bytes that sort in message order.

This module is plain Python that is also compiled, with the C types in ``hot_ids.pxd``.
"""

from __future__ import annotations

# Bytes of a key: ledger, entry, index in the batch and one more, each big-endian.
KEY_SIZE = 20

_TOP = 63


def sort_keys(offsets: memoryview, data: memoryview) -> bytearray:
    """Returns the sort keys of the ids, :data:`KEY_SIZE` bytes each.

    :param offsets: the offset of each serialized id in ``data``; one more item than there are ids
    :param data: the serialized ids
    :raises ValueError: an item is not a message id
    """
    count = len(offsets) - 1
    out = bytearray(KEY_SIZE * count)
    _put_keys(out, offsets, data, count)
    return out


def _put_keys(out: bytearray, offsets: memoryview, data: memoryview, count: int) -> int:
    row = 0
    size = KEY_SIZE
    while row < count:
        _put_key(out, size * row, data, offsets[row], offsets[row + 1])
        row += 1
    return 0


def _put_key(out: bytearray, position: int, data: memoryview, at: int, end: int) -> int:
    ledger = 0
    entry = 0
    index = 0
    while at < end:
        tag = data[at]
        at += 1
        kind = tag & 7
        if tag > 127 or (kind != 0 and kind != 2):
            raise ValueError("no message id")
        value = 0
        shift = 0
        while True:
            if at >= end or shift > _TOP:
                raise ValueError("no message id")
            byte = data[at]
            at += 1
            if shift < _TOP:
                value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if kind == 2:
            at += value
        elif tag == 0x08:
            ledger = value
        elif tag == 0x10:
            entry = value
        elif tag == 0x20 and shift < 70:
            # Ten bytes are a negative number: the message is not in a batch.
            index = value + 1
    if at != end:
        raise ValueError("no message id")
    _put_number(out, position, 8, ledger)
    _put_number(out, position + 8, 8, entry)
    _put_number(out, position + 16, 4, index)
    return 0


def _put_number(out: bytearray, position: int, size: int, value: int) -> int:
    while size > 0:
        size -= 1
        out[position + size] = value & 255
        value >>= 8
    return 0
