"""What runs in a task: one part of a topic becomes record batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from magnetar.spark import segments
from magnetar.spark.connection import Connection
from magnetar.spark.entries import entries_of, partition_of
from magnetar.spark.errors import MalformedMessage
from magnetar.spark.options import Options
from magnetar.spark.planning import Part
from magnetar.spark.rows import Malformed, Wanted, record_batches

__all__ = ["read_part"]


def read_part(options: Options, schema: StructType, wanted: Wanted, part: Part) -> Iterator[pa.RecordBatch]:
    """The messages of a part.

    :raises DataLoss: some are gone, and ``failOnDataLoss`` is set
    :raises MalformedMessage: one cannot be taken apart, and there is nowhere to put it
    :raises PulsarException: the broker refused
    """
    if not part.ranges:
        return
    with Connection(options) as connection:
        read = segments.entries_of if options.read_mode == "segments" else entries_of
        entries = read(connection, part.topic, part.ranges)
        yield from record_batches(
            part.topic, partition_of(part.topic), entries, schema, wanted, None, _refuse
        )


def _refuse(found: Malformed) -> None:
    raise MalformedMessage(f"{found.topic} {found.message_id.decode()}: {found.reason}")
