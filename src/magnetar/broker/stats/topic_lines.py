"""One line per topic: the values that a list of topics shows and is ordered by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from magnetar.broker.dispatch.waiting import AT_END, MOVING, READING, TURN
from magnetar.broker.flow.rates import Rate
from magnetar.broker.stats.replication_stats import replication_metrics
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.subscriptions.cursor_kinds import SUBSCRIPTION
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.lazy_dataclass import dataclass

LEAST_SECONDS = 1.0
"""The shortest time between two readings that a rate is computed from."""


@dataclass(slots=True)
class Line:
    """A topic as of its last reading; rates are per second."""

    name: str
    namespace: str
    at: float = 0.0
    """The time of the reading, in seconds of the monotonic clock."""
    counted: Rate | None = None
    """The counter of incoming messages at that time: a topic that was loaded again counts from 0."""
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    backlog: int = 0
    producers: int = 0
    consumers: int = 0
    subscriptions: int = 0
    waiting: int = 0
    """Subscriptions with a backlog to which nothing is sent, for a reason that does not pass by itself."""
    waiting_subscription: str = ""
    """The one of them with the largest backlog; the next three attributes are of the same subscription."""
    waiting_reason: str = ""
    waiting_since_ms: int = 0
    waiting_backlog: int = 0
    replication: Sequence[dict[str, Any]] = ()
    """As :func:`replication_lags` returns it."""

    def json(self) -> dict[str, Any]:
        """Returns the form that the page reads."""
        found: dict[str, Any] = {
            "topic": self.name,
            "rateIn": round(self.rate_in, 3),
            "rateOut": round(self.rate_out, 3),
            "throughputIn": round(self.throughput_in, 1),
            "throughputOut": round(self.throughput_out, 1),
            "backlog": self.backlog,
            "producers": self.producers,
            "consumers": self.consumers,
            "subscriptions": self.subscriptions,
        }
        if self.waiting:
            found["waiting"] = {
                "subscriptions": self.waiting,
                "subscription": self.waiting_subscription,
                "reason": self.waiting_reason,
                "since": self.waiting_since_ms,
                "backlog": self.waiting_backlog,
            }
        if self.replication:
            found["replication"] = self.replication
        return found


_PASSING = frozenset({AT_END, READING, TURN, MOVING})
"""Reasons that need no attention."""


def look(line: Line, topic: AnyTopic, now: float) -> None:
    """Updates a line. Rates are those since the last reading, or those of statistics at the first reading
    since the load of the topic."""
    rate_in, rate_out = topic.rate_in, topic.rate_out
    passed = now - line.at
    first = line.counted is not rate_in
    if first:
        line.rate_in, line.rate_out = rate_in.per_second, rate_out.per_second
        line.throughput_in, line.throughput_out = rate_in.bytes_per_second, rate_out.bytes_per_second
    elif passed >= LEAST_SECONDS:
        line.rate_in = (rate_in.messages - line.messages_in) / passed
        line.rate_out = (rate_out.messages - line.messages_out) / passed
        line.throughput_in = (rate_in.bytes - line.bytes_in) / passed
        line.throughput_out = (rate_out.bytes - line.bytes_out) / passed
    if first or passed >= LEAST_SECONDS:
        line.at, line.counted = now, rate_in
        line.messages_in, line.bytes_in = rate_in.messages, rate_in.bytes
        line.messages_out, line.bytes_out = rate_out.messages, rate_out.bytes
    line.producers = len(topic.producers) - topic.remote_producers
    line.consumers = topic.consumer_count()
    line.replication = replication_lags(topic)
    _look_at_subscriptions(line, topic.subscriptions.values())


def _look_at_subscriptions(line: Line, subscriptions: Iterable[BaseSubscription]) -> None:
    line.subscriptions = line.backlog = line.waiting = line.waiting_backlog = 0
    for subscription in subscriptions:
        if subscription.kind is not SUBSCRIPTION:
            continue
        line.subscriptions += 1
        backlog = subscription.backlog()
        if not backlog:
            continue
        line.backlog += backlog
        reason = subscription.why_not()
        if reason in _PASSING:
            continue
        line.waiting += 1
        if backlog > line.waiting_backlog:
            line.waiting_backlog = backlog
            line.waiting_subscription = subscription.name
            line.waiting_reason = reason.value
            line.waiting_since_ms = subscription.waits_since_ms()


def replication_lags(topic: AnyTopic) -> Sequence[dict[str, Any]]:
    """Returns the lag of each remote cluster, the largest first; empty if the topic is not replicated.

    ``lagSeconds`` is the age of the oldest entry that the cluster has not confirmed, ``backlog`` counts such
    entries; both are 0 for non-persistent topics.
    """
    if not topic.replicators:
        return ()
    lags = [
        {
            "cluster": each.remote,
            "connected": each.connected,
            "lagSeconds": round(each.lag_seconds, 1),
            "backlog": each.backlog,
        }
        for each in replication_metrics(topic)
    ]
    return sorted(lags, key=lambda lag: (-lag["lagSeconds"], -lag["backlog"], lag["cluster"]))
