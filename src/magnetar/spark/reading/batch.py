"""``spark.read``: reads the messages that topics contain when the query is planned, with pushed-down
filters.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import BinaryType, StructType

from magnetar.spark.codec.columns import METADATA_NAMES, ORIGIN_NAMES, VALUE
from magnetar.spark.codec.rows import Malformed, RowSelection, record_batches
from magnetar.spark.codec.schemas import NOTHING, Definition, columns_of, shared_definition
from magnetar.spark.codec.values import ColumnBuilder
from magnetar.spark.connection import Connection
from magnetar.spark.errors import InvalidOption
from magnetar.spark.ledgers import Layout, Range, ranges_between
from magnetar.spark.options import QueryOptions
from magnetar.spark.positions import EARLIEST, Place
from magnetar.spark.reading import offloaded, segments
from magnetar.spark.reading.chunks import TopicChunks
from magnetar.spark.reading.entries import entries_of, partition_of
from magnetar.spark.reading.offloaded import EntriesOf
from magnetar.spark.reading.planning import TaskPart, parts_of
from magnetar.spark.reading.quarantine import Quarantine
from magnetar.spark.topics import ending_places, layouts, starting_places, topics_of

__all__ = [
    "BatchReader",
    "Pushed",
    "definition_for",
    "read_part",
]
_MAX_KEYS = 32
"""Maximum number of keys in a filter that the source applies; longer lists are left to Spark."""
_MAX_MS = (1 << 63) - 1


class BatchReader(DataSourceReader):
    """The reader of a batch query; a copy is sent to each task."""

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
        """Returns the parts of topics that tasks read.

        :raises DataLoss: the first messages no longer exist, and ``failOnDataLoss`` is set
        """
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


@dataclass
class Pushed:
    """The pushed-down filters, which the source applies while it reads."""

    times_from: int = 0
    times_to: int = _MAX_MS
    keys: tuple[bytes, ...] | None = None
    topics: frozenset[str] | None = None
    """Only these topics are read; None: all topics."""
    taken: list[Filter] = field(default_factory=list)

    @property
    def wanted(self) -> RowSelection:
        return RowSelection(self.times_from, self.times_to, self.keys)

    def wants_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Accepts supported filters; returns the filters that Spark must apply."""
        left = []
        for each in filters:
            if self._take(each):
                self.taken.append(each)
            else:
                left.append(each)
        return left

    def _take(self, each: Filter) -> bool:
        name = ".".join(getattr(each, "attribute", ()))
        if name == "__publishTime":
            return self._time(each)
        if name == "__key":
            return self._key(each)
        return name == "__topic" and self._topic(each)

    def _time(self, each: Filter) -> bool:
        value = getattr(each, "value", None)
        if not isinstance(value, datetime.datetime):
            return False
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        micros = since // datetime.timedelta(microseconds=1)
        # Publish times are whole milliseconds.
        up = -(-micros // 1000)
        if isinstance(each, GreaterThanOrEqual):
            self.times_from = max(self.times_from, up)
        elif isinstance(each, GreaterThan):
            self.times_from = max(self.times_from, micros // 1000 + 1)
        elif isinstance(each, LessThan):
            self.times_to = min(self.times_to, up)
        elif isinstance(each, LessThanOrEqual):
            self.times_to = min(self.times_to, micros // 1000 + 1)
        elif isinstance(each, EqualTo | EqualNullSafe):
            self.times_from = max(self.times_from, up)
            self.times_to = min(self.times_to, micros // 1000 + 1)
        else:
            return False
        return True

    def _key(self, each: Filter) -> bool:
        if isinstance(each, EqualTo | EqualNullSafe):
            values = (each.value,)
        elif isinstance(each, In):
            values = tuple(each.value)
        else:
            return False
        if len(values) > _MAX_KEYS or not all(isinstance(key, bytes | bytearray) for key in values):
            return False
        keys = tuple(bytes(key) for key in values)
        self.keys = keys if self.keys is None else tuple(key for key in self.keys if key in keys)
        return True

    def _topic(self, each: Filter) -> bool:
        if isinstance(each, EqualTo | EqualNullSafe):
            topics = frozenset((each.value,))
        elif isinstance(each, In):
            topics = frozenset(each.value)
        else:
            return False
        self.topics = topics if self.topics is None else self.topics & topics
        return True


def read_part(
    options: QueryOptions,
    schema: StructType,
    definition: Definition,
    wanted: RowSelection,
    part: TaskPart,
    malformed: Callable[[Malformed], object] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a part of a topic.

    :param definition: the schema of the topic's messages; with the schema of bytes, payloads are not decoded
    :param malformed: called with each message that cannot be decoded; None: handle such messages according to
        the options
    :raises DataLoss: messages no longer exist, and ``failOnDataLoss`` is set
    :raises MalformedMessage: a message cannot be decoded, and there is no quarantine
    :raises PulsarException: the broker refused the request
    """
    if not part.ranges:
        return
    with Connection(options) as connection, Quarantine(options, part) as quarantine:
        content = None
        if definition.kind not in ("NONE", "BYTES"):
            content = ColumnBuilder(connection.admin, part.topic, definition, empty_is_null=wanted.are_keyed)
        read: EntriesOf = segments.entries_of if options.read_mode == "segments" else entries_of
        if options.offload:
            read = partial(offloaded.entries_of, rest=read)
        number, chunks = partition_of(part.topic), TopicChunks(connection, part.topic)
        with closing(read(connection, part.topic, part.ranges)) as entries:
            yield from record_batches(
                part.topic, number, entries, schema, wanted, content, malformed or quarantine.add, chunks
            )


def definition_for(options: QueryOptions, schema: StructType) -> Definition:
    """Returns the schema for decoding payloads into the columns; the schema of bytes if no column needs a
    decoded payload.

    :raises SparkSourceError: the topics have different schemas
    :raises InvalidOption: the schema lacks a column
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
