"""``spark.readStream``: reads the messages of topics as they arrive, in batches that can be repeated
identically.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from magnetar.spark.codec.rows import RowSelection
from magnetar.spark.connection import Connection
from magnetar.spark.errors import DataLoss
from magnetar.spark.ledgers import Layout, Range, ranges_between
from magnetar.spark.options import QueryOptions
from magnetar.spark.positions import LATEST, Offset, Place, TopicOffset
from magnetar.spark.reading.batch import definition_for, read_part
from magnetar.spark.reading.planning import TaskPart, parts_of, ranges_from_splits, shared_out, splits_of
from magnetar.spark.topics import hold, layouts, move, starting_places, topics_of

__all__ = ["StreamReader"]

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query: plans batches in the driver; copies of the reader read the batches in
    tasks.
    """

    def __init__(self, options: QueryOptions, schema: StructType) -> None:
        """:raises InvalidOption: no topic is given"""
        options.check_reading()
        self._options = options
        self._schema = schema
        self._definition = definition_for(options, schema)
        self._wanted = RowSelection(times_from=options.starting_time or 0)
        self._connection: Connection | None = None
        self._target: dict[str, Place] | None = None
        self._seen: dict[str, Layout] = {}
        self._planned: dict[str, Place] = {}
        self._committed: dict[str, Place] = {}
        self._unwritten: set[str] = set()
        """Subscription names that were generated, and that the checkpoint may not contain yet."""
        self._held: set[str] = set()
        """Topics on which the query's subscription was found or created."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_connection": None, "_seen": {}}

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._options)
        return self._connection

    def _look(self) -> dict[str, Layout]:
        connection = self._connected()
        self._seen = layouts(connection, topics_of(connection))
        return self._seen

    # Offsets

    def initialOffset(self) -> dict[str, object]:
        """Returns the offset at which a query without a checkpoint starts.

        Spark can call this again before the first batch is done. The second result has no effect, because
        the end offset of the first batch also records the start of that batch.
        """
        found = self._look()
        starts = starting_places(self._connected(), list(found), LATEST)
        topics = {topic: TopicOffset(layout.resolved(starts.of(topic))) for topic, layout in found.items()}
        prefix = self._options.subscription_prefix
        name = self._options.predefined_subscription
        if not name:
            name = f"{prefix}-{secrets.token_hex(8)}"
            self._unwritten.add(name)
        return Offset(topics, name).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Returns the end offset of the next batch.

        :raises DataLoss: the next messages no longer exist, and ``failOnDataLoss`` is set
        """
        before = Offset.from_json(start)
        found = self._look()
        name = before.subscription
        wanted: dict[str, list[Range]] = {}
        places: dict[str, Place] = {}
        for topic, layout in found.items():
            place = before.topics[topic].next if topic in before.topics else layout.first
            place = places[topic] = self._existing(topic, layout, place, name)
            if name not in self._unwritten:
                self._hold(topic, layout, name, place)
            ranges = ranges_between(layout, place, min(self._end(topic, layout), layout.end))
            if ranges:
                wanted[topic] = ranges
        self._planned = places
        # Spark records this offset now. Before that no subscription is created under the name: a query that
        # is killed in between generates another name, and the first subscription would stay for ever.
        self._unwritten.discard(name)
        rows, size = self._limits(limit)
        if rows is not None or size is not None:
            wanted = shared_out(self._connected(), wanted, rows, size, before.turn)
        wanted = {topic: ranges for topic, ranges in wanted.items() if ranges}
        if not wanted:
            return start
        # A topic that is not accessible now keeps its position.
        topics = {topic: TopicOffset(each.next, (), each.next) for topic, each in before.topics.items()}
        for topic, place in list(places.items()):
            ranges = wanted.get(topic, [])
            end = Place(ranges[-1].ledger, ranges[-1].end, ranges[-1].end_index) if ranges else place
            topics[topic] = TopicOffset(end, splits_of(ranges), place)
            self._planned[topic] = end
        return Offset(topics, name, before.turn + 1).to_json()

    def _hold(self, topic: str, layout: Layout | None, name: str, place: Place) -> None:
        if layout is None or name not in layout.cursors:
            hold(self._connected().admin, topic, name, place)
        self._held.add(topic)

    def _existing(self, topic: str, layout: Layout, place: Place, subscription: str) -> Place:
        """Returns the position at which to continue: ``place``, or the first existing position if the ledger
        of ``place`` was empty and is deleted, or if messages are lost and ``failOnDataLoss`` is not set.

        :raises DataLoss: messages are lost, and ``failOnDataLoss`` is set
        """
        if place[1:] == (0, 0) and not layout.has(place.ledger) and _is_unmoved(layout, subscription, place):
            # A ledger without entries; such ledgers are dropped when their topic is opened again.
            return layout.first
        try:
            ranges_between(layout, place, LATEST)
        except DataLoss as error:
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{topic}: {error}; to skip the deleted messages, set failOnDataLoss=false"
                ) from error
            log.warning("%s: %s", topic, error)
            return layout.first
        return place

    def _end(self, topic: str, layout: Layout) -> Place:
        if self._target is None:
            return layout.end
        return self._target.get(topic, layout.first)

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Returns the maximum number of rows and the maximum number of bytes of a batch; None: no limit."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        rows, size = self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the ends of the topics; later messages are left to the next start of the query."""
        self._target = {topic: layout.end for topic, layout in self._look().items()}

    def reportLatestOffset(self) -> dict[str, object] | None:
        """Returns, for Spark's progress reports, the end of each topic and the number of its entries that no
        batch contains yet; None: no topic has been looked up yet.
        """
        topics = {
            topic: {
                "next": str(layout.end),
                "backlog": layout.entries_behind(self._planned.get(topic, layout.first)),
            }
            for topic, layout in sorted(self._seen.items())
        }
        return {"topics": topics} if topics else None

    # Batches

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """Plans a batch only from the two offsets and the options, independent of the present contents of the
        topics.
        """
        before, after = Offset.from_json(start), Offset.from_json(end)
        parts: list[TaskPart] = []
        for topic, each in after.topics.items():
            known = before.topics.get(topic)
            begin = each.begin if each.begin is not None else known.next if known is not None else None
            if begin is None:
                raise DataLoss(f"{topic}: the offset of this batch has no start position")
            ranges = ranges_from_splits(begin, each)
            parts += parts_of(topic, ranges, self._options.max_entries_per_partition)
            if topic not in self._held:
                self._hold(topic, None, after.subscription, begin)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskPart)
        return read_part(self._options, self._schema, self._definition, self._wanted, partition)

    def commit(self, end: dict[str, object]) -> None:
        """Moves the subscription past the messages that were read."""
        offset = Offset.from_json(end)
        for topic, each in offset.topics.items():
            if self._committed.get(topic) != each.next:
                move(self._connected().admin, topic, offset.subscription, each.next)
                self._committed[topic] = each.next

    def stop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_unmoved(layout: Layout, subscription: str, place: Place) -> bool:
    """Whether a subscription is still at the position to which the query moved it; if not, another program
    has skipped messages.
    """
    ledger, _, entry = layout.cursors.get(subscription, "").partition(":")
    return bool(ledger) and (int(entry) < 0 or (int(ledger), int(entry)) < place.position)
