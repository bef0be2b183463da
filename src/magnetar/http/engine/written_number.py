"""Numbers with a fraction or an exponent that remember how a body wrote them."""

from __future__ import annotations

import json
from typing import Any, Self


class WrittenNumber(float):
    """A ``parse_float`` of :mod:`json`: where a text is wanted, Pulsar takes a number as it was written."""

    __slots__ = ("written",)
    written: str
    """``1.50`` and ``1e3``, which are other texts as numbers."""

    def __new__(cls, written: str) -> Self:
        found = super().__new__(cls, written)
        found.written = written
        return found


def parse_json(body: bytes | bytearray) -> Any:
    """:raises ValueError: it is not JSON

    :raises RecursionError: it is nested too deeply
    """
    return json.loads(body, parse_float=WrittenNumber)
