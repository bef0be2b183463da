"""Writes a batch of a topic as files of its tables; each Spark task reads some parts of the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, StructField, StructType

from magnetar.spark.codec.columns import IS_EMPTY
from magnetar.spark.codec.rows import Malformed, RowSelection
from magnetar.spark.codec.schemas import Definition
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.table_files import TableFolder, WrittenFile, run_tasks, write_files
from magnetar.spark.pipelines.table_partitions import PartitionColumn
from magnetar.spark.pipelines.table_quarantine import QuarantineFile, QuarantineTarget
from magnetar.spark.reading.batch import read_part
from magnetar.spark.reading.planning import TaskPart

__all__ = ["BatchPlan", "shares_of", "write_batch"]


@dataclass(frozen=True)
class BatchPlan:
    """What the tasks of a batch read and write; a copy is sent to each task."""

    options: QueryOptions
    columns: StructType
    """The columns to read."""
    definition: Definition
    """The schema of the messages."""
    shares: tuple[tuple[TaskPart, ...], ...]
    """For each task: the parts of the topic that it reads."""
    schema: pa.Schema
    """The columns of the main table's files."""
    folder: TableFolder
    query: str
    partitions: tuple[PartitionColumn, ...] = ()
    are_changes: bool = False
    """Whether each message changes the row with its key; if so, files have the column ``IS_EMPTY``."""
    quarantine: QuarantineTarget | None = None
    """The table for malformed messages; None: the options of the source apply."""

    def rows_of(
        self, share: int, malformed: Callable[[Malformed], object] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a task's parts.

        :param malformed: see :func:`magnetar.spark.reading.batch.read_part`
        """
        columns, wanted = self.columns, RowSelection(are_keyed=self.are_changes)
        if self.are_changes:
            columns = StructType([*columns.fields, StructField(IS_EMPTY, BooleanType())])
        for part in self.shares[share]:
            yield from read_part(self.options, columns, self.definition, wanted, part, malformed)

    def write(self, share: int) -> list[WrittenFile]:
        """Writes the files of a task, for the main table and for the quarantine table."""
        if self.quarantine is None:
            return self._rows_written(share, None)
        aside = QuarantineFile(self.quarantine)
        return [*self._rows_written(share, aside.add), *aside.finish()]

    def _rows_written(self, share: int, malformed: Callable[[Malformed], object] | None) -> list[WrittenFile]:
        rows = self.rows_of(share, malformed)
        return write_files(rows, self.folder, self.file_schema, self.query, self.partitions)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of the files of this batch."""
        return self.schema.append(pa.field(IS_EMPTY, pa.bool_())) if self.are_changes else self.schema


def shares_of(parts: Sequence[TaskPart], tasks: int) -> tuple[tuple[TaskPart, ...], ...]:
    """Distributes parts over at most ``tasks`` tasks, so that each gets about the same number of entries."""
    sizes = [0] * max(1, min(tasks, len(parts)))
    shares: list[list[TaskPart]] = [[] for _ in sizes]
    for part in sorted(parts, key=_entries, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(part)
        sizes[least] += _entries(part)
    return tuple(tuple(sorted(share, key=_place)) for share in shares if share)


def _place(part: TaskPart) -> tuple[str, int, int, int]:
    first = part.ranges[0]
    return part.topic, first.ledger, first.first, first.first_index


def _entries(part: TaskPart) -> int:
    return sum(each.entries for each in part.ranges)


def write_batch(spark: SparkSession, plan: BatchPlan) -> list[WrittenFile]:
    """Writes the files of a batch; returns their descriptions.

    If Spark repeats a task, the task writes another file; the file of the first attempt then belongs to no
    table.

    :raises PySparkException: a task failed
    """
    return run_tasks(spark, len(plan.shares), plan.write)
