"""Converts the content of a message to a value, for schemas without a definition."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

__all__ = ["BAD_VALUES", "PRIMITIVES", "Decoder"]

Decoder = Callable[[bytes], Any]
"""Raises one of ``BAD_VALUES`` if the content does not match the schema."""

BAD_VALUES = (ValueError, TypeError, LookupError, EOFError, struct.error, ArithmeticError)

_EPOCH_DAY_MS = 86_400_000


def _number(form: str) -> Decoder:
    unpack = struct.Struct(form).unpack

    def decode(data: bytes) -> Any:
        return unpack(data)[0]

    return decode


_long = _number(">q")


def _boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError("neither 0 nor 1")
    return data == b"\1"


def _instant(data: bytes) -> int:
    seconds, nanos = struct.unpack(">qi", data)
    return int(seconds * 1_000_000 + nanos // 1000)


def _date_time(data: bytes) -> int:
    day, nanos = struct.unpack(">qq", data)
    return int(day * _EPOCH_DAY_MS * 1000 + nanos // 1000)


PRIMITIVES: dict[str, Decoder] = {
    "NONE": bytes,
    "BYTES": bytes,
    "STRING": lambda data: data.decode(),
    "BOOLEAN": _boolean,
    "INT8": _number(">b"),
    "INT16": _number(">h"),
    "INT32": _number(">i"),
    "INT64": _long,
    "FLOAT": _number(">f"),
    "DOUBLE": _number(">d"),
    "DATE": lambda data: _long(data) // _EPOCH_DAY_MS,
    "TIMESTAMP": lambda data: _long(data) * 1000,
    "INSTANT": _instant,
    "LOCAL_DATE": _long,
    "LOCAL_DATE_TIME": _date_time,
}
"""Decoders by the name of the type. Dates are days, and times microseconds, since 1970."""
