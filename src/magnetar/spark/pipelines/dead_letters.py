"""Columns for the origin and cause of dead letters, in the form of official clients."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

__all__ = ["CAUSES", "SYSTEM_PROPERTIES", "with_origin"]

CAUSES = ("EXCEPTION", "exception", "error", "cause")
"""Properties that can contain the cause; the first property that is present counts."""

SYSTEM_PROPERTIES = (
    "REAL_TOPIC",
    "REAL_SUBSCRIPTION",
    "RETRY_TOPIC",
    "RECONSUMETIMES",
    "DELAY_TIME",
    "ORIGIN_MESSAGE_ID",
    "ORIGIN_MESSAGE_IDY_TIME",
)
"""The properties that clients add to messages when they publish them to a retry or dead letter topic."""


def with_origin(frame: DataFrame, causes: tuple[str, ...]) -> DataFrame:
    """Adds columns for the origin and the cause of each dead letter.

    The columns are ``cause``, ``origin_topic``, ``subscription``, ``attempts``, ``origin_id`` and
    ``dead_letter_topic``.
    """
    own = f.regexp_replace("__topic", r"-partition-\d+$", "")
    cause = f.coalesce(*[_property(each) for each in causes], f.lit("unknown"))
    return (
        frame.withColumn("cause", cause)
        .withColumn("origin_topic", _property("REAL_TOPIC"))
        .withColumn("subscription", f.coalesce(_property("REAL_SUBSCRIPTION"), f.lit("unknown")))
        .withColumn("attempts", _property("RECONSUMETIMES").cast("int"))
        .withColumn("origin_id", f.coalesce(_property("ORIGIN_MESSAGE_ID"), f.hex("__messageId")))
        .withColumn("dead_letter_topic", own)
    )


def _property(name: str) -> Column:
    return f.try_element_at(f.col("__messageProperties"), f.lit(name))
