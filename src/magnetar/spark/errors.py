"""What can go wrong between Spark and a cluster; each says what to do about it."""

from __future__ import annotations

__all__ = [
    "DataLoss",
    "DeduplicationIsOff",
    "InvalidOption",
    "InvalidPlace",
    "InvalidRows",
    "MalformedMessage",
    "NotPublished",
    "SparkSourceError",
    "StagingDamaged",
]


class SparkSourceError(Exception):
    """Base of all errors of this package."""


class InvalidOption(SparkSourceError, ValueError):
    """An option is unknown, out of range, missing, contradicts another, or cannot be honoured."""


class InvalidPlace(SparkSourceError, ValueError):
    """A text or an offset that names no place in a topic."""


class DataLoss(SparkSourceError):
    """Messages that were to be read are no longer there."""


class MalformedMessage(SparkSourceError):
    """A message cannot be taken apart, and ``mode`` is FAILFAST."""


class InvalidRows(SparkSourceError, ValueError):
    """Rows that are to be written have columns, types or contents that cannot be."""


class StagingDamaged(SparkSourceError):
    """Files that were staged are missing or are not what was written."""


class DeduplicationIsOff(SparkSourceError):
    """A topic would take messages twice: it cannot be written exactly once."""


class NotPublished(SparkSourceError):
    """The cluster did not take what was to be written."""
