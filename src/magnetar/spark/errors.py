"""What can go wrong between Spark and a cluster; each says what to do about it."""

from __future__ import annotations

__all__ = ["DataLoss", "InvalidOption", "InvalidPlace", "MalformedMessage", "SparkSourceError"]


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
