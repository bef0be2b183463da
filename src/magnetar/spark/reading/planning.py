"""Splits a topic's messages into parts for tasks, and limits the batches of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from magnetar.spark.connection import Connection
from magnetar.spark.ledgers import Range
from magnetar.spark.positions import Place, TopicOffset
from magnetar.spark.reading.entries import entries_of

__all__ = [
    "Budget",
    "TaskPart",
    "parts_of",
    "ranges_from_splits",
    "shared_out",
    "splits_of",
]


@dataclass
class TaskPart(InputPartition):
    """The part of a topic that one task reads: ranges of messages, in order."""

    topic: str
    ranges: tuple[Range, ...]

    def __repr__(self) -> str:
        return f"TaskPart({self.topic}, {len(self.ranges)} ranges)"


def parts_of(topic: str, ranges: Iterable[Range], max_entries: int) -> list[TaskPart]:
    """Arranges ranges in parts of at most ``max_entries`` entries: cuts longer ranges into pieces of about
    equal size, and combines short ranges.
    """
    parts: list[TaskPart] = []
    gathered: list[Range] = []
    room = max_entries
    for each in _cut(ranges, max_entries):
        if each.entries > room:
            parts.append(TaskPart(topic, tuple(gathered)))
            gathered, room = [], max_entries
        gathered.append(each)
        room -= each.entries
    if gathered:
        parts.append(TaskPart(topic, tuple(gathered)))
    return parts


def _cut(ranges: Iterable[Range], max_entries: int) -> Iterable[Range]:
    for each in ranges:
        pieces = -(-each.entries // max_entries)
        first, index = each.first, each.first_index
        for piece in range(1, pieces):
            end = each.first + each.entries * piece // pieces
            yield Range(each.ledger, first, index, end)
            first, index = end, 0
        yield Range(each.ledger, first, index, each.end, each.end_index)


def splits_of(ranges: Sequence[Range]) -> tuple[Place, ...]:
    """Returns the ends of all ranges except the last; together with the start and the end, they determine the
    ranges.
    """
    return tuple(Place(each.ledger, each.end) for each in ranges[:-1])


def ranges_from_splits(start: Place, end: TopicOffset) -> list[Range]:
    """Returns the ranges of messages from ``start`` to the ``next`` of ``end``, computed only from the
    arguments.
    """
    ranges = []
    place = start
    for split in (*end.splits, end.next):
        if split <= place:
            continue
        first, index = (place.entry, place.batch_index) if split.ledger == place.ledger else (0, 0)
        ranges.append(Range(split.ledger, first, index, split.entry, split.batch_index))
        place = split
    return [each for each in ranges if each.entries > 0]


@dataclass
class Budget:
    """How many messages and bytes a batch can still take. Only an entry itself contains its number of
    messages, so if a batch is limited, the driver also reads the entries, but does not decode them.
    """

    rows: int | None
    size: int | None
    """Remaining size of stored entries, in bytes; None: no limit."""
    is_untouched: bool = True
    """Whether no message was taken yet: the first message is accepted regardless of its size, so that a
    stream always advances.
    """

    @property
    def is_spent(self) -> bool:
        return self.rows == 0 or (self.size is not None and self.size <= 0)

    def part(self, shares: int) -> Budget:
        """Returns one of ``shares`` equal shares of the budget; at least one message, if any is left."""
        rows = None if self.rows is None else min(self.rows, max(1, self.rows // shares))
        return Budget(rows, None if self.size is None else self.size // shares, self.is_untouched)

    def spend(self, rows: int, size: int) -> None:
        self.rows = None if self.rows is None else self.rows - rows
        self.size = None if self.size is None else self.size - size
        self.is_untouched = self.is_untouched and rows == 0

    def fitting(self, messages: int, size: int) -> int:
        """Returns how many messages of an entry of ``size`` bytes fit into the budget."""
        fit = messages if self.rows is None else min(messages, self.rows)
        if self.size is not None and size * fit > self.size * messages:
            fit = self.size * messages // size
        return max(1, fit) if self.is_untouched else max(0, fit)


def shared_out(
    connection: Connection, wanted: dict[str, list[Range]], rows: int | None, size: int | None, turn: int
) -> dict[str, list[Range]]:
    """Returns, for each topic, the part of its ranges that a batch reads; the limits apply to all topics
    together. Topics with few entries are handled first, so that the unused part of their shares is available
    to the larger topics. If fewer rows than topics are allowed, ``turn`` selects the topics that come first.
    """
    order = sorted(wanted, key=lambda topic: (sum(each.entries for each in wanted[topic]), topic))
    if order and rows is not None and rows < len(order):
        order.sort()
        start = turn * rows % len(order)
        order = order[start:] + order[:start]
    whole = Budget(rows, size)
    found = {}
    for place, topic in enumerate(order):
        budget = whole.part(len(order) - place)
        had_rows, had_size = budget.rows or 0, budget.size or 0
        found[topic] = [] if whole.is_spent else _cut_batch(connection, topic, wanted[topic], budget)
        whole.spend(had_rows - (budget.rows or 0), had_size - (budget.size or 0))
        whole.is_untouched = whole.is_untouched and not found[topic]
    return found


def _cut_batch(connection: Connection, topic: str, ranges: Sequence[Range], budget: Budget) -> list[Range]:
    found: list[Range] = []
    entries = entries_of(connection, topic, ranges)
    try:
        place, each = 0, ranges[0]
        for entry in entries:
            while (entry.ledger_id, entry.entry_id) >= (each.ledger, each.first + each.entries):
                found.append(each)
                place += 1
                each = ranges[place]
            end = entry.messages if entry.end < 0 else entry.end
            messages = end - entry.first
            size = len(entry.data) * messages // max(1, entry.messages)
            fit = budget.fitting(messages, size)
            budget.spend(fit, size * fit // max(1, messages))
            if fit < messages:
                index = entry.first + fit if fit else entry.first
                cut = Range(each.ledger, each.first, each.first_index, entry.entry_id, index)
                return [*found, cut] if fit or entry.entry_id > each.first else found
    finally:
        entries.close()
    return list(ranges)
