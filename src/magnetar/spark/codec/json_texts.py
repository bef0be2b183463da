"""JSON as Java's clients and Spark's ``to_json`` have it, which both leave to Jackson.

Numbers that JSON has no form for are texts there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

__all__ = ["float_of", "writer"]

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def float_of(value: Any) -> Any:
    """What a parsed value is where a schema has a floating-point number; what is none stays as it is."""
    return _WORDS.get(value, value) if isinstance(value, str) else value


def writer(default: Callable[[Any], Any] | None = None, *, ensure_ascii: bool = True) -> Callable[[Any], str]:
    """Makes a text of a value.

    :param default: makes something else of what JSON has no form for
    """
    write = json.JSONEncoder(
        default=default, separators=(",", ":"), ensure_ascii=ensure_ascii, allow_nan=False
    ).encode

    def text_of(value: Any) -> str:
        try:
            return write(value)
        except ValueError:
            # Looked for only now: nearly no row has such a number.
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
