"""Which bundles have become too large for one broker's good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from magnetar.broker.load.cluster_load import ClusterLoad, belongs_to_a_broker, namespace_of
from magnetar.broker.load.settings import SplitSettings

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Split:
    bundle: str
    broker_id: str
    why: str


def find_splits(load: ClusterLoad, settings: SplitSettings, counts: Mapping[str, int]) -> Sequence[Split]:
    """Bundles above a bound, as long as their namespaces may have more.

    :param counts: how many bundles each namespace has; one that is missing is left alone
    """
    planned: Counter[str] = Counter()
    found: list[Split] = []
    for broker_id, broker in sorted(load.brokers.items()):
        for bundle, stats in sorted(broker.report.stats.items()):
            if stats.topics < 2 or belongs_to_a_broker(bundle):
                continue
            history = load.bundles.get(bundle)
            rate, throughput = (
                (history.long.rate, history.long.throughput) if history is not None else (0.0, 0.0)
            )
            sessions = stats.consumers + stats.producers
            reasons = []
            if stats.topics > settings.max_topics:
                reasons.append(f"{stats.topics} topics")
            if 0 < settings.max_sessions < sessions:
                reasons.append(f"{sessions} producers and consumers")
            if rate > settings.max_rate:
                reasons.append(f"{rate:.0f} messages/s")
            if throughput > settings.max_throughput:
                reasons.append(f"{throughput / _MIB:.1f} MiB/s")
            namespace = namespace_of(bundle)
            if reasons and 0 < counts.get(namespace, 0) + planned[namespace] < settings.max_bundles:
                planned[namespace] += 1
                found.append(Split(bundle, broker_id, ", ".join(reasons)))
    return found
