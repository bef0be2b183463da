"""``replay``: publishes the rows of Parquet files as messages: each once, in order, at a given rate, and with
shifted event times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from magnetar.build_info import install_extra
from magnetar.spark.codec.message_order import sort_key
from magnetar.spark.pipelines.configuration import (
    CatalogLocation,
    Location,
    PipelineError,
    check_expression,
    init_value,
)
from magnetar.spark.pipelines.lake import Lake
from magnetar.spark.pipelines.outbox import Outbox
from magnetar.spark.pipelines.report import Plot, Series
from magnetar.spark.pipelines.table_columns import conformed
from magnetar.spark.pipelines.table_commits import OpenTable, TableError
from magnetar.spark.pipelines.table_files import S3, TableFolder, read_files
from magnetar.spark.pipelines.table_section import check_access, iceberg_table, is_address
from magnetar.spark.pipelines.work import Work, chosen

_SECONDS_A_SLICE = 5
_ROWS_A_SLICE = 200_000
_LEAST_ROWS = 100
_PARTITIONS = ("date", "hour")
_TABLE_PARTS = 3
"""The path of a table of the pipeline ``table`` ends with this number of names: TENANT/NAMESPACE/TOPIC."""


@dataclass(frozen=True)
class ReplayConfig:
    path: Location = field(metadata=init_value("archive"))
    """An archive, a table of the pipeline table (also s3://BUCKET/PATH), or a folder of Parquet files with a
    column ``value`` or a column for each field.
    """
    topic: str = field(metadata=init_value("persistent://public/default/orders-again"))
    """The topic to publish to."""
    work: Path = field(metadata=init_value("replay"))
    """A folder with the progress of this replay; each replay needs its own folder."""
    rate: float = 0.0
    """Messages per second, averaged over a few seconds; 0: no limit."""
    shift_seconds: float = 0.0
    """Seconds to add to event times."""
    catalog: CatalogLocation | None = None
    """The catalog of an Iceberg table: an SQLite file, or the URL of a REST catalog; default: catalog.db in
    the folder of the tables.
    """
    catalog_options: dict[str, str] = field(default_factory=dict)
    """Options of a REST catalog, as in the section table."""
    storage: dict[str, str] = field(default_factory=dict)
    """Options for s3://, as in the section table."""
    where: str = ""
    """A Spark SQL expression that selects messages."""
    options: dict[str, str] = field(default_factory=dict)
    """Additional options of ``format("pulsar")``."""

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError(f"rate must be 0 or more, not {self.rate}")
        check_access(self.path, self.storage, self.catalog, self.catalog_options)
        check_expression("where", self.where)


CONFIG = ReplayConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
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
    folder = Path(config.path)
    if (folder / "manifest.json").exists():
        frame = Lake(folder).read(work.spark)
    elif (table := table_at(config)) is not None:
        frame = _rows_of(work, table)
    elif folder.exists():
        frame = work.spark.read.option("mergeSchema", "true").parquet(config.path)
    else:
        raise PipelineError(f"{config.path} is neither a folder of Parquet files nor a table")
    for name in _columns_of_folders(folder):
        frame = frame.drop(name)
    frame = chosen(frame, config.where)
    if config.shift_seconds and "__eventTime" in frame.columns:
        micros = round(config.shift_seconds * 1e6)
        shifted = f.timestamp_micros(f.unix_micros("__eventTime") + f.lit(micros))
        frame = frame.withColumn("__eventTime", shifted)
    # The source topic is not the target.
    return frame.drop("__topic")


def table_at(config: ReplayConfig) -> OpenTable | None:
    """Returns the table whose folder is ``path``; None: the folder is not a table.

    :raises PipelineError: the library of the format or the catalog is missing
    """
    folder = TableFolder(config.path, config.storage)
    parts = tuple(config.path.removeprefix(S3).strip("/").split("/"))
    local = folder.local
    try:
        if config.catalog is None and (local is None or (local / "_delta_log").exists()):
            from magnetar.spark.pipelines.table_delta import DeltaFormat

            return DeltaFormat(folder)
        if config.catalog is not None or (local and any(local.glob("metadata/*.metadata.json"))):
            catalog = config.catalog or str(Path(config.path).parents[_TABLE_PARTS - 1] / "catalog.db")
            if not is_address(catalog) and not Path(catalog).exists():
                raise PipelineError(
                    f"{config.path} is an Iceberg table, but {catalog} is missing; set catalog"
                )
            return iceberg_table(folder, parts[-_TABLE_PARTS:], catalog, config.catalog_options)
    except ImportError as error:
        raise PipelineError(f"{config.path} is a table ({error}): {install_extra('lake')}") from error
    except TableError as error:
        raise PipelineError(str(error)) from error
    return None


def _rows_of(work: Work, table: OpenTable) -> DataFrame:
    """Returns the present rows of a table; tasks read its files without Hadoop libraries.

    :raises PipelineError: the table cannot be replayed
    """
    try:
        state = table.load()
        partitions, columns, stored = state.identity.partitions, state.columns, state.schema.names
        files = state.files
    except TableError as error:
        raise PipelineError(str(error)) from error
    if not files:
        raise PipelineError(f"{table} contains no rows to replay")
    # Tables of Delta have the values of such columns beside the files; other columns of partitions were
    # derived from those of messages.
    values = {
        each.column: place
        for place, each in enumerate(partitions)
        if each.transform == "identity" and each.column not in stored
    }
    columns = pa.schema([each for each in columns if each.name in stored or each.name in values])
    folder = table.folder

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in (files[number] for batch in numbers for number in batch.column(0).to_pylist()):
            for rows in read_files(folder, [file.path]):
                for name, place in values.items():
                    kind = columns.field(name).type
                    column = pa.repeat(pa.scalar(file.partition[place], kind), rows.num_rows)
                    rows = rows.append_column(name, column)
                yield conformed(rows, columns)

    return work.spark.range(0, len(files), 1, len(files)).mapInArrow(read, from_arrow_schema(columns))


def _columns_of_folders(path: Path) -> list[str]:
    """Returns the names of an archive's partition columns, which only occur in folder names; columns in the
    files belong to the messages.
    """
    return [name for name in _PARTITIONS if any(path.glob(f"**/{name}=*"))]


def _sliced(frame: DataFrame, rate: float) -> DataFrame:
    """Returns the rows ordered by publish time, then by message id, in partitions that are published one
    after another.
    """
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
