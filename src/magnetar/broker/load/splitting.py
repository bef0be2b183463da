"""Finds bundles that have become too large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from magnetar.broker.load.averages import BundleHistory
from magnetar.broker.load.cluster_load import ClusterLoad, belongs_to_a_broker, namespace_of
from magnetar.broker.load.reports import BundleStats
from magnetar.broker.load.settings import SplitSettings
from magnetar.lazy_dataclass import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Split:
    bundle: str
    broker_id: str
    why: str


def too_large(load: ClusterLoad, settings: SplitSettings) -> Sequence[Split]:
    """Returns bundles that exceed a limit and can be split."""
    found = []
    for broker_id, broker in sorted(load.brokers.items()):
        for bundle, stats in sorted(broker.report.stats.items()):
            if stats.topics < 2 or belongs_to_a_broker(bundle):
                continue
            reasons = _reasons(stats, load.bundles.get(bundle), settings)
            if reasons:
                found.append(Split(bundle, broker_id, ", ".join(reasons)))
    return found


def _reasons(stats: BundleStats, history: BundleHistory | None, settings: SplitSettings) -> Sequence[str]:
    reasons = []
    sessions = stats.consumers + stats.producers
    if stats.topics > settings.max_topics:
        reasons.append(f"{stats.topics} topics")
    if 0 < settings.max_sessions < sessions:
        reasons.append(f"{sessions} producers and consumers")
    if history is not None and history.long.rate > settings.max_rate:
        reasons.append(f"{history.long.rate:.0f} messages/s")
    if history is not None and history.long.throughput > settings.max_throughput:
        reasons.append(f"{history.long.throughput / _MIB:.1f} MiB/s")
    return reasons


def within_bounds(
    splits: Sequence[Split], settings: SplitSettings, counts: Mapping[str, int]
) -> Sequence[Split]:
    """Returns the splits for which their namespaces may have one more bundle each.

    :param counts: the number of bundles by namespace; missing namespaces are left alone
    """
    planned: Counter[str] = Counter()
    found = []
    for split in splits:
        namespace = namespace_of(split.bundle)
        if 0 < counts.get(namespace, 0) + planned[namespace] < settings.max_bundles:
            planned[namespace] += 1
            found.append(split)
    return found
