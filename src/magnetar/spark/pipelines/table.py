"""``table``: writes topics to Delta Lake or Apache Iceberg tables, each message exactly once."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from magnetar.admin_client import AdminError, NotFound
from magnetar.http.metrics.exposition import family, labels_text
from magnetar.naming.topic_name import TopicName
from magnetar.spark.codec.columns import BYTES
from magnetar.spark.codec.schemas import (
    NOTHING,
    Definition,
    columns_of,
    definition_of_all_versions,
    definition_of_fitting_versions,
)
from magnetar.spark.connection import Connection
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.configuration import PipelineError
from magnetar.spark.pipelines.report import Table
from magnetar.spark.pipelines.table_batch import BatchPlan, shares_of, write_batch
from magnetar.spark.pipelines.table_columns import ColumnError, columns_in
from magnetar.spark.pipelines.table_commits import (
    BatchTaken,
    TableError,
    TableIdentity,
    TableMarker,
    TableState,
    commit_once,
)
from magnetar.spark.pipelines.table_files import WrittenFile
from magnetar.spark.pipelines.table_metrics import serving
from magnetar.spark.pipelines.table_quarantine import PlannedBatch, QuarantineTable
from magnetar.spark.pipelines.table_section import (
    TableConfig,
    TablesSection,
    check_library,
    folder_of,
    is_namespace,
    opened,
)
from magnetar.spark.pipelines.table_upkeep import TableUpkeep
from magnetar.spark.pipelines.table_upsert import REMEMBERS_ALL, REMEMBERS_NONE, merge, remove_changes
from magnetar.spark.pipelines.work import Work
from magnetar.spark.positions import Offset
from magnetar.spark.reading.planning import TaskPart, parts_of
from magnetar.spark.reading.streaming import StreamReader

log = logging.getLogger(__name__)
_PARTITION = re.compile(r"-partition-\d+$")
_FEWEST_ENTRIES = 50
"""Minimum number of entries per task and file: smaller files cost readers more than another task saves."""


CONFIG = TableConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
    config: TablesSection = work.config
    check_library(config)
    for each in config.topics:
        if is_namespace(each):
            work.check_namespace(each)
        else:
            work.check_cluster(each)
    if config.pattern:
        work.check_namespace(_namespace_of(config.pattern))


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
    """Waits until the next round is due."""
    time.sleep(seconds)


def _round(work: Work, tables: dict[str, TopicTable]) -> None:
    for topic in topics_of(work):
        work.progress.step(f"adding {topic}")
        try:
            if topic not in tables:
                tables[topic] = TopicTable(work, topic)
            table = tables[topic]
            table.add_all(work.spark)
        except (TableError, SparkSourceError) as error:
            raise PipelineError(f"{topic}: {error}") from error
        finally:
            _tell(work, tables)
        work.progress.done(table.rows_of_round, f"rows (lag {table.lag:,} entries)")


def _metrics(tables: Sequence[TopicTable]) -> Iterator[str]:
    figures: tuple[tuple[str, str, Callable[[TopicTable], int]], ...] = (
        ("magnetar_table_rows_total", "counter", lambda table: table.rows),
        ("magnetar_table_files_total", "counter", lambda table: table.files),
        ("magnetar_table_bytes_total", "counter", lambda table: table.bytes),
        ("magnetar_table_changed_rows_total", "counter", lambda table: table.changed),
        ("magnetar_table_rewritten_rows_total", "counter", lambda table: table.rewritten),
        ("magnetar_table_quarantined_rows_total", "counter", lambda table: table.quarantined),
        ("magnetar_table_batches_total", "counter", lambda table: table.batches),
        ("magnetar_table_lag_entries", "gauge", lambda table: table.lag),
    )
    for name, kind, figure in figures:
        yield from family(name, kind, [(labels_text({"topic": each.topic}), figure(each)) for each in tables])


def topics_of(work: Work) -> list[str]:
    """Returns the full names of the topics, without system topics.

    :raises PipelineError: a namespace cannot be listed
    """
    config: TablesSection = work.config
    found = {str(TopicName.parse(each)) for each in config.topics if not is_namespace(each)}
    for each in config.topics:
        if is_namespace(each):
            found.update(_listed(work, each))
    if config.pattern:
        wanted = re.compile(config.pattern.removeprefix("persistent://"))
        names = _listed(work, _namespace_of(config.pattern))
        found.update(name for name in names if wanted.fullmatch(name.removeprefix("persistent://")))
    return sorted(found)


def _namespace_of(pattern: str) -> str:
    """Returns the namespace with which a topic pattern begins.

    :raises PipelineError: the pattern does not begin with a namespace
    """
    parts = re.match(r"(?:persistent://)?([^/]+)/([^/]+)/", pattern)
    if parts is None:
        raise PipelineError(
            f"pattern = {pattern!r} must begin with a tenant and a namespace, such as "
            "persistent://public/default/"
        )
    return f"{parts[1]}/{parts[2]}"


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


class TopicTable:
    """A topic and its table."""

    def __init__(self, work: Work, topic: str) -> None:
        config: TableConfig = work.config
        self.topic = topic
        self.table = opened(config, topic)
        self.rows = 0
        """Number of rows that this run has added."""
        self.files = 0
        self.bytes = 0
        self.batches = 0
        self.changed = 0
        """Number of rows that upserts of this run have changed."""
        self.rewritten = 0
        """Number of rows in the files that upserts of this run have written."""
        self.upkeep = TableUpkeep()
        self.quarantine: QuarantineTable | None = None
        if config.on_error == "quarantine":
            self.quarantine = QuarantineTable(opened(config, topic, is_quarantine=True))
        self.lag = 0
        """Number of entries that the table does not contain yet."""
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
        """Earlier schema versions of the topic, by version."""
        self._begun = 0.0
        """When the round began, in seconds since 1970."""
        self._rows_before = 0
        """The value of :attr:`rows` at the start of the round."""
        self._moved = ""
        """The positions to which this run has last moved the subscription, as JSON."""

    @property
    def rows_of_round(self) -> int:
        """Number of rows that the current round has added."""
        return self.rows - self._rows_before

    @property
    def quarantined(self) -> int:
        """Number of messages that this run has added to the quarantine table."""
        return 0 if self.quarantine is None else self.quarantine.rows

    def add_all(self, spark: SparkSession) -> None:
        """Adds all present messages of the topic to the table, in batches.

        :raises TableError: the table cannot be written; the error text says why
        :raises SparkSourceError: the topic cannot be read
        """
        state = self.table.find() or self._created()
        self._check(state.identity)
        if self.quarantine is not None:
            self.quarantine.prepare(state.identity)
        options = QueryOptions.parse({**self._given, "predefinedSubscription": state.identity.subscription})
        reader = StreamReader(options, BYTES)
        self._begun = time.time()
        self._rows_before = self.rows
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
        definition = self._definition(QueryOptions.parse(self._given), pa.schema([]))
        columns = columns_in(definition)
        for each in identity.partitions:
            try:
                each.check(columns)
            except ValueError as error:
                raise TableError(f"{self.table}: {error}") from error
        self.table.create(identity, columns)
        return self.table.load()

    def _definition(self, options: QueryOptions, columns: pa.Schema) -> Definition:
        """Returns the schema of the messages, with the fields of all versions.

        :param columns: the columns of the table; if there is a quarantine table, schema versions that do not
            fit these columns are left out
        """
        if options.value_format == "bytes":
            return NOTHING

        def refusal(wanted: Definition) -> str:
            nonlocal columns
            try:
                columns = self.table.merged(columns, columns_in(wanted))
            except ColumnError as error:
                return str(error)
            return ""

        with Connection(options) as connection:
            if self.quarantine is None:
                return definition_of_all_versions(connection.admin, self.topic, self._versions)
            return definition_of_fitting_versions(connection.admin, self.topic, self._versions, refusal)

    def _check(self, identity: TableIdentity) -> None:
        """Checks that the table belongs to this topic and these options.

        :raises TableError: the table has another topic or other options
        """
        pairs = (
            ("topic", identity.topic, self.topic),
            ("mode", identity.mode, self._config.mode),
            ("partition_by", identity.partition_by, self._config.partitions),
        )
        for what, has, wanted in pairs:
            if has != wanted:
                raise TableError(
                    f"{self.table} was created with the {what} {has}, not {wanted}; use another path"
                )

    def _add_batch(self, spark: SparkSession, reader: StreamReader, options: QueryOptions) -> bool:
        """Adds a batch; returns False if there are no messages to add."""
        marker = self.table.load().marker
        if marker.positions and marker.positions != self._moved:
            # The last run may have ended between its commit and this.
            reader.commit(Offset.from_json(marker.positions).to_json())
            self._moved = marker.positions
        try:
            planned = None if self.quarantine is None else self.quarantine.planned(marker)
        except TableError:
            if self.table.load().marker == marker:
                raise
            return True
        start = Offset.from_json(marker.positions).to_json() if marker.positions else reader.initialOffset()
        batch = planned or self._planned(reader, options, start, marker)
        if batch is None:
            return False
        end = dict(batch.end)
        columns = columns_of(batch.definition)
        self.table.widen(columns_in(batch.definition))
        parts = [each for each in reader.partitions(start, end) if isinstance(each, TaskPart)]
        tasks = tasks_of(spark)
        shares = shares_of(_cut(parts, tasks), tasks)
        widened = self.table.load()
        plan = BatchPlan(
            options,
            columns,
            batch.definition,
            shares,
            widened.schema,
            self.table.folder,
            marker.query,
            widened.identity.partitions,
            self._is_upsert,
            None if self.quarantine is None else self.quarantine.target,
        )
        files = write_batch(spark, plan)
        try:
            if self.quarantine is not None and plan.quarantine is not None:
                files, aside = self.quarantine.split(files, plan.quarantine)
                if planned is None:
                    self.quarantine.add(batch, marker, aside)
            positions = _compact(Offset.from_json(end))
            if self._is_upsert:
                rows = sum(each.rows for each in files)
                since = self._remember_since(reader, end)
                committed, files = self._upserted(spark, marker, positions, files, since)
            else:
                committed = commit_once(self.table, marker, positions, files)
                rows = sum(each.rows for each in files)
        except BatchTaken as taken:
            log.warning("%s: another driver has added %s", self.topic, taken)
            return True
        reader.commit(end)
        self._moved = committed.positions
        self.rows += rows
        self.files += len(files)
        self.bytes += sum(each.size for each in files)
        self.batches += 1
        self._look(reader)
        if self._config.maintain_every and self.batches % self._config.maintain_every == 0:
            self.upkeep += self._config.keep_up(spark, self.table)
            if self.quarantine is not None:
                self.upkeep += self._config.keep_up(spark, self.quarantine.table)
        self._progress.update(self.rows_of_round)
        return True

    def _remember_since(self, reader: StreamReader, end: dict[str, object]) -> int:
        """Returns the publish time, in microseconds since 1970, from which deletions must be remembered after
        a batch.

        With one partition, no deletion needs to be remembered. While messages are left that the table does
        not contain, all deletions are remembered. Otherwise, any further message is stored after the start of
        the round, so it was published at most ``late_hours`` before this start.
        """
        if len(Offset.from_json(end).topics) == 1:
            # No other partition has messages of the same key.
            return REMEMBERS_NONE
        if reader.latestOffset(end, reader.getDefaultReadLimit()) != end:
            return REMEMBERS_ALL
        return round((self._begun - self._config.late_hours * 3600) * 1e6)

    @property
    def _is_upsert(self) -> bool:
        return self._config.mode == "upsert"

    def _upserted(
        self,
        spark: SparkSession,
        marker: TableMarker,
        positions: str,
        changes: Sequence[WrittenFile],
        remember_since: int,
    ) -> tuple[TableMarker, list[WrittenFile]]:
        """Merges a batch into the table and commits it; returns the new marker and the new files."""
        try:
            merged = merge(spark, self.table, marker, changes, remember_since)
            files, exchange = merged.files, merged.exchange
            committed = commit_once(self.table, marker, positions, files, exchange=exchange)
        finally:
            # No commit names these files, whatever its outcome is.
            remove_changes(self.table.folder, changes)
        self.changed += merged.changed
        self.rewritten += merged.rewritten
        return committed, list(files)

    def _planned(
        self, reader: StreamReader, options: QueryOptions, start: dict[str, object], marker: TableMarker
    ) -> PlannedBatch | None:
        """Plans the next batch; returns None if there are no messages to add."""
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return None
        # The positions are known: the schemas of these messages are registered by now.
        has = self.table.load().columns if self.quarantine is not None else pa.schema([])
        return PlannedBatch(marker.commit, end, self._definition(options, has))


def _cut(parts: Sequence[TaskPart], tasks: int) -> list[TaskPart]:
    """Splits the parts into enough pieces for ``tasks`` tasks, but not into pieces below the minimum size."""
    entries = sum(each.entries for part in parts for each in part.ranges)
    most = max(_FEWEST_ENTRIES, -(-entries // tasks))
    return [piece for part in parts for piece in parts_of(part.topic, part.ranges, most)]


def _compact(offset: Offset) -> str:
    """Returns the JSON of the positions at the end of a batch, without data that only this batch needs."""
    topics = {name: replace(each, splits=(), begin=None) for name, each in offset.topics.items()}
    return json.dumps(replace(offset, topics=topics).to_json(), separators=(",", ":"), sort_keys=True)


def tasks_of(spark: SparkSession) -> int:
    """Returns the number of tasks that can run at the same time."""
    if hasattr(spark, "_jsparkSession"):
        return max(1, spark.sparkContext.defaultParallelism)
    # A client of Spark Connect does not know the cluster.
    return max(1, int(str(spark.conf.get("spark.default.parallelism", "8"))))


def _tell(work: Work, tables: dict[str, TopicTable]) -> None:
    """Writes the current statistics to the report."""
    added = list(tables.values())
    work.report.figures.update(
        {
            "tables": len(added),
            "rows added": sum(each.rows for each in added),
            "rows quarantined": sum(each.quarantined for each in added),
            "rows changed by upserts": sum(each.changed for each in added),
            "rows rewritten by upserts": sum(each.rewritten for each in added),
            "rows rewritten per row changed": round(
                sum(each.rewritten for each in added) / max(1, sum(each.changed for each in added)), 1
            ),
            "files added": sum(each.files for each in added),
            "bytes added": sum(each.bytes for each in added),
            "batches": sum(each.batches for each in added),
            "lag in entries": sum(each.lag for each in added),
            "small files merged": sum(each.upkeep.merged for each in added),
            "manifests merged": sum(each.upkeep.manifests for each in added),
            "states expired": sum(each.upkeep.expired for each in added),
            "orphans removed": sum(each.upkeep.removed for each in added),
            "metadata files removed": sum(each.upkeep.cleaned for each in added),
        }
    )
    lines = [
        (each.topic, str(each.table), each.rows, each.quarantined, each.files, each.bytes, each.lag)
        for each in added
    ]
    names = (
        "topic",
        "table",
        "rows added",
        "rows quarantined",
        "files added",
        "bytes added",
        "lag in entries",
    )
    reading = [
        (each.topic, program, line) for each in added for program, line in each.table.reading().items()
    ]
    reading += [
        (f"{each.topic}, quarantine", program, line)
        for each in added
        if each.quarantine is not None
        for program, line in each.quarantine.table.reading().items()
    ]
    work.report.tables[:] = [
        Table("Tables", names, lines),
        Table("Reading", ("topic", "program", "line"), reading),
    ]
