"""Encodes Python dates and times like Pulsar's Java client."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from magnetar.client.schema import PRIMITIVES

__all__ = ["ENCODERS", "decoder"]
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_long = struct.Struct(">q").pack
_second_and_nanos = struct.Struct(">qi").pack
_day_and_nanos = struct.Struct(">qq").pack


def _day(value: object) -> int:
    """Converts a date to days since 1970-01-01."""
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError(f"the value must be a datetime.date, not {value!r}")
    return (value - _EPOCH.date()).days


def _of_day(value: object) -> int:
    """Converts a time of day to microseconds since midnight."""
    if not isinstance(value, time):
        raise TypeError(f"the value must be a datetime.time, not {value!r}")
    if value.tzinfo is not None:
        raise ValueError(f"a time of day must have no time zone, but {value!r} has one")
    return (datetime.combine(_EPOCH, value) - _EPOCH) // _MICROSECOND


def _moment(value: object) -> int:
    """Converts a datetime with a time zone to microseconds since 1970-01-01 in UTC."""
    if not isinstance(value, datetime):
        raise TypeError(f"the value must be a datetime.datetime, not {value!r}")
    if value.utcoffset() is None:
        raise ValueError(
            f"an instant requires a time zone, which {value!r} lacks; add one, or use LOCAL_DATE_TIME"
        )
    return (value - _EPOCH.replace(tzinfo=UTC)) // _MICROSECOND


def _instant(value: object) -> bytes:
    seconds, micros = divmod(_moment(value), 1_000_000)
    return _second_and_nanos(seconds, micros * 1000)


def _local_date_time(value: object) -> bytes:
    if not isinstance(value, datetime):
        raise TypeError(f"the value must be a datetime.datetime, not {value!r}")
    if value.tzinfo is not None:
        raise ValueError(
            f"a local time must have no time zone, but {value!r} has one; remove the time zone, or "
            "use INSTANT"
        )
    return _day_and_nanos(_day(value.date()), _of_day(value.time()) * 1000)


ENCODERS: dict[str, Callable[[object], bytes]] = {
    "DATE": lambda value: _long(_day(value) * 86_400_000),
    "TIME": lambda value: _long(_of_day(value) // 1000),
    "TIMESTAMP": lambda value: _long(_moment(value) // 1000),
    "INSTANT": _instant,
    "LOCAL_DATE": lambda value: _long(_day(value)),
    "LOCAL_TIME": lambda value: _long(_of_day(value) * 1000),
    "LOCAL_DATE_TIME": _local_date_time,
}
"""Encoders by schema type. A DATE is encoded as its midnight in UTC; a TIME or TIMESTAMP is truncated to
milliseconds, as in Java. Encoders raise TypeError or ValueError for values that the type cannot represent.
"""


def decoder(kind: str) -> Callable[[bytes], date | time] | None:
    """Returns the decoder of a date or time type; None: ``kind`` is neither a date nor a time type. The
    decoder truncates nanoseconds to microseconds, and returns an INSTANT in UTC.

    :param kind: the name of the schema type
    """
    if kind not in ENCODERS:
        return None
    number = PRIMITIVES[kind]

    def since_epoch(data: bytes) -> datetime:
        return _EPOCH + timedelta(microseconds=number(data))

    if kind in ("DATE", "LOCAL_DATE"):
        return lambda data: (_EPOCH + timedelta(days=number(data))).date()
    if kind in ("TIMESTAMP", "INSTANT"):
        return lambda data: since_epoch(data).replace(tzinfo=UTC)
    if kind in ("TIME", "LOCAL_TIME"):
        return lambda data: since_epoch(data).time()
    return since_epoch
