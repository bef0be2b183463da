"""Numbers of the command line, as types for argparse."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Units of bytes."""
_MOST = 1e12
_QUANTITY = re.compile(r"([+-]?\d+)([A-Za-z]?)")


def count(text: str) -> int:
    """Parses a whole number from 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def positive(text: str) -> int:
    """Parses a whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def number(text: str) -> float:
    """Parses a number from -1e12 to 1e12, with or without a fraction."""
    found = float(text)
    # Comparisons with NaN are false.
    if not abs(found) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text} is nothing to count with")
    return found


def quantity(text: str, units: Mapping[str, int]) -> int:
    """Parses a whole number with an optional unit, in lower or upper case.

    :raises ValueError: the text has another form
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match[2] and match[2].lower() not in units):
        raise ValueError(text)
    return int(match[1]) * (units[match[2].lower()] if match[2] else 1)
