"""``replay``: publishes Parquet files as messages, in order, at a rate, with shifted times, each once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from magnetar.build_info import install_extra
from magnetar.spark.codec.message_order import sort_key
from magnetar.spark.pipelines.configuration import PipelineError, check_expression, init_value
from magnetar.spark.pipelines.lake import Lake
from magnetar.spark.pipelines.outbox import Outbox
from magnetar.spark.pipelines.report import Plot, Series
from magnetar.spark.pipelines.table_commits import OpenTable, TableError
from magnetar.spark.pipelines.table_files import TableFolder
from magnetar.spark.pipelines.work import Work, chosen

_SECONDS_A_SLICE = 5
_ROWS_A_SLICE = 200_000
_LEAST_ROWS = 100
_PARTITIONS = ("date", "hour")
_TABLE_PARTS = 3
"""Tables of the pipeline ``table`` lie at TENANT/NAMESPACE/TOPIC."""


@dataclass(frozen=True)
class ReplayConfig:
    path: Path = field(metadata=init_value("archive"))
    """An archive, a table of the pipeline table, or a folder of Parquet files with a column ``value``, or
    with a column for each field."""
    topic: str = field(metadata=init_value("persistent://public/default/orders-again"))
    """The topic to publish to."""
    work: Path = field(metadata=init_value("replay"))
    """A folder with the progress of this replay; another replay needs another folder."""
    rate: float = 0.0
    """Messages per second, on average over a few seconds; 0: as fast as possible."""
    shift_seconds: float = 0.0
    """Added to event times."""
    catalog: Path | None = None
    """The SQLite file that is the catalog, if path is an Iceberg table.
    Left out: catalog.db in the folder of the tables."""
    where: str = ""
    """A Spark SQL expression that selects messages."""
    options: dict[str, str] = field(default_factory=dict)
    """Additional options of ``format("pulsar")``."""

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError(f"rate must be 0 or more, not {self.rate}")
        check_expression("where", self.where)


CONFIG = ReplayConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """See :class:`magnetar.spark.pipelines.work.Pipeline`."""
    work.check_cluster(work.config.topic, create=True)


def dry_run(work: Work) -> Sequence[str]:
    config: ReplayConfig = work.config
    box = Outbox(config.work)
    if box.published:
        return [f"{config.work}: this replay is finished already"]
    count = (box.rows(work.spark) if box.decided else _chosen(work)).count()
    time_taken = f", in about {count / config.rate:,.0f} s" if config.rate else ""
    return [f"would publish {count:,} messages from {config.path} to {config.topic}{time_taken}"]


def run(work: Work) -> None:
    config: ReplayConfig = work.config
    box = Outbox(config.work)
    if not box.decided:
        work.progress.step("putting messages in order")
        box.fill(_sliced(_chosen(work), config.rate))
    files = box.files()
    counts = [pq.ParquetFile(path).metadata.num_rows for path in files]
    work.report.figures["messages"] = sum(counts)
    if box.published:
        work.report.figures["messages published"] = 0
        return
    work.progress.step("publishing")
    options = {**work.cluster.options(), "topic": config.topic, **config.options}
    begun, done = time.monotonic(), 0
    points = []
    for number, (path, count) in enumerate(zip(files, counts, strict=True)):
        if not count:
            continue
        due = begun + done / config.rate if config.rate else begun
        while (left := due - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            work.progress.update(done, sum(counts))
        frame = work.spark.read.parquet(str(path)).coalesce(1)
        box.publish(frame, f"slice-{number:08d}", options)
        done += count
        points.append((time.monotonic() - begun, float(done)))
        work.progress.update(done, sum(counts))
    box.close()
    seconds = max(time.monotonic() - begun, 1e-9)
    work.report.figures.update({"messages published": done, "messages a second": done / seconds})
    series = [Series("published", [(0.0, 0.0), *points])]
    if config.rate:
        wanted = [(0.0, 0.0), (seconds, min(float(sum(counts)), config.rate * seconds))]
        series.append(Series("wanted", wanted, dashed=True))
    work.report.plots.append(Plot("Messages published", series, "messages", "seconds"))


def _chosen(work: Work) -> DataFrame:
    config: ReplayConfig = work.config
    if (config.path / "manifest.json").exists():
        frame = Lake(config.path).read(work.spark)
    elif (table := _table_at(config)) is not None:
        frame = _rows_of(work, table)
    elif config.path.exists():
        frame = work.spark.read.option("mergeSchema", "true").parquet(str(config.path))
    else:
        raise PipelineError(f"{config.path}: no such folder")
    for name in _columns_of_folders(config.path):
        frame = frame.drop(name)
    frame = chosen(frame, config.where)
    if config.shift_seconds and "__eventTime" in frame.columns:
        micros = round(config.shift_seconds * 1e6)
        shifted = f.timestamp_micros(f.unix_micros("__eventTime") + f.lit(micros))
        frame = frame.withColumn("__eventTime", shifted)
    # The source topic is not the target.
    return frame.drop("__topic")


def _table_at(config: ReplayConfig) -> OpenTable | None:
    """Returns the table whose folder is ``path``; None: it is not one.

    :raises PipelineError: the library of its format is missing
    """
    folder = TableFolder(str(config.path))
    try:
        if (config.path / "_delta_log").exists():
            from magnetar.spark.pipelines.table_delta import DeltaFormat

            return DeltaFormat(folder)
        if any(config.path.glob("metadata/*.metadata.json")):
            from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in

            file = config.catalog or config.path.parents[_TABLE_PARTS - 1] / "catalog.db"
            if not file.exists():
                raise PipelineError(f"{config.path} is an Iceberg table, but {file} is missing; set catalog")
            return IcebergFormat(catalog_in(str(file)), config.path.parts[-_TABLE_PARTS:], folder)
    except ImportError as error:
        raise PipelineError(f"{config.path} is a table ({error}): {install_extra('lake')}") from error
    return None


def _rows_of(work: Work, table: OpenTable) -> DataFrame:
    """Returns the rows of the present state of a table.

    :raises PipelineError: the table cannot be replayed
    """
    try:
        state = table.load()
        partitions = state.identity.partitions
        files = state.files
    except TableError as error:
        raise PipelineError(str(error)) from error
    by_value = [each.column for each in partitions if each.transform == "identity"]
    if by_value and set(by_value) - set(state.schema.names):
        raise PipelineError(
            f"{table} is partitioned by {by_value[0]}, whose values are not in its files; export it with "
            "DuckDB, and replay the export"
        )
    if not files:
        raise PipelineError(f"{table} has no rows to replay")
    return work.spark.read.option("mergeSchema", "true").parquet(
        *(table.folder.at(each.path) for each in files)
    )


def _columns_of_folders(path: Path) -> list[str]:
    """Returns the partition columns of an archive's folders; in files such columns belong to messages."""
    return [name for name in _PARTITIONS if any(path.glob(f"**/{name}=*"))]


def _sliced(frame: DataFrame, rate: float) -> DataFrame:
    """Returns rows in the order of publish times and places, in partitions that are published one by one."""
    rows = frame.count()
    size = max(_LEAST_ROWS, round(rate * _SECONDS_A_SLICE)) if rate else _ROWS_A_SLICE
    frame = frame.withColumn("__order", f.monotonically_increasing_id())
    order = ["__order"]
    if "__messageId" in frame.columns:
        # Messages of an entry, and often of many entries, have the same publish time.
        frame = frame.withColumn("__place", sort_key(f.col("__messageId")))
        order.insert(0, "__place")
    if "__publishTime" in frame.columns:
        order.insert(0, "__publishTime")
    parts = max(1, ceil(rows / size))
    return frame.repartitionByRange(parts, *order).sortWithinPartitions(*order).drop("__order", "__place")
