"""Splits a topic's messages between two positions into parts for tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from magnetar.spark.ledgers import Range
from magnetar.spark.positions import Place, TopicOffset

__all__ = ["TaskPart", "parts_of", "ranges_from_splits", "splits_of"]


@dataclass
class TaskPart(InputPartition):
    """The part of a topic that one task reads, in order."""

    topic: str
    ranges: tuple[Range, ...]

    def __repr__(self) -> str:
        return f"TaskPart({self.topic}, {len(self.ranges)} ranges)"


def parts_of(topic: str, ranges: Iterable[Range], max_entries: int) -> list[TaskPart]:
    """Splits ranges evenly into parts of at most ``max_entries`` entries; short ranges stay together."""
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
    """Returns the ends of all ledgers except the last; with start and end, they determine the ranges."""
    return tuple(Place(each.ledger, each.end) for each in ranges[:-1])


def ranges_from_splits(start: Place, end: TopicOffset) -> list[Range]:
    """Returns the ranges between an offset and the next one, which depend on nothing else."""
    ranges = []
    place = start
    for split in (*end.splits, end.next):
        if split <= place:
            continue
        first, index = (place.entry, place.batch_index) if split.ledger == place.ledger else (0, 0)
        ranges.append(Range(split.ledger, first, index, split.entry, split.batch_index))
        place = split
    return [each for each in ranges if each.entries > 0]
