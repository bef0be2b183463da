"""The columns of ``format("pulsar")``: names and types of the JVM connector."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["BYTES", "IS_EMPTY", "METADATA", "METADATA_NAMES", "ORIGIN", "ORIGIN_NAMES", "VALUE"]

VALUE = "value"

METADATA = (
    StructField("__key", BinaryType()),
    StructField("__topic", StringType()),
    StructField("__messageId", BinaryType()),
    StructField("__publishTime", TimestampType()),
    StructField("__eventTime", TimestampType()),
    StructField("__messageProperties", MapType(StringType(), StringType())),
)
"""Metadata columns of each message."""

METADATA_NAMES = tuple(each.name for each in METADATA)

ORIGIN = (
    StructField("__producerName", StringType()),
    StructField("__replicateTo", ArrayType(StringType())),
    StructField("__replicatedFrom", StringType()),
)
"""Columns that are read only if the schema of a query contains them, because the JVM connector does not have
them: the producer; ``replicate_to`` (empty: all clusters of the topic); ``replicated_from`` (null:
published in this cluster).
"""

ORIGIN_NAMES = tuple(each.name for each in ORIGIN)

IS_EMPTY = "__isEmpty"
"""A column in tasks of pipelines: whether the message has no content."""

BYTES = StructType([StructField(VALUE, BinaryType()), *METADATA])
"""All columns for unconverted contents."""
