"""``dlq-report``: summarizes a dead letter topic by cause, origin and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from magnetar.spark.pipelines.configuration import check_expression, init_value
from magnetar.spark.pipelines.dead_letters import CAUSES, with_origin
from magnetar.spark.pipelines.report import Plot, Series, Table
from magnetar.spark.pipelines.work import Work, chosen

_MOST_ROWS = 200
_PARTS = 1024


@dataclass(frozen=True)
class DlqReportConfig:
    topic: str = field(metadata=init_value("persistent://public/default/orders-billing-DLQ"))
    """The dead letter topic."""
    causes: tuple[str, ...] = CAUSES
    """Properties that can contain the cause; the first one that is present counts."""
    where: str = ""
    """A Spark SQL expression that selects messages."""
    samples: int = 3
    """Number of message ids to list per group."""

    def __post_init__(self) -> None:
        if not self.causes or self.samples < 0:
            raise ValueError(
                f"causes must have at least one property, and samples must be 0 or more, not {self.samples}"
            )
        check_expression("where", self.where)


CONFIG = DlqReportConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
    work.check_cluster(work.config.topic)


def dry_run(work: Work) -> Sequence[str]:
    config: DlqReportConfig = work.config
    return [f"would count {work.messages(config.topic).count():,} messages of {config.topic} by cause"]


def run(work: Work) -> None:
    config: DlqReportConfig = work.config
    work.progress.step("counting dead letters")
    letters = with_origin(work.messages(config.topic), config.causes)
    letters = chosen(letters, config.where)
    groups = _groups(letters, config.samples)
    lines = [tuple(row) for row in groups.limit(_MOST_ROWS).collect()]
    columns = ("cause", "origin", "subscription", "messages", "most attempts", "first", "last", "samples")
    work.report.tables.append(Table("By cause", columns, lines))
    work.report.figures["dead letters"] = sum(line[3] for line in lines)
    by_cause: dict[str, int] = {}
    for line in lines:
        by_cause[line[0]] = by_cause.get(line[0], 0) + line[3]
    work.report.figures["causes"] = len(by_cause)
    largest = sorted(by_cause.items(), key=lambda each: -each[1])[:12]
    points = [(float(number), float(count)) for number, (_, count) in enumerate(largest)]
    if points:
        labels = [cause for cause, _ in largest]
        work.report.plots.append(
            Plot("Dead letters by cause", [Series("", points)], "messages", labels=labels)
        )


def _groups(letters: DataFrame, samples: int) -> DataFrame:
    """Returns the groups of dead letters with their counts and samples, largest first.

    The samples are taken from the smallest ids of many small parts of each group, because collecting all ids
    of a group would take too much memory.
    """
    names = ["cause", "origin_topic", "subscription"]
    parts = letters.groupBy(*names, f.pmod(f.hash("origin_id"), f.lit(_PARTS)).alias("part")).agg(
        f.count("*").alias("count"),
        f.max("attempts").alias("attempts"),
        f.min("__publishTime").alias("first"),
        f.max("__publishTime").alias("last"),
        f.min("origin_id").alias("id"),
    )
    ids = f.slice(f.array_sort(f.collect_set("id")), 1, max(samples, 1)) if samples else f.array()
    return (
        parts.groupBy(*names)
        .agg(
            f.sum("count").alias("messages"),
            f.max("attempts").alias("attempts"),
            _second(f.min("first")).alias("first"),
            _second(f.max("last")).alias("last"),
            f.array_join(ids, ", ").alias("samples"),
        )
        .orderBy(f.desc("messages"), *names)
    )


def _second(moment: Column) -> Column:
    return f.date_format(moment, "yyyy-MM-dd HH:mm:ss")
