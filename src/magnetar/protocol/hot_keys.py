"""Keys of entries for Key_Shared subscriptions: hashed in place, and entries grouped by consumer.

A hot module: plain Python that is also compiled, with the C types in ``hot_keys.pxd``. A *slot* is
Pulsar's sticky key hash: the hash of a key, reduced to the range that a subscription divides among its
consumers. A *segment* is a part of this range whose slots all belong to one holder.
"""

from __future__ import annotations

from array import array
from binascii import Error, a2b_base64

RING_SLOTS = 65535
"""The modulo of subscriptions with consistent hashing: the slot is the remainder plus 1, so 1 … 65535."""
RANGE_SLOTS = 65536
"""The modulo of subscriptions with hash ranges: the slot is the remainder, or 1 if the remainder is 0."""

NO_KEY = b"NONE_KEY"
"""Stands for the key of an entry whose metadata cannot be read."""

# Named, because larger literals would be objects in the compiled form.
_MASK = 0xFFFFFFFF
_FIRST = 0xCC9E2D51
_SECOND = 0x1B873593
_ADDED = 0xE6546B64
_LAST_1 = 0x85EBCA6B
_LAST_2 = 0xC2B2AE35


class KeyRouting:
    """Entries of one run, grouped by consumer; the object is reused for each run.

    Group k is ``[bounds[k], bounds[k + 1])`` of ``order`` (indices of entries, ascending within a group),
    ``entry_ids``, ``sorted_sizes`` (messages) and ``packed`` (``slot << 32 | messages``). Group 0 has the
    entries without a consumer, group k + 1 the entries of consumer k.
    """

    def __init__(self, capacity: int = 256) -> None:
        self.capacity = capacity
        self.slots = array("i", bytes(4 * capacity))
        self.sizes = array("i", bytes(4 * capacity))
        self.order = array("q", bytes(8 * capacity))
        self.packed = array("q", bytes(8 * capacity))
        self.entry_ids = array("q", bytes(8 * capacity))
        self.sorted_sizes = array("i", bytes(4 * capacity))
        self._slots = self.slots
        self._sizes = self.sizes
        self._order = self.order
        self._packed = self.packed
        self._ids = self.entry_ids
        self._sorted = self.sorted_sizes


def group_by_holder(
    routing: KeyRouting,
    count: int,
    first: int,
    first_entry_id: int,
    segments: array[int],
    holders: array[int],
    bounds: array[int],
) -> None:
    """Groups entries by consumer: reads the first ``count`` values of ``routing.slots`` and
    ``routing.sizes``, and fills ``bounds`` and the other arrays of ``routing``.

    :param first: the index of the first entry, added to the values in ``order``
    :param first_entry_id: the id of the entry with index 0
    :param segments: the last slot of each segment, ascending; the last one is not below any slot
    :param holders: the holder of each segment: a consumer's number; -1: no consumer
    :param bounds: receives the bounds of the groups; has two more elements than there are consumers
    """
    slots = routing._slots
    sizes = routing._sizes
    order = routing._order
    packed = routing._packed
    ids = routing._ids
    sorted_sizes = routing._sorted
    groups = len(bounds) - 1
    index = 0
    while index <= groups:
        bounds[index] = 0
        index += 1
    index = 0
    while index < count:
        # Stored temporarily in the array that is filled last.
        holder = holders[_segment(segments, slots[index])] + 1
        packed[index] = holder
        bounds[holder + 1] += 1
        index += 1
    index = 1
    while index <= groups:
        bounds[index] += bounds[index - 1]
        index += 1
    index = 0
    while index < count:
        holder = packed[index]
        order[bounds[holder]] = index
        bounds[holder] += 1
        index += 1
    index = groups
    while index > 0:
        bounds[index] = bounds[index - 1]
        index -= 1
    bounds[0] = 0
    index = 0
    while index < count:
        entry = order[index]
        slot = slots[entry]
        packed[index] = (slot << 32) | sizes[entry]
        sorted_sizes[index] = sizes[entry]
        order[index] = first + entry
        ids[index] = first_entry_id + first + entry
        index += 1


def _segment(segments: array[int], slot: int) -> int:
    """Returns the index of the segment that contains ``slot``."""
    low = 0
    high = len(segments) - 1
    while low < high:
        middle = (low + high) >> 1
        if segments[middle] < slot:
            low = middle + 1
        else:
            high = middle
    return low


def holder_of(slot: int, segments: array[int], holders: array[int]) -> int:
    """Returns the holder of a slot: a consumer's number; -1: no consumer."""
    return holders[_segment(segments, slot)]


def key_slots(
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
    modulo: int,
    out: array[int],
) -> None:
    """Writes the slots of entries [first, first + count) to ``out[0:count]``.

    :param modulo: the modulo of the subscription: :data:`RING_SLOTS` or :data:`RANGE_SLOTS`
    """
    index = 0
    while index < count:
        out[index] = slot_of(_key_hash(buffer, starts[first + index], ends[first + index]), modulo)
        index += 1


def slot_of(key_hash: int, modulo: int) -> int:
    """Returns the slot of a key's hash."""
    if modulo == 65535:
        return key_hash % 65535 + 1
    slot = key_hash % modulo
    return slot if slot > 0 else 1


def sticky_key(buffer: bytes, start: int, end: int) -> bytes:
    """Returns the key that determines the consumer of the entry ``buffer[start:end]``."""
    position = _metadata_at(buffer, start, end)
    if position < 0:
        return NO_KEY
    size = _size_at(buffer, position)
    return _key(buffer, position + 4, position + 4 + size)


def key_hash(buffer: bytes, start: int, end: int) -> int:
    """Returns the hash, 31 bits, of the key of the entry ``buffer[start:end]``; :func:`slot_of` converts it
    to a slot."""
    return _key_hash(buffer, start, end)


def _key_hash(buffer: bytes, start: int, end: int) -> int:
    key = sticky_key(buffer, start, end)
    return _murmur3(key, len(key)) & 0x7FFFFFFF


def _key(buffer: bytes, position: int, end: int) -> bytes:
    """Returns the key in the metadata [position, end): ordering key, partition key, or producer and sequence
    id."""
    ordering = ordering_end = key = key_end = name = name_end = -1
    sequence_id = 0
    encoded = False
    while position < end:
        tag = buffer[position]
        after = position + 1
        if tag > 127:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return NO_KEY
            tag = _varint(buffer, position, after)
        position = after
        if tag & 7 == 2:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return NO_KEY
            size = _varint(buffer, position, after)
            if size < 0 or size > end - after:
                return NO_KEY
            if tag == 0x0A:
                name, name_end = after, after + size
            elif tag == 0x32:
                key, key_end = after, after + size
            elif tag == 0x92:
                ordering, ordering_end = after, after + size
            position = after + size
        elif tag & 7 == 0:
            after = _varint_end(buffer, position, end)
            if after < 0:
                return NO_KEY
            if tag == 0x10:
                sequence_id = _varint(buffer, position, after)
            elif tag == 0x88:
                encoded = _varint(buffer, position, after) != 0
            position = after
        elif tag & 7 == 1:
            position += 8
        elif tag & 7 == 5:
            position += 4
        else:
            return NO_KEY
    if ordering >= 0:
        return buffer[ordering:ordering_end]
    if key >= 0:
        return _decoded(buffer[key:key_end]) if encoded else buffer[key:key_end]
    if name >= 0:
        return buffer[name:name_end] + b"-%d" % sequence_id
    return NO_KEY


def _decoded(key: bytes) -> bytes:
    try:
        return a2b_base64(key, strict_mode=True)
    except Error:
        # Not Base64, although its producer says so: used as it is.
        return key


def _murmur3(data: bytes, size: int) -> int:
    """Returns the hash of ``size`` bytes by MurmurHash3 (x86, 32 bits, seed 0), unsigned."""
    value = 0
    position = 0
    whole = size - (size & 3)
    while position < whole:
        block = data[position + 3]
        block = (block << 8) | data[position + 2]
        block = (block << 8) | data[position + 1]
        block = (block << 8) | data[position]
        value ^= _scrambled(block)
        value = ((value << 13) | (value >> 19)) & _MASK
        value = (value * 5 + _ADDED) & _MASK
        position += 4
    if whole < size:
        block = 0
        position = size
        while position > whole:
            position -= 1
            block = (block << 8) | data[position]
        value ^= _scrambled(block)
    value ^= size
    value = ((value ^ (value >> 16)) * _LAST_1) & _MASK
    value = ((value ^ (value >> 13)) * _LAST_2) & _MASK
    return value ^ (value >> 16)


def _scrambled(block: int) -> int:
    block = (block * _FIRST) & _MASK
    block = ((block << 15) | (block >> 17)) & _MASK
    return (block * _SECOND) & _MASK


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
