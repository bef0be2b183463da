"""``table``: turns topics into tables of Delta Lake or Apache Iceberg, exactly once."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.admin_client import AdminError, NotFound
from magnetar.build_info import install_extra
from magnetar.http.metrics.exposition import family, labels_text
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.spark.codec.columns import BYTES
from magnetar.spark.codec.schemas import NOTHING, Definition, columns_of, definition_of_all_versions
from magnetar.spark.connection import Connection
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.configuration import Location, PipelineError, init_value
from magnetar.spark.pipelines.report import Table
from magnetar.spark.pipelines.table_commits import (
    BatchTaken,
    OpenTable,
    TableError,
    TableIdentity,
    TableState,
    commit_once,
)
from magnetar.spark.pipelines.table_files import (
    ACCESS_OPTIONS,
    S3,
    BatchPlan,
    TableFolder,
    shares_of,
    write_batch,
)
from magnetar.spark.pipelines.table_metrics import serving
from magnetar.spark.pipelines.table_partitions import parse_partitions
from magnetar.spark.pipelines.table_upkeep import TableUpkeep, maintain
from magnetar.spark.pipelines.work import Work
from magnetar.spark.positions import Offset
from magnetar.spark.reading.planning import TaskPart, parts_of
from magnetar.spark.reading.streaming import StreamReader

_CATALOG_FILE = "catalog.db"
_LEAST_ORPHAN_DAYS = 0.05
"""A file is younger while its commit may be under way."""
log = logging.getLogger(__name__)
_PARTITION = re.compile(r"-partition-\d+$")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_FEWEST_ENTRIES = 50
"""A file of fewer entries would cost readers more than a task saves."""


@dataclass(frozen=True)
class TablesSection:
    """Which tables, and where they are."""

    topics: tuple[str, ...] = field(metadata=init_value(["persistent://public/default/orders"]))
    """Topics, and namespaces such as public/default; a topic with its partitions is one table."""
    path: Location = field(metadata=init_value("tables"))
    """The folder of the tables, or s3://BUCKET/PATH. A table lies at TENANT/NAMESPACE/TOPIC in it."""
    pattern: str = ""
    """A regular expression for full names of topics: persistent://public/default/orders-.*; empty: none."""
    format: Literal["delta", "iceberg"] = "delta"
    catalog: Location | None = None
    """The SQLite file that is the catalog of Iceberg tables; empty: catalog.db in path."""
    storage: dict[str, str] = field(default_factory=dict)
    """Access to s3://: endpoint, region, access_key_id, secret_access_key and session_token.
    Without them, the variables of the environment count (AWS_ACCESS_KEY_ID and others)."""
    file_mb: int = 128
    """Upkeep merges smaller files of a partition up to this size; 0: never."""
    keep_days: float = 7.0
    """Upkeep lets states of a table be read that are not older than this."""
    orphan_days: float = 3.0
    """Upkeep deletes files that no such state names, if they are older than this; at least 0.05."""

    def __post_init__(self) -> None:
        if not self.topics and not self.pattern:
            raise ValueError("one of topics and pattern is required")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"pattern is not a regular expression: {error}") from error
        for each in self.topics:
            _check_name(each)
        self._check_storage()
        if self.file_mb < 0 or self.keep_days < 0 or self.orphan_days < _LEAST_ORPHAN_DAYS:
            raise ValueError(
                f"file_mb and keep_days must not be negative, and orphan_days at least {_LEAST_ORPHAN_DAYS}, "
                f"not {self.file_mb}, {self.keep_days} and {self.orphan_days}"
            )

    def _check_storage(self) -> None:
        unknown = sorted(set(self.storage) - set(ACCESS_OPTIONS))
        if unknown:
            raise ValueError(f"storage has no option {unknown[0]!r}; use {', '.join(ACCESS_OPTIONS)}")
        if self.storage and not self.path.startswith(S3):
            raise ValueError(f"storage is for tables at s3://, not for path {self.path}")
        if self.catalog and self.catalog.startswith(S3):
            raise ValueError(f"catalog must be a file that the driver can access, not {self.catalog}")
        if self.catalog and self.format != "iceberg":
            raise ValueError("catalog is for format = 'iceberg'; tables of Delta Lake have none")
        if self.path.startswith(S3) and self.format == "iceberg" and not self.catalog:
            raise ValueError("catalog is required for Iceberg tables at s3://, because it is a file")

    @property
    def catalog_file(self) -> str:
        """The file of the catalog of Iceberg tables."""
        return self.catalog or f"{self.path}/{_CATALOG_FILE}"

    @property
    def may_have_tables(self) -> bool:
        """Whether looking for tables creates nothing."""
        return self.format == "delta" or Path(self.catalog_file).exists()

    def keep_up(self, spark: SparkSession, table: OpenTable) -> TableUpkeep:
        """Maintains a table as this section says.

        :raises TableError: the table cannot be used
        """
        keep, orphans = timedelta(days=self.keep_days), timedelta(days=self.orphan_days)
        return maintain(spark, table, self.file_mb << 20, keep, orphans)


@dataclass(frozen=True)
class TableConfig(TablesSection):
    mode: Literal["append"] = "append"
    """append: each message is a row."""
    partition_by: tuple[str, ...] = ()
    """Elements such as day(__publishTime), hour(__eventTime), bucket(16, __key) or the name of a column."""
    trigger: str = ""
    """Pause between the starts of two rounds, such as "30 s", "5 min" or "1 h"; empty: one round."""
    maintain_every: int = 0
    """After this many batches of a table, its upkeep runs, as by table-maintain; 0: never."""
    metrics_port: int = 0
    """The port on which the driver answers GET /metrics while the pipeline runs; 0: none."""
    max_rows_per_batch: int = 1_000_000
    """The most messages that are committed together."""
    options: dict[str, str] = field(default_factory=dict)
    """Additional options of ``format("pulsar")``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.metrics_port < 1 << 16:
            raise ValueError(f"metrics_port must be 0 to 65535, not {self.metrics_port}")
        if self.max_rows_per_batch < 1 or self.maintain_every < 0:
            raise ValueError(
                "max_rows_per_batch must be at least 1 and maintain_every at least 0, not "
                f"{self.max_rows_per_batch} and {self.maintain_every}"
            )
        _ = self.pause_seconds, self.partitions

    @property
    def partitions(self) -> str:
        """The normal form of ``partition_by``."""
        return "; ".join(str(each) for each in parse_partitions(self.partition_by)) or "none"

    @property
    def pause_seconds(self) -> float:
        """The value of ``trigger`` in seconds; 0: one round."""
        if not self.trigger:
            return 0.0
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|min|h)", self.trigger)
        if found is None or not float(found[1]):
            raise ValueError(f'trigger must be a time such as "30 s", "5 min" or "1 h", not {self.trigger!r}')
        return float(found[1]) * _SECONDS[found[2]]


CONFIG = TableConfig
NEEDS_SPARK = True


def _is_namespace(name: str) -> bool:
    return "://" not in name and name.count("/") == 1


def _check_name(name: str) -> None:
    """:raises ValueError: it is not the name of a topic or a namespace"""
    if _is_namespace(name):
        return
    try:
        topic = TopicName.parse(name)
    except InvalidName as error:
        raise ValueError(f"topics: {error}") from error
    if topic.domain.value != "persistent":
        raise ValueError(f"topics: {name!r} is not persistent: its messages are not stored")


def check(work: Work) -> None:
    """See :class:`magnetar.spark.pipelines.work.Pipeline`."""
    config: TablesSection = work.config
    check_library(config)
    for each in config.topics:
        if _is_namespace(each):
            work.check_namespace(each)
        else:
            work.check_cluster(each)


def dry_run(work: Work) -> Sequence[str]:
    config: TableConfig = work.config
    lines = []
    for topic in topics_of(work):
        try:
            state = opened(config, topic).find() if config.may_have_tables else None
            there = "does not exist yet" if state is None else f"has {state.marker.batch:,} batches"
        except TableError as error:
            raise PipelineError(f"{topic}: {error}") from error
        lines.append(f"would add what {topic} holds to {folder_of(config, topic)}, which {there}")
    return lines or ["no topic matches"]


def run(work: Work) -> None:
    config: TableConfig = work.config
    tables: dict[str, TopicTable] = {}
    with serving(config.metrics_port, lambda: _metrics(list(tables.values()))):
        while True:
            begun = time.monotonic()
            _round(work, tables)
            if not config.trigger:
                return
            pause(max(0.0, begun + config.pause_seconds - time.monotonic()))


def pause(seconds: float) -> None:
    """Waits for the next round."""
    time.sleep(seconds)


def _round(work: Work, tables: dict[str, TopicTable]) -> None:
    for topic in topics_of(work):
        if topic not in tables:
            tables[topic] = TopicTable(work, topic)
        table = tables[topic]
        work.progress.step(f"adding {topic}")
        try:
            table.add_all(work.spark)
        except (TableError, SparkSourceError) as error:
            raise PipelineError(f"{topic}: {error}") from error
        finally:
            _tell(work, tables)
        work.progress.done(table.rows, f"rows (lag {table.lag:,} entries)")


def _metrics(tables: Sequence[TopicTable]) -> Iterator[str]:
    figures: tuple[tuple[str, str, Callable[[TopicTable], int]], ...] = (
        ("magnetar_table_rows_total", "counter", lambda table: table.rows),
        ("magnetar_table_files_total", "counter", lambda table: table.files),
        ("magnetar_table_bytes_total", "counter", lambda table: table.bytes),
        ("magnetar_table_batches_total", "counter", lambda table: table.batches),
        ("magnetar_table_lag_entries", "gauge", lambda table: table.lag),
    )
    for name, kind, figure in figures:
        yield from family(name, kind, [(labels_text({"topic": each.topic}), figure(each)) for each in tables])


def topics_of(work: Work) -> list[str]:
    """Returns the full names of the topics, without those of the system.

    :raises PipelineError: a namespace cannot be listed
    """
    config: TablesSection = work.config
    found = {str(TopicName.parse(each)) for each in config.topics if not _is_namespace(each)}
    for each in config.topics:
        if _is_namespace(each):
            found.update(_listed(work, each))
    if config.pattern:
        parts = re.match(r"(?:persistent://)?([^/]+)/([^/]+)/", config.pattern)
        if parts is None:
            raise PipelineError(
                f"pattern = {config.pattern!r} must begin with a tenant and a namespace, such as "
                "persistent://public/default/"
            )
        wanted = re.compile(config.pattern.removeprefix("persistent://"))
        names = _listed(work, f"{parts[1]}/{parts[2]}")
        found.update(name for name in names if wanted.fullmatch(name.removeprefix("persistent://")))
    return sorted(found)


def _listed(work: Work, namespace: str) -> Iterator[str]:
    try:
        names = work.admin.partitioned_topics(namespace) + work.admin.topics(namespace)
    except NotFound as error:
        raise PipelineError(f"namespace {namespace}: {error}") from error
    except AdminError as error:
        raise PipelineError(f"the topics of {namespace} cannot be listed: {error}") from error
    for name in {_PARTITION.sub("", each) for each in names}:
        if not TopicName.parse(name).local.startswith("__"):
            yield name


def place_of(topic: str) -> tuple[str, ...]:
    """Returns tenant, namespace and topic as names of folders and tables."""
    name = TopicName.parse(topic)
    return tuple(_plain(each) for each in (name.tenant, name.namespace, name.local))


def _plain(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    # Different names stay different.
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class TopicTable:
    """A topic and its table."""

    def __init__(self, work: Work, topic: str) -> None:
        config: TableConfig = work.config
        self.topic = topic
        self.table = opened(config, topic)
        self.rows = 0
        """Rows that this run has added."""
        self.files = 0
        self.bytes = 0
        self.batches = 0
        self.upkeep = TableUpkeep()
        self.lag = 0
        """Entries that the table does not have yet."""
        self._config = config
        self._given = {
            **work.cluster.options(),
            "topic": topic,
            "startingOffsets": "earliest",
            "maxRowsPerTrigger": str(config.max_rows_per_batch),
            **config.options,
        }
        self._progress = work.progress
        self._versions: dict[int, Definition] = {}
        """Earlier schemas of the topic."""
        self._moved = ""
        """The positions to which this run has moved the subscription."""

    def add_all(self, spark: SparkSession) -> None:
        """Adds the messages that the topic has now, in batches.

        :raises TableError: the table cannot be written; the text says why
        :raises SparkSourceError: the topic cannot be read
        """
        state = self.table.find() or self._created()
        self._check(state.identity)
        options = QueryOptions.parse({**self._given, "predefinedSubscription": state.identity.subscription})
        reader = StreamReader(options, BYTES)
        try:
            reader.prepareForTriggerAvailableNow()
            while self._add_batch(spark, reader, options):
                pass
            self._look(reader)
        finally:
            reader.stop()

    def _look(self, reader: StreamReader) -> None:
        seen = json.loads(json.dumps(reader.reportLatestOffset() or {"topics": {}}))
        self.lag = sum(each["backlog"] for each in seen["topics"].values())

    def _created(self) -> TableState:
        query = uuid.uuid4().hex[:16]
        identity = TableIdentity(
            query, self.topic, f"table-{query}", self._config.mode, self._config.partitions
        )
        definition = self._definition(QueryOptions.parse(self._given))
        columns = to_arrow_schema(columns_of(definition), timezone="UTC")
        for each in identity.partitions:
            try:
                each.check(columns)
            except ValueError as error:
                raise TableError(f"{self.table}: {error}") from error
        self.table.create(identity, columns)
        return self.table.load()

    def _definition(self, options: QueryOptions) -> Definition:
        """Returns the schema of the messages: messages of all versions have their fields in it."""
        if options.value_format == "bytes":
            return NOTHING
        with Connection(options) as connection:
            return definition_of_all_versions(connection.admin, self.topic, self._versions)

    def _check(self, identity: TableIdentity) -> None:
        """:raises TableError: the table is for something else"""
        pairs = (
            ("topic", identity.topic, self.topic),
            ("mode", identity.mode, self._config.mode),
            ("partition_by", identity.partition_by, self._config.partitions),
        )
        for what, has, wanted in pairs:
            if has != wanted:
                raise TableError(f"{self.table} has the {what} {has}, not {wanted}; use another path")

    def _add_batch(self, spark: SparkSession, reader: StreamReader, options: QueryOptions) -> bool:
        """Adds a batch; returns False if there is nothing to add."""
        marker = self.table.load().marker
        if marker.positions and marker.positions != self._moved:
            # The last run may have ended between its commit and this.
            reader.commit(Offset.from_json(marker.positions).to_json())
            self._moved = marker.positions
        start = Offset.from_json(marker.positions).to_json() if marker.positions else reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return False
        # The batch has been planned: the schemas of its messages are registered by now.
        definition = self._definition(options)
        columns = columns_of(definition)
        self.table.widen(to_arrow_schema(columns, timezone="UTC"))
        parts = [each for each in reader.partitions(start, end) if isinstance(each, TaskPart)]
        tasks = tasks_of(spark)
        shares = shares_of(_cut(parts, tasks), tasks)
        widened = self.table.load()
        plan = BatchPlan(
            options,
            columns,
            definition,
            shares,
            widened.schema,
            self.table.folder,
            marker.query,
            widened.identity.partitions,
        )
        files = write_batch(spark, plan)
        try:
            committed = commit_once(self.table, marker, _compact(Offset.from_json(end)), files)
        except BatchTaken as taken:
            log.warning("%s: another driver has added %s", self.topic, taken)
            return True
        reader.commit(end)
        self._moved = committed.positions
        self.rows += sum(each.rows for each in files)
        self.files += len(files)
        self.bytes += sum(each.size for each in files)
        self.batches += 1
        self._look(reader)
        if self._config.maintain_every and self.batches % self._config.maintain_every == 0:
            self.upkeep += self._config.keep_up(spark, self.table)
        self._progress.update(self.rows)
        return True


def _cut(parts: Sequence[TaskPart], tasks: int) -> list[TaskPart]:
    """Returns parts that are small enough for all tasks to get some."""
    entries = sum(each.entries for part in parts for each in part.ranges)
    most = max(_FEWEST_ENTRIES, -(-entries // tasks))
    return [piece for part in parts for piece in parts_of(part.topic, part.ranges, most)]


def _compact(offset: Offset) -> str:
    """Returns the JSON of positions; what only the batch needs that they end is left out."""
    topics = {name: replace(each, splits=(), begin=None) for name, each in offset.topics.items()}
    return json.dumps(replace(offset, topics=topics).to_json(), separators=(",", ":"), sort_keys=True)


def tasks_of(spark: SparkSession) -> int:
    """Returns how many tasks can run at the same time."""
    if hasattr(spark, "_jsparkSession"):
        return max(1, spark.sparkContext.defaultParallelism)
    # A client of Spark Connect does not know the cluster.
    return max(1, int(str(spark.conf.get("spark.default.parallelism", "8"))))


def check_library(config: TablesSection) -> None:
    """Checks that the library of the format is installed.

    :raises PipelineError: the library of the format is missing
    """
    try:
        import_module(f"magnetar.spark.pipelines.table_{config.format}")
    except ImportError as error:
        raise PipelineError(
            f"format = {config.format!r} needs a library ({error}): {install_extra('lake')}"
        ) from error


def folder_of(config: TablesSection, topic: str) -> TableFolder:
    """Returns the folder of a topic's table."""
    return TableFolder("/".join((config.path, *place_of(topic))), config.storage)


def opened(config: TablesSection, topic: str) -> OpenTable:
    """Returns the table of a topic, whether it exists or not; creates the catalog of Iceberg tables."""
    folder = folder_of(config, topic)
    if config.format == "delta":
        from magnetar.spark.pipelines.table_delta import DeltaFormat

        return DeltaFormat(folder)
    from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in

    return IcebergFormat(catalog_in(config.catalog_file, folder.iceberg_options()), place_of(topic), folder)


def _tell(work: Work, tables: dict[str, TopicTable]) -> None:
    """Writes the figures so far."""
    added = list(tables.values())
    work.report.figures.update(
        {
            "tables": len(added),
            "rows added": sum(each.rows for each in added),
            "files added": sum(each.files for each in added),
            "bytes added": sum(each.bytes for each in added),
            "batches": sum(each.batches for each in added),
            "lag in entries": sum(each.lag for each in added),
            "small files merged": sum(each.upkeep.merged for each in added),
            "states expired": sum(each.upkeep.expired for each in added),
            "orphans removed": sum(each.upkeep.removed for each in added),
        }
    )
    lines = [(each.topic, str(each.table), each.rows, each.files, each.bytes, each.lag) for each in added]
    names = ("topic", "table", "rows added", "files added", "bytes added", "lag in entries")
    reading = [
        (each.topic, program, line) for each in added for program, line in each.table.reading().items()
    ]
    work.report.tables[:] = [
        Table("Tables", names, lines),
        Table("Reading", ("topic", "program", "line"), reading),
    ]
