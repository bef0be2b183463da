"""The messages between the broker and the compaction process, as bytes.

Both run the same program on the same machine, so numbers are in native byte order.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from enum import IntEnum

from magnetar.broker.compaction.latest_messages import Copied, Entries
from magnetar.io.interfaces import Buffer
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.hot_compaction import ascend, open_raw, shift

Question = list[Buffer]


class QuestionKind(IntEnum):
    """The first byte of a question."""

    BEGIN = 0
    NUMBER = 1
    PARTS = 2
    SETTLE_PART = 3
    SETTLE = 4
    STAYING = 5
    COPY = 6
    REMOVE = 7


class Nonsense(ValueError):
    """An answer does not match the question."""


_BEGIN = struct.Struct("<B?QQ")
_PART = struct.Struct("<BI")
_ENTRIES = struct.Struct("<BQI")
_COPY = struct.Struct("<iq?")
_NUMBERS = struct.Struct("<qq")
_COUNT = struct.Struct("<Q")
_COPIED = struct.Struct("<QI")

GOES_ON = -1
"""In a request to copy entries, stands in place of the number of the first message if the entries directly
follow the entries of the previous request."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Settings of one compaction; see :class:`magnetar.broker.compaction.latest_messages.LatestMessages`."""

    retain_keyless: bool
    memory: int
    max_size: int


@dataclass(frozen=True, slots=True)
class EntryIds:
    """The ids of entries: listed one by one, or consecutive in a ledger from a first id on."""

    ledger_ids: array[int]
    entry_ids: array[int]
    consecutive: bool = False

    @classmethod
    def following(cls, ledger_id: int, first: int) -> EntryIds:
        return cls(array("q", (ledger_id,)), array("q", (first,)), consecutive=True)

    def of_each(self, count: int) -> tuple[array[int], array[int]]:
        if not self.consecutive:
            return self.ledger_ids, self.entry_ids
        first = self.entry_ids[0]
        return self.ledger_ids * count, array("q", range(first, first + count))


# Questions


def begin(beginning: Beginning) -> Question:
    return [_BEGIN.pack(QuestionKind.BEGIN, beginning.retain_keyless, beginning.memory, beginning.max_size)]


def plain(kind: QuestionKind) -> Question:
    """Returns a question without arguments: PARTS, SETTLE or REMOVE."""
    return [bytes((kind,))]


def settle_part(part: int) -> Question:
    return [_PART.pack(QuestionKind.SETTLE_PART, part)]


def staying(spans: Sequence[tuple[int, int]]) -> Question:
    """Returns a question: which of these ranges [first, end) of message numbers contain a message that
    compaction keeps?
    """
    return [
        bytes((QuestionKind.STAYING,)),
        array("q", (number for span in spans for number in span)).tobytes(),
    ]


def number(entries: Entries) -> Question:
    return _entries(QuestionKind.NUMBER, entries)


def copy(entries: Entries, places: EntryIds, partition: int, at: int) -> Question:
    """Returns a question that asks for copies of those messages in ``entries`` that compaction keeps.

    :param at: the number of the first message, or :data:`GOES_ON`
    """
    question = _entries(QuestionKind.COPY, entries)
    ids = places.ledger_ids.tobytes() + places.entry_ids.tobytes()
    question[1:1] = [_COPY.pack(partition, at, places.consecutive) + ids]
    return question


def _entries(kind: QuestionKind, entries: Entries) -> Question:
    count, base = entries.count, entries.starts[0]
    head = _ENTRIES.pack(kind, base, count)
    bounds = entries.starts[:count].tobytes() + entries.ends[:count].tobytes()
    return [head, bounds, memoryview(entries.buffer)[base : entries.ends[count - 1]]]


# Questions, as the process reads them


def kind_of(question: bytes) -> QuestionKind:
    return QuestionKind(question[0])


def opened_begin(question: bytes) -> Beginning:
    _kind, retain_keyless, memory, max_size = _BEGIN.unpack(question)
    return Beginning(retain_keyless, memory, max_size)


def opened_part(question: bytes) -> int:
    part: int = _PART.unpack(question)[1]
    return part


def opened_spans(question: bytes) -> list[tuple[int, int]]:
    return list(_NUMBERS.iter_unpack(memoryview(question)[1:]))


def opened_number(question: bytes) -> Entries:
    _kind, base, count = _ENTRIES.unpack_from(question)
    return _opened_entries(question, _ENTRIES.size, base, count)


def opened_copy(question: bytes) -> tuple[Entries, EntryIds, int, int]:
    """Parses a question of :func:`copy`: returns the entries, their ids, the topic's partition, and the
    number of the first message."""
    _kind, base, count = _ENTRIES.unpack_from(question)
    at = _ENTRIES.size
    partition, number, consecutive = _COPY.unpack_from(question, at)
    at += _COPY.size
    ids = 1 if consecutive else count
    places = EntryIds(_numbers(question, at, ids), _numbers(question, at + 8 * ids, ids), consecutive)
    return _opened_entries(question, at + 16 * ids, base, count), places, partition, number


def _opened_entries(question: bytes, at: int, base: int, count: int) -> Entries:
    starts, ends = _numbers(question, at, count), _numbers(question, at + 8 * count, count)
    by = at + 16 * count - base
    shift(starts, by)
    shift(ends, by)
    return Entries(question, starts, ends, count)


def _numbers(data: bytes, at: int, count: int) -> array[int]:
    found = array("q")
    found.frombytes(memoryview(data)[at : at + 8 * count])
    return found


# Answers


def count(*numbers: int) -> list[Buffer]:
    return [_COUNT.pack(each) for each in numbers]


def copied(found: Copied) -> list[Buffer]:
    return [_COPIED.pack(found.read_bytes, len(found.ends)), found.ends.tobytes(), found.buffer]


def opened_counts(answer: bytes, expected: int) -> list[int]:
    """Returns the counts in an answer.

    :raises Nonsense: the number of counts is not ``expected``
    """
    if len(answer) != expected * _COUNT.size:
        raise Nonsense(f"the answer has {len(answer)} bytes, not {expected} numbers of {_COUNT.size} bytes")
    return [each for (each,) in _COUNT.iter_unpack(answer)]


def opened_staying(answer: bytes, expected: int) -> bytes:
    """Returns one byte per range from an answer: 1 if compaction keeps any message in the range.

    :raises Nonsense: the answer does not have one byte per range
    """
    if len(answer) != expected or answer.strip(b"\0\1"):
        raise Nonsense(
            f"the answer does not consist of {expected} bytes with the value 0 or 1: {answer[:20]!r}"
        )
    return answer


def opened_copied(answer: bytes, at_most: int) -> Copied:
    """Returns the entries in an answer to :func:`copy`.

    :param at_most: the maximum number of entries
    :raises Nonsense: there are more entries, or one is not an entry of a compacted ledger
    """
    if len(answer) < _COPIED.size:
        raise Nonsense(
            f"the answer has {len(answer)} bytes, which is too short for its header of {_COPIED.size} bytes"
        )
    read_bytes, count = _COPIED.unpack_from(answer)
    start = _COPIED.size + 8 * count
    if count > at_most or start > len(answer):
        raise Nonsense(
            f"the answer of {len(answer)} bytes announces {count} entries; at most {at_most} were requested"
        )
    ends = _numbers(answer, _COPIED.size, count)
    shift(ends, start)
    if not ascend(ends, start, len(answer)):
        raise Nonsense(f"the {count} entries of the answer do not fill its {len(answer) - start} bytes")
    starts = array("q", (start,)) + ends[:-1] if count else array("q")
    room = [array("q", bytes(8 * count)) for _ in range(3)]
    sound = open_raw(answer, starts, ends, count, *room)
    if sound != count:
        raise Nonsense(f"entry {sound} of {count} is not a compacted message")
    return Copied(answer, ends, read_bytes, start)
