"""Filters that Spark pushes down to the source: on publish time, key and topic."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from magnetar.spark.codec.rows import RowSelection

__all__ = ["Pushed"]

_MAX_KEYS = 32
"""Above this number of keys, Spark compares them."""
_MAX_MS = (1 << 63) - 1


@dataclass
class Pushed:
    """The result of the pushed filters."""

    times_from: int = 0
    times_to: int = _MAX_MS
    keys: tuple[bytes, ...] | None = None
    topics: frozenset[str] | None = None
    """None: all."""
    taken: list[Filter] = field(default_factory=list)

    @property
    def wanted(self) -> RowSelection:
        return RowSelection(self.times_from, self.times_to, self.keys)

    def wants_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Accepts supported filters; returns the others."""
        left = []
        for each in filters:
            if self._take(each):
                self.taken.append(each)
            else:
                left.append(each)
        return left

    def _take(self, each: Filter) -> bool:
        name = ".".join(getattr(each, "attribute", ()))
        if name == "__publishTime":
            return self._time(each)
        if name == "__key":
            return self._key(each)
        return name == "__topic" and self._topic(each)

    def _time(self, each: Filter) -> bool:
        value = getattr(each, "value", None)
        if not isinstance(value, datetime.datetime):
            return False
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        micros = since // datetime.timedelta(microseconds=1)
        # Publish times are whole milliseconds.
        up = -(-micros // 1000)
        if isinstance(each, GreaterThanOrEqual):
            self.times_from = max(self.times_from, up)
        elif isinstance(each, GreaterThan):
            self.times_from = max(self.times_from, micros // 1000 + 1)
        elif isinstance(each, LessThan):
            self.times_to = min(self.times_to, up)
        elif isinstance(each, LessThanOrEqual):
            self.times_to = min(self.times_to, micros // 1000 + 1)
        elif isinstance(each, EqualTo | EqualNullSafe):
            self.times_from = max(self.times_from, up)
            self.times_to = min(self.times_to, micros // 1000 + 1)
        else:
            return False
        return True

    def _key(self, each: Filter) -> bool:
        if isinstance(each, EqualTo | EqualNullSafe):
            values = (each.value,)
        elif isinstance(each, In):
            values = tuple(each.value)
        else:
            return False
        if len(values) > _MAX_KEYS or not all(isinstance(key, bytes | bytearray) for key in values):
            return False
        keys = tuple(bytes(key) for key in values)
        self.keys = keys if self.keys is None else tuple(key for key in self.keys if key in keys)
        return True

    def _topic(self, each: Filter) -> bool:
        if isinstance(each, EqualTo | EqualNullSafe):
            topics = frozenset((each.value,))
        elif isinstance(each, In):
            topics = frozenset(each.value)
        else:
            return False
        self.topics = topics if self.topics is None else self.topics & topics
        return True
