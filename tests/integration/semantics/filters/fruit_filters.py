"""Filters for the tests of filters: they go by the properties of messages."""

from __future__ import annotations

import time

from magnetar.broker.dispatch.filters import FilterContext, FilteredEntry, FilterResult


def _property(entry: FilteredEntry, key: str) -> str:
    return next((pair.value for pair in entry.metadata.properties if pair.key == key), "")


class OnlyFruit:
    """Sends what has the kind that the subscription's property ``kind`` names; everything without one."""

    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult:
        wanted = context.subscription_properties.get("kind")
        if wanted is None or _property(entry, "kind") == wanted:
            return FilterResult.ACCEPT
        return FilterResult.REJECT


class Later:
    """Puts off what says so, once; fails once for what says so."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, tuple[int, int]]] = set()

    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult:
        key = (context.topic, context.subscription, entry.position)
        if key in self._seen or not _property(entry, "later"):
            return FilterResult.ACCEPT
        self._seen.add(key)
        if _property(entry, "later") == "fail":
            raise ValueError("not now")
        return FilterResult.RESCHEDULE


class Slow:
    """Thinks about what says so, while nobody else is served."""

    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult:
        if _property(entry, "slow"):
            time.sleep(0.0002)
        return FilterResult.ACCEPT


class NoFilter:
    """Lacks the method."""
