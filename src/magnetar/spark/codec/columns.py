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
them: the producer's name; the clusters that the message is replicated to (empty: all clusters of the topic);
and the cluster that it was replicated from (null: published in this cluster).
"""

ORIGIN_NAMES = tuple(each.name for each in ORIGIN)

IS_EMPTY = "__isEmpty"
"""A column that only tasks of pipelines use: whether the payload of the message is empty."""

BYTES = StructType([StructField(VALUE, BinaryType()), *METADATA])
"""All columns of a query that does not decode payloads."""
