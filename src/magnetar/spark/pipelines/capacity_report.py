"""``capacity-report``: reports storage and backlog of each tenant, their growth, and when the storage limit
will be reached.

Each run adds a sample to a file; growth is the slope of a line through the samples of the last days.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magnetar.admin_client import AdminClient, NotFound
from magnetar.naming.topic_name import TopicName
from magnetar.spark.durable import sync
from magnetar.spark.pipelines.configuration import init_value
from magnetar.spark.pipelines.report import Plot, Series, Table
from magnetar.spark.pipelines.work import Work

_DAY = 86_400.0
_MOST_TENANTS = 8
_MOST_TOPICS = 50


@dataclass(frozen=True)
class TopicFigures:
    """Storage and backlog of one topic or partition."""

    tenant: str
    name: str
    storage: int
    """Size of the stored data, in bytes; ``backlog`` is also in bytes."""
    backlog: int
    waiting: int
    """Total backlog of all subscriptions, in entries; a batch is one entry."""
    messages_in: int


@dataclass
class TenantFigures:
    """Storage and backlog of one tenant."""

    tenant: str
    topics: int = 0
    storage: int = 0
    backlog: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Growth:
    """The growth of one tenant's storage."""

    slope: float | None
    """Growth in bytes per second; None: there is only one sample, or all samples have the same time."""
    samples: Sequence[tuple[float, float]]
    """For each sample: its time in seconds since 1970, and the stored bytes."""


@dataclass(frozen=True)
class CapacityReportConfig:
    history: Path = field(metadata=init_value("capacity.jsonl"))
    """A file to which a JSON line is added for each sample and tenant."""
    capacity_gb: float = 0.0
    """Storage limit of a tenant in GB; 0: no forecast."""
    forecast_days: int = 30
    growth_days: float = 14.0
    """Number of days whose samples determine the growth."""
    tenants: tuple[str, ...] = ()
    """Names of tenants; empty: all tenants."""

    def __post_init__(self) -> None:
        if self.capacity_gb < 0 or self.forecast_days < 1 or self.growth_days <= 0:
            raise ValueError(
                "capacity_gb must be 0 or more, forecast_days 1 or more, and growth_days above 0"
            )


CONFIG = CapacityReportConfig
NEEDS_SPARK = False


def check(work: Work) -> None:
    """Does nothing: a run begins with requests to the admin interface, whose errors explain any problem."""


def dry_run(work: Work) -> Sequence[str]:
    config: CapacityReportConfig = work.config
    tenants = _tenants(work.admin, config)
    return [f"would look at the topics of {len(tenants)} tenants: {', '.join(tenants)}"]


def run(work: Work) -> None:
    config: CapacityReportConfig = work.config
    work.progress.step("asking for statistics")
    topics = [
        topic
        for tenant in _tenants(work.admin, config)
        for namespace in work.admin.namespaces(tenant)
        for topic in _topics(work, tenant, namespace)
    ]
    work.progress.done(len(topics), "topics")
    totals = _by_tenant(topics)
    now = int(time.time())
    _remember(config.history, totals, now)
    _tell(work, totals, _growth(config.history, now, config))
    largest = sorted(topics, key=lambda each: (-each.storage, each.name))[:_MOST_TOPICS]
    names = ("topic", "storage", "backlog", "backlog entries", "messages in")
    rows = [(each.name, each.storage, each.backlog, each.waiting, each.messages_in) for each in largest]
    work.report.tables.append(Table("Largest topics", names, rows))


def _tenants(admin: AdminClient, config: CapacityReportConfig) -> list[str]:
    return list(config.tenants) or sorted(admin.tenants())


def _topics(work: Work, tenant: str, namespace: str) -> list[TopicFigures]:
    found = []
    for topic in work.admin.topics(namespace):
        try:
            stats = work.admin.topic_stats(topic)
        except NotFound:
            # The topic was deleted after listing.
            continue
        # Despite its name, this counts entries.
        waiting = sum(int(each["msgBacklog"]) for each in stats["subscriptions"].values())
        whole = str(TopicName.parse(topic))
        figures = (int(stats["storageSize"]), int(stats["backlogSize"]), waiting, int(stats["msgInCounter"]))
        found.append(TopicFigures(tenant, whole, *figures))
        work.progress.update(len(found), unit="topics")
    return found


def _by_tenant(topics: Sequence[TopicFigures]) -> list[TenantFigures]:
    """Returns storage and backlog of each tenant with topics; the tenants with most storage come first."""
    totals: dict[str, TenantFigures] = {}
    for each in topics:
        total = totals.setdefault(each.tenant, TenantFigures(each.tenant))
        total.topics += 1
        total.storage += each.storage
        total.backlog += each.backlog
        total.waiting += each.waiting
    return sorted(totals.values(), key=lambda total: (-total.storage, total.tenant))


def _remember(history: Path, totals: Sequence[TenantFigures], now: int) -> None:
    history.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"tenant": each.tenant, "time": now, "storage": each.storage}) for each in totals]
    text = "".join(f"{line}\n" for line in lines)
    with history.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                # A run was killed while writing: do not append to its partial line.
                text = f"\n{text}"
        file.write(text.encode())
    sync(history)


def _growth(history: Path, now: int, config: CapacityReportConfig) -> dict[str, Growth]:
    """Returns the growth of each tenant that has samples."""
    since = now - config.growth_days * _DAY
    samples: dict[str, list[tuple[float, float]]] = {}
    for line in history.read_text("utf-8").splitlines():
        sample = _sample(line)
        if sample is not None and sample[1] >= since:
            samples.setdefault(sample[0], []).append(sample[1:])
    return {tenant: Growth(_slope(sorted(each)), sorted(each)) for tenant, each in samples.items()}


def _sample(line: str) -> tuple[str, float, float] | None:
    """Parses a line of the history; returns tenant, time and bytes. None: the line is incomplete, because a
    run was killed while it wrote the line.
    """
    try:
        given = json.loads(line)
        return str(given["tenant"]), float(given["time"]), float(given["storage"])
    except (ValueError, TypeError, KeyError):
        return None


def _slope(samples: Sequence[tuple[float, float]]) -> float | None:
    """Returns the slope of the least-squares line through the samples, in bytes per second; None: all samples
    have the same time.
    """
    times, sizes = zip(*samples, strict=True)
    return statistics.linear_regression(times, sizes).slope if len(set(times)) > 1 else None


def _tell(
    work: Work,
    totals: Sequence[TenantFigures],
    growth: Mapping[str, Growth],
) -> None:
    config: CapacityReportConfig = work.config
    limit = config.capacity_gb * 1e9
    rows, series = [], []
    for number, total in enumerate(totals):
        tenant, storage = total.tenant, total.storage
        slope, samples = growth[tenant].slope, growth[tenant].samples
        full: Any = ""
        if limit and storage >= limit:
            full = "reached"
        elif limit and slope is not None and slope > 0:
            full = round((limit - storage) / slope / _DAY, 1)
        elif limit and slope is not None:
            full = "never"
        a_day = "one sample" if slope is None else round(slope * _DAY)
        rows.append((tenant, total.topics, storage, total.backlog, total.waiting, a_day, full))
        if number >= _MOST_TENANTS // 2:
            continue
        series.append(Series(tenant, samples))
        if slope is not None:
            last, ahead = samples[-1][0], config.forecast_days * _DAY
            end = max(0.0, storage + slope * ahead)
            series.append(
                Series(f"{tenant}, forecast", [(last, float(storage)), (last + ahead, end)], dashed=True)
            )
    columns = (
        "tenant",
        "topics",
        "bytes",
        "backlog bytes",
        "backlog entries",
        "bytes a day",
        "days until full",
    )
    report = work.report
    report.tables.append(Table("Tenants", columns, rows))
    report.figures.update(
        {
            "tenants": len(rows),
            "topics": sum(row[1] for row in rows),
            "bytes stored": sum(row[2] for row in rows),
            "backlog in entries": sum(row[4] for row in rows),
        }
    )
    shown = rows[:_MOST_TENANTS]
    bars = [
        Series(name, [(float(number), float(row[column])) for number, row in enumerate(shown)])
        for name, column in (("stored", 2), ("backlog", 3))
    ]
    if shown:
        labels = [str(row[0]) for row in shown]
        report.plots.append(Plot("Bytes by tenant", bars, "bytes", labels=labels))
        report.plots.append(Plot("Growth and forecast", series, "bytes", "time", times=True))
