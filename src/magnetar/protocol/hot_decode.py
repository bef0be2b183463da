"""Reads the frames that are as frequent as messages: SEND, ACK, FLOW, without an object per entry.

A hot module: plain Python that is also compiled, with the C types in ``hot_decode.pxd``. Buffers are
``bytes``. Everything here is conservative: a command that does not exactly have the frequent form is left to
the caller, who parses it with protobuf. Ids are unsigned 64 bit on the wire and signed here; ``_varint``
converts them.
"""

from __future__ import annotations

from array import array

from magnetar.io.crc32c import crc32c
from magnetar.protocol.errors import FrameError, FrameTooLarge
from magnetar.protocol.repeats import is_plain, repeat_acks, repeat_sends

_SEND, _ACK, _FLOW = 6, 10, 11

# Offsets inside a frame: total size, command size, the field "type" of the command, its sub-message.
_COMMAND = 8
_BODY_TAG = 10
_BODY = 12

_INTERPRETED = __file__.endswith(".py")

# Below this many bytes, a copy for the checksum costs less than a view.
_COPY_LIMIT = 4096

_OK, _CHECKSUM_MISMATCH, _NOT_PLAIN, _ENTRY_MALFORMED, _OTHER_PRODUCER = range(5)

# Tags in the metadata of an entry, of fields 19, 29, 20, 22 and 23, numbers.
_DELIVER_AT, _CHUNK_ID, _MARKER_TYPE, _LEAST_BITS, _MOST_BITS = 0x98, 0xE8, 0xA0, 0xB0, 0xB8
# The size that stands for a chunk, and what is added to the size of an entry of a transaction.
_ONE_CHUNK = 1 << 32
_IN_TRANSACTION = 1 << 33

CHUNKED = 1 << 30
"""Added to the result of :func:`batch_sizes` if there are chunks."""
MARKED = 1 << 29
"""Added to the result of :func:`batch_sizes` if there are markers, which brokers write for each other."""
TRANSACTIONAL = 1 << 28
"""Added to the result of :func:`batch_sizes` if there are entries of transactions."""


class SendRun:
    """Consecutive SENDs of one producer; the object is reused for each read.

    Entry i is ``buffer[starts[i]:ends[i]]``, from the magic (or the metadata size) to the end of its frame.
    ``highest_sequence_ids`` is -1 if the producer sent none; ``chunks`` is the number of entries that are
    chunks of larger messages. ``transactional``: all SENDs belong to the transaction (``most_bits``,
    ``least_bits``); otherwise all belong to none. ``error``: 0 none, 1 checksum mismatch, 2 not a plain
    SEND, 3 entry malformed; ``error_sequence_id``: the bad SEND's sequence id, -1 if it could not be read.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self.producer_id = 0
        self.count = 0
        self.chunks = 0
        self._chunk = 0
        self._seen = 0
        self.transactional = False
        self.most_bits = 0
        self.least_bits = 0
        self.error = 0
        self.error_sequence_id = -1
        self.sequence_ids = array("q", bytes(8 * capacity))
        self.highest_sequence_ids = array("q", bytes(8 * capacity))
        self.num_messages = array("i", bytes(4 * capacity))
        self.starts = array("q", bytes(8 * capacity))
        self.ends = array("q", bytes(8 * capacity))
        # Second references to the arrays: when compiled, typed views that cost nothing to take.
        self._sequences = self.sequence_ids
        self._highest = self.highest_sequence_ids
        self._numbers = self.num_messages
        self._starts = self.starts
        self._ends = self.ends


class AckRun:
    """Positions that one consumer acknowledged individually; the object is reused for each read."""

    def __init__(self, capacity: int = 1024) -> None:
        self.capacity = capacity
        self.consumer_id = 0
        self.count = 0
        self.ledger_ids = array("q", bytes(8 * capacity))
        self.entry_ids = array("q", bytes(8 * capacity))
        self._ledgers = self.ledger_ids
        self._entries = self.entry_ids


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


def frame_end(buffer: bytes, position: int) -> int:
    """Returns the position after the frame that begins at ``position``."""
    return position + 4 + _size_at(buffer, position)


def command_bounds(buffer: bytes, position: int) -> tuple[int, int]:
    """Returns begin and end of the command in the complete frame at ``position``."""
    return position + _COMMAND, position + _COMMAND + _size_at(buffer, position + 4)


def next_frame(buffer: bytes, position: int, limit: int, max_frame: int) -> int:
    """Returns the type of the complete frame at ``position``, or 0 while it is incomplete in
    ``buffer[:limit]``.

    :param max_frame: the largest accepted frame in bytes, size field included
    :raises FrameTooLarge: the frame is larger
    :raises FrameError: the sizes contradict each other, or the command has no type
    """
    if limit - position < 4:
        return 0
    total = _size_at(buffer, position)
    if total + 4 > max_frame:
        raise FrameTooLarge(total + 4, max_frame)
    if total < 6:
        raise FrameError(f"frame of {total} bytes holds no command")
    if limit - position < 8:
        return 0
    command_size = _size_at(buffer, position + 4)
    if command_size > total - 4 or command_size < 2:
        raise FrameError(f"invalid command size {command_size} in a frame of {total} bytes")
    if limit - position - 4 < total:
        return 0
    kind = buffer[position + _COMMAND + 1]
    if buffer[position + _COMMAND] == 8 and 0 < kind < 128:
        return kind
    return _scan_type(buffer, position + _COMMAND, position + _COMMAND + command_size)


def _scan_type(buffer: bytes, position: int, end: int) -> int:
    """Returns the value of field 1 of a command with an unusual order of fields."""
    kind = 0
    while position < end:
        after = _varint_end(buffer, position, end)
        tag = _varint(buffer, position, after) if after > 0 else 0
        if tag == 8:
            position = _varint_end(buffer, after, end)
            kind = _varint(buffer, after, position) if position > 0 else 0
        else:
            position = _skip(buffer, after, end, tag) if after > 0 else -1
        if position < 0:
            raise FrameError("command with a damaged field")
    if kind < 1 or kind > 0xFFFF:
        raise FrameError("command without a type")
    return kind


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


def read_sends(
    buffer: bytes,
    position: int,
    limit: int,
    max_frame: int,
    run: SendRun,
    verify_checksum: bool,
    max_count: int,
) -> int:
    """Reads consecutive complete plain SENDs of one producer into ``run``; returns the position after them.

    Stops before a frame of another kind or producer, an incomplete frame, or a bad frame. If the first frame
    is bad, ``run.count`` is 0 and ``run.error`` says why; the returned position is then after the bad frame
    for errors 1 and 3, and before it for error 2. A SEND is plain if it is no marker, has no message id, and
    has at least one message. All SENDs of a run belong to the same transaction, or all to none.

    :param max_count: the maximum number of SENDs to read; the capacity of ``run`` is another limit
    :raises FrameError: as :func:`next_frame`, about the first frame
    """
    count = run.count = run.chunks = 0
    run.transactional = False
    run.error = _OK
    run.error_sequence_id = -1
    if max_count > run.capacity:
        max_count = run.capacity
    while count < max_count:
        if limit - position < _BODY + 4:
            break
        total = _size_at(buffer, position)
        end = position + 4 + total
        if (
            end > limit
            or total + 4 > max_frame
            or buffer[position + _COMMAND] != 8
            or buffer[position + _COMMAND + 1] != _SEND
        ):
            break
        command_end = position + _COMMAND + _size_at(buffer, position + 4)
        if command_end > end:
            break
        error = _read_send(buffer, position, command_end, run, count)
        if error == _OK:
            error = _check_entry(buffer, command_end, end, verify_checksum)
        if error != _OK:
            if count == 0:
                run.error = error
                run.error_sequence_id = run._sequences[0] if error != _NOT_PLAIN else -1
                return position if error == _NOT_PLAIN else end
            break
        run._starts[count] = command_end
        run._ends[count] = end
        run.chunks += run._chunk
        count += 1
        if _INTERPRETED and count < max_count:
            before = count
            count = repeat_sends(buffer, position, limit, max_frame, run, verify_checksum, count, max_count)
            end = run.ends[count - 1]
            run.chunks += run._chunk * (count - before)
        position = end
    run.count = count
    if count == 0 and max_count > 0 and next_frame(buffer, position, limit, max_frame) == _SEND:
        run.error = _NOT_PLAIN
    return position


def _read_send(buffer: bytes, frame: int, end: int, run: SendRun, index: int) -> int:
    """Reads the command of one SEND into slot ``index``; returns 0, or a code if ``run`` cannot take it."""
    position = frame + _BODY
    if end - position < 4 or buffer[frame + _BODY_TAG] != 0x32 or buffer[position - 1] != end - position:
        return _NOT_PLAIN
    producer_id = sequence_id = least_bits = most_bits = 0
    chunk = seen = 0
    highest = -1
    messages = 1
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
            producer_id = value
            seen |= 1
        elif tag == 0x10:
            sequence_id = value
            seen |= 2
        elif tag == 0x18:
            messages = value
        elif tag == 0x30:
            highest = value
        elif tag == 0x38:
            chunk = 1 if value else 0
        elif tag == 0x20:
            least_bits = value
            seen |= 4
        elif tag == 0x28:
            most_bits = value
            seen |= 8
        elif value != 0 or tag != 0x40:
            return _NOT_PLAIN
    if position != end or seen & 3 != 3 or messages < 1 or messages > 0x7FFFFFFF:
        return _NOT_PLAIN
    if index == 0:
        run.producer_id = producer_id
        run._seen = seen
    elif producer_id != run.producer_id or seen != run._seen:
        return _OTHER_PRODUCER
    if seen > 3:
        if seen != 15:
            return _NOT_PLAIN
        if index == 0:
            run.transactional = True
            run.least_bits = least_bits
            run.most_bits = most_bits
        elif least_bits != run.least_bits or most_bits != run.most_bits:
            return _OTHER_PRODUCER
    run._sequences[index] = sequence_id
    run._highest[index] = highest
    run._numbers[index] = messages
    run._chunk = chunk
    return _OK


def _check_entry(buffer: bytes, start: int, end: int, verify_checksum: bool) -> int:
    """Returns the number of the error in the checksum or sizes of ``buffer[start:end]``; 0: no error."""
    position = start
    if end - start > 2 and buffer[start] == 0x0E and buffer[start + 1] == 0x01:
        position = start + 6
    if end - position < 5:
        return _ENTRY_MALFORMED
    size = _size_at(buffer, position)
    if size < 1 or size > end - position - 4:
        return _ENTRY_MALFORMED
    if not verify_checksum or position == start:
        return _OK
    if end - position < _COPY_LIMIT:
        found = crc32c(buffer[position:end])
    else:
        found = crc32c(memoryview(buffer)[position:end])
    return _OK if found == _size_at(buffer, start + 2) else _CHECKSUM_MISMATCH


def read_acks(buffer: bytes, position: int, limit: int, max_frame: int, run: AckRun) -> int:
    """Reads consecutive complete plain individual ACKs of one consumer; returns the position after them.

    An ACK is plain if it only has message ids without ack sets. ``run.count`` counts message ids, not frames;
    it is 0, and the position unchanged, if the first frame is not plain or has too many ids for ``run``.

    :raises FrameError: as :func:`next_frame`, about the first frame
    """
    count = 0
    run.count = 0
    start = position
    while limit - position >= _BODY:
        total = _size_at(buffer, position)
        end = position + 4 + total
        if (
            end > limit
            or total + 4 > max_frame
            or buffer[position + _COMMAND] != 8
            or buffer[position + _COMMAND + 1] != _ACK
            or _size_at(buffer, position + 4) != total - 4
        ):
            break
        after = _read_ack(buffer, position + _BODY_TAG, end, run, count)
        if after < 0:
            break
        if _INTERPRETED and after == count + 1:
            count = repeat_acks(buffer, position, end, limit, run, after)
            end += (count - after) * (end - position)
        else:
            count = after
        position = end
    run.count = count
    if position == start:
        next_frame(buffer, position, limit, max_frame)
    return position


def _read_ack(buffer: bytes, position: int, end: int, run: AckRun, count: int) -> int:
    """Reads one ACK after the ``count`` ids of ``run``; returns the new count, or -1 if it is not plain."""
    after = _varint_end(buffer, position + 1, end)
    if buffer[position] != 0x52 or after < 0 or _varint(buffer, position + 1, after) != end - after:
        return -1
    position = after
    # All clients write this order: consumer id, type, ids. Any other order is left to protobuf.
    if end - position < 4 or buffer[position] != 0x08:
        return -1
    after = _varint_end(buffer, position + 1, end)
    if after < 0 or end - after < 2 or buffer[after] != 0x10 or buffer[after + 1] != 0:
        return -1
    consumer_id = _varint(buffer, position + 1, after)
    if count > 0 and consumer_id != run.consumer_id:
        return -1
    position = after + 2
    if position == end:
        return -1
    while position < end:
        if end - position < 2 or buffer[position] != 0x1A or count >= run.capacity:
            return -1
        after = position + 2 + buffer[position + 1]
        if buffer[position + 1] > 127 or after > end:
            return -1
        if not _read_message_id(buffer, position + 2, after, run, count):
            return -1
        count += 1
        position = after
    run.consumer_id = consumer_id
    return count


def _read_message_id(buffer: bytes, position: int, end: int, run: AckRun, index: int) -> bool:
    """Reads ledger and entry id into slot ``index``; returns False if there is an ack set or any unknown
    field."""
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
            run._ledgers[index] = value
            seen |= 1
        elif tag == 0x10:
            run._entries[index] = value
            seen |= 2
        elif tag != 0x18 and tag != 0x20 and tag != 0x30:  # partition, batch index, batch size
            return False
    return position == end and seen == 3


def read_flow(buffer: bytes, position: int) -> tuple[int, int] | None:
    """Returns (consumer id, permits) of the complete FLOW frame at ``position``; None: an unusual form."""
    end = position + _COMMAND + _size_at(buffer, position + 4)
    position += _BODY
    if (
        end - position < 4
        or buffer[position - 4] != 8
        or buffer[position - 3] != _FLOW
        or buffer[position - 2] != 0x5A
        or buffer[position - 1] != end - position
        or buffer[position] != 0x08
    ):
        return None
    after = _varint_end(buffer, position + 1, end)
    if after < 0 or end - after < 2 or buffer[after] != 0x10:
        return None
    if _varint_end(buffer, after + 1, end) != end:
        return None
    permits = _varint(buffer, after + 1, end)
    if permits < 0 or permits > 0xFFFFFFFF:
        return None
    return _varint(buffer, position + 1, after), permits


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


def _metadata_number(buffer: bytes, start: int, end: int, wanted: int, default: int) -> int:
    """Returns the value of the first metadata field with tag ``wanted``; ``default`` if no field has it."""
    position = _metadata_at(buffer, start, end)
    if position < 0:
        return default
    end = position + 4 + _size_at(buffer, position)
    position += 4
    while position < end:
        tag = buffer[position]
        after = position + 1
        if tag > 127:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return default
            tag = _varint(buffer, position, after)
        position = after
        if tag == wanted:
            after = _varint_end(buffer, position, end)
            return _varint(buffer, position, after) if after > 0 else default
        position = _skip(buffer, position, end, tag)
        if position < 0:
            return default
    return default


def _batch_size(buffer: bytes, start: int, end: int) -> int:
    """Returns the number of messages in an entry: 1 if it cannot be read, ``_ONE_CHUNK`` for a chunk, 0 for a
    marker; plus ``_IN_TRANSACTION`` if it belongs to a transaction; negative if it has a delivery time."""
    position = _metadata_at(buffer, start, end)
    if position < 0:
        return 1
    sign = size = 1
    transaction = 0
    end = position + 4 + _size_at(buffer, position)
    position += 4
    while position < end:
        tag = buffer[position]
        after = position + 1
        if tag > 127:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return sign * (size + transaction)
            tag = _varint(buffer, position, after)
            if tag == _DELIVER_AT:
                sign = -1
            elif tag == _CHUNK_ID:
                size = _ONE_CHUNK
            elif tag == _MARKER_TYPE:
                return 0
            elif tag == _LEAST_BITS:
                transaction = _IN_TRANSACTION
        position = after
        if tag == 0x58:
            after = _varint_end(buffer, position, end)
            size = _varint(buffer, position, after) if after > 0 else 1
            if size < 1 or size > 0x7FFFFFFF:
                size = 1
        position = _skip(buffer, position, end, tag)
        if position < 0:
            return sign * (size + transaction)
    return sign * (size + transaction)


def batch_sizes(
    buffer: bytes, starts: array[int], ends: array[int], first: int, count: int, out: array[int]
) -> int:
    """Writes the number of messages of entries [first, first + count) to ``out[0:count]``.

    The number is 1 for an entry that is not a batch or cannot be read, and 0 for a marker. Returns the
    number of entries with a delivery time, combined with ``CHUNKED`` if there are chunks, with ``MARKED`` if
    there are markers, and with ``TRANSACTIONAL`` if there are entries of transactions other than markers.
    """
    index = timed = chunked = marked = transactional = 0
    while index < count:
        start = starts[first + index]
        end = ends[first + index]
        if _INTERPRETED and is_plain(buffer, start, end):
            size = 1
        else:
            size = _batch_size(buffer, start, end)
            if size < 1:
                if size == 0:
                    marked = MARKED
                else:
                    size = -size
                    timed += 1
            if size >= _ONE_CHUNK:
                if size >= _IN_TRANSACTION:
                    size -= _IN_TRANSACTION
                    transactional = TRANSACTIONAL
                if size == _ONE_CHUNK:
                    size = 1
                    chunked = CHUNKED
        out[index] = size
        index += 1
    return timed + chunked + marked + transactional


def transaction_of(buffer: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Returns the transaction (most bits, least bits) in an entry's metadata; None: no valid transaction."""
    most = _metadata_number(buffer, start, end, _MOST_BITS, -1)
    least = _metadata_number(buffer, start, end, _LEAST_BITS, -1)
    return None if most < 0 or least < 0 else (most, least)


def deliver_at(buffer: bytes, start: int, end: int) -> int:
    """Returns the delivery time in the metadata of the entry ``buffer[start:end]``, in milliseconds since
    1970; 0: at once."""
    return _metadata_number(buffer, start, end, _DELIVER_AT, 0)


def publish_time(buffer: bytes, start: int, end: int) -> int:
    """Returns the publish time in the metadata of the entry ``buffer[start:end]``, in milliseconds since
    1970; 0: unknown.
    """
    return _metadata_number(buffer, start, end, 0x18, 0)
