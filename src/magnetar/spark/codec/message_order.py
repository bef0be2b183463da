"""The order of messages in a topic, for sorting in Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from magnetar.spark.codec.hot_ids import KEY_SIZE, sort_keys

__all__ = ["keys_of", "sort_key"]


_udf: Any = arrow_udf
"""Untyped, because the stubs of PySpark do not support functions over Arrow arrays."""


def sort_key(message_id: Column) -> Column:
    """Converts the column ``__messageId`` to bytes that sort in the order of a topic's messages; null remains
    null.
    """
    key: Column = _udf(keys_of, BinaryType())(message_id)
    return key


def keys_of(ids: pa.Array) -> pa.Array:
    """Returns, for each message id, bytes that sort in the order of a topic's messages; null for null.

    :raises ValueError: an item is not a message id
    """
    wide = ids.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    places = memoryview(offsets).cast("B").cast("q")[wide.offset : wide.offset + len(wide) + 1]
    keys = sort_keys(places, memoryview(data).cast("B") if data is not None else memoryview(b""))
    kind = pa.binary(KEY_SIZE)
    made = pa.Array.from_buffers(kind, len(wide), [None, pa.py_buffer(keys)]).cast(pa.binary())
    return pc.if_else(pc.is_valid(ids), made, pa.scalar(None, pa.binary())) if ids.null_count else made
