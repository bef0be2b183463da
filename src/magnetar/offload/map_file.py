"""Hadoop's MapFile for ledgers: a SequenceFile of entries by entry id, and a SequenceFile with the position
of every 128th entry.

A SequenceFile:

    "SEQ" 6 | class of keys | class of values | compressed? (1) | in blocks? (1) | codec, if compressed
    number of metadata (4) | metadata | sync marker (16)
    then records: length (4) | length of the key (4) | key | value
    or, in blocks: FFFFFFFF | sync marker | records (vint), then lengths of keys, keys, lengths of values and
    values, each compressed after its compressed length (vint)

``FFFFFFFF`` and the sync marker may precede each record. A key is a long, a value its length (4) and its
bytes. Nothing is compressed on writing; on reading, records and blocks may be compressed with zlib or gzip.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from magnetar.offload.interface import OffloadedLedgerDamaged, OffloadMisconfigured

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_PLAIN = struct.Struct(">iiqi")
"""The fields before the value of a record: length, length of the key (8), key, and length of the value."""
HEADER_BYTES = _PLAIN.size
_RECORD = struct.Struct(">ii")
_START = struct.Struct(">iiq")
"""The start of a record: the record's length, the length of the key, the key."""
_SYNC_FOLLOWS = b"\xff" * 4
_MAGIC = b"SEQ\x06"
_IO = "org.apache.hadoop.io."
LONG, BYTES = f"{_IO}LongWritable", f"{_IO}BytesWritable"
_ZLIB = {f"{_IO}compress.{name}Codec" for name in ("Default", "Deflate", "Gzip")}
_SYNC_BYTES = 16
_SYNC_EVERY = 100 << 10
"""The number of bytes after which another sync marker is written."""
_INDEX_EVERY = 128
_EITHER_HEADER = 32 + zlib.MAX_WBITS
"""The window size with which zlib accepts both its own and gzip's header."""
_MOST_BYTES = 1 << 31


class SequenceWriter:
    """Writes records without compression."""

    def __init__(self, file: BinaryIO, value_class: str, sync: bytes) -> None:
        """:param sync: the sync marker of this file: 16 bytes"""
        self._file = file
        self._sync = sync
        header = b"".join((_MAGIC, _text(LONG), _text(value_class), b"\0\0", _I32.pack(0), sync))
        file.write(header)
        self.position = self._synced = len(header)
        """The offset where the next record begins."""

    def append(self, key: int, value: Sequence[bytes | memoryview]) -> None:
        """Appends a record.

        :param value: the parts of the serialized value
        """
        size = sum(map(len, value))
        if self.position - self._synced >= _SYNC_EVERY:
            self._file.write(_SYNC_FOLLOWS + self._sync)
            self.position += _I32.size + _SYNC_BYTES
            self._synced = self.position
        self._file.write(b"".join((_START.pack(_I64.size + size, _I64.size, key), *value)))
        self.position += _RECORD.size + _I64.size + size


class MapWriter:
    """Writes the two files of a MapFile."""

    def __init__(self, data: BinaryIO, index: BinaryIO, sync: bytes) -> None:
        self._data = SequenceWriter(data, BYTES, sync)
        self._index = SequenceWriter(index, LONG, sync)
        self._count = 0

    @property
    def size(self) -> int:
        """Returns the size of both files together, in bytes."""
        return self._data.position + self._index.position

    def append(self, key: int, value: bytes | memoryview) -> None:
        """Appends a record.

        :param key: the key, which must be greater than the previous key
        """
        if self._count % _INDEX_EVERY == 0:
            self._index.append(key, (_I64.pack(self._data.position),))
        self._data.append(key, (_I32.pack(len(value)), value))
        self._count += 1


class RecordGroup(NamedTuple):
    """Records that can only be read together: a single record, or the records of a compressed block."""

    position: int
    next_position: int
    records: Sequence[tuple[int, bytes]]


class PlainValues(NamedTuple):
    """The values of consecutive keys in a piece of a file."""

    data: bytes
    """Whole records; value i is ``data[starts[i]:ends[i]]``."""
    first: int
    """The key of the first value."""
    starts: array[int]
    ends: array[int]
    wanted: int
    """The size in bytes that the piece must have to contain the whole of its last record; 0: the piece has no
    incomplete record."""


def plain_values(data: bytes, sync: bytes) -> PlainValues:
    """Returns the ``BytesWritable`` values of the complete, uncompressed records in a piece, up to the first
    record that has another form or whose key is out of sequence. A record with key -1 before these values is
    skipped.

    :param data: the bytes of the piece, which begin with a record or with a sync marker
    :param sync: the sync marker of the file
    """
    starts, ends = array("q"), array("q")
    first, following, at, wanted, size = 0, 0, 0, 0, len(data)
    unpack, header = _PLAIN.unpack_from, _PLAIN.size
    while at + header <= size:
        length, key_length, key, value_length = unpack(data, at)
        if length == -1:
            if data[at + _I32.size : at + _I32.size + _SYNC_BYTES] != sync:
                break
            at += _I32.size + _SYNC_BYTES
            continue
        begin = at + header
        end = begin + value_length
        if (
            key_length != _I64.size
            or not 0 <= value_length < _MOST_BYTES
            or length != _I64.size + _I32.size + value_length
        ):
            break
        if end > size:
            wanted = end
            break
        at = end
        if not starts:
            if key == -1:
                continue
            first = following = key
        if key != following:
            at = begin - header
            break
        starts.append(begin)
        ends.append(end)
        following += 1
    return PlainValues(data[:at], first, starts, ends, wanted)


class SequenceReader:
    """Reads groups of records from any offset at which a group begins."""

    def __init__(self, name: str, file: BinaryIO, value_class: str) -> None:
        """:param name: the name of the file, for errors
        :raises OffloadedLedgerDamaged: the file is not a SequenceFile with values of that class
        :raises OffloadMisconfigured: the file is compressed with an unsupported codec
        """
        self._name = name
        self._file = file
        self._bytes_values = value_class == BYTES
        self._expect(_MAGIC, self._take(len(_MAGIC)))
        for wanted in (LONG, value_class):
            self._expect(wanted.encode(), self._taken_text())
        compressed, self._in_blocks = self._take(2)
        self.compressed = bool(compressed)
        if self.compressed:
            codec = self._taken_text().decode(errors="replace")
            if codec not in _ZLIB:
                raise OffloadMisconfigured(
                    f"{name} is compressed with {codec}, which is not supported: write it with "
                    "org.apache.hadoop.io.compress.DefaultCodec"
                )
        for _number in range(2 * self._taken_int()):
            self._taken_text()
        self.sync = self._take(_SYNC_BYTES)
        self.start = file.tell()
        """The offset of the first record."""

    def bytes_at(self, position: int, length: int) -> bytes:
        """Returns the bytes of the file from ``position`` on; fewer than ``length`` only at the end of the
        file."""
        self._file.seek(position)
        return self._file.read(length)

    def groups(self, position: int) -> Iterator[RecordGroup]:
        """Yields the groups of records from ``position`` to the end of the file.

        :raises OffloadedLedgerDamaged: the file contains something else than groups of records
        """
        self._file.seek(position)
        return self._compressed_blocks(position) if self._in_blocks else self._single_records(position)

    def _single_records(self, position: int) -> Iterator[RecordGroup]:
        read = self._file.read
        while start := read(_START.size):
            if len(start) < _START.size:
                raise self._damaged(position, "a record or the end", f"{len(start)} bytes, {start.hex()}")
            length, key_length, key = _START.unpack(start)
            if length == -1:
                self._expect(self.sync, start[_I32.size :] + self._take(_I32.size))
                position += _I32.size + _SYNC_BYTES
                continue
            if key_length != _I64.size or length < key_length:
                found = f"a record of {length} bytes with a key of {key_length}"
                raise self._damaged(position, "a record with a key of 8 bytes", found)
            value = self._take(length - key_length)
            if self.compressed:
                value = self._inflated(position, value)
            following = position + _RECORD.size + length
            yield RecordGroup(position, following, ((key, self._value(position, value)),))
            position = following

    def _compressed_blocks(self, position: int) -> Iterator[RecordGroup]:
        while start := self._file.read(_I32.size):
            if start != _SYNC_FOLLOWS:
                raise self._damaged(position, "the sync marker of a block", start.hex())
            self._expect(self.sync, self._take(_SYNC_BYTES))
            group = RecordGroup(position, 0, self._block())._replace(next_position=self._file.tell())
            yield group
            position = group.next_position

    def _block(self) -> list[tuple[int, bytes]]:
        position = self._file.tell()
        count = self._taken_vint()
        key_lengths, keys, value_lengths, values = (
            self._inflated(position, self._take(self._taken_vint())) for _number in range(4)
        )
        if len(keys) != count * _I64.size or key_lengths != bytes((_I64.size,)) * count:
            raise self._damaged(position, f"{count} keys of 8 bytes", f"{len(keys)} bytes of keys")
        records = []
        at = taken = 0
        for number in range(count):
            length, taken = _vint(value_lengths, taken, self._name, position)
            if not 0 <= length <= len(values) - at:
                raise self._damaged(position, f"a value of {length} bytes", f"{len(values) - at} bytes")
            key = _I64.unpack_from(keys, number * _I64.size)[0]
            records.append((key, self._value(position, values[at : at + length])))
            at += length
        return records

    def _value(self, position: int, value: bytes) -> bytes:
        if not self._bytes_values:
            return value
        if len(value) < _I32.size or _I32.unpack_from(value)[0] != len(value) - _I32.size:
            raise self._damaged(
                position, "a value of the stated length", f"{len(value)} bytes, {value[:4].hex()}"
            )
        return value[_I32.size :]

    def _inflated(self, position: int, data: bytes) -> bytes:
        inflater = zlib.decompressobj(_EITHER_HEADER)
        try:
            found = inflater.decompress(data, _MOST_BYTES)
        except zlib.error as error:
            raise self._damaged(position, "compressed data", str(error)) from error
        if not inflater.eof:
            raise self._damaged(position, "one complete compressed block", "a longer or truncated one")
        return found

    def _taken_int(self) -> int:
        return int(_I32.unpack(self._take(_I32.size))[0])

    def _taken_text(self) -> bytes:
        return self._take(self._taken_vint())

    def _taken_vint(self) -> int:
        data = self._take(1)
        return _vint(data + self._take(_more(data[0])), 0, self._name, self._file.tell())[0]

    def _take(self, length: int) -> bytes:
        if not 0 <= length < _MOST_BYTES:
            raise self._damaged(self._file.tell(), f"a length below {_MOST_BYTES}", str(length))
        data = self._file.read(length)
        if len(data) != length:
            start = self._file.tell() - len(data)
            raise self._damaged(start, f"{length} bytes before the end", f"{len(data)} bytes")
        return data

    def _expect(self, wanted: bytes, found: bytes) -> None:
        if found != wanted:
            raise self._damaged(self._file.tell() - len(found), repr(wanted), repr(found[:80]))

    def _damaged(self, position: int, expected: str, found: str) -> OffloadedLedgerDamaged:
        return OffloadedLedgerDamaged(self._name, position, expected, found)


def read_index(name: str, file: BinaryIO) -> Sequence[tuple[int, int]]:
    """Returns pairs of a key and the offset, in the data file, of the group with this key, in ascending
    order.

    :param name: the name of the file, for errors
    :raises OffloadedLedgerDamaged: the file is not the index of a MapFile
    """
    reader = SequenceReader(name, file, LONG)
    found: list[tuple[int, int]] = []
    for group in reader.groups(reader.start):
        for key, value in group.records:
            if len(value) != _I64.size:
                raise OffloadedLedgerDamaged(
                    name, group.position, "a position of 8 bytes", f"{len(value)} bytes"
                )
            place = key, int(_I64.unpack(value)[0])
            if found and not (found[-1][0] < place[0] and found[-1][1] < place[1]):
                raise OffloadedLedgerDamaged(
                    name,
                    group.position,
                    f"a key above {found[-1][0]} and a position above {found[-1][1]}",
                    f"key {place[0]} and position {place[1]}",
                )
            found.append(place)
    if not found:
        raise OffloadedLedgerDamaged(name, reader.start, "the position of the first record", "no position")
    return found


def _text(text: str) -> bytes:
    """Returns the length of a short text in one byte, followed by the text."""
    return bytes((len(text),)) + text.encode()


def _more(first: int) -> int:
    """Returns the number of bytes of a vint that follow its first byte."""
    if 0x80 <= first <= 0x8F:
        return 0x88 - first if first <= 0x87 else 0x90 - first
    return 0


def _vint(data: bytes, at: int, name: str, position: int) -> tuple[int, int]:
    """Returns a number in Hadoop's variable form, and the offset after it.

    The first byte is the number itself, from -112 to 127, or determines how many bytes follow. In
    hexadecimal, 8F to 88 mean one to eight bytes of a positive number, 87 to 80 the bytes of the complement
    of a negative number.
    """
    if at >= len(data) or at + 1 + _more(data[at]) > len(data):
        raise OffloadedLedgerDamaged(name, position, "a number", "the end of the data")
    first, more = data[at], _more(data[at])
    if not more:
        return (first - 256 if first >= 0x80 else first), at + 1
    number = int.from_bytes(data[at + 1 : at + 1 + more], "big")
    return (~number if first <= 0x87 else number), at + 1 + more
