"""``spark.read``: the messages of topics at the time of planning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from magnetar.spark.connection import Connection
from magnetar.spark.ledgers import Layout, Range, ranges_between
from magnetar.spark.options import QueryOptions
from magnetar.spark.positions import EARLIEST, Place
from magnetar.spark.reading.filters import Pushed
from magnetar.spark.reading.planning import TaskPart, parts_of
from magnetar.spark.reading.tasks import definition_for, read_part
from magnetar.spark.topics import ending_places, layouts, starting_places, topics_of

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """The reader of a query; it is sent to the tasks."""

    def __init__(self, options: QueryOptions, schema: StructType) -> None:
        """:raises InvalidOption: no topic is given"""
        options.check_reading()
        self._options = options
        self._schema = schema
        self._definition = definition_for(options, schema)
        self._pushed = Pushed(
            options.starting_time or 0,
            (1 << 63) - 1 if options.ending_time is None else options.ending_time,
        )

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._pushed.push(filters)

    def partitions(self) -> Sequence[InputPartition]:
        """:raises DataLoss: the first messages no longer exist, and ``failOnDataLoss`` is set"""
        parts: list[TaskPart] = []
        with Connection(self._options) as connection:
            topics = topics_of(connection)
            found = layouts(connection, topics)
            starts = starting_places(connection, topics, EARLIEST)
            ends = ending_places(connection, topics)
            for topic, layout in found.items():
                start, end = layout.resolved(starts.of(topic)), layout.resolved(ends.of(topic))
                if self._pushed.wants_topic(topic):
                    ranges = self._ranges(layout, start, min(end, layout.end))
                    parts += parts_of(topic, ranges, self._options.max_entries_per_partition)
        return parts or [TaskPart("", ())]

    def _ranges(self, layout: Layout, start: Place, end: Place) -> list[Range]:
        if not self._options.fail_on_data_loss:
            start = max(start, layout.first)
        return ranges_between(layout, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskPart)
        return read_part(self._options, self._schema, self._definition, self._pushed.wanted, partition)
