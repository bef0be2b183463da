"""The origin and replication targets of messages, from the metadata of their entries.

Only for queries whose schema names these columns, because entries are parsed a second time for them.
"""

from __future__ import annotations

from array import array

import pyarrow as pa
from pyspark.sql.types import StructType

from magnetar.protocol.metadata import metadata_of
from magnetar.spark.codec.columns import ORIGIN_NAMES

__all__ = ["OriginColumns"]


class OriginColumns:
    """The columns :data:`magnetar.spark.codec.columns.ORIGIN` of the messages of one batch."""

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
        """Adds the origin of ``rows`` messages of the entry ``data``, which was parsed before.

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
        """Returns the columns of the messages since the last call, by name."""
        by_name = {
            "__producerName": self._producers,
            "__replicateTo": self._destinations,
            "__replicatedFrom": self._sources,
        }
        rows = pa.array(self._rows, pa.int32())
        found = {name: pa.array(by_name[name], schema.field(name).type).take(rows) for name in self._names}
        self._clear()
        return found
