"""Reads one part of a topic as record batches, in a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from magnetar.spark.codec.columns import METADATA_NAMES, ORIGIN_NAMES, VALUE
from magnetar.spark.codec.rows import RowSelection, record_batches
from magnetar.spark.codec.schemas import NOTHING, Definition, columns_of, shared_definition
from magnetar.spark.codec.values import ColumnBuilder
from magnetar.spark.connection import Connection
from magnetar.spark.errors import InvalidOption
from magnetar.spark.options import QueryOptions
from magnetar.spark.reading import segments
from magnetar.spark.reading.chunks import TopicChunks
from magnetar.spark.reading.entries import entries_of, partition_of
from magnetar.spark.reading.planning import TaskPart
from magnetar.spark.reading.quarantine import Quarantine

__all__ = ["definition_for", "read_part"]


def read_part(
    options: QueryOptions, schema: StructType, definition: Definition, wanted: RowSelection, part: TaskPart
) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a part.

    :param definition: the schema of the topic's messages; bytes: contents are not decoded

    :raises DataLoss: messages no longer exist, and ``failOnDataLoss`` is set
    :raises MalformedMessage: a message cannot be decoded, and there is no quarantine
    :raises PulsarException: the broker refused
    """
    if not part.ranges:
        return
    with Connection(options) as connection, Quarantine(options, part) as quarantine:
        content = None
        if definition.kind not in ("NONE", "BYTES"):
            content = ColumnBuilder(connection.admin, part.topic, definition)
        read = segments.entries_of if options.read_mode == "segments" else entries_of
        number, chunks = partition_of(part.topic), TopicChunks(connection, part.topic)
        with closing(read(connection, part.topic, part.ranges)) as entries:
            yield from record_batches(
                part.topic, number, entries, schema, wanted, content, quarantine.add, chunks
            )


def definition_for(options: QueryOptions, schema: StructType) -> Definition:
    """Returns the schema for the columns; bytes if they do not need one.

    :raises SparkSourceError: the topics have different schemas
    :raises InvalidOption: the schema does not have a column
    """
    contents = [each for each in schema.fields if each.name not in (*METADATA_NAMES, *ORIGIN_NAMES)]
    if all(each.name == VALUE and isinstance(each.dataType, BinaryType) for each in contents):
        return NOTHING
    with Connection(options) as connection:
        found = shared_definition(connection)
    known = columns_of(found).names
    for each in contents:
        if each.name not in known:
            raise InvalidOption(f"unknown column {each.name!r}; use one of {', '.join(known)}")
    return found
