"""Clusters under load, for tests of who gets what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.reports import BrokerReport, BundleStats, Identity, Resources, Usage, sum_of

RANGE = "0x{:08x}_0x{:08x}"


def bundle(number: int, namespace: str = "public/default") -> str:
    return f"{namespace}/{RANGE.format(number * 0x1000, (number + 1) * 0x1000)}"


def report(
    stats: Mapping[str, BundleStats],
    percent: float = 0.0,
    identity: Identity | None = None,
    updated_ms: int = 1,
) -> BrokerReport:
    """:param percent: of the processor"""
    resources = Resources(cpu=Usage(percent, 100))
    return BrokerReport(
        identity or Identity(), resources, stats, frozenset(stats), updated_ms=updated_ms, total=sum_of(stats)
    )


def cluster(reports: Mapping[str, BrokerReport]) -> ClusterLoad:
    load = ClusterLoad()
    for broker_id, told in reports.items():
        load.take(broker_id, told, {})
    return load


def below(seed: int = 1) -> Callable[[int], int]:
    return Random(seed).randrange
