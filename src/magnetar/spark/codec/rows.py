"""Converts entries to Arrow record batches with the columns of a query."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from magnetar.client.message_id import MessageId
from magnetar.io.real.memory import keep_freed_buffers
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import CompressionError, EntryError
from magnetar.protocol.metadata import metadata_of
from magnetar.spark.codec.columns import IS_EMPTY, ORIGIN_NAMES, VALUE
from magnetar.spark.codec.hot_rows import CHUNK, REASONS, Bytes, RowBuilder

if TYPE_CHECKING:
    from magnetar.spark.reading.chunks import TopicChunks


__all__ = [
    "ColumnsOf",
    "EntryPart",
    "Malformed",
    "OriginColumns",
    "RowSelection",
    "malformed_row",
    "record_batches",
]
BATCH_ROWS = 8192
BATCH_BYTES = 2 << 20
"""Approximate maximum size of the values in a record batch, in bytes; the number of rows is limited, too."""


class EntryPart(NamedTuple):
    """The messages ``[first, end)`` of a stored entry; if ``end`` is -1, all messages from ``first`` on."""

    ledger_id: int
    entry_id: int
    data: bytes
    first: int = 0
    end: int = -1
    messages: int = 0
    """Number of messages in the whole entry; 0: unknown."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """An entry or a message that cannot be decoded."""

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int
    """The index of the message in the batch; -1: the entry as a whole."""
    reason: str
    data: bytes
    message_id: bytes = b""
    """The message id, serialized as by clients."""
    key: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()
    publish_time: int | None = None
    """The publish time in milliseconds since 1970; None: unknown."""
    schema_version: int | None = None
    """The schema version; None: the message has no schema version."""

    @property
    def position(self) -> str:
        """The position as ``ledger:entry``, followed by ``:index`` for a message in a batch."""
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}".removesuffix(":-1")


def malformed_row(topic: str, rows: RowBuilder, row: int, reason: str, data: bytes) -> Malformed:
    """Returns the description of a message whose metadata was parsed, but whose payload is malformed."""
    ids = rows.ids
    serialized = bytes(ids.data[ids.offsets[row] : ids.offsets[row + 1]])
    found = MessageId.deserialize(serialized)
    properties = tuple(
        (_text(rows.names, place), _text(rows.contents, place))
        for place in range(rows.properties[row], rows.properties[row + 1])
    )
    return Malformed(
        topic,
        found.ledger_id(),
        found.entry_id(),
        found.batch_index(),
        reason,
        data,
        serialized,
        _value(rows.keys, row),
        properties,
        rows.publish_times[row] // 1000,
        _version(rows.schema_versions[rows.versions[row]]),
    )


def _value(column: Bytes, row: int) -> bytes | None:
    if not column.valid[row >> 3] >> (row & 7) & 1:
        return None
    return bytes(column.data[column.offsets[row] : column.offsets[row + 1]])


def _text(column: Bytes, row: int) -> str:
    return (_value(column, row) or b"").decode("utf-8", "replace")


def _version(text: bytes) -> int | None:
    return int.from_bytes(text, "big", signed=True) if len(text) == 8 else None


def _malformed_entry(topic: str, partition: int, part: EntryPart, reason: str) -> Malformed:
    serialized = MessageId(partition, part.ledger_id, part.entry_id, -1).serialize()
    whole = Malformed(topic, part.ledger_id, part.entry_id, -1, reason, part.data, serialized)
    try:
        metadata = metadata_of(part.data, 0, len(part.data))
    except EntryError:
        return whole
    # The messages of a batch have keys and properties of their own, in the part that cannot be read.
    is_key = metadata.HasField("partition_key") and not metadata.partition_key_b64_encoded
    return replace(
        whole,
        key=metadata.partition_key.encode() if is_key else None,
        properties=tuple((each.key, each.value) for each in metadata.properties),
        publish_time=metadata.publish_time,
        schema_version=_version(metadata.schema_version),
    )


@dataclass(frozen=True)
class RowSelection:
    """The messages that a query selects; all conditions must hold."""

    times_from: int = 0
    """Lowest publish time, inclusive, in milliseconds since 1970."""
    times_to: int = (1 << 63) - 1
    """End of the publish times, exclusive, in milliseconds since 1970."""
    keys: tuple[bytes, ...] | None = None
    """Only messages with one of these keys are selected; None: messages with any key, or without a key."""
    are_keyed: bool = False
    """Whether each message changes the row with its key. If so, a message without a key is malformed, and an
    empty message has null in the columns of the payload.
    """


class ColumnsOf(Protocol):
    """Converts the payloads of messages to columns."""

    def columns(
        self, values: pa.Array, rows: RowBuilder, topic: str, malformed: Callable[[Malformed], object]
    ) -> tuple[dict[str, pa.Array], Sequence[bool] | None]:
        """Returns the columns by name, and for each row whether its payload could be converted (None: all
        payloads were converted). Messages whose payload could not be converted are passed to ``malformed``.
        """
        ...


def record_batches(
    topic: str,
    partition: int,
    parts: Iterable[EntryPart],
    schema: StructType,
    wanted: RowSelection,
    content: ColumnsOf | None,
    malformed: Callable[[Malformed], object],
    chunks: TopicChunks | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the selected messages of entries, as record batches with the columns of ``schema``.

    :param partition: index of the topic's partition; -1: the topic is not partitioned
    :param content: converts payloads to columns; None: payloads remain bytes
    :param malformed: called with each entry or message that cannot be decoded
    :param chunks: assembles messages from chunks; None: chunks are malformed
    """
    keep_freed_buffers()
    arrow = to_arrow_schema(schema, timezone="UTC")
    rows = _builder(partition, wanted)
    origins = OriginColumns(schema)
    for part in parts:
        before = rows.count
        try:
            found = rows.add(part.ledger_id, part.entry_id, part.data, part.first, part.end)
            reason = REASONS[found] if found else ""
            if found == CHUNK and chunks is not None:
                reason = chunks.add(rows, part)
        except CompressionError as error:
            reason = str(error)
        origins.add(part.data, rows.count - before)
        if reason:
            malformed(_malformed_entry(topic, partition, part, reason))
        if rows.count >= BATCH_ROWS or rows.values.end >= BATCH_BYTES:
            yield _batch(topic, rows, arrow, wanted, content, malformed, origins)
            # Slightly larger than the last one, so that it need not grow.
            rows = _builder(partition, wanted, rows.values.end + rows.values.end // 8)
    if rows.count:
        yield _batch(topic, rows, arrow, wanted, content, malformed, origins)


def _builder(partition: int, wanted: RowSelection, size: int = 1 << 18) -> RowBuilder:
    rows = RowBuilder(partition, decompress, BATCH_ROWS + 1024, size)
    rows.times_from, rows.times_to = wanted.times_from, wanted.times_to
    if wanted.keys is not None:
        rows.want_keys(wanted.keys)
    return rows


def _batch(
    topic: str,
    rows: RowBuilder,
    schema: pa.Schema,
    wanted: RowSelection,
    content: ColumnsOf | None,
    malformed: Callable[[Malformed], object],
    origins: OriginColumns,
) -> pa.RecordBatch:
    values = _bytes(rows.values, rows.count)
    intact: Sequence[bool] | None = None
    found: dict[str, pa.Array] = {VALUE: values}
    if content is not None:
        found, intact = content.columns(values, rows, topic, malformed)
    if wanted.are_keyed and (keyless := _keyless(rows, intact)):
        for row in keyless:
            malformed(malformed_row(topic, rows, row, "the message has no key", values[row].as_py() or b""))
        intact = [row not in keyless and (intact is None or bool(intact[row])) for row in range(rows.count)]
    found.update(origins.taken(schema))
    arrays = [
        found[each.name] if each.name in found else _METADATA[each.name](rows, topic, each.type)
        for each in schema
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return batch if intact is None else batch.filter(pa.array(intact))


def _keyless(rows: RowBuilder, intact: Sequence[bool] | None) -> set[int]:
    """Returns the indexes of rows without a key; rows with malformed payloads are left out.

    :param intact: for each row, whether its payload could be converted; None: all payloads were converted
    """
    valid = rows.keys.valid
    return {
        row
        for row in range(rows.count)
        if not valid[row >> 3] >> (row & 7) & 1 and (intact is None or intact[row])
    }


def _empty(rows: RowBuilder, topic: str, kind: object) -> pa.Array:
    offsets = pa.Array.from_buffers(pa.int32(), rows.count + 1, [None, pa.py_buffer(rows.values.offsets)])
    return pc.equal(offsets[1:], offsets[:-1])


def _bytes(column: Bytes, count: int, kind: object = None) -> pa.Array:
    buffers = [pa.py_buffer(column.valid), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


def _times(numbers: array[int], count: int, kind: object, *, zero_is_null: bool) -> pa.Array:
    times = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(numbers)])
    if zero_is_null:
        times = pc.if_else(pc.equal(times, 0), pa.scalar(None, pa.int64()), times)
    return times.cast(kind)


def _properties(rows: RowBuilder, kind: Any) -> pa.Array:
    pairs = rows.properties[rows.count]
    names = _bytes(rows.names, pairs, pa.string())
    contents = _bytes(rows.contents, pairs, pa.string())
    entries = pa.StructArray.from_arrays([names, contents], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, rows.count, [None, pa.py_buffer(rows.properties)], children=[entries])


_METADATA: dict[str, Callable[[RowBuilder, str, object], pa.Array]] = {
    "__key": lambda rows, topic, kind: _bytes(rows.keys, rows.count),
    "__topic": lambda rows, topic, kind: pa.repeat(pa.scalar(topic, pa.string()), rows.count),
    "__messageId": lambda rows, topic, kind: _bytes(rows.ids, rows.count),
    "__publishTime": lambda rows, topic, kind: _times(
        rows.publish_times, rows.count, kind, zero_is_null=False
    ),
    "__eventTime": lambda rows, topic, kind: _times(rows.event_times, rows.count, kind, zero_is_null=True),
    IS_EMPTY: _empty,
    "__messageProperties": lambda rows, topic, kind: _properties(rows, kind),
}


class OriginColumns:
    """The columns :data:`magnetar.spark.codec.columns.ORIGIN` of the messages of one batch.

    This class is used only if a query wants these columns, because it parses each entry a second time.
    """

    def __init__(self, schema: StructType) -> None:
        """:param schema: the columns of the query"""
        self._names = [each.name for each in schema if each.name in ORIGIN_NAMES]
        self._clear()

    def _clear(self) -> None:
        self._rows = array("i")
        self._producers: list[str] = []
        self._destinations: list[list[str]] = []
        self._sources: list[str | None] = []

    def add(self, data: bytes, rows: int) -> None:
        """Adds the values for ``rows`` messages of the stored entry ``data``.

        :raises EntryError: the metadata cannot be parsed
        """
        if not self._names or not rows:
            return
        metadata = metadata_of(data, 0, len(data))
        self._rows.extend([len(self._producers)] * rows)
        self._producers.append(metadata.producer_name)
        self._destinations.append(list(metadata.replicate_to))
        self._sources.append(metadata.replicated_from if metadata.HasField("replicated_from") else None)

    def taken(self, schema: pa.Schema) -> dict[str, pa.Array]:
        """Returns the columns of the messages that were added since the last call, by the column's name."""
        by_name = {
            "__producerName": self._producers,
            "__replicateTo": self._destinations,
            "__replicatedFrom": self._sources,
        }
        rows = pa.array(self._rows, pa.int32())
        found = {name: pa.array(by_name[name], schema.field(name).type).take(rows) for name in self._names}
        self._clear()
        return found
