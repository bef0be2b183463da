"""Errors of the data source, whose texts say how to resolve them."""

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
    """Base class of all errors of this package."""


class InvalidOption(SparkSourceError, ValueError):
    """An option is unknown, out of range, missing, unsupported, or contradicts another option."""


class InvalidPlace(SparkSourceError, ValueError):
    """A string or an offset is not a position in a topic."""


class DataLoss(SparkSourceError):
    """Messages that must be read no longer exist."""


class MalformedMessage(SparkSourceError):
    """A message cannot be decoded, and ``mode`` is FAILFAST or there is no quarantine."""


class InvalidRows(SparkSourceError, ValueError):
    """Rows have columns, types or values that cannot be written."""


class StagingDamaged(SparkSourceError):
    """Staged files are missing or damaged."""


class DeduplicationIsOff(SparkSourceError):
    """A topic does not deduplicate messages, so it cannot be written exactly once."""


class NotPublished(SparkSourceError):
    """The cluster did not accept a message."""
