"""Writes the frames that are as frequent as messages: SEND_RECEIPT and MESSAGE, without an object per entry.

A hot module: plain Python that is also compiled, with the C types in ``hot_encode.pxd``. Ids are signed here
and unsigned 64 bit on the wire; ``_put_varint`` converts them. Fields are written as Apache Pulsar writes
them: ``highest_sequence_id`` and ``partition`` always, ``redelivery_count`` from 1 on.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

# The most bytes of such a frame without its entry.
_RECEIPT_ROOM = 72
_MESSAGE_ROOM = 80


def _varint_size(value: int) -> int:
    if value < 0:
        return 10
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


def _put_varint(out: bytearray, position: int, value: int) -> int:
    """Writes a signed number as the unsigned 64-bit varint of the wire; returns the position after it."""
    if value < 0:
        last = position + 9
        while position < last:
            out[position] = (value & 127) | 128
            value >>= 7
            position += 1
        out[position] = 1
        return position + 1
    while value > 127:
        out[position] = (value & 127) | 128
        value >>= 7
        position += 1
    out[position] = value
    return position + 1


def _put_size(out: bytearray, position: int, size: int) -> None:
    out[position] = (size >> 24) & 255
    out[position + 1] = (size >> 16) & 255
    out[position + 2] = (size >> 8) & 255
    out[position + 3] = size & 255


def encode_receipts(
    producer_id: int,
    ledger_id: int,
    first_entry_id: int,
    sequence_ids: array[int],
    highest_sequence_ids: array[int],
    first: int,
    count: int,
    step: int = 1,
) -> bytearray:
    """Encodes ``count`` SEND_RECEIPT frames for the array slots from ``first`` on.

    :param step: the difference between successive entry ids: 1, or 0 if all receipts have the same id
    """
    out = bytearray(count * _RECEIPT_ROOM)
    end = first + count
    size = _put_receipts(
        out, producer_id, ledger_id, first_entry_id, sequence_ids, highest_sequence_ids, first, end, step
    )
    del out[size:]
    return out


def _put_receipts(
    out: bytearray,
    producer_id: int,
    ledger_id: int,
    entry_id: int,
    sequences: array[int],
    highest: array[int],
    index: int,
    end: int,
    step: int,
) -> int:
    position = 0
    while index < end:
        start = position
        sequence_id = sequences[index]
        highest_id = highest[index]
        position = _put_receipt(out, start, producer_id, ledger_id, entry_id, sequence_id, highest_id)
        index += 1
        base = entry_id
        entry_id += step
        # Receipts that differ only in the low seven bits of their ids are copied, then patched.
        same = min(end - index, 127 - (base & 127))
        if same < 1 or (sequences[index] ^ sequence_id) > 127 or (sequences[index] ^ sequence_id) < 0:
            continue
        size = position - start
        highest_at = size - _varint_size(highest_id)
        entry_at = highest_at - 1 - _varint_size(base)
        sequence_at = 14 + _varint_size(producer_id)
        filled = 1
        while filled < same + 1:
            more = min(filled, same + 1 - filled)
            out[start + filled * size : start + (filled + more) * size] = out[start : start + more * size]
            filled += more
        while same > 0:
            change = sequences[index] ^ sequence_id
            highest_change = highest[index] ^ highest_id
            if change < 0 or change > 127 or highest_change < 0 or highest_change > 127:
                break
            out[position + sequence_at] ^= change
            out[position + entry_at] ^= entry_id ^ base
            out[position + highest_at] ^= highest_change
            position += size
            entry_id += step
            index += 1
            same -= 1
    return position


def _put_receipt(
    out: bytearray,
    start: int,
    producer_id: int,
    ledger_id: int,
    entry_id: int,
    sequence_id: int,
    highest_sequence_id: int,
) -> int:
    """Writes one receipt at ``start``; returns the position after it."""
    id_size = 2 + _varint_size(ledger_id) + _varint_size(entry_id)
    position = start + 12
    out[position] = 0x08
    position = _put_varint(out, position + 1, producer_id)
    out[position] = 0x10
    position = _put_varint(out, position + 1, sequence_id)
    out[position] = 0x1A
    out[position + 1] = id_size
    out[position + 2] = 0x08
    position = _put_varint(out, position + 3, ledger_id)
    out[position] = 0x10
    position = _put_varint(out, position + 1, entry_id)
    out[position] = 0x20
    position = _put_varint(out, position + 1, highest_sequence_id)
    _put_size(out, start, position - start - 4)
    _put_size(out, start + 4, position - start - 8)
    out[start + 8] = 0x08
    out[start + 9] = 0x07
    out[start + 10] = 0x3A
    out[start + 11] = position - start - 12
    return position


def encode_messages(
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
    partition: int = -1,
    epoch: int = -1,
) -> bytearray:
    """Encodes MESSAGE frames of a first delivery for entries ``buffer[starts[i]:ends[i]]``.

    i runs over [first, first + count); the ids of these entries ascend from ``first_entry_id``.

    :param epoch: the consumer's epoch; a negative epoch is omitted from the frames
    """
    end = first + count
    out = bytearray(_messages_room(starts, ends, first, end))
    size = _put_messages(
        out, buffer, consumer_id, ledger_id, first_entry_id, starts, ends, first, end, partition, epoch
    )
    del out[size:]
    return out


def encode_alike(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
    partition: int = -1,
    epoch: int = -1,
) -> bytearray:
    """Encodes MESSAGE frames like :func:`encode_messages`, all of them with the same entry id."""
    end = first + count
    out = bytearray(_messages_room(starts, ends, first, end))
    size = _put_alike(
        out, buffer, consumer_id, ledger_id, entry_id, starts, ends, first, end, partition, epoch
    )
    del out[size:]
    return out


def _put_alike(
    out: bytearray,
    buffer: bytes,
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    starts: array[int],
    ends: array[int],
    index: int,
    end: int,
    partition: int,
    epoch: int,
) -> int:
    position = 0
    header = 0
    template = 0
    while index < end:
        start = starts[index]
        size = ends[index] - start
        if header > 0:
            # The header of the previous frame, except for the size.
            out[position : position + header] = out[template : template + header]
            _put_size(out, position, header - 4 + size)
        else:
            header = _put_message_header(out, 0, consumer_id, ledger_id, entry_id, partition, size, epoch)
        template = position
        position += header
        out[position : position + size] = buffer[start : start + size]
        position += size
        index += 1
    return position


def _messages_room(starts: array[int], ends: array[int], index: int, end: int) -> int:
    room = 0
    while index < end:
        room += _MESSAGE_ROOM + ends[index] - starts[index]
        index += 1
    return room


def encode_chosen(
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    chosen: array[int],
    count: int,
    partition: int = -1,
) -> bytearray:
    """Encodes MESSAGE frames of a first delivery for entries ``buffer[starts[i]:ends[i]]`` of a run.

    i runs over ``chosen[0:count]``; the entry id is ``first_entry_id + i``.
    """
    room = 0
    index = 0
    while index < count:
        room += _MESSAGE_ROOM + ends[chosen[index]] - starts[chosen[index]]
        index += 1
    out = bytearray(room)
    del out[
        _put_chosen(
            out, buffer, consumer_id, ledger_id, first_entry_id, starts, ends, chosen, count, partition
        ) :
    ]
    return out


def _put_chosen(
    out: bytearray,
    buffer: bytes,
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    starts: array[int],
    ends: array[int],
    chosen: array[int],
    count: int,
    partition: int,
) -> int:
    position = 0
    index = 0
    while index < count:
        start = starts[chosen[index]]
        size = ends[chosen[index]] - start
        entry_id = first_entry_id + chosen[index]
        position = _put_message_header(out, position, consumer_id, ledger_id, entry_id, partition, size, -1)
        out[position : position + size] = buffer[start : start + size]
        position += size
        index += 1
    return position


def messages_size(
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
    partition: int = -1,
) -> int:
    """Returns the number of bytes that :func:`encode_messages` returns for the same arguments."""
    fixed = 18 + _varint_size(consumer_id) + _varint_size(ledger_id) + _varint_size(partition)
    size = 0
    index = 0
    while index < count:
        size += fixed + _varint_size(first_entry_id + index) + ends[first + index] - starts[first + index]
        index += 1
    return size


def _put_messages(
    out: bytearray,
    buffer: bytes,
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    starts: array[int],
    ends: array[int],
    index: int,
    end: int,
    partition: int,
    epoch: int,
) -> int:
    position = 0
    header = 0
    entry_at = 0
    template = 0
    base = 0
    while index < end:
        start = starts[index]
        size = ends[index] - start
        if header > 0 and 0 <= entry_id ^ base < 128:
            # The header of the previous frame, except for the low seven bits of the entry id and the size.
            out[position : position + header] = out[template : template + header]
            out[position + entry_at] = (out[position + entry_at] & 128) | (entry_id & 127)
            _put_size(out, position, header - 4 + size)
        else:
            header = (
                _put_message_header(out, position, consumer_id, ledger_id, entry_id, partition, size, epoch)
                - position
            )
            entry_at = header - 1 - _varint_size(partition) - _varint_size(entry_id)
            if epoch >= 0:
                entry_at -= 1 + _varint_size(epoch)
            base = entry_id
        template = position
        position += header
        out[position : position + size] = buffer[start : start + size]
        position += size
        entry_id += 1
        index += 1
    return position


def _put_message_header(
    out: bytearray,
    start: int,
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    size: int,
    epoch: int,
) -> int:
    """Writes a MESSAGE frame up to its entry of ``size`` bytes; returns the position of the entry."""
    out[start + 8] = 0x08
    out[start + 9] = 0x09
    out[start + 10] = 0x4A
    out[start + 12] = 0x08
    position = _put_varint(out, start + 13, consumer_id)
    position = _put_message_id(out, position, ledger_id, entry_id, partition)
    if epoch >= 0:
        out[position] = 0x28
        position = _put_varint(out, position + 1, epoch)
    out[start + 11] = position - start - 12
    _put_size(out, start + 4, position - start - 8)
    _put_size(out, start, position - start - 4 + size)
    return position


def message_head(
    consumer_id: int, ledger_id: int, entry_id: int, size: int, partition: int = -1, epoch: int = -1
) -> bytes:
    """Encodes a MESSAGE frame of a first delivery up to its entry of ``size`` bytes.

    :param epoch: the consumer's epoch; -1: the frame has no epoch
    """
    out = bytearray(_MESSAGE_ROOM)
    end = _put_message_header(out, 0, consumer_id, ledger_id, entry_id, partition, size, epoch)
    return bytes(out[:end])


def _put_message_id(out: bytearray, position: int, ledger_id: int, entry_id: int, partition: int) -> int:
    out[position] = 0x12
    out[position + 1] = 3 + _varint_size(ledger_id) + _varint_size(entry_id) + _varint_size(partition)
    out[position + 2] = 0x08
    position = _put_varint(out, position + 3, ledger_id)
    out[position] = 0x10
    position = _put_varint(out, position + 1, entry_id)
    out[position] = 0x18
    return _put_varint(out, position + 1, partition)


def encode_message(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    redelivery_count: int,
    ack_set: Sequence[int] | None,
    consumer_epoch: int | None,
    buffer: bytes,
    start: int,
    end: int,
    partition: int = -1,
) -> bytearray:
    """Encodes one MESSAGE frame with all fields that it can have, for the entry ``buffer[start:end]``.

    :param redelivery_count: how often the entry was redelivered; omitted from the frame if it is 0
    :param ack_set: signed 64-bit words, with a bit set for each message still to be delivered; None: all
        messages
    :param consumer_epoch: the consumer's epoch; None: it is omitted from the frame
    """
    body = bytearray(60)
    body[0] = 0x08
    position = _put_varint(body, 1, consumer_id)
    position = _put_message_id(body, position, ledger_id, entry_id, partition)
    if redelivery_count > 0:
        body[position] = 0x18
        position = _put_varint(body, position + 1, redelivery_count)
    del body[position:]
    for word in ack_set or ():
        body += _number_field(0x20, word)
    if consumer_epoch is not None:
        body += _number_field(0x28, consumer_epoch)
    command = bytearray(b"\x08\x09") + _number_field(0x4A, len(body))
    command += body
    out = bytearray(8)
    _put_size(out, 0, 4 + len(command) + end - start)
    _put_size(out, 4, len(command))
    out += command
    out += memoryview(buffer)[start:end]
    return out


def _number_field(tag: int, value: int) -> bytearray:
    field = bytearray(11)
    field[0] = tag
    del field[_put_varint(field, 1, value) :]
    return field
