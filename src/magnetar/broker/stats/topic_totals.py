"""Statistics of a partitioned topic, merged from those of its partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from magnetar.broker.stats.non_persistent_stats import NOTHING_STORED
from magnetar.broker.stats.topic_stats import TOPIC_ZEROES

_LARGEST = frozenset(
    (
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "lastExpireTimestamp",
        "lastOffloadLedgerId",
        "lastOffloadSuccessTimeStamp",
        "lastOffloadFailureTimeStamp",
        "lastCompactionSucceedTimestamp",
        "lastCompactionFailedTimestamp",
        "lastCompactionDurationTimeInMills",
        "oldestBacklogMessageAgeSeconds",
        "topicEpoch",
        "backlogQuotaLimitSize",
        "backlogQuotaLimitTime",
        "avgMessagesPerEntry",
        "lastAckedTime",
        "lastConsumedTime",
    )
)
_FIRST_KNOWN = frozenset(("earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs"))
"""Times for which 0 means that there is none."""

_OF_ONE_PARTITION = frozenset(
    (
        "ownerBroker",
        "deduplicationStatus",
        "producerId",
        "address",
        "connectedSince",
        "drainingHashes",
        "keyHashRangeArrays",
        "oldestBacklogMessageSubscriptionName",
        "activeConsumerName",
    )
)
"""Fields that have no meaning for the whole topic."""

_NAMES = {"publishers": "producerName", "consumers": "consumerName"}
"""Lists of clients, whose producers or consumers have the same name on all partitions."""

_BY_NAME = frozenset(("subscriptions", "replication"))
"""Objects keyed by names that users chose; the names do not determine the type of the values."""

_OF_CLIENTS = frozenset(("metadata", "subscriptionProperties", "consumersAfterMarkDeletePosition"))
"""Objects with string values by such names; the first partition's values are taken."""

_OF_NO_PARTITION: Mapping[str, Any] = {
    **TOPIC_ZEROES,
    **NOTHING_STORED,
    "msgRateIn": 0.0,
    "msgThroughputIn": 0.0,
    "msgRateOut": 0.0,
    "msgThroughputOut": 0.0,
    "bytesInCounter": 0,
    "msgInCounter": 0,
    "bytesOutCounter": 0,
    "msgOutCounter": 0,
    "averageMsgSize": 0.0,
    "msgChunkPublished": False,
    "publishRateLimitedTimes": 0,
    "publishers": [],
    "waitingPublishers": 0,
    "subscriptions": {},
}
"""``TopicStats`` as Pulsar creates it, for a topic whose unused partitions have all been deleted."""


def total_stats(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns ``TopicStats`` of all partitions together: figures are summed; producers, consumers and
    subscriptions of the same name count as one."""
    if not parts:
        return deepcopy(dict(_OF_NO_PARTITION))
    total: dict[str, Any] = {}
    for stats in parts:
        _add(total, stats)
    _average_sizes(total)
    for publisher in total.get("publishers", ()):
        publisher["producerId"] = 0
        _average_sizes(publisher)
    oldest = max(parts, key=lambda stats: int(stats["oldestBacklogMessageAgeSeconds"]), default=None)
    if oldest is not None and "oldestBacklogMessageSubscriptionName" in oldest:
        name = oldest["oldestBacklogMessageSubscriptionName"]
        total["oldestBacklogMessageSubscriptionName"] = name
    return total


def _average_sizes(stats: dict[str, Any]) -> None:
    rate = stats.get("msgRateIn", 0.0)
    stats["averageMsgSize"] = stats["msgThroughputIn"] / rate if rate else 0.0


def _add(total: dict[str, Any], stats: Mapping[str, Any]) -> None:
    for key, value in stats.items():
        if key in _OF_ONE_PARTITION:
            continue
        if key in _OF_CLIENTS:
            total[key] = {**value, **total.get(key, {})}
        elif key in _BY_NAME:
            known = total.setdefault(key, {})
            for name, stats_of_it in value.items():
                _add(known.setdefault(name, {}), stats_of_it)
        elif isinstance(value, Mapping):
            inner = total.setdefault(key, {})
            _add(inner, value)
        elif key in _NAMES:
            _add_named(total.setdefault(key, []), value, _NAMES[key])
        elif key not in total:
            total[key] = list(value) if isinstance(value, list) else value
        else:
            total[key] = _together(key, total[key], value)


def _add_named(total: list[dict[str, Any]], clients: Sequence[Mapping[str, Any]], name: str) -> None:
    known = {each[name]: each for each in total}
    for client in clients:
        same = known.get(client[name])
        if same is None:
            same = known[client[name]] = {}
            total.append(same)
        _add(same, client)


def _together(key: str, known: Any, value: Any) -> Any:
    if key in _FIRST_KNOWN:
        return min(known, value) if known and value else known or value
    if key in _LARGEST:
        return max(known, value)
    if isinstance(value, bool):
        return known or value
    if isinstance(value, int | float):
        return known + value
    if isinstance(value, list):
        return [*known, *value]
    return value if known == "None" else known
