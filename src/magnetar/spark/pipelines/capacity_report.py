"""``capacity-report``: storage and backlog of each tenant, their growth, and when a limit is reached.

Each run adds a sample to a file; growth is the slope of a line through the samples of the last days.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

from magnetar.admin_client import AdminClient, NotFound
from magnetar.naming.topic_name import TopicName
from magnetar.spark.durable import sync
from magnetar.spark.pipelines.report import Plot, Series, Table
from magnetar.spark.pipelines.work import Work

_DAY = 86_400.0
_MOST_TENANTS = 8
_MOST_TOPICS = 50
_TOPICS = StructType(
    [
        StructField("tenant", StringType()),
        StructField("namespace", StringType()),
        StructField("topic", StringType()),
        StructField("storage", LongType()),
        StructField("backlog", LongType()),
        StructField("backlog_entries", LongType()),
        StructField("messages_in", LongType()),
    ]
)
_SAMPLE = StructType(
    [StructField("tenant", StringType()), StructField("time", LongType()), StructField("storage", LongType())]
)


@dataclass(frozen=True)
class CapacityReportConfig:
    history: Path
    """A file with a JSON line for each sample and tenant."""
    capacity_gb: float = 0.0
    """Storage limit of a tenant; 0: no forecast."""
    forecast_days: int = 30
    growth_days: float = 14.0
    """Days of samples for the growth."""
    tenants: tuple[str, ...] = ()
    """Empty: all."""

    def __post_init__(self) -> None:
        if self.capacity_gb < 0 or self.forecast_days < 1 or self.growth_days <= 0:
            raise ValueError("capacity_gb, forecast_days and growth_days must be positive")


CONFIG = CapacityReportConfig


def dry_run(work: Work) -> Sequence[str]:
    config: CapacityReportConfig = work.config
    tenants = _tenants(work.admin, config)
    return [f"would look at the topics of {len(tenants)} tenants: {', '.join(tenants)}"]


def run(work: Work) -> None:
    config: CapacityReportConfig = work.config
    work.progress.step("asking for statistics")
    lines = [
        line
        for tenant in _tenants(work.admin, config)
        for namespace in work.admin.namespaces(tenant)
        for line in _topics(work, tenant, namespace)
    ]
    topics = work.spark.createDataFrame(lines, _TOPICS)
    totals = [tuple(row) for row in _by_tenant(topics).collect()]
    now = int(time.time())
    _remember(config.history, [(row[0], now, row[2]) for row in totals])
    growth = _growth(
        work.spark.read.schema(_SAMPLE).option("mode", "DROPMALFORMED").json(str(config.history)), now, config
    )
    largest = topics.orderBy(f.desc("storage"), "topic").limit(_MOST_TOPICS).collect()
    _tell(work, totals, growth)
    names = [name.replace("_", " ") for name in _TOPICS.names[2:]]
    work.report.tables.append(Table("Largest topics", names, [tuple(row)[2:] for row in largest]))


def _tenants(admin: AdminClient, config: CapacityReportConfig) -> list[str]:
    return list(config.tenants) or sorted(admin.tenants())


def _topics(work: Work, tenant: str, namespace: str) -> list[tuple[Any, ...]]:
    found = []
    for topic in work.admin.topics(namespace):
        try:
            stats = work.admin.topic_stats(topic)
        except NotFound:
            # The topic was deleted after listing.
            continue
        # Despite its name, this counts entries: a batch counts once.
        waiting = sum(int(each["msgBacklog"]) for each in stats["subscriptions"].values())
        whole = str(TopicName.parse(topic))
        figures = (int(stats["storageSize"]), int(stats["backlogSize"]), waiting, int(stats["msgInCounter"]))
        found.append((tenant, namespace, whole, *figures))
        work.progress.update(len(found), unit="topics")
    return found


def _by_tenant(topics: DataFrame) -> DataFrame:
    """Returns tenant, topics, storage, and backlog in bytes and entries; largest first."""
    return (
        topics.groupBy("tenant")
        .agg(
            f.count("*").alias("topics"),
            f.sum("storage").alias("storage"),
            f.sum("backlog").alias("backlog"),
            f.sum("backlog_entries").alias("backlog_entries"),
        )
        .orderBy(f.desc("storage"), "tenant")
    )


def _remember(history: Path, samples: Sequence[tuple[str, int, int]]) -> None:
    history.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(dict(zip(_SAMPLE.names, each, strict=True))) for each in samples]
    text = "".join(f"{line}\n" for line in lines)
    with history.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                # A run was killed while writing: do not append to its partial line.
                text = f"\n{text}"
        file.write(text.encode())
    sync(history)


def _growth(
    samples: DataFrame, now: int, config: CapacityReportConfig
) -> dict[str, tuple[float | None, list[tuple[float, float]]]]:
    """Returns each tenant's growth in bytes per second (None: only one sample) and its samples."""
    since = now - config.growth_days * _DAY
    kept = samples.where(f.col("time") >= since)
    rows = kept.groupBy("tenant").agg(
        f.regr_slope(f.col("storage").cast("double"), f.col("time").cast("double")),
        f.array_sort(f.collect_list(f.struct("time", "storage"))),
    )
    return {row[0]: (row[1], [(float(each[0]), float(each[1])) for each in row[2]]) for row in rows.collect()}


def _tell(
    work: Work,
    totals: Sequence[tuple[Any, ...]],
    growth: dict[str, tuple[float | None, list[tuple[float, float]]]],
) -> None:
    config: CapacityReportConfig = work.config
    limit = config.capacity_gb * 1e9
    rows, series = [], []
    for number, (tenant, topics, storage, backlog, waiting) in enumerate(totals):
        slope, samples = growth[tenant]
        full: Any = ""
        if limit and storage >= limit:
            full = "reached"
        elif limit and slope is not None and slope > 0:
            full = round((limit - storage) / slope / _DAY, 1)
        elif limit and slope is not None:
            full = "never"
        a_day = "one sample" if slope is None else round(slope * _DAY)
        rows.append((tenant, topics, storage, backlog, waiting, a_day, full))
        if number >= _MOST_TENANTS // 2:
            continue
        series.append(Series(tenant, samples))
        if slope is not None:
            last, ahead = samples[-1][0], config.forecast_days * _DAY
            end = max(0.0, storage + slope * ahead)
            series.append(
                Series(f"{tenant}, forecast", [(last, float(storage)), (last + ahead, end)], dashed=True)
            )
    columns = (
        "tenant",
        "topics",
        "bytes",
        "backlog bytes",
        "backlog entries",
        "bytes a day",
        "days until full",
    )
    report = work.report
    report.tables.append(Table("Tenants", columns, rows))
    report.figures.update(
        {
            "tenants": len(rows),
            "topics": sum(row[1] for row in rows),
            "bytes stored": sum(row[2] for row in rows),
            "backlog in entries": sum(row[4] for row in rows),
        }
    )
    shown = rows[:_MOST_TENANTS]
    bars = [
        Series(name, [(float(number), float(row[column])) for number, row in enumerate(shown)])
        for name, column in (("stored", 2), ("backlog", 3))
    ]
    if shown:
        labels = [str(row[0]) for row in shown]
        report.plots.append(Plot("Bytes by tenant", bars, "bytes", labels=labels))
        report.plots.append(Plot("Growth and forecast", series, "bytes", "time", times=True))
