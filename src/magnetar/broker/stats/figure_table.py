"""The names of figures outside: ``figures.tsv`` declares each figure once, with all of its names.

Columns: the object that has the figure; its attribute in :mod:`magnetar.broker.stats.figures` (none: always
zero, for features that do not exist); ``whole`` or ``real``; the name in ``/metrics``, and whether topics,
sums of namespaces or both have it there; the name of the sum over all topics; the name in OpenTelemetry, the
kind of instrument, the unit (UCUM) and additional attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path

from magnetar.broker.stats.figures import (
    CacheMetrics,
    CompactionMetrics,
    ConnectionMetrics,
    ConsumerMetrics,
    ManagedLedgerMetrics,
    MetricsSnapshot,
    OffloadMetrics,
    ProducerMetrics,
    SubscriptionMetrics,
    TopicMetrics,
)
from magnetar.lazy_dataclass import dataclass

__all__ = ["KINDS", "FigureRow", "figures_of"]

Number = int | float
KINDS: Mapping[str, type] = {
    "topic": TopicMetrics,
    "subscription": SubscriptionMetrics,
    "consumer": ConsumerMetrics,
    "producer": ProducerMetrics,
    "compaction": CompactionMetrics,
    "offload": OffloadMetrics,
    "managed ledger": ManagedLedgerMetrics,
    "cache": CacheMetrics,
    "connections": ConnectionMetrics,
    "broker": MetricsSnapshot,
}
"""The kinds of objects with figures."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One row. A missing name is empty."""

    figure: str
    of: Callable[[object], Number]
    """Returns the value of an object."""
    prometheus: str
    level: str
    """The level at which a topic's figure is reported: ``topic``, ``namespace`` or ``both``."""
    sum: str
    otlp: str
    instrument: str
    unit: str
    attributes: Mapping[str, str]


@cache
def figures_of(kind: str) -> tuple[FigureRow, ...]:
    """Returns the figures of ``topic``, ``subscription``, ``managed ledger``, …, in the table's order."""
    rows = []
    for line in Path(__file__).with_name("figures.tsv").read_text("utf-8").splitlines()[1:]:
        of, figure, number, prometheus, level, total, otlp, instrument, unit, attributes = line.split("\t")
        if of == kind:
            pairs = (pair.split("=") for pair in attributes.split(",") if pair)
            names = (prometheus, level, total, otlp, instrument, unit)
            rows.append(FigureRow(figure, _getter(figure, number), *names, dict(pairs)))
    return tuple(rows)


def _getter(figure: str, number: str) -> Callable[[object], Number]:
    if not figure:
        return lambda _object: 0
    get = attrgetter(figure)
    make = float if number == "real" else int
    return lambda measured: make(get(measured))
