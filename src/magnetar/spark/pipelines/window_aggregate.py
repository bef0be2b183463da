"""``window-aggregate``: aggregates a topic's messages over windows of event time, into Parquet files.

A window is written once, when the watermark has passed its end; later messages are ignored and counted. A
further run processes new messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from magnetar.spark.pipelines.configuration import PipelineError, check_expression, init_value
from magnetar.spark.pipelines.lake import Lake
from magnetar.spark.pipelines.report import Plot, Series, Table
from magnetar.spark.pipelines.work import Work, error_line, follow

_FILE_BYTES = 128 << 20
_MOST_POINTS = 2000
_MOST_LINES = 7
_SHOWN = 50


@dataclass(frozen=True)
class WindowAggregateConfig:
    topic: str = field(metadata=init_value("persistent://public/default/orders"))
    """The topic, or all partitions of a partitioned topic."""
    path: Path = field(metadata=init_value("windows"))
    """The folder of the results and of the query's state."""
    aggregates: dict[str, str] = field(default_factory=lambda: {"messages": "count(*)"})
    """Spark SQL expressions of aggregates, by column name."""
    group_by: dict[str, str] = field(default_factory=dict)
    """Spark SQL expressions to group by, by column name."""
    window: str = "1 minute"
    slide: str = ""
    """Distance between the starts of windows; empty: windows do not overlap."""
    watermark: str = "10 minutes"
    """Maximum age of a message relative to the newest one; older messages are ignored and counted."""
    time: Literal["event", "publish"] = "event"
    """The time for windows; with ``event``, messages without an event time use their publish time."""
    max_rows_per_batch: int = 1_000_000
    options: dict[str, str] = field(default_factory=dict)
    """Additional options of ``format("pulsar")``."""

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise ValueError("aggregates must have at least one entry")
        taken = {"window_start", "window_end"} & (set(self.aggregates) | set(self.group_by))
        if taken or set(self.aggregates) & set(self.group_by):
            raise ValueError(
                "the names in aggregates and group_by must differ from each other, and from window_start and "
                "window_end"
            )
        for section in ("aggregates", "group_by"):
            for name, text in getattr(self, section).items():
                check_expression(f"{section}.{name}", text)


CONFIG = WindowAggregateConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
    work.check_cluster(work.config.topic)


def dry_run(work: Work) -> Sequence[str]:
    config: WindowAggregateConfig = work.config
    columns = ["window_start", "window_end", *config.group_by, *config.aggregates]
    _aggregated(work).explain()
    return [f"would aggregate what {config.topic} holds since the last run; columns: {', '.join(columns)}"]


def run(work: Work) -> None:
    config: WindowAggregateConfig = work.config
    lake = Lake(config.path)
    lake.recover()
    lake.check_goes_on(config.path / "_checkpoint")
    work.progress.step("aggregating")
    query = (
        _aggregated(work)
        .writeStream.foreachBatch(lambda frame, batch: lake.add(frame, batch, []))
        .queryName("window-aggregate")
        .option("checkpointLocation", str(config.path / "_checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    told = follow(query, work.progress)
    late = sum(int(each["numRowsDroppedByWatermark"]) for one in told for each in one["stateOperators"])
    work.report.figures["messages read"] = sum(int(each["numInputRows"]) for each in told)
    # Rows are pre-aggregated before the windows, so this counts groups, not messages.
    work.report.figures["late groups left out"] = late
    work.progress.step("merging small files")
    lake.compact(work.spark, _FILE_BYTES, "window_start")
    if lake.summarize():
        _tell(work, lake.read(work.spark))


def _aggregated(work: Work) -> DataFrame:
    config: WindowAggregateConfig = work.config
    options = {
        **work.cluster.options(),
        "topic": config.topic,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": str(config.max_rows_per_batch),
        **config.options,
    }
    messages = work.spark.readStream.format("pulsar").options(**options).load()
    own = f.col("__publishTime")
    moment = own if config.time == "publish" else f.coalesce(f.col("__eventTime"), own)
    try:
        window = f.window("__time", config.window, config.slide or None)
        keys = [f.expr(text).alias(name) for name, text in config.group_by.items()]
        wanted = [f.expr(text).alias(name) for name, text in config.aggregates.items()]
        grouped = (
            messages.withColumn("__time", moment)
            .withWatermark("__time", config.watermark)
            .groupBy(window.alias("__window"), *keys)
            .agg(*wanted)
        )
        return grouped.select(
            f.col("__window.start").alias("window_start"),
            f.col("__window.end").alias("window_end"),
            *config.group_by,
            *config.aggregates,
        )
    except Exception as error:
        raise PipelineError(f"cannot aggregate: {error_line(error)}") from error


def _tell(work: Work, results: DataFrame) -> None:
    config: WindowAggregateConfig = work.config
    first = next(iter(config.aggregates))
    work.report.figures["windows in the results"] = results.select("window_start").distinct().count()
    work.report.figures["rows in the results"] = results.count()
    groups = list(config.group_by)
    rows = results.orderBy("window_start", *groups).limit(_MOST_POINTS).collect()
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = ", ".join(str(row[group]) for group in groups)
        if row[first] is not None:
            lines.setdefault(name, []).append((row["window_start"].timestamp(), float(row[first])))
    series = [Series(name, points) for name, points in list(lines.items())[:_MOST_LINES]]
    if series:
        work.report.plots.append(Plot(f"{first} by window", series, first, "event time", times=True))
    columns = list(results.columns)
    shown = [tuple(row[name] for name in columns) for row in rows[:_SHOWN]]
    work.report.tables.append(Table("First windows", columns, shown))
