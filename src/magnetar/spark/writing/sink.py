"""The writers for ``df.write`` and ``df.writeStream``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from magnetar.spark.codec.schemas import definition_of
from magnetar.spark.connection import Connection
from magnetar.spark.errors import InvalidOption
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.committing import commit
from magnetar.spark.writing.contents import check_columns
from magnetar.spark.writing.cutting import RowCutter
from magnetar.spark.writing.publishing import DirectPublisher
from magnetar.spark.writing.staging import StagedFile, Staging, staging_folder

__all__ = ["BatchSink", "StreamSink"]

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_FOLDER = "magnetar-staging"


@dataclass
class TaskDone(WriterCommitMessage):
    """What a finished task reports to the driver."""

    rows: int
    staged: StagedFile | None = None
    """The staged file; None: the task published its rows directly, had no rows, or its batch was already
    fixed.
    """
    query: str = ""
    """The id of the streaming query, as in its checkpoint; empty: a batch write, or unknown."""


class BatchSink(DataSourceArrowWriter):
    """``df.write``: publishes rows at least once or, with a ``writeId`` and a staging folder, exactly
    once.
    """

    def __init__(self, schema: StructType, options: QueryOptions, overwrite: bool) -> None:
        """:raises InvalidOption: an option is missing, or not supported

        :raises InvalidRows: these columns cannot be written
        """
        if overwrite:
            raise InvalidOption("a topic cannot be overwritten; use mode('append')")
        _check(schema, options)
        self._schema = schema
        self._options = options
        self._folder: Path | None = None
        if options.write_id:
            self._folder = _batch_folder(options)
        elif options.delivery in ("exactly-once", "transactional"):
            raise InvalidOption(
                f"'delivery={options.delivery}' of a batch requires 'writeId' and 'stagingDir'"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._folder is None:
            return _published(self._schema, self._options, iterator)
        return _staged(self._schema, self._options, Staging(self._folder), 0, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._folder is not None:
            commit(self._options, Staging(self._folder), 0, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._folder is not None:
            Staging(self._folder).forget(0, _files(messages))


class StreamSink(DataSourceStreamArrowWriter):
    """``df.writeStream``: publishes rows exactly once, unless ``delivery`` is at-least-once."""

    def __init__(self, schema: StructType, options: QueryOptions) -> None:
        """:raises InvalidOption: an option is missing, or not supported

        :raises InvalidRows: these columns cannot be written
        """
        _check(schema, options)
        if options.write_id:
            raise InvalidOption("'writeId' is only for batches; a stream has its checkpoint")
        self._schema = schema
        self._options = options
        self._folder = None if options.delivery == "at-least-once" else _stream_folder(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._folder is None:
            return _published(self._schema, self._options, iterator)
        done = _staged(self._schema, self._options, Staging(self._folder), _batch_id(), iterator)
        done.query = _told(_QUERY_ID) or ""
        return done

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if self._folder is not None:
            staging = Staging(self._folder)
            for query in {each.query for each in messages if isinstance(each, TaskDone) and each.query}:
                staging.claim(query)
            commit(self._options, staging, batchId, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        if self._folder is not None:
            Staging(self._folder).forget(batchId, _files(messages))


def _check(schema: StructType, options: QueryOptions) -> None:
    """Checks the columns and the topic's schema before any task runs.

    :raises InvalidRows: the rows cannot be written, or do not fit the schema of their topic
    """
    content = check_columns(schema, options)
    if content.by_schema and options.topic:
        with Connection(options) as connection:
            content.for_topic(options.topic, definition_of(connection.admin, options.topic))


def _batch_folder(options: QueryOptions) -> Path:
    if options.delivery == "at-least-once":
        raise InvalidOption("'writeId' is only for writing exactly once, but 'delivery' is at-least-once")
    if not options.staging_path:
        raise InvalidOption("'writeId' requires 'stagingDir', a directory that driver and executors share")
    if options.write_id in (".", "..") or "/" in options.write_id or "\0" in options.write_id:
        raise InvalidOption(
            f"'writeId' cannot be {options.write_id!r}, because it becomes the name of a directory"
        )
    return staging_folder("stagingDir", options.staging_path) / options.write_id


def _stream_folder(options: QueryOptions) -> Path:
    if options.staging_path:
        return staging_folder("stagingDir", options.staging_path)
    if not options.checkpoint_location:
        raise InvalidOption(
            "writing exactly once requires the option 'checkpointLocation' or 'stagingDir' of this query; "
            "spark.sql.streaming.checkpointLocation is not enough"
        )
    return staging_folder("checkpointLocation", options.checkpoint_location) / _FOLDER


def _told(name: str) -> str | None:
    """Returns a property that Spark sets for the tasks of a query, such as the query id; None: not set."""
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


def _batch_id() -> int:
    text = _told(_BATCH_ID)
    if text is None:
        raise InvalidOption(
            "this version of Spark does not give tasks the id of their batch (the local property "
            f"{_BATCH_ID}): use 'delivery=at-least-once'"
        )
    return int(text)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """Returns the staged files that tasks have reported, in the order of the tasks' partitions."""
    return [each.staged for each in messages if isinstance(each, TaskDone) and each.staged is not None]


def _staged(
    schema: StructType,
    options: QueryOptions,
    staging: Staging,
    batch_id: int,
    batches: Iterator[pa.RecordBatch],
) -> TaskDone:
    """Stages the rows of a task; does not read the rows if the batch is already fixed."""
    if staging.manifest(batch_id) is not None:
        return TaskDone(0)
    context = TaskContext.get()
    writer = None
    try:
        with Connection(options) as connection:

            def partitions(topic: str) -> int:
                names = connection.client.get_topic_partitions(topic)
                return 0 if names == [topic] else len(names)

            cutter = RowCutter(schema, options, partitions, partial(definition_of, connection.admin))
            for batch in batches:
                for entry in cutter.entries(batch):
                    if writer is None:
                        writer = staging.writer(batch_id, context.partitionId() if context else 0)
                    writer.add(entry)
        if writer is None:
            return TaskDone(0)
        staged = writer.finish()
    except BaseException:
        if writer is not None:
            writer.give_up()
        raise
    return TaskDone(staged.rows, staged)


def _published(schema: StructType, options: QueryOptions, batches: Iterator[pa.RecordBatch]) -> TaskDone:
    rows = 0
    with Connection(options) as connection, DirectPublisher(options) as publisher:
        definition = partial(definition_of, connection.admin)
        cutter = RowCutter(schema, options, publisher.partitions, definition)
        for batch in batches:
            publisher.publish(list(cutter.entries(batch)))
            rows += batch.num_rows
        publisher.finish()
    return TaskDone(rows)
