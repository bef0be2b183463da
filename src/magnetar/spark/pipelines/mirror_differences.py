"""Explains which messages one side lacks, locates them, and compares the order of producers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

__all__ = [
    "KINDS",
    "MISSING",
    "Explanations",
    "id_of",
    "mark_of",
    "missing",
    "order_breaks",
    "range_of",
    "ranges",
]

FILTERED, IN_FLIGHT, EXPIRED, MISSING = "filtered", "in flight", "expired", "missing"
KINDS = (FILTERED, IN_FLIGHT, EXPIRED, MISSING)
"""The first applicable kind explains a message; the last one means that no explanation applies."""


@dataclass(frozen=True)
class Explanations:
    """Explanations of messages that are missing on the other side."""

    to: str
    """The name of the other cluster; empty: unknown, so that nothing counts as filtered or in flight."""
    confirmed: Mapping[str, str]
    """The position, ``ledger:entry``, up to which the other cluster has confirmed each topic."""
    times_to_live: Mapping[str, int]
    """Seconds after which messages of each pair expire on either side."""
    now_ms: int
    """Start of the comparison, in ms since 1970."""

    def kind(self) -> Column:
        """Returns the kind of a message; uses columns such as ``mark`` (sorts like ``place``), ``seconds``.

        Messages from another cluster are not replicated further, so they are neither filtered nor in flight.
        """
        own = f.col("origin").isNull()
        filtered = own & (f.size("to") > 0) & ~f.array_contains("to", self.to) & f.lit(bool(self.to))
        # The first 16 bytes of a place are ledger and entry.
        waiting = own & (f.substring("place", 1, 16) > f.col("mark"))
        old = f.col("published") + f.col("seconds") * 1000 <= f.lit(self.now_ms)
        kind = f.when(filtered, FILTERED).when(waiting, IN_FLIGHT).when(old, EXPIRED)
        return kind.otherwise(MISSING)

    def explained(self, spark: SparkSession, messages: DataFrame) -> DataFrame:
        """Returns ``messages`` with their ``kind``."""
        marks = [(topic, mark_of(position)) for topic, position in self.confirmed.items()]
        marked = spark.createDataFrame(marks, "topic string, mark binary")
        lived = spark.createDataFrame(list(self.times_to_live.items()), "pair string, seconds long")
        joined = messages.join(f.broadcast(marked), "topic", "left").join(f.broadcast(lived), "pair", "left")
        return joined.withColumn("kind", self.kind()).drop("mark", "seconds")


def mark_of(position: str) -> bytes:
    """Returns the first 16 bytes of a place; before the first entry of a ledger, the first 8."""
    ledger, entry = (int(number) for number in position.split(":"))
    start = max(0, ledger).to_bytes(8, "big")
    return start if entry < 0 else start + entry.to_bytes(8, "big")


def missing(messages: DataFrame, both: DataFrame, own: str, other: str) -> DataFrame:
    """Returns the messages of ``own`` that ``other`` lacks, with ``kind`` and ``number`` in their topic.

    Of equal messages, those with an explanation count as missing, then the last ones.

    :param messages: of the side, with their kind
    :param both: columns ``pair``, ``print`` and the number of messages of each side, named after the side
    """
    in_topic = Window.partitionBy("topic").orderBy("place")
    numbered = messages.withColumn("number", f.row_number().over(in_topic))
    excess = both.where(f.col(own) > f.col(other)).select(
        "pair", "print", (f.col(own) - f.col(other)).alias("excess")
    )
    rank = f.array_position(f.array(*map(f.lit, KINDS)), f.col("kind"))
    equal = Window.partitionBy("pair", "print").orderBy(rank, f.col("place").desc())
    chosen = numbered.join(excess, ["pair", "print"]).withColumn("nth", f.row_number().over(equal))
    return chosen.where("nth <= excess")


def ranges(lacking: DataFrame) -> DataFrame:
    """Returns runs of consecutive messages of one kind: topic, kind, first, last (places), messages."""
    window = Window.partitionBy("topic", "kind").orderBy("number")
    islands = lacking.withColumn("island", f.col("number") - f.row_number().over(window))
    return (
        islands.groupBy("topic", "kind", "island")
        .agg(f.min("place").alias("first"), f.max("place").alias("last"), f.count("*").alias("messages"))
        .drop("island")
    )


def order_breaks(left: DataFrame, right: DataFrame) -> DataFrame:
    """Returns where a producer's messages are in another order: topic, producer, place, other.

    ``place`` is that of a message on the left whose counterpart on the right, ``other``, precedes the
    counterpart of the previous message. Only messages of both sides are compared. The n-th of equal
    messages on the left corresponds to the n-th on the right.
    """
    equal = Window.partitionBy("pair", "print", "producer").orderBy("topic", "place")
    columns = ("pair", "print", "producer", "nth")
    here = left.withColumn("nth", f.row_number().over(equal)).select(*columns, "topic", "place")
    there = right.withColumn("nth", f.row_number().over(equal)).select(
        *columns, f.col("topic").alias("other_topic"), f.col("place").alias("other")
    )
    in_order = Window.partitionBy("topic", "other_topic", "producer").orderBy("place")
    joined = here.join(there, list(columns)).withColumn("before", f.lag("other").over(in_order))
    return joined.where("other < before").select("topic", "producer", "place", "other")


def id_of(place: bytes) -> str:
    """Returns ``ledger:entry``, or ``ledger:entry:index`` for a message in a batch."""
    ledger, entry, index = (int.from_bytes(place[a:b], "big") for a, b in ((0, 8), (8, 16), (16, 20)))
    return f"{ledger}:{entry}" + (f":{index - 1}" if index else "")


def range_of(row: Row) -> str:
    """Returns a row of :func:`ranges` as text."""
    first, last = id_of(bytes(row["first"])), id_of(bytes(row["last"]))
    return first if first == last else f"{first} to {last}"
