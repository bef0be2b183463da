"""Splits rows into entries: determines the topic of each row, and the bounds of batches."""

from __future__ import annotations

import base64
import secrets
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from magnetar.client.outgoing_message import compressed
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata
from magnetar.spark.codec.hot_batches import Columns, cut, encode, property_heads, route
from magnetar.spark.codec.schemas import NOTHING, Definition
from magnetar.spark.errors import InvalidRows
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.contents import EVENT_TIME, KEY, PROPERTIES, TOPIC, Content, TopicContent

__all__ = ["CutEntry", "RowCutter"]

_MAX_MESSAGES = 1000
_MAX_BYTES = 128 * 1024
_NOTHING = memoryview(b"")
_NO_NUMBERS = memoryview(array("q"))
_Buffers = tuple[memoryview, memoryview, memoryview]


@dataclass(frozen=True, slots=True)
class CutEntry:
    """An entry whose messages are determined, and which has no sequence id yet."""

    topic: str
    """The full name of the topic, with the partition if the topic is partitioned."""
    count: int
    """Number of messages."""
    metadata: bytes
    """The serialized metadata, without producer name, sequence ids, publish time and schema version."""
    payload: bytes
    schema: Definition = NOTHING
    """The schema that the producer declares."""


class RowCutter:
    """Splits the rows of one task."""

    def __init__(
        self,
        schema: StructType,
        options: QueryOptions,
        partitions: Callable[[str], int],
        definition: Callable[[str], Definition],
    ) -> None:
        """:param partitions: returns the number of a topic's partitions; 0: the topic is not partitioned

        :param definition: returns the schema of a topic; called only if rows are encoded with the topic's
            schema
        :raises InvalidRows: these columns cannot be written
        """
        self._content = Content(schema, options)
        self._topic = options.topic
        self._ask_partitions = partitions
        self._ask_definition = definition
        self._contents: dict[str, TopicContent] = {}
        self._partitions: dict[str, int] = {}
        # A random start, because tasks with few entries would otherwise all write to the same partition.
        self._turn = secrets.randbelow(1 << 16)
        producer = options.producer
        self._codec = int(producer.get("compression_type", CompressionType.NONE))
        self._max_messages = int(producer.get("batching_max_messages", _MAX_MESSAGES))
        self._max_bytes = int(producer.get("batching_max_allowed_size_in_bytes", _MAX_BYTES))
        if not producer.get("batching_enabled", True):
            self._max_messages = 1

    def entries(self, batch: pa.RecordBatch) -> Iterator[CutEntry]:
        """Splits rows into entries; the entries of each topic are in the order of the rows.

        :raises InvalidRows: a row contains no topic, or its payload cannot be encoded
        """
        if not batch.num_rows:
            return
        for topic, rows in self._by_topic(batch):
            yield from self._routed(topic, rows)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if TOPIC not in batch.schema.names:
            yield self._topic, batch
            return
        names = batch.column(TOPIC)
        if names.null_count:
            if not self._topic:
                raise InvalidRows(
                    f"{names.null_count} rows have no {TOPIC}, and the option 'topic' is not set"
                )
            names = names.fill_null(self._topic)
        coded = names.dictionary_encode()
        for code, name in enumerate(coded.dictionary.to_pylist()):
            rows = batch if len(coded.dictionary) == 1 else batch.filter(pc.equal(coded.indices, code))
            yield _full_name(name), rows

    def _routed(self, topic: str, rows: pa.RecordBatch) -> Iterator[CutEntry]:
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = self._ask_partitions(topic)
        content = self._contents.get(topic)
        if content is None:
            found = self._ask_definition(topic) if self._content.by_schema else NOTHING
            content = self._contents[topic] = self._content.for_topic(topic, found)
        columns = self._columns(rows, content)
        if not count:
            yield from self._cut(topic, rows, columns, content)
            return
        name = TopicName.parse(topic)
        if KEY not in rows.schema.names:
            for entry in self._cut("", rows, columns, content):
                self._turn += 1
                yield replace(entry, topic=str(name.partition(self._turn % count)))
            return
        numbers = array("i", bytes(4 * rows.num_rows))
        route(columns, count, numbers)
        chosen = pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(numbers)])
        self._turn += 1
        chosen = pc.if_else(pc.less(chosen, 0), pa.scalar(self._turn % count, pa.int32()), chosen)
        for number in pc.unique(chosen).to_pylist():
            some = rows.filter(pc.equal(chosen, number))
            yield from self._cut(str(name.partition(number)), some, self._columns(some, content), content)

    def _cut(
        self, topic: str, rows: pa.RecordBatch, columns: Columns, content: TopicContent
    ) -> Iterator[CutEntry]:
        """Splits the rows for one topic into entries.

        :param columns: the columns of the rows
        """
        # An entry with one message has the key in its own metadata, which Key_Shared subscriptions use.
        keys = rows.column(KEY) if self._max_messages == 1 and KEY in rows.schema.names else None
        first = 0
        while first < columns.count:
            end = cut(columns, first, self._max_messages, self._max_bytes)
            metadata = MessageMetadata(num_messages_in_batch=end - first)
            if keys is not None:
                _put_key(metadata, keys[first].as_py())
            payload = compressed(metadata, bytes(encode(columns, first, end)), self._codec)
            head = metadata.SerializePartialToString()
            yield CutEntry(topic, end - first, head, payload, content.schema)
            first = end

    def _columns(self, rows: pa.RecordBatch, content: TopicContent) -> Columns:
        names = rows.schema.names
        keys: _Buffers = (_NO_NUMBERS, _NOTHING, _NOTHING)
        binary = False
        if KEY in names:
            column = rows.column(KEY)
            binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
            keys = _buffers(column)
        heads: tuple[memoryview, memoryview] = (_NO_NUMBERS, _NOTHING)
        if PROPERTIES in names:
            heads = _properties(rows.column(PROPERTIES))
        events = _NO_NUMBERS
        if EVENT_TIME in names:
            events = _event_times(rows.column(EVENT_TIME))
        values = _buffers(content.encoded(rows))
        return Columns(rows.num_rows, values, keys, heads, events, binary)


def _put_key(metadata: MessageMetadata, key: str | bytes | None) -> None:
    if isinstance(key, bytes):
        metadata.partition_key, metadata.partition_key_b64_encoded = base64.b64encode(key).decode(), True
    elif key is not None:
        metadata.partition_key = key


def _full_name(text: str) -> str:
    try:
        name = TopicName.parse(text)
    except InvalidName as error:
        raise InvalidRows(f"{TOPIC}: {error}") from error
    if not name.persistent:
        raise InvalidRows(
            f"{TOPIC}: {text} is a non-persistent topic, so messages can be lost; use a persistent topic"
        )
    return str(name)


def _buffers(column: pa.Array) -> _Buffers:
    """Returns the buffers of a string or binary column: offsets, bytes and nulls (empty if no row is
    null).
    """
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())
    wide = column.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    first = wide.offset
    numbers = memoryview(offsets).cast("B").cast("q")[first : first + len(wide) + 1]
    return numbers, memoryview(data).cast("B") if data is not None else _NOTHING, _nulls(wide)


def _nulls(column: pa.Array) -> memoryview:
    """Returns a byte for each row, which is 1 if the row is null; empty if no row is null."""
    if not column.null_count:
        return _NOTHING
    flags = pc.is_null(column).cast(pa.uint8())
    return memoryview(flags.buffers()[1]).cast("B")[flags.offset : flags.offset + len(flags)]


def _event_times(column: pa.Array) -> memoryview:
    """Returns the event times in milliseconds since 1970; 0: not set.

    :raises InvalidRows: a time is before 1970
    """
    moments = column.cast(pa.timestamp("us")).cast(pa.int64())
    times = pc.fill_null(pc.divide(moments, 1000), 0)
    earliest = pc.min(times).as_py()
    if earliest is not None and earliest < 0:
        raise InvalidRows(f"{EVENT_TIME}: {earliest} ms is before 1970; event times must be 1970 or later")
    return memoryview(times.buffers()[1]).cast("B").cast("q")[times.offset : times.offset + len(times)]


def _properties(column: pa.MapArray) -> tuple[memoryview, memoryview]:
    """Returns offsets and bytes of the properties of each row, serialized as the beginning of
    ``SingleMessageMetadata``.
    """
    offsets = column.offsets
    rows = memoryview(offsets.buffers()[1]).cast("B").cast("i")[offsets.offset :][: len(column) + 1]
    ends = array("q", bytes(8 * (len(column) + 1)))
    heads = property_heads(rows, _nulls(column), _buffers(column.keys)[:2], _buffers(column.items)[:2], ends)
    return memoryview(ends), memoryview(heads)
