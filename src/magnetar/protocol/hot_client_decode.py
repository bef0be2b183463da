"""Decodes the frames that brokers send as often as messages (SEND_RECEIPT and MESSAGE), without an object per
entry; also decodes message ids.

A hot module: plain Python that is also compiled, with the C types in ``hot_client_decode.pxd``. As in
``hot_decode``, a command that does not exactly have the frequent form is left to the caller, who parses it
with protobuf. The number readers are repeated here because compiled modules share no C functions.
"""

from __future__ import annotations

from array import array

from magnetar.io.crc32c import crc32c

_RECEIPT = 7
_MESSAGE = 9

# Offsets inside a frame: total size, command size, the field "type" of the command, its sub-message.
_COMMAND = 8
_BODY_TAG = 10
_BODY = 12

# Below this many bytes, a copy for the checksum costs less than a view.
_COPY_LIMIT = 4096

_OK = 0
_CHECKSUM_MISMATCH = 1
_NOT_PLAIN = 2
_ENTRY_MALFORMED = 3
_OTHER_CONSUMER = 4


class ReceiptRun:
    """Consecutive SEND_RECEIPTs of one producer; the object is reused for each read."""

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self.producer_id = 0
        self.count = 0
        self.sequence_ids = array("q", bytes(8 * capacity))
        self.highest_sequence_ids = array("q", bytes(8 * capacity))
        self.ledger_ids = array("q", bytes(8 * capacity))
        self.entry_ids = array("q", bytes(8 * capacity))
        # Second references to the arrays: when compiled, typed views that cost nothing to take.
        self._sequences = self.sequence_ids
        self._highest = self.highest_sequence_ids
        self._ledgers = self.ledger_ids
        self._entries = self.entry_ids


class MessageRun:
    """Consecutive plain MESSAGEs of one consumer; the object is reused for each read.

    Entry i is ``buffer[starts[i]:ends[i]]``, from the magic (or the metadata size) on; ``batch_sizes`` is 0
    for an entry that is not a batch. ``epoch`` is the consumer's epoch at the time of sending, -1 for none.
    ``total_messages`` counts each message of a batch, as permits do. ``error``: 0 none, 1 checksum mismatch,
    2 not plain, 3 entry malformed.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self.consumer_id = 0
        self.count = 0
        self.error = 0
        self.total_messages = 0
        self.epoch = -1
        self.ledger_ids = array("q", bytes(8 * capacity))
        self.entry_ids = array("q", bytes(8 * capacity))
        self.redeliveries = array("i", bytes(4 * capacity))
        self.batch_sizes = array("i", bytes(4 * capacity))
        self.starts = array("q", bytes(8 * capacity))
        self.ends = array("q", bytes(8 * capacity))
        self._ledgers = self.ledger_ids
        self._entries = self.entry_ids
        self._redelivered = self.redeliveries
        self._sizes = self.batch_sizes
        self._starts = self.starts
        self._ends = self.ends


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


def read_receipts(buffer: bytes, position: int, limit: int, max_frame: int, run: ReceiptRun) -> int:
    """Reads consecutive complete receipts of one producer into ``run``; returns the position after them.

    Stops at any other frame; ``run.count`` is 0 if the first frame is not a plain receipt.
    """
    count = 0
    run.count = 0
    while count < run.capacity and limit - position >= _BODY:
        total = _size_at(buffer, position)
        end = position + 4 + total
        if (
            end > limit
            or total + 4 > max_frame
            or buffer[position + _COMMAND] != 8
            or buffer[position + _COMMAND + 1] != _RECEIPT
            or _size_at(buffer, position + 4) != total - 4
            or not _read_receipt(buffer, position + _BODY_TAG, end, run, count)
        ):
            break
        count += 1
        position = end
    run.count = count
    return position


def _read_receipt(buffer: bytes, position: int, end: int, run: ReceiptRun, index: int) -> bool:
    """Reads the sub-message of one receipt into slot ``index``; returns False if it is not plain."""
    if end - position < 4 or buffer[position] != 0x3A or buffer[position + 1] != end - position - 2:
        return False
    position += 2
    producer_id = -1
    seen = 0
    run._highest[index] = -1
    while position < end - 1:
        tag = buffer[position]
        position += 1
        value = buffer[position]
        if value < 128:
            position += 1
        else:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return False
            value = _varint(buffer, position, after)
            position = after
        if tag == 0x08:
            producer_id = value
            seen |= 1
        elif tag == 0x10:
            run._sequences[index] = value
            seen |= 2
        elif tag == 0x1A:
            if value < 0 or value > end - position:
                return False
            if not _read_id(buffer, position, position + value, run._ledgers, run._entries, index):
                return False
            position += value
            seen |= 4
        elif tag == 0x20:
            run._highest[index] = value
        else:
            return False
    if position != end or seen != 7:
        return False
    if index == 0:
        run.producer_id = producer_id
    return run.producer_id == producer_id


def _read_id(
    buffer: bytes, position: int, end: int, ledgers: array[int], entries: array[int], index: int
) -> bool:
    """Reads ledger and entry id into slot ``index``; returns False if there is any unknown field."""
    seen = 0
    while position < end - 1:
        tag = buffer[position]
        position += 1
        value = buffer[position]
        if value < 128:
            position += 1
        else:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return False
            value = _varint(buffer, position, after)
            position = after
        if tag == 0x08:
            ledgers[index] = value
            seen |= 1
        elif tag == 0x10:
            entries[index] = value
            seen |= 2
        elif tag != 0x18 and tag != 0x20 and tag != 0x30:  # partition, batch index, batch size
            return False
    return position == end and seen == 3


def decode_message_id(data: bytes) -> tuple[int, int, int, int, int] | None:
    """Returns the ledger, entry, partition, batch index and batch size of a ``MessageIdData``. A
    missing partition or batch index is -1; a missing batch size is 0.

    Returns None if ledger or entry id is missing, a field is unknown, or a number is out of range.
    """
    position = 0
    end = len(data)
    ledger_id = entry_id = partition = batch_index = -1
    batch_size = seen = 0
    while position < end - 1:
        tag = data[position]
        after = _varint_end(data, position + 1, end)
        if after < 0:
            return None
        value = _varint(data, position + 1, after)
        position = after
        if tag == 0x08:
            ledger_id = value
            seen |= 1
        elif tag == 0x10:
            entry_id = value
            seen |= 2
        elif value < 0 or value > 0x7FFFFFFF:
            return None
        elif tag == 0x18:
            partition = value
        elif tag == 0x20:
            batch_index = value
        elif tag == 0x30:
            batch_size = value
        else:
            return None
    if position != end or seen != 3:
        return None
    return ledger_id, entry_id, partition, batch_index, batch_size


def read_messages(
    buffer: bytes, position: int, limit: int, max_frame: int, run: MessageRun, verify_checksum: bool
) -> int:
    """Reads consecutive complete plain MESSAGEs of one consumer; returns the position after them.

    Stops before a frame of another kind or consumer, an incomplete frame, or a bad frame. If the first frame
    is bad, ``run.count`` is 0, ``run.error`` says why, and the position is unchanged. A MESSAGE is plain if
    it has no ack set.
    """
    count = 0
    run.count = 0
    run.error = _OK
    run.total_messages = 0
    while count < run.capacity and limit - position >= _BODY + 4:
        total = _size_at(buffer, position)
        end = position + 4 + total
        if (
            end > limit
            or total + 4 > max_frame
            or buffer[position + _COMMAND] != 8
            or buffer[position + _COMMAND + 1] != _MESSAGE
        ):
            break
        command_end = position + _COMMAND + _size_at(buffer, position + 4)
        if command_end > end:
            break
        error = _read_message(buffer, position + _BODY_TAG, command_end, run, count)
        if error == _OK:
            error = _check_entry(buffer, command_end, end, verify_checksum)
        if error != _OK:
            if count == 0:
                run.error = error
            break
        size = _batch_size(buffer, command_end, end)
        if size < 0 or size > 0x7FFFFFFF:
            if count == 0:
                run.error = _ENTRY_MALFORMED
            break
        run._sizes[count] = size
        run._starts[count] = command_end
        run._ends[count] = end
        run.total_messages += size if size > 0 else 1
        count += 1
        position = end
    run.count = count
    return position


def _read_message(buffer: bytes, position: int, end: int, run: MessageRun, index: int) -> int:
    """Reads the sub-message of one MESSAGE into slot ``index``; returns 0, or a code for the reason why the
    message is not in the run."""
    if end - position < 4 or buffer[position] != 0x4A or buffer[position + 1] != end - position - 2:
        return _NOT_PLAIN
    position += 2
    consumer_id = -1
    redelivered = 0
    epoch = -1
    seen = 0
    while position < end - 1:
        tag = buffer[position]
        position += 1
        value = buffer[position]
        if value < 128:
            position += 1
        else:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return _NOT_PLAIN
            value = _varint(buffer, position, after)
            position = after
        if tag == 0x08:
            consumer_id = value
            seen |= 1
        elif tag == 0x12:
            if value < 0 or value > end - position:
                return _NOT_PLAIN
            if not _read_id(buffer, position, position + value, run._ledgers, run._entries, index):
                return _NOT_PLAIN
            position += value
            seen |= 2
        elif tag == 0x18 and value >= 0 and value <= 0x7FFFFFFF:
            redelivered = value
        elif tag == 0x28:
            epoch = value
        else:
            return _NOT_PLAIN
    if position != end or seen != 3:
        return _NOT_PLAIN
    run._redelivered[index] = redelivered
    if index == 0:
        run.consumer_id = consumer_id
        run.epoch = epoch
    return _OK if run.consumer_id == consumer_id and run.epoch == epoch else _OTHER_CONSUMER


def _check_entry(buffer: bytes, start: int, end: int, verify_checksum: bool) -> int:
    """Returns the number of the error in the entry's checksum or sizes; 0: no error."""
    if end - start < 4:
        return _ENTRY_MALFORMED
    if buffer[start] == 0x0E and buffer[start + 1] == 0x01:
        if end - start < 10:
            return _ENTRY_MALFORMED
        if verify_checksum:
            if end - start < _COPY_LIMIT:
                found = crc32c(buffer[start + 6 : end])
            else:
                found = crc32c(memoryview(buffer)[start + 6 : end])
            if found != _size_at(buffer, start + 2):
                return _CHECKSUM_MISMATCH
        start += 6
    size = _size_at(buffer, start)
    return _OK if size <= end - start - 4 else _ENTRY_MALFORMED


def _batch_size(buffer: bytes, start: int, entry_end: int) -> int:
    """Returns ``num_messages_in_batch`` of an entry with valid sizes; 0: the entry is not a batch; -1: the
    metadata is damaged."""
    if buffer[start] == 0x0E and buffer[start + 1] == 0x01:
        start += 6
    end = start + 4 + _size_at(buffer, start)
    start += 4
    while start < end:
        after = _varint_end(buffer, start, end)
        if after < 0:
            return -1
        tag = _varint(buffer, start, after)
        if tag == 0x58:
            start = _varint_end(buffer, after, end)
            if start < 0:
                return -1
            value = _varint(buffer, after, start)
            return value if value > 0 else -1
        start = _skip(buffer, after, end, tag)
        if start < 0:
            return -1
    return 0


def plain_payload(entry: bytes) -> int:
    """Returns the offset of an entry's payload if the payload is one message that is not compressed, not
    encrypted and not a chunk; otherwise, or if the entry is damaged, -1."""
    limit = len(entry)
    start = 0
    if limit < 10 or (entry[0] == 0x0E and entry[1] == 0x02):
        return -1
    if entry[0] == 0x0E and entry[1] == 0x01:
        start = 6
    size = _size_at(entry, start)
    start += 4
    if size > limit - start:
        return -1
    end = start + size
    seen = 0
    while start < end:
        after = _varint_end(entry, start, end)
        if after < 0:
            return -1
        tag = _varint(entry, start, after)
        start = _skip(entry, after, end, tag)
        if start < 0:
            return -1
        if tag == 0x0A:
            seen |= 1
        elif tag == 0x10:
            seen |= 2
        elif tag == 0x18:
            seen |= 4
        elif tag == 0x40:
            if _varint(entry, after, start) != 0:
                return -1
        elif (tag >> 3) in (8, 11, 13, 14, 15, 27, 28, 29):
            return -1
    return end if seen == 7 else -1


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


def split_places(payload: bytes, count: int) -> list[tuple[int, int, int]] | None:
    """Returns the offsets of each message in an uncompressed batch: (metadata begin, payload begin, payload
    end).

    Returns None if the payload does not contain ``count`` messages.
    """
    places: list[tuple[int, int, int]] = []
    position = 0
    limit = len(payload)
    index = 0
    while index < count:
        if limit - position < 4:
            return None
        start = position + 4
        size = _size_at(payload, position)
        if size > limit - start:
            return None
        end = start + size
        size = _payload_size(payload, start, end)
        if size < 0 or size > limit - end:
            return None
        position = end + size
        places.append((start, end, position))
        index += 1
    return places


def _payload_size(buffer: bytes, position: int, end: int) -> int:
    """Returns ``payload_size`` of a message's metadata; -1 if it is missing or damaged."""
    value = -1
    while position < end:
        after = _varint_end(buffer, position, end)
        if after < 0:
            return -1
        tag = _varint(buffer, position, after)
        position = _skip(buffer, after, end, tag)
        if position < 0:
            return -1
        if tag == 0x18:
            value = _varint(buffer, after, position)
    return value
