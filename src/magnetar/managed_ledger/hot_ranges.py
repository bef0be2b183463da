"""The entries of a ledger that a cursor has consumed.

A hot module: plain Python that is also compiled, with the C types in ``hot_ranges.pxd``. Consumers of a
Key_Shared subscription acknowledge entries out of order, so that every message may open and close a gap: a
block with gaps has a byte for each entry; blocks without gaps are stored as ranges, however many entries they
contain.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from sys import byteorder

_SHIFT = 10
_SIZE = 1024
BLOCK_ENTRIES = 1024
"""Entries per block."""
_LAST = 1023

_ONES = bytes([1]) * _SIZE
_TO_TEXT = bytes.maketrans(b"\x00\x01", b"01")
_TO_MARKS = bytes.maketrans(b"01", b"\x00\x01")
_START = bytes([0, 1])


class _Block:
    """One block of entries; ``marks`` has a byte for each entry, which is 1 if the entry is in the set."""

    def __init__(self) -> None:
        self.marks = bytearray(_SIZE)
        self.count = 0


class _Runs:
    """Half-open ranges [start, end) of block numbers, ascending and not adjacent."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        first = _at_or_above(self.ends, start)
        last = _at_or_above(self.starts, end + 1)
        if first < last:
            start = min(start, self.starts[first])
            end = max(end, self.ends[last - 1])
        self.starts[first:last] = [start]
        self.ends[first:last] = [end]

    def end_at(self, number: int) -> int:
        """Returns the end of the range that contains a number; the number itself if no range contains it."""
        index = _at_or_above(self.ends, number + 1)
        if index < len(self.ends) and self.starts[index] <= number:
            return self.ends[index]
        return number

    def forget_below(self, number: int) -> None:
        index = _at_or_above(self.ends, number + 1)
        del self.starts[:index]
        del self.ends[:index]
        if self.starts and self.starts[0] < number:
            self.starts[0] = number


def _at_or_above(values: list[int], wanted: int) -> int:
    """Returns the index of the first value that is at least ``wanted``; the number of values if all are
    smaller. The values are in ascending order."""
    low = 0
    high = len(values)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


class EntryRanges:
    """A set of entry ids (0 and up) of one ledger, also seen as half-open ranges [start, end)."""

    def __init__(self) -> None:
        self._full = _Runs()
        self._blocks: dict[int, _Block] = {}
        self._numbers: list[int] = []
        """The keys of ``_blocks``, ascending."""

    def _open(self, number: int) -> _Block | None:
        """Returns the block with this number, created if necessary; None if all its entries are in the
        set."""
        block = self._blocks.get(number)
        if block is None and self._full.end_at(number) == number:
            block = self._blocks[number] = _Block()
            self._numbers.insert(_at_or_above(self._numbers, number), number)
        return block

    def _drop(self, number: int) -> None:
        del self._blocks[number]
        del self._numbers[_at_or_above(self._numbers, number)]

    def _complete(self, number: int) -> None:
        self._drop(number)
        self._full.add(number, number + 1)

    def add(self, start: int, end: int) -> int:
        """Adds [start, end); returns how many entries are new."""
        added = 0
        number = start >> _SHIFT
        while start < end:
            if start == number << _SHIFT and end - start >= _SIZE:
                stop = end >> _SHIFT
                added += self._add_blocks(number, stop)
                number = stop
            else:
                base = number << _SHIFT
                added += self._add_part(number, start - base, min(end - base, _SIZE))
                number += 1
            start = number << _SHIFT
        return added

    def _add_part(self, number: int, low: int, high: int) -> int:
        block = self._open(number)
        if block is None:
            return 0
        added = block.marks.count(0, low, high)
        if added:
            block.marks[low:high] = _ONES[low:high]
            block.count += added
            if block.count == _SIZE:
                self._complete(number)
        return added

    def _add_blocks(self, first: int, stop: int) -> int:
        known = 0
        low = _at_or_above(self._numbers, first)
        high = _at_or_above(self._numbers, stop)
        for number in self._numbers[low:high]:
            known += self._blocks.pop(number).count
        del self._numbers[low:high]
        at = first
        for start, end in zip(self._full.starts, self._full.ends, strict=True):
            if start < stop and end > at:
                known += (min(end, stop) - max(start, at)) << _SHIFT
        self._full.add(first, stop)
        return ((stop - first) << _SHIFT) - known

    def add_each(self, entry_ids: array[int], first: int, stop: int, lowest: int, limit: int) -> int:
        """Adds the ids in ``entry_ids[first:stop]`` that are in [lowest, limit); returns how many are new.

        :param lowest: at least 0
        """
        added = 0
        known = -1
        block: _Block | None = None
        for index in range(first, stop):
            entry_id = entry_ids[index]
            if entry_id < lowest or entry_id >= limit:
                continue
            number = entry_id >> _SHIFT
            if number != known:
                block = self._open(number)
                known = number
            if block is not None and _mark(block, entry_id & _LAST):
                added += 1
                if block.count == _SIZE:
                    self._complete(number)
                    block = None
        return added

    def contains(self, entry_id: int) -> bool:
        number = entry_id >> _SHIFT
        block = self._blocks.get(number)
        if block is not None:
            return block.marks[entry_id & _LAST] == 1
        return self._full.end_at(number) != number

    def end_of_range_at(self, entry_id: int) -> int:
        """Returns the end of the range that contains ``entry_id``; ``entry_id`` itself if no range contains
        it.
        """
        while True:
            number = entry_id >> _SHIFT
            block = self._blocks.get(number)
            if block is not None:
                place = block.marks.find(0, entry_id & _LAST)
                if place >= 0:
                    return (number << _SHIFT) + place
                entry_id = (number + 1) << _SHIFT
                continue
            end = self._full.end_at(number)
            if end == number:
                return entry_id
            entry_id = end << _SHIFT

    def start_of_next_range(self, entry_id: int) -> int | None:
        """Returns the first start of a range at or above ``entry_id``; None if no range starts there."""
        if entry_id > 0 and self.contains(entry_id - 1):
            entry_id = self.end_of_range_at(entry_id)
        number = entry_id >> _SHIFT
        found: int | None = None
        index = _at_or_above(self._full.ends, number + 1)
        if index < len(self._full.starts):
            found = max(self._full.starts[index] << _SHIFT, entry_id)
        index = _at_or_above(self._numbers, number)
        while index < len(self._numbers):
            number = self._numbers[index]
            base = number << _SHIFT
            if found is not None and found <= base:
                break
            place = self._blocks[number].marks.find(1, max(0, entry_id - base))
            if place >= 0:
                return base + place
            index += 1
        return found

    def forget_below(self, entry_id: int) -> None:
        """Drops everything below ``entry_id``."""
        number = entry_id >> _SHIFT
        place = entry_id & _LAST
        index = _at_or_above(self._numbers, number)
        for gone in self._numbers[:index]:
            del self._blocks[gone]
        del self._numbers[:index]
        if place and self._full.end_at(number) != number:
            self._full.forget_below(number + 1)
            block = self._open(number)
            assert block is not None
            block.marks[:] = _ONES
            block.count = _SIZE
        else:
            self._full.forget_below(number)
        block = self._blocks.get(number)
        if block is not None:
            block.count -= block.marks.count(1, 0, place)
            block.marks[:place] = bytes(place)
            if not block.count:
                self._drop(number)

    def is_empty(self) -> bool:
        return not self._numbers and not self._full.starts

    def end(self) -> int:
        """Returns the highest entry id plus 1; 0 if the set is empty."""
        end = 0
        if self._full.ends:
            end = self._full.ends[len(self._full.ends) - 1] << _SHIFT
        if self._numbers:
            number = self._numbers[len(self._numbers) - 1]
            end = max(end, (number << _SHIFT) + self._blocks[number].marks.rfind(1) + 1)
        return end

    def count(self) -> int:
        """Returns the number of entries."""
        full = sum(self._full.ends) - sum(self._full.starts)
        return (full << _SHIFT) + sum([block.count for block in self._blocks.values()])

    def range_count(self) -> int:
        """Returns the number of ranges without iterating over them."""
        # A range begins where the entry in front is missing: inside a block, or at its edge.
        found = 0
        for number in self._numbers:
            marks = self._blocks[number].marks
            found += marks.count(_START)
            if marks[0] and not (number and self.contains((number << _SHIFT) - 1)):
                found += 1
        for number in self._full.starts:
            if not (number and self.contains((number << _SHIFT) - 1)):
                found += 1
        return found

    def in_order(self) -> Iterator[tuple[int, int]]:
        """Yields the ranges as (start, end), ascending."""
        start = self.start_of_next_range(0)
        while start is not None:
            end = self.end_of_range_at(start)
            yield start, end
            start = self.start_of_next_range(end)

    def block_count(self) -> int:
        """Returns the number of blocks with gaps, a measure of how costly it is to look at all ranges."""
        return len(self._numbers)

    def words(self) -> array[int]:
        """Returns the set as a bitmap of signed 64-bit words, the word with the lowest entries first."""
        marks = bytearray((self.end() + 63) & ~63)
        for start, end in zip(self._full.starts, self._full.ends, strict=True):
            marks[start << _SHIFT : end << _SHIFT] = _ONES * (end - start)
        for number, block in self._blocks.items():
            base = number << _SHIFT
            stop = min(base + _SIZE, len(marks))
            marks[base:stop] = block.marks[: stop - base]
        found = array("q")
        if marks:
            marks.reverse()
            bits = int(marks.translate(_TO_TEXT), 2)
            found.frombytes(bits.to_bytes(len(marks) >> 3, byteorder))
            if byteorder == "big":
                found.reverse()
        return found

    def add_words(self, words: array[int]) -> None:
        """Adds the entries of a bitmap of signed 64-bit words, the word with the lowest entries first. The
        blocks that the bitmap covers must be empty."""
        if not words:
            return
        data = words.tobytes() if byteorder == "little" else array("q", reversed(words)).tobytes()
        bits = int.from_bytes(data, byteorder)
        marks = bytearray(format(bits, f"0{len(data) << 3}b").encode().translate(_TO_MARKS))
        marks.reverse()
        for number in range((len(marks) + _LAST) >> _SHIFT):
            part = marks[number << _SHIFT : (number + 1) << _SHIFT]
            count = part.count(1)
            if count == _SIZE:
                self._full.add(number, number + 1)
            elif count:
                block = _Block()
                block.marks[: len(part)] = part
                block.count = count
                self._blocks[number] = block
                self._numbers.append(number)

    def marks_of(self, number: int) -> bytes | bytearray:
        """Returns one byte for each entry of a block, 1 if the entry is in the set; no bytes if the block is
        empty."""
        block = self._blocks.get(number)
        if block is not None:
            return block.marks
        return b"" if self._full.end_at(number) == number else _ONES

    def clear_in(self, marks: bytearray) -> None:
        """Sets ``marks[i]`` to 0 for each entry i in the set, up to the end of ``marks``."""
        size = len(marks)
        for start, end in zip(self._full.starts, self._full.ends, strict=True):
            first, stop = start << _SHIFT, min(end << _SHIFT, size)
            if first < stop:
                marks[first:stop] = bytes(stop - first)
        for number, block in self._blocks.items():
            base = number << _SHIFT
            stop = min(base + _SIZE, size)
            if base < stop:
                # Subtracts the bits; the bytes are 0 or 1 and do not carry over into each other.
                mine = int.from_bytes(block.marks[: stop - base], "little")
                theirs = int.from_bytes(marks[base:stop], "little")
                marks[base:stop] = (theirs & ~mine).to_bytes(stop - base, "little")

    def copy(self) -> EntryRanges:
        other = EntryRanges()
        for start, end in self.in_order():
            other.add(start, end)
        return other


def _mark(block: _Block, place: int) -> bool:
    """Marks an entry; returns whether it is new."""
    marks = block.marks
    if marks[place]:
        return False
    marks[place] = 1
    block.count += 1
    return True


def same_ledger_until(ledger_ids: array[int], first: int, count: int) -> int:
    """Returns the end of the run of positions in the same ledger that begins at ``first``; at most
    ``count``."""
    index = first + 1
    while index < count and ledger_ids[index] == ledger_ids[first]:
        index += 1
    return index


def consecutive_until(entry_ids: array[int], first: int, stop: int) -> int:
    """Returns the end of the run of consecutive entry ids that begins at ``first``; at most ``stop``."""
    index = first + 1
    while index < stop and entry_ids[index] == entry_ids[first] + index - first:
        index += 1
    return index
