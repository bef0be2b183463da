"""A shortcut for the interpreted form of ``hot_decode``: frames that equal the previous frame except for
one id.

Producers count sequence ids up by one, and consumers acknowledge entry after entry, so most commands equal
their predecessor in all bytes except the low seven bits of that id. Comparing bytes in bulk is several times
faster than reading fields in Python; compiled code reads fields faster and does not use this module. Frames
that do not match exactly, including those with errors, are left to ``hot_decode``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.io.crc32c import crc32c

if TYPE_CHECKING:
    from magnetar.protocol.hot_decode import AckRun, SendRun


_BODY = 12
_MAGIC = b"\x0e\x01"


def repeat_sends(
    buffer: bytes,
    previous: int,
    limit: int,
    max_frame: int,
    run: SendRun,
    verify_checksum: bool,
    count: int,
    max_count: int,
) -> int:
    """Adds those SENDs to ``run`` that repeat the SEND at ``previous``; returns the new number of SENDs in
    ``run``.

    :param previous: the position of the last SEND in ``run``
    :param count: the number of SENDs already in ``run``
    """
    sequence_ids, starts, ends = run.sequence_ids, run.starts, run.ends
    low = _low_byte(buffer, previous + _BODY, 0x10)
    sequence_id = sequence_ids[count - 1] + 1
    room = min(max_count, count + 127 - ((sequence_id - 1) & 127))
    if low < 0 or count >= room:
        return count
    command_size = starts[count - 1] - previous
    head = buffer[previous + 4 : low]
    tail = buffer[low + 1 : starts[count - 1]]
    offset = low - previous
    flag = buffer[low] & 128
    position = ends[count - 1]
    first = count
    while count < room:
        start = position + command_size
        if (
            limit - start < 11
            or not buffer.startswith(head, position + 4)
            or buffer[position + offset] != sequence_id & 127 | flag
            or not buffer.startswith(tail, position + offset + 1)
            or not buffer.startswith(_MAGIC, start)
        ):
            break
        end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
        size = int.from_bytes(buffer[start + 6 : start + 10], "big")
        if end > limit or end - position > max_frame or size < 1 or size > end - start - 10:
            break
        if verify_checksum:
            expected = int.from_bytes(buffer[start + 2 : start + 6], "big")
            if crc32c(memoryview(buffer)[start + 6 : end]) != expected:
                break
        sequence_ids[count] = sequence_id
        starts[count] = start
        ends[count] = end
        count += 1
        sequence_id += 1
        position = end
    new = slice(first, count)
    run.highest_sequence_ids[new] = run.highest_sequence_ids[first - 1 : first] * (count - first)
    run.num_messages[new] = run.num_messages[first - 1 : first] * (count - first)
    return count


def repeat_acks(buffer: bytes, previous: int, position: int, limit: int, run: AckRun, count: int) -> int:
    """Adds those ACKs to ``run`` that repeat the ACK in [previous, position), which has one message id.

    :param count: the number of message ids already in ``run``; the last one is the id of that ACK
    :returns: the new number of message ids
    """
    ledger_ids, entry_ids = run.ledger_ids, run.entry_ids
    if buffer[previous + 11] > 127:
        return count
    inner = _low_byte(buffer, previous + _BODY, 0x10)
    if inner < 0 or buffer[inner + 1] != 0x1A or inner + 3 + buffer[inner + 2] != position:
        return count
    low = _low_byte(buffer, inner + 3, 0x10)
    entry_id = entry_ids[count - 1] + 1
    room = min(run.capacity, count + 127 - ((entry_id - 1) & 127))
    if low < 0:
        return count
    head = buffer[previous:low]
    tail = buffer[low + 1 : position]
    offset = low - previous
    flag = buffer[low] & 128
    size = position - previous
    ledger_id = ledger_ids[count - 1]
    while count < room and limit - position >= size:
        if (
            not buffer.startswith(head, position)
            or buffer[position + offset] != entry_id & 127 | flag
            or not buffer.startswith(tail, position + offset + 1)
        ):
            break
        ledger_ids[count] = ledger_id
        entry_ids[count] = entry_id
        count += 1
        entry_id += 1
        position += size
    return count


def is_plain(buffer: bytes, start: int, end: int) -> bool:
    """Whether an entry's metadata certainly lacks ``num_messages_in_batch``, ``deliver_at_time``,
    ``marker_type`` and the id of a transaction, because no byte equals the tag of such a field."""
    if end - start < 11 or not buffer.startswith(_MAGIC, start):
        return False
    behind = start + 10 + int.from_bytes(buffer[start + 6 : start + 10], "big")
    if behind > end or buffer.find(b"\x58", start + 10, behind) >= 0:
        return False
    if buffer.find(b"\x98\x01", start + 10, behind) >= 0:
        return False
    if buffer.find(b"\xa0\x01", start + 10, behind) >= 0:
        return False
    return (
        buffer.find(b"\xb0\x01", start + 10, behind) < 0 and buffer.find(b"\xb8\x01", start + 10, behind) < 0
    )


def _low_byte(buffer: bytes, position: int, tag: int) -> int:
    """Returns the offset of the value of the field with ``tag``; -1 unless field 1, a number, begins at
    ``position`` and is followed by this field."""
    if buffer[position] != 0x08:
        return -1
    position += 1
    while buffer[position] > 127:
        position += 1
    return position + 2 if buffer[position + 1] == tag else -1
