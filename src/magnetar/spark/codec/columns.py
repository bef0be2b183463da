"""The columns of ``format("pulsar")``: names and types of the JVM connector."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["BYTES", "METADATA", "METADATA_NAMES", "VALUE"]

VALUE = "value"

METADATA = (
    StructField("__key", BinaryType()),
    StructField("__topic", StringType()),
    StructField("__messageId", BinaryType()),
    StructField("__publishTime", TimestampType()),
    StructField("__eventTime", TimestampType()),
    StructField("__messageProperties", MapType(StringType(), StringType())),
)
"""What is told about each message, whatever its content."""

METADATA_NAMES = tuple(each.name for each in METADATA)

BYTES = StructType([StructField(VALUE, BinaryType()), *METADATA])
"""All columns where the content is left as it is."""
