"""JSON in the form of Java's clients and of Spark's ``to_json``, which both use Jackson.

Numbers that JSON cannot represent are texts there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

__all__ = ["float_of", "writer"]

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def float_of(value: Any) -> Any:
    """Converts a parsed value to a floating-point number; other values stay as they are."""
    return _WORDS.get(value, value) if isinstance(value, str) else value


def writer(default: Callable[[Any], Any] | None = None, *, ensure_ascii: bool = True) -> Callable[[Any], str]:
    """Returns a function that converts a value to text.

    :param default: converts values that JSON cannot represent
    """
    write = json.JSONEncoder(
        default=default, separators=(",", ":"), ensure_ascii=ensure_ascii, allow_nan=False
    ).encode

    def text_of(value: Any) -> str:
        try:
            return write(value)
        except ValueError:
            # Searched only after a failure, because hardly any row has such a number.
            return write(_with_words(value))

    return text_of


def _with_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_words(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_words(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return next(word for word, number in _WORDS.items() if repr(number) == repr(value))
    return value
