"""Rewrites stored entries as SEND frames for another cluster, without an object for each entry.

A hot module, with the C types in ``hot_replication.pxd``. The payload is never read. Additions to the
metadata are in Apache Pulsar's order: the source position as the last property, then ``replicated_from``.
"""

from __future__ import annotations

from array import array

from magnetar.io.crc32c import crc32c

SKIPPED = 0
"""The entry is not sent: it came from another cluster, names other target clusters, or cannot be read."""
SENT = 1
EXPIRED = 2
"""The entry is older than the time to live."""
MARKER = 3
"""The entry is sent as a marker of replicated subscriptions; the receipt contains its sequence id."""

DONE = 0
UNKNOWN_SCHEMA = 1
"""The remote version of the entry's schema is not known yet."""
TOO_LARGE = 2
"""With the additions to its metadata, the entry is larger than the remote broker accepts."""

NO_POSITION = -1
"""The ledger id of entries that are not stored: they are sent without a source position."""

_REPLICATED_FROM = 0x2A
_SOURCE = b"__MSG_PROP_REPL_SOURCE_POSITION"
_COPY_LIMIT = 4096
# The most bytes of a frame without the entry, names and a schema version.
_ROOM = 160


class ReplicationRun:
    """The destination of entries, and the results of the last call of :func:`encode_replicated`."""

    def __init__(self, local: bytes, remote: bytes, capacity: int = 1024, placed: bool = False) -> None:
        """:param local: the name of this cluster in UTF-8, at most 127 bytes
        :param remote: the name of the other cluster in UTF-8
        :param capacity: the maximum number of entries in a call
        :param placed: whether the entries go to a shadow topic, which gets all of them, each with its
            position as message id and its own schema version
        """
        self.capacity = capacity
        self.placed = placed
        self.remote = remote
        self.origin = b"\x2a" + bytes((len(local),)) + local
        """The serialized field ``replicated_from`` with the name of this cluster."""
        self.max_frame = 0
        """The maximum size of a whole frame, in bytes."""
        self.versions: dict[bytes, bytes] = {}
        """The remote schema versions by local versions."""
        self.local_version = b""
        self.remote_version = b""
        """The remote schema version of the last encoded entry."""
        self.kinds = array("i", bytes(4 * capacity))
        self.sequence_ids = array("q", bytes(8 * capacity))
        self._kinds = self.kinds
        self._sequences = self.sequence_ids
        self.stopped = DONE
        """The reason why the last call did not encode all entries; DONE if it did."""
        self.version = b""
        """The local schema version whose remote version is unknown."""
        self.frames = bytearray()
        self.sent = 0
        """The number of entries in :attr:`frames`; these entries have :attr:`messages` messages."""
        self.messages = 0
        # The state of the present entry.
        self.start = 0
        self.stop = 0
        self.insert_at = 0
        self.sequence_id = 0
        self.batch_size = 1
        self.is_chunk = False
        self.is_marker = False
        self.plain = True
        """Whether the metadata of the current entry is copied as a whole."""
        self.version_at = -1
        self.version_end = -1
        self.command_end = 0


class InFlight:
    """Entries that were sent to another cluster and are not confirmed yet, in their order."""

    def __init__(self) -> None:
        self.capacity = 0
        self.first = 0
        self.count = 0
        self.size = 0
        """The total size of the entries' frames in bytes; a frame counts with its run's average size."""
        self._ledgers = self._entries = self._sequences = self._sizes = array("q")

    def head(self) -> tuple[int, int]:
        """Returns the position of the oldest entry; there must be one."""
        slot = self.first % self.capacity
        return self._ledgers[slot], self._entries[slot]

    def _grow(self, needed: int) -> None:
        capacity = 16
        while capacity < needed:
            capacity *= 2
        ledgers = array("q", bytes(8 * capacity))
        entries = array("q", bytes(8 * capacity))
        sequences = array("q", bytes(8 * capacity))
        sizes = array("q", bytes(8 * capacity))
        index = 0
        while index < self.count:
            slot = (self.first + index) % self.capacity
            ledgers[index] = self._ledgers[slot]
            entries[index] = self._entries[slot]
            sequences[index] = self._sequences[slot]
            sizes[index] = self._sizes[slot]
            index += 1
        self._ledgers, self._entries, self._sequences, self._sizes = ledgers, entries, sequences, sizes
        self.capacity = capacity
        self.first = 0

    def add(self, run: ReplicationRun, first: int, end: int, ledger_id: int, first_entry_id: int) -> None:
        """Adds the entries among ``first`` … ``end - 1`` that the last :func:`encode_replicated` has encoded.

        :param first_entry_id: the id of entry 0 of the stored run
        """
        if run.sent == 0:
            return
        if self.count + run.sent > self.capacity:
            self._grow(self.count + run.sent)
        share = len(run.frames) // run.sent
        index = first
        while index < end:
            kind = run._kinds[index]
            if kind == SENT or kind == MARKER:  # noqa: SIM109 - compiled, a tuple would be made
                slot = (self.first + self.count) % self.capacity
                self._ledgers[slot] = ledger_id
                self._entries[slot] = first_entry_id + index
                self._sequences[slot] = run._sequences[index]
                self._sizes[slot] = share
                self.count += 1
                self.size += share
            index += 1

    def confirm(
        self, sequence_ids: array[int], highest_sequence_ids: array[int], count: int, by_position: bool
    ) -> bool:
        """Removes the entries of ``count`` receipts; returns False if a receipt does not match the oldest
        entry.

        :param by_position: whether receipts name ledger and entry instead of sequence ids, except the
            receipts of markers
        """
        index = 0
        while index < count:
            if self.count == 0:
                return False
            slot = self.first % self.capacity
            if by_position and highest_sequence_ids[index] >= 0:
                if (
                    sequence_ids[index] != self._ledgers[slot]
                    or highest_sequence_ids[index] != self._entries[slot]
                ):
                    return False
            elif sequence_ids[index] != self._sequences[slot]:
                return False
            self.size -= self._sizes[slot]
            self.first = (self.first + 1) % self.capacity
            self.count -= 1
            index += 1
        return True


def first_dropped(
    stored_ledgers: array[int],
    ledger_ids: array[int],
    entry_ids: array[int],
    count: int,
    known_ledger: int,
    known_entry: int,
) -> int:
    """Returns the index of the first of ``count`` receipts that reports a duplicate although its source
    position is after the known position; ``count``: no such receipt.

    :param stored_ledgers: the ledger ids of the stored entries; -1 for duplicates
    :param ledger_ids: with ``entry_ids``, the source position of each receipt; negative for markers
    :param known_ledger: with ``known_entry``, the last position that the other cluster may already have
    """
    index = 0
    while index < count:
        if (
            stored_ledgers[index] == -1
            and entry_ids[index] >= 0
            and (
                ledger_ids[index] > known_ledger
                or (ledger_ids[index] == known_ledger and entry_ids[index] > known_entry)
            )
        ):
            break
        index += 1
    return index


def encode_replicated(
    run: ReplicationRun,
    producer_id: int,
    buffer: bytes,
    starts: array[int],
    ends: array[int],
    first: int,
    count: int,
    ledger_id: int,
    first_entry_id: int,
    oldest_ms: int,
) -> int:
    """Encodes entries ``first`` … ``count - 1`` of a run; returns the index of the first entry not encoded.

    ``run.kinds[i]`` and ``run.sequence_ids[i]`` belong to entry i of the stored run, which has at most
    ``run.capacity`` entries.

    :param ledger_id: the id of the entries' ledger, or :data:`NO_POSITION`
    :param first_entry_id: the id of entry 0 of the stored run
    :param oldest_ms: entries published before this time have expired; milliseconds since 1970
    """
    run.stopped = DONE
    run.sent = 0
    run.messages = 0
    room = 0
    index = first
    while index < count:
        room += ends[index] - starts[index] + _ROOM + len(run.origin) + 256
        index += 1
    out = bytearray(room)
    # A second reference to the bytes: when compiled, a view, of which parts are copied without an object.
    source = buffer
    at = 0
    index = first
    while index < count:
        kind = _look(run, buffer, starts[index], ends[index], oldest_ms)
        run._kinds[index] = kind
        if kind == SENT or kind == MARKER:  # noqa: SIM109 - compiled, a tuple would be made
            if run.version_at >= 0 and not _find_version(run, buffer):
                run.stopped = UNKNOWN_SCHEMA
                break
            entry_id = first_entry_id + index
            after = _put_frame(run, out, at, producer_id, buffer, source, ends[index], ledger_id, entry_id)
            if after - at > run.max_frame:
                run.stopped = TOO_LARGE
                break
            _put_checksum(out, run.command_end, after)
            run._sequences[index] = run.sequence_id
            run.sent += 1
            run.messages += run.batch_size
            at = after
        index += 1
    del out[at:]
    run.frames = out
    return index


def count_replicated(
    run: ReplicationRun, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int
) -> int:
    """Returns how many messages in entries ``first`` … ``count - 1`` are for the other cluster."""
    messages = 0
    index = first
    while index < count:
        kind = _look(run, buffer, starts[index], ends[index], 0)
        if kind == SENT or kind == MARKER:  # noqa: SIM109 - compiled, a tuple would be made
            messages += run.batch_size
        index += 1
    return messages


def _find_version(run: ReplicationRun, buffer: bytes) -> bool:
    if _same(buffer, run.version_at, run.version_end, run.local_version):
        return True
    version = buffer[run.version_at : run.version_end]
    found = run.versions.get(version)
    if found is None or len(found) > 255:
        run.version = version
        return False
    run.local_version = version
    run.remote_version = found
    return True


def _same(buffer: bytes, start: int, end: int, other: bytes) -> bool:
    if end - start != len(other):
        return False
    index = 0
    while index < end - start:
        if buffer[start + index] != other[index]:
            return False
        index += 1
    return True


def _look(run: ReplicationRun, buffer: bytes, start: int, end: int, oldest_ms: int) -> int:
    """Decides how to treat entry ``buffer[start:end]``; sets the fields for the offset and the needed parts
    of its metadata."""
    position = _metadata_at(buffer, start, end)
    if position < 0:
        return SKIPPED
    stop = position + 4 + _size_at(buffer, position)
    position += 4
    run.start = position
    run.stop = stop
    run.insert_at = -1
    run.sequence_id = 0
    run.batch_size = 1
    run.is_chunk = False
    run.is_marker = False
    run.plain = True
    run.version_at = run.version_end = -1
    published_ms = 0
    marker = -1
    named = chosen = False
    while position < stop:
        field = position
        after = _varint_end(buffer, position, stop)
        if after < 0:
            return SKIPPED
        tag = _varint(buffer, position, after)
        if tag >> 3 >= 5 and run.insert_at < 0:
            run.insert_at = field
        position = after
        if tag & 7 == 2:
            after = _varint_end(buffer, position, stop)
            if after < 0:
                return SKIPPED
            size = _varint(buffer, position, after)
            if size < 0 or size > stop - after:
                return SKIPPED
            position = after + size
            if tag == _REPLICATED_FROM and not run.placed:
                return SKIPPED
            if tag == 0x3A:
                named = True
                chosen = chosen or _same(buffer, after, position, run.remote)
            elif tag == 0x82:
                run.version_at, run.version_end = after, position
                run.plain = False
        elif tag & 7 == 0:
            after = _varint_end(buffer, position, stop)
            if after < 0:
                return SKIPPED
            value = _varint(buffer, position, after)
            position = after
            if tag == 0x10:
                run.sequence_id = value
            elif tag == 0x18:
                published_ms = value
            elif tag == 0x58:
                run.batch_size = value
            elif tag == 0xA0:
                marker = value
            elif tag == 0xB0 or tag == 0xB8:
                run.plain = False
            elif tag == 0xD8:
                run.is_chunk = value > 1
        elif tag & 7 == 1:
            position += 8
        elif tag & 7 == 5:
            position += 4
        else:
            return SKIPPED
    if position != stop or run.batch_size < 1:
        return SKIPPED
    if run.insert_at < 0:
        run.insert_at = stop
    if run.placed:
        run.plain = True
        run.version_at = -1
        return SENT
    if marker >= 20 or (named and not chosen):
        return SKIPPED
    if published_ms < oldest_ms:
        return EXPIRED
    if marker >= 10:
        run.is_marker = True
        return MARKER
    return SENT


def _put_frame(
    run: ReplicationRun,
    out: bytearray,
    at: int,
    producer_id: int,
    buffer: bytes,
    source: bytes,
    end: int,
    ledger_id: int,
    entry_id: int,
) -> int:
    """Writes the frame, except its checksum; returns the offset after it."""
    out[at + 8] = 0x08
    out[at + 9] = 0x06
    out[at + 10] = 0x32
    out[at + 12] = 0x08
    position = _put_varint(out, at + 13, producer_id)
    out[position] = 0x10
    position = _put_varint(out, position + 1, run.sequence_id)
    if run.batch_size != 1:
        out[position] = 0x18
        position = _put_varint(out, position + 1, run.batch_size)
    if run.is_chunk:
        out[position] = 0x38
        out[position + 1] = 1
        position += 2
    if run.is_marker:
        out[position] = 0x40
        out[position + 1] = 1
        position += 2
    if run.placed:
        position = _put_message_id(out, position, ledger_id, entry_id)
    run.command_end = position
    out[at + 11] = position - at - 12
    _put_size(out, at + 4, position - at - 8)
    out[position] = 0x0E
    out[position + 1] = 0x01
    metadata = position + 10
    position = _copy(run, out, metadata, buffer, source, run.start, run.insert_at)
    if ledger_id >= 0:
        position = _put_source(out, position, ledger_id, entry_id)
    position = _put_bytes(out, position, run.origin)
    position = _copy(run, out, position, buffer, source, run.insert_at, run.stop)
    _put_size(out, metadata - 4, position - metadata)
    size = end - run.stop
    out[position : position + size] = source[run.stop : end]
    position += size
    _put_size(out, at, position - at - 4)
    return position


def _put_message_id(out: bytearray, position: int, ledger_id: int, entry_id: int) -> int:
    """Writes the message id field of SEND: the entry's position in the source of a shadow topic."""
    out[position] = 0x4A
    out[position + 2] = 0x08
    end = _put_varint(out, position + 3, ledger_id)
    out[end] = 0x10
    end = _put_varint(out, end + 1, entry_id)
    out[position + 1] = end - position - 2
    return end


def _put_source(out: bytearray, position: int, ledger_id: int, entry_id: int) -> int:
    """Writes the property that contains the entry's position in the source topic."""
    ledger_digits, entry_digits = _digits(ledger_id), _digits(entry_id)
    size = len(_SOURCE)
    out[position] = 0x22
    out[position + 1] = size + 5 + ledger_digits + entry_digits
    out[position + 2] = 0x0A
    out[position + 3] = size
    position = _put_bytes(out, position + 4, _SOURCE)
    out[position] = 0x12
    out[position + 1] = ledger_digits + 1 + entry_digits
    _put_decimal(out, position + 2, ledger_digits, ledger_id)
    position += 2 + ledger_digits
    out[position] = 0x3A
    _put_decimal(out, position + 1, entry_digits, entry_id)
    return position + 1 + entry_digits


def _put_bytes(out: bytearray, position: int, data: bytes) -> int:
    end = position + len(data)
    out[position:end] = data
    return end


def _put_decimal(out: bytearray, position: int, digits: int, value: int) -> None:
    index = position + digits - 1
    while index >= position:
        out[index] = 48 + value % 10
        value //= 10
        index -= 1


def _digits(value: int) -> int:
    count = 1
    while value > 9:
        value //= 10
        count += 1
    return count


def _copy(
    run: ReplicationRun, out: bytearray, at: int, buffer: bytes, source: bytes, position: int, end: int
) -> int:
    """Copies metadata fields with the remote schema version, without transaction ids; returns their end."""
    if run.plain:
        out[at : at + end - position] = source[position:end]
        return at + end - position
    while position < end:
        field = position
        after = _varint_end(buffer, position, end)
        tag = _varint(buffer, position, after)
        position = after
        if tag & 7 == 2:
            after = _varint_end(buffer, position, end)
            position = after + _varint(buffer, position, after)
        elif tag & 7 == 0:
            position = _varint_end(buffer, position, end)
        elif tag & 7 == 1:
            position += 8
        else:
            position += 4
        if tag == 0x82:
            size = len(run.remote_version)
            out[at] = 0x82
            out[at + 1] = 0x01
            at = _put_bytes(out, _put_varint(out, at + 2, size), run.remote_version)
        elif tag != 0xB0 and tag != 0xB8:
            out[at : at + position - field] = source[field:position]
            at += position - field
    return at


def _put_checksum(out: bytearray, command_end: int, end: int) -> None:
    """Writes the checksum over the metadata's size, the metadata and the payload."""
    position = command_end + 6
    if end - position <= _COPY_LIMIT:
        _put_size(out, position - 4, crc32c(bytes(out[position:end])))
    else:
        with memoryview(out) as view:
            _put_size(out, position - 4, crc32c(view[position:end]))


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
