"""``mirror-verify``: compares the messages of two topics or namespaces, possibly of two clusters.

The comparison covers key, payload, event time and properties, the number of equal messages, and optionally
the order of each producer's messages. It ignores data that replication adds to messages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from magnetar.spark.pipelines.configuration import Cluster, init_value
from magnetar.spark.pipelines.mirror_sides import SHOWN, MirrorSide, is_namespace, shortest
from magnetar.spark.pipelines.report import Plot, Series, Table
from magnetar.spark.pipelines.work import Work

FILTERED, IN_FLIGHT, EXPIRED, MISSING = "filtered", "in flight", "expired", "missing"
KINDS = (FILTERED, IN_FLIGHT, EXPIRED, MISSING)
"""The explanations for a message that the other side lacks: the first explanation that applies counts, and
MISSING means that no other explanation applies.
"""


@dataclass(frozen=True)
class MirrorVerifyConfig:
    left: str = field(metadata=init_value("persistent://public/default/orders"))
    """A topic in the cluster of the section ``cluster``, or a namespace, ``TENANT/NAMESPACE``."""
    right: str = field(metadata=init_value("persistent://public/default/orders-copy"))
    """A topic or namespace in the right cluster, which by default is the left cluster."""
    right_service_url: str = ""
    right_admin_url: str = ""
    right_auth_plugin: str = ""
    right_auth_params: str = field(default="", repr=False)
    right_tls_trust_certs: str = ""
    right_tls_hostname_verification: bool = True
    ignored_properties: tuple[str, ...] = ()
    samples: int = 20
    """Maximum number of reported items of each kind: differing messages, ranges, changes of the order."""
    left_name: str = ""
    """The left cluster's name in ``replicate_to`` of messages and in replicators of the right cluster."""
    right_name: str = ""
    """The name of the right cluster. Without it, messages in flight or filtered count as missing."""
    order: bool = False
    """Whether to compare the order of each producer's messages."""

    def __post_init__(self) -> None:
        if is_namespace(self.left) != is_namespace(self.right):
            raise ValueError("left and right must both be topics or both be namespaces")
        if self.left_name and self.left_name == self.right_name:
            raise ValueError(f"left_name and right_name are the same: {self.left_name}")
        if bool(self.right_service_url) != bool(self.right_admin_url):
            raise ValueError("right_service_url and right_admin_url must be set together")
        if not self.right_service_url and (
            self.right_auth_plugin or self.right_auth_params or self.right_tls_trust_certs
        ):
            raise ValueError("the options for the right cluster require right_service_url")

    def right_cluster(self, left: Cluster) -> Cluster:
        """Returns the right cluster; the credentials of the left cluster are not used for it."""
        if not self.right_service_url:
            return left
        return Cluster(
            self.right_service_url,
            self.right_admin_url,
            self.right_auth_plugin,
            self.right_auth_params,
            self.right_tls_trust_certs,
            self.right_tls_hostname_verification,
        )


CONFIG = MirrorVerifyConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
    for side in _sides(work):
        if is_namespace(side.name):
            side.work.check_namespace(side.name)
        else:
            side.work.check_cluster(side.name)


def dry_run(work: Work) -> Sequence[str]:
    left, right = (side.prints((), _now_ms()).count() for side in _sides(work))
    return [f"would compare {left:,} messages with {right:,}"]


def run(work: Work) -> None:
    config: MirrorVerifyConfig = work.config
    work.progress.step("looking at both sides")
    sides = _sides(work)
    now = _now_ms()
    # Before reading messages, so that everything confirmed exists on the other side when that is read.
    confirmed = _confirmed(sides)
    work.progress.step("comparing")
    left, right = (side.prints(config.ignored_properties, now) for side in sides)
    both = _counted(left, right).cache()
    totals = both.agg(f.sum("left"), f.sum("right"), f.count_if(f.col("left") != f.col("right"))).collect()[0]
    figures = {"messages left": int(totals[0] or 0), "messages right": int(totals[1] or 0)}
    figures |= {"missing right": 0, "too many right": 0}
    work.report.figures.update(figures)
    if totals[2]:
        _show_messages(work, both, int(totals[2]))
        _explain(work, both, (left, right), _explanations(work, sides, confirmed, now))
    both.unpersist()
    if config.order:
        _compare_order(work, left, right)
    figures = work.report.figures
    names = ("messages left", "messages right", "missing right", "too many right")
    points = [(float(number), float(figures[name])) for number, name in enumerate(names)]
    work.report.plots.append(Plot("Messages", [Series("", points)], "messages", labels=names))
    wrong = figures["missing right"] or figures["too many right"] or figures.get("order breaks")
    work.report.outcome = "differences" if wrong else "finished"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _sides(work: Work) -> tuple[MirrorSide, MirrorSide]:
    config: MirrorVerifyConfig = work.config
    there = replace(work, cluster=config.right_cluster(work.cluster))
    return MirrorSide(work, config.left, config.left_name), MirrorSide(there, config.right, config.right_name)


def _confirmed(sides: tuple[MirrorSide, MirrorSide]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns, for each side and each of its topics, the position up to which the topic's messages are
    replicated to the other cluster.
    """
    left, right = sides
    return left.confirmed(right.cluster), right.confirmed(left.cluster)


def _explanations(
    work: Work,
    sides: tuple[MirrorSide, MirrorSide],
    confirmed: tuple[dict[str, str], dict[str, str]],
    now: int,
) -> tuple[Explanations, Explanations]:
    """Returns, for each side, the explanations of messages that the other side lacks."""
    left, right = sides
    times = [side.times_to_live() for side in sides]
    unknown = sum(len(each.unknown) for each in times)
    if unknown:
        work.report.figures["topics of unknown time to live"] = unknown
    lived = shortest(*(each.seconds for each in times))
    return (
        Explanations(right.cluster, confirmed[0], lived, now),
        Explanations(left.cluster, confirmed[1], lived, now),
    )


def _counted(left: DataFrame, right: DataFrame) -> DataFrame:
    """Returns for each group of equal messages their number on each side, in the columns ``pair``, ``print``,
    ``sample``, ``left`` and ``right``."""

    def counted(frame: DataFrame, sample: str, name: str) -> DataFrame:
        return frame.groupBy("pair", "print").agg(f.min("sample").alias(sample), f.count("*").alias(name))

    joined = counted(left, "here", "left").join(counted(right, "there", "right"), ["pair", "print"], "full")
    return joined.select(
        "pair",
        "print",
        f.coalesce("here", "there").alias("sample"),
        f.coalesce("left", f.lit(0)).alias("left"),
        f.coalesce("right", f.lit(0)).alias("right"),
    )


def _show_messages(work: Work, both: DataFrame, kinds: int) -> None:
    config: MirrorVerifyConfig = work.config
    wrong = both.where("left <> right").orderBy("pair", "sample").limit(config.samples).collect()
    named = is_namespace(config.left)
    columns = (*(("topic",) if named else ()), *SHOWN, "left", "right")
    rows = [(*((row["pair"],) if named else ()), *row["sample"], row["left"], row["right"]) for row in wrong]
    work.report.tables.append(Table(_title("Differences", len(rows), kinds), columns, rows))


def _explain(
    work: Work, both: DataFrame, frames: tuple[DataFrame, ...], explanations: tuple[Explanations, ...]
) -> None:
    """Counts the messages that each side lacks, by explanation, and reports where these messages are on the
    other side.
    """
    config: MirrorVerifyConfig = work.config
    figures = work.report.figures
    rows: list[tuple[str, str, str, str, int]] = []
    count = 0
    names = (("left", "right", "missing right"), ("right", "left", "too many right"))
    for (own, other, unexplained), frame, told in zip(names, frames, explanations, strict=True):
        lacking = missing(told.explained(work.spark, frame), both, own, other)
        found = ranges(lacking).cache()
        by_kind = found.groupBy("kind").agg(f.sum("messages").alias("messages"), f.count("*").alias("ranges"))
        sums = {row["kind"]: row for row in by_kind.collect()}
        for kind in KINDS:
            messages = int(sums[kind]["messages"]) if kind in sums else 0
            figures[unexplained if kind == MISSING else f"{kind} {other}"] = messages
        count += sum(int(row["ranges"]) for row in sums.values())
        shown = found.orderBy((f.col("kind") != MISSING), "topic", "first").limit(config.samples)
        for row in shown.collect():
            rows.append((row["kind"], other, row["topic"], range_of(row), row["messages"]))
        found.unpersist()
    rows = sorted(rows, key=lambda row: row[0] != MISSING)[: config.samples]
    columns = ("kind", "not on the", "topic of the other side", "message ids", "messages")
    work.report.tables.append(Table(_title("Ranges", len(rows), count), columns, rows))


def _compare_order(work: Work, left: DataFrame, right: DataFrame) -> None:
    config: MirrorVerifyConfig = work.config
    work.progress.step("comparing the order of producers")
    breaks = order_breaks(left, right).cache()
    count = breaks.count()
    work.report.figures["order breaks"] = count
    if count:
        shown = breaks.orderBy("topic", "place").limit(config.samples).collect()
        rows = [
            (row["topic"], row["producer"], id_of(bytes(row["place"])), id_of(bytes(row["other"])))
            for row in shown
        ]
        columns = ("topic", "producer", "message left", "message right")
        work.report.tables.append(Table(_title("Order", len(rows), count), columns, rows))
    breaks.unpersist()


def _title(title: str, shown: int, all_of_them: int) -> str:
    return title if shown == all_of_them else f"{title} ({shown} of {all_of_them:,})"


@dataclass(frozen=True)
class Explanations:
    """Explains why messages of one side are missing on the other side of the comparison."""

    to: str
    """The name of the other cluster; empty: unknown, so no message counts as filtered or in flight."""
    confirmed: Mapping[str, str]
    """For each topic, the position (``ledger:entry``) up to which its messages are replicated to the other
    cluster.
    """
    times_to_live: Mapping[str, int]
    """The shorter time to live of each pair of topics, in seconds."""
    now_ms: int
    """Start of the comparison, in milliseconds since 1970."""

    def kind(self) -> Column:
        """Returns a column with the explanation for a message (:data:`KINDS`); uses the columns ``mark``
        (sorts like ``place``) and ``seconds`` (time to live).

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
        """Returns ``messages`` with a column ``kind``."""
        marks = [(topic, mark_of(position)) for topic, position in self.confirmed.items()]
        marked = spark.createDataFrame(marks, "topic string, mark binary")
        lived = spark.createDataFrame(list(self.times_to_live.items()), "pair string, seconds long")
        joined = messages.join(f.broadcast(marked), "topic", "left").join(f.broadcast(lived), "pair", "left")
        return joined.withColumn("kind", self.kind()).drop("mark", "seconds")


def mark_of(position: str) -> bytes:
    """Converts a position to the first 16 bytes of the ``place`` of its messages; a position before the first
    entry of a ledger becomes only 8 bytes.
    """
    ledger, entry = (int(number) for number in position.split(":"))
    start = max(0, ledger).to_bytes(8, "big")
    return start if entry < 0 else start + entry.to_bytes(8, "big")


def missing(messages: DataFrame, both: DataFrame, own: str, other: str) -> DataFrame:
    """Returns the messages of the side ``own`` that the side ``other`` lacks, with ``kind``, and with
    ``number``, their sequence number in the topic, from 1.

    If ``own`` has n messages that are equal to each other, and ``other`` has only m of them, n - m messages
    are returned. Messages whose kind comes first in :data:`KINDS` are chosen first, and within one kind the
    last messages in the topic.

    :param messages: the messages of the side, with their kind
    :param both: the columns ``pair`` and ``print``, and for each side a column with its number of equal
        messages, named after the side
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
    """Groups consecutive missing messages with the same explanation; returns topic, kind, first and last
    place, and number of messages of each group.
    """
    window = Window.partitionBy("topic", "kind").orderBy("number")
    islands = lacking.withColumn("island", f.col("number") - f.row_number().over(window))
    return (
        islands.groupBy("topic", "kind", "island")
        .agg(f.min("place").alias("first"), f.max("place").alias("last"), f.count("*").alias("messages"))
        .drop("island")
    )


def order_breaks(left: DataFrame, right: DataFrame) -> DataFrame:
    """Returns the places at which a producer's messages are in another order on the right, with the columns
    ``topic``, ``producer``, ``place`` (of a message on the left) and ``other`` (the place of the equal
    message on the right).

    A row means that a message follows its predecessor on the left, but precedes it on the right. Messages
    that only one side has are ignored. Of several equal messages, the n-th on the left corresponds to the
    n-th on the right.
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
    """Converts a place to ``ledger:entry``, or ``ledger:entry:index`` for a message in a batch."""
    ledger, entry, index = (int.from_bytes(place[a:b], "big") for a, b in ((0, 8), (8, 16), (16, 20)))
    return f"{ledger}:{entry}" + (f":{index - 1}" if index else "")


def range_of(row: Row) -> str:
    """Formats a row of :func:`ranges` for a report."""
    first, last = id_of(bytes(row["first"])), id_of(bytes(row["last"]))
    return first if first == last else f"{first} to {last}"
