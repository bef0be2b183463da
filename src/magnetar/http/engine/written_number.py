"""Numbers with a fraction or an exponent that keep their text."""

from __future__ import annotations

import json
from typing import Any, Self


class WrittenNumber(float):
    """For ``parse_float`` of :mod:`json`: where Pulsar expects a text, it takes a number as written."""

    __slots__ = ("written",)
    written: str
    """For example ``1.50`` or ``1e3``, which the float would format differently."""

    def __new__(cls, written: str) -> Self:
        found = super().__new__(cls, written)
        found.written = written
        return found


def parse_json(body: bytes | bytearray) -> Any:
    """:raises ValueError: the body is not JSON

    :raises RecursionError: it is nested too deeply
    """
    return json.loads(body, parse_float=WrittenNumber)
