"""Encodes what clients send as often as messages: SEND and ACK frames, and the messages of a batch; also
encodes message ids for applications.

A hot module: plain Python that is also compiled, with the C types in ``hot_client_encode.pxd``. Ids are
signed here and unsigned 64 bit on the wire; ``_put_varint`` converts them.
"""

from __future__ import annotations

from array import array

from magnetar.io.crc32c import crc32c

# The most bytes of a SEND without the strings of its metadata and its payload.
_SEND_ROOM = 96
# The most bytes of an ACK without its ids, and of one id.
_ACK_ROOM = 64
_ACK_ID_ROOM = 26
# The most bytes of an id for applications.
_ID_ROOM = 64
# The most bytes of one message of a batch without its own metadata and payload.
_SINGLE_ROOM = 32


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


def _varint_size(value: int) -> int:
    if value < 0:
        return 10
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


def encode_send(
    producer_id: int,
    sequence_id: int,
    highest_sequence_id: int,
    num_messages: int,
    metadata_head: bytes,
    publish_time: int,
    metadata_tail: bytes,
    payload: bytes,
) -> bytearray:
    """Encodes a SEND frame with its entry and checksum.

    :param highest_sequence_id: the highest sequence id of a batch; -1: not a batch
    :param num_messages: the number of messages in the payload; omitted from the frame if it is 1
    :param metadata_head: serialized metadata before sequence id and publish time: the producer's name
    :param publish_time: the publish time, in milliseconds since 1970
    :param metadata_tail: serialized metadata after sequence id and publish time
    """
    out = bytearray(_SEND_ROOM + len(metadata_head) + len(metadata_tail) + len(payload))
    command_end = _put_send_command(out, producer_id, sequence_id, highest_sequence_id, num_messages)
    payload_at = _put_metadata(out, command_end, metadata_head, sequence_id, publish_time, metadata_tail)
    room = payload_at + len(payload)
    out[payload_at:room] = payload
    del out[room:]
    _finish_send(out, command_end, payload_at, room)
    with memoryview(out) as view:
        _put_size(out, command_end + 2, crc32c(view[command_end + 6 :]))
    return out


def _put_send_command(
    out: bytearray, producer_id: int, sequence_id: int, highest_sequence_id: int, num_messages: int
) -> int:
    """Writes the command, without the frame's sizes; returns the position after it."""
    out[8] = 0x08
    out[9] = 0x06
    out[10] = 0x32
    out[12] = 0x08
    position = _put_varint(out, 13, producer_id)
    out[position] = 0x10
    position = _put_varint(out, position + 1, sequence_id)
    if num_messages != 1:
        out[position] = 0x18
        position = _put_varint(out, position + 1, num_messages)
    if highest_sequence_id >= 0:
        out[position] = 0x30
        position = _put_varint(out, position + 1, highest_sequence_id)
    out[11] = position - 12
    return position


def _put_metadata(
    out: bytearray, position: int, head: bytes, sequence_id: int, publish_time: int, tail: bytes
) -> int:
    """Writes metadata after the bytes left free for magic, checksum and size; returns the metadata's end."""
    start = position + 10
    position = start + len(head)
    out[start:position] = head
    out[position] = 0x10
    position = _put_varint(out, position + 1, sequence_id)
    out[position] = 0x18
    position = _put_varint(out, position + 1, publish_time)
    out[position : position + len(tail)] = tail
    return position + len(tail)


def _finish_send(out: bytearray, command_end: int, metadata_end: int, size: int) -> None:
    """Writes the sizes and the magic number of a SEND frame, but not its checksum."""
    _put_size(out, 0, size - 4)
    _put_size(out, 4, command_end - 8)
    out[command_end] = 0x0E
    out[command_end + 1] = 0x01
    _put_size(out, command_end + 6, metadata_end - command_end - 10)


def encode_acks(
    consumer_id: int,
    ack_type: int,
    ledger_ids: array[int],
    entry_ids: array[int],
    first: int,
    count: int,
    request_id: int,
) -> bytearray:
    """Encodes one ACK frame for the ids at [first, first + count) of the arrays.

    :param ack_type: the type of acknowledgement: 0 individual, 1 cumulative
    :param request_id: the id of a request for an answer; -1: no answer is requested
    """
    out = bytearray(_ACK_ROOM + _ACK_ID_ROOM * count)
    size = _put_acks(out, consumer_id, ack_type, ledger_ids, entry_ids, first, count, request_id)
    del out[size:]
    return out


def _put_acks(
    out: bytearray,
    consumer_id: int,
    ack_type: int,
    ledger_ids: array[int],
    entry_ids: array[int],
    first: int,
    count: int,
    request_id: int,
) -> int:
    body = 2 + _varint_size(consumer_id) + 1
    end = first + count
    index = first
    while index < end:
        body += 4 + _varint_size(ledger_ids[index]) + _varint_size(entry_ids[index])
        index += 1
    if request_id >= 0:
        body += 1 + _varint_size(request_id)
    out[8] = 0x08
    out[9] = 0x0A
    out[10] = 0x52
    position = _put_varint(out, 11, body)
    out[position] = 0x08
    position = _put_varint(out, position + 1, consumer_id)
    out[position] = 0x10
    out[position + 1] = ack_type
    position += 2
    index = first
    while index < end:
        out[position] = 0x1A
        start = position + 2
        out[start] = 0x08
        position = _put_varint(out, start + 1, ledger_ids[index])
        out[position] = 0x10
        position = _put_varint(out, position + 1, entry_ids[index])
        out[start - 1] = position - start
        index += 1
    if request_id >= 0:
        out[position] = 0x40
        position = _put_varint(out, position + 1, request_id)
    _put_size(out, 0, position - 4)
    _put_size(out, 4, position - 8)
    return position


class BatchBuffer:
    """The uncompressed payload of a batch as it grows."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        """The number of bytes so far."""
        self._data = bytearray(1024)

    def add(self, metadata: bytes, sequence_id: int, payload: bytes) -> None:
        """Adds one message.

        :param metadata: serialized ``SingleMessageMetadata`` without payload size and sequence id
        """
        needed = self.size + _SINGLE_ROOM + len(metadata) + len(payload)
        if needed > len(self._data):
            self._data += bytes(needed)
        position = _put_single(self._data, self.size, metadata, sequence_id, len(payload))
        self._data[position - len(payload) : position] = payload
        self.size = position
        self.count += 1

    def take(self) -> bytes:
        """Returns the payload, and empties the buffer."""
        taken = bytes(self._data[: self.size])
        self.size = 0
        self.count = 0
        return taken


def _put_single(out: bytearray, start: int, metadata: bytes, sequence_id: int, payload_size: int) -> int:
    """Writes size and metadata of one message; returns the position after its payload, which the caller
    writes."""
    position = start + 4 + len(metadata)
    out[start + 4 : position] = metadata
    out[position] = 0x18
    position = _put_varint(out, position + 1, payload_size)
    out[position] = 0x40
    position = _put_varint(out, position + 1, sequence_id)
    _put_size(out, start, position - start - 4)
    return position + payload_size


def encode_message_id(
    ledger_id: int, entry_id: int, partition: int, batch_index: int, batch_size: int
) -> bytes:
    """Encodes a ``MessageIdData``; ``partition``, ``batch_index`` and ``batch_size`` are omitted if they are
    below 0, and ``batch_size`` also if it is 0."""
    out = bytearray(_ID_ROOM)
    out[0] = 0x08
    position = _put_varint(out, 1, ledger_id)
    out[position] = 0x10
    position = _put_varint(out, position + 1, entry_id)
    if partition >= 0:
        out[position] = 0x18
        position = _put_varint(out, position + 1, partition)
    if batch_index >= 0:
        out[position] = 0x20
        position = _put_varint(out, position + 1, batch_index)
    if batch_size > 0:
        out[position] = 0x30
        position = _put_varint(out, position + 1, batch_size)
    return bytes(out[:position])
