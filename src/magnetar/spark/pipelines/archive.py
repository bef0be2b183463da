"""``archive``: writes a topic to partitioned Parquet files, exactly once; a further run adds new messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from magnetar.spark.pipelines.configuration import PipelineError, init_value
from magnetar.spark.pipelines.lake import Lake, LakeFile
from magnetar.spark.pipelines.report import Plot, Report, Series, Table
from magnetar.spark.pipelines.work import Work, follow

_FORMATS = {"date": "yyyy-MM-dd", "hour": "HH"}
_MOST_BARS = 60


@dataclass(frozen=True)
class ArchiveConfig:
    topic: str = field(metadata=init_value("persistent://public/default/orders"))
    """The topic, or all partitions of a partitioned topic."""
    path: Path = field(metadata=init_value("archive"))
    """The folder of the archive."""
    partition_by: Literal["date", "hour"] = "date"
    """``hour`` creates partitions by date and hour."""
    time: Literal["publish", "event"] = "publish"
    """The time that determines the partition: publish time or event time."""
    max_rows_per_batch: int = 1_000_000
    """Maximum number of messages that are written and committed together."""
    file_mb: int = 128
    """Small files of a partition are merged up to this size in MB; 0: never."""
    options: dict[str, str] = field(default_factory=dict)
    """Additional options of ``format("pulsar")``."""

    def __post_init__(self) -> None:
        if self.max_rows_per_batch < 1:
            raise ValueError(f"max_rows_per_batch must be at least 1, not {self.max_rows_per_batch}")


CONFIG = ArchiveConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
    work.check_cluster(work.config.topic)


def dry_run(work: Work) -> Sequence[str]:
    config: ArchiveConfig = work.config
    files = Lake(config.path).files()
    return [
        f"would add what {config.topic} holds since the last run to {config.path}",
        f"the archive has {sum(file.rows for file in files):,} messages in {len(files):,} files",
    ]


def run(work: Work) -> None:
    config: ArchiveConfig = work.config
    lake = Lake(config.path)
    lake.recover()
    lake.check_goes_on(config.path / "_checkpoint")
    before = sum(file.rows for file in lake.files())
    work.progress.step("archiving")
    told = _archive(work, lake)
    work.progress.step("merging small files")
    merged = lake.compact(work.spark, config.file_mb << 20, "__publishTime") if config.file_mb else 0
    files = lake.summarize()
    _tell(work.report, files, before, merged, told)


def _check_columns(topic: str, columns: Sequence[str], partitions: Sequence[str]) -> None:
    """Checks that no column has the name of a partition column.

    :raises PipelineError: a column has the name of a partition column; as in Spark, case is ignored
    """
    for each in columns:
        if each.lower() in partitions:
            raise PipelineError(
                f"{topic} has a field {each!r}, which is also a partition column of the archive;"
                ' use options = {"value.format" = "bytes"} to archive contents as they are'
            )


def _archive(work: Work, lake: Lake) -> list[dict[str, object]]:
    config: ArchiveConfig = work.config
    options = {
        **work.cluster.options(),
        "topic": config.topic,
        "startingOffsets": "earliest",
        "maxRowsPerTrigger": str(config.max_rows_per_batch),
        **config.options,
    }
    names = ["date"] if config.partition_by == "date" else ["date", "hour"]
    time = f.col("__publishTime")
    if config.time == "event":
        time = f.coalesce(f.col("__eventTime"), time)

    def add(frame: DataFrame, batch: int) -> None:
        for name in names:
            frame = frame.withColumn(name, f.date_format(time, _FORMATS[name]))
        lake.add(frame, batch, names)

    messages = work.spark.readStream.format("pulsar").options(**options).load()
    _check_columns(config.topic, messages.columns, names)
    query = (
        messages.writeStream.foreachBatch(add)
        .queryName("archive")
        .option("checkpointLocation", str(config.path / "_checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return follow(query, work.progress)


def _tell(
    report: Report, files: list[LakeFile], before: int, merged: int, told: list[dict[str, Any]]
) -> None:
    rows = sum(file.rows for file in files)
    report.figures.update(
        {
            "messages added": rows - before,
            "messages in the archive": rows,
            "files": len(files),
            "small files merged": merged,
            "bytes": sum(file.bytes for file in files),
        }
    )
    partitions: dict[str, list[LakeFile]] = {}
    for file in files:
        partitions.setdefault(file.partition, []).append(file)
    lines = [
        (name, sum(file.rows for file in found), len(found), sum(file.bytes for file in found))
        for name, found in sorted(partitions.items())
    ]
    report.tables.append(Table("Partitions", ("partition", "messages", "files", "bytes"), lines))
    shown = lines[-_MOST_BARS:]
    points = [(float(number), float(line[1])) for number, line in enumerate(shown)]
    labels = [line[0].replace("date=", "").replace("/hour=", " ") for line in shown]
    if shown:
        report.plots.append(Plot("Messages by partition", [Series("", points)], "messages", labels=labels))
    speed = [
        (datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00")).timestamp(), each)
        for each in told
        if each["numInputRows"]
    ]
    if len(speed) > 1:
        rates = [(time, float(each["processedRowsPerSecond"])) for time, each in speed]
        plot = Plot("Speed of the batches", [Series("", rates)], "messages/s", "time", times=True)
        report.plots.append(plot)
