"""Statistics of a partitioned topic: those of its partitions together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LARGEST = frozenset(
    (
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "lastExpireTimestamp",
        "lastCompactionSucceedTimestamp",
        "lastCompactionFailedTimestamp",
        "lastCompactionDurationTimeInMills",
        "oldestBacklogMessageAgeSeconds",
        "topicEpoch",
        "backlogQuotaLimitSize",
        "backlogQuotaLimitTime",
        "earliestMsgPublishTimeInBacklogs",
    )
)
_LEFT_OUT = frozenset(("ownerBroker", "deduplicationStatus"))


def total_stats(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``TopicStats`` of all partitions together: figures add up, lists and subscriptions are joined."""
    total: dict[str, Any] = {}
    for stats in parts:
        _add(total, stats)
    rates = [stats["msgRateIn"] for stats in parts]
    if total.get("msgRateIn"):
        sizes = (stats["averageMsgSize"] * stats["msgRateIn"] for stats in parts)
        total["averageMsgSize"] = sum(sizes) / sum(rates)
    else:
        total["averageMsgSize"] = 0.0
    return total


def _add(total: dict[str, Any], stats: Mapping[str, Any]) -> None:
    for key, value in stats.items():
        if key in _LEFT_OUT:
            continue
        known = total.get(key)
        if isinstance(value, Mapping):
            inner = dict(known) if isinstance(known, Mapping) else {}
            _add(inner, value)
            total[key] = inner
        elif known is None:
            total[key] = list(value) if isinstance(value, list) else value
        elif isinstance(value, bool):
            total[key] = known or value
        elif isinstance(value, int | float):
            total[key] = max(known, value) if key in _LARGEST else known + value
        elif isinstance(value, list):
            total[key] = [*known, *value]
