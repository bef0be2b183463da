"""Splits flat Avro records into column buffers in Arrow's format, without creating an object per value.

This module is plain Python that is also compiled, with the C types in ``hot_avro.pxd``. It reads the binary
encoding (Avro's specification, "Binary Encoding") of primitive types and of their unions with null. The
reader stops at the first unexpected value, and the caller then decodes the messages one by one.
"""

from __future__ import annotations

from array import array

BOOLEAN = 1
INTEGER = 2
"""The code of ``int``, ``long`` and ``enum``, which Avro encodes as zigzag varints."""
FLOAT = 4
DOUBLE = 8
"""The code of ``double``. The code of each type with a fixed size is its size in bytes."""
BYTES = 9
"""The code of ``bytes`` and ``string``."""

KINDS = {
    "boolean": BOOLEAN,
    "int": INTEGER,
    "long": INTEGER,
    "enum": INTEGER,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BYTES,
    "string": BYTES,
}
"""The code of each supported type."""


class Column:
    """The values of one field in all records.

    ``valid`` is a bitmap of the rows that are not null. ``numbers`` contains 64-bit integers. ``data``
    contains floats and doubles in the encoding that Avro and Arrow share, booleans as bytes 0 and 1, or byte
    strings, whose ends are in ``offsets``.
    """

    def __init__(self, kind: int, rows: int, size: int) -> None:
        """:param kind: the code of the field's type (:data:`KINDS`)

        :param size: total size of all payloads, in bytes
        :param rows: maximum number of rows
        """
        self.kind = kind
        self.numbers = array("q", bytes(8 * rows if kind == INTEGER else 0))
        self.offsets = array("i", bytes(4 * (rows + 1) if kind == BYTES else 0))
        self.data = bytearray(size if kind == BYTES else 0 if kind == INTEGER else kind * rows)
        self.valid = bytearray((rows + 7) // 8)
        self.end = 0
        # The same objects again: when compiled, these are views without the cost of taking them.
        self._numbers = self.numbers
        self._offsets = self.offsets
        self._data = memoryview(self.data)
        self._valid = self.valid


class FlatReader:
    """Reads records whose fields all have primitive types, or unions of a primitive type with null."""

    def __init__(self, kinds: bytes, nulls: bytes) -> None:
        """:param kinds: the code of each field's type, in encoding order

        :param nulls: for each field, 0: not a union; 1: null is the first branch of the union; 2: null is the
            second branch
        """
        self._kinds = kinds
        self._nulls = nulls
        self._fields = len(kinds)
        self._position = 0
        self._number = 0

    def read(self, data: bytearray, offsets: array[int], count: int, columns: list[Column | None]) -> bool:
        """Fills columns with the fields of ``count`` records; record ``i`` is ``data[offsets[i]:offsets[i +
        1]]``.

        :param columns: the column for each field; None: skip the field
        :returns: False if a record does not match the types; the columns are then unusable
        """
        source = memoryview(data)
        places = offsets
        for row in range(count):  # noqa: SIM110 - a generator would make objects
            if not self._record(source, places[row], places[row + 1], row, columns):
                return False
        return True

    def _record(
        self, source: memoryview, start: int, end: int, row: int, columns: list[Column | None]
    ) -> bool:
        self._position = start
        for field in range(self._fields):
            null = self._nulls[field]
            column = columns[field]
            if null:
                if not self._take_number(source, end) or self._number < 0 or self._number > 1:
                    return False
                if self._number == null - 1:
                    if column is not None and self._kinds[field] == BYTES:
                        column._offsets[row + 1] = column.end
                    continue
            if not self._value(source, end, row, self._kinds[field], column):
                return False
            if column is not None:
                column._valid[row >> 3] |= 1 << (row & 7)
        return self._position == end

    def _value(self, source: memoryview, end: int, row: int, kind: int, column: Column | None) -> bool:
        if kind == INTEGER:
            if not self._take_number(source, end):
                return False
            if column is not None:
                column._numbers[row] = self._number
            return True
        if kind == BYTES:
            if not self._take_number(source, end):
                return False
            size = self._number
            if size < 0 or size > end - self._position:
                return False
            start = self._position
            self._position = start + size
            if column is not None:
                place = column.end
                if size:
                    column._data[place : place + size] = source[start : start + size]
                column.end = place + size
                column._offsets[row + 1] = place + size
            return True
        start = self._position
        if kind > end - start:
            return False
        self._position = start + kind
        if kind == BOOLEAN and source[start] > 1:
            return False
        if column is not None:
            place = row * kind
            for index in range(kind):
                column._data[place + index] = source[start + index]
        return True

    def _take_number(self, source: memoryview, end: int) -> bool:
        """Reads a zigzag varint into ``_number``; returns False if it is incomplete or has more than 64
        bits.
        """
        position = self._position
        value = 0
        shift = 0
        while position < end:
            byte = source[position]
            position += 1
            if shift == 63 and byte > 1:
                return False
            value |= (byte & 127) << shift
            if byte < 128:
                # When compiled, the number is unsigned with 64 bits: half of it is always below 2^63.
                half = value >> 1
                self._number = -half - 1 if value & 1 else half
                self._position = position
                return True
            shift += 7
            if shift > 63:
                return False
        return False
