"""Statistics of WebSockets (``proxy-stats`` of Pulsar's WebSocket service)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import field

from magnetar.lazy_dataclass import dataclass

LATENCY_BUCKETS_US = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)
"""Upper bounds of histogram buckets for the time from sending a message to its acknowledgement, in
microseconds.
"""


@dataclass(slots=True)
class Traffic:
    """The traffic of a WebSocket since it was opened, or of all WebSockets of a namespace since the start of
    the process.
    """

    published: int = 0
    published_bytes: int = 0
    failed: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    acknowledged: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BUCKETS_US) + 1))

    def was_published(self, size: int, seconds: float) -> None:
        self.published += 1
        self.published_bytes += size
        self.latencies[bisect_left(LATENCY_BUCKETS_US, seconds * 1e6)] += 1

    def was_delivered(self, size: int) -> None:
        self.delivered += 1
        self.delivered_bytes += size

    def add(self, other: Traffic) -> None:
        self.published += other.published
        self.published_bytes += other.published_bytes
        self.failed += other.failed
        self.delivered += other.delivered
        self.delivered_bytes += other.delivered_bytes
        self.acknowledged += other.acknowledged
        self.latencies = [mine + theirs for mine, theirs in zip(self.latencies, other.latencies, strict=True)]


@dataclass(frozen=True, slots=True)
class WebSocketFigures:
    """The statistics of one WebSocket."""

    topics: tuple[str, ...]
    remote: str
    traffic: Traffic
    subscription: str | None = None
    """The name of the subscription; None for a producer."""
    subscription_type: str = "Exclusive"
    durable: bool | None = None
    """Whether the subscription is durable; None for a reader."""

    def form(self) -> dict[str, object]:
        if self.subscription is None:
            return {"remoteConnection": f"/{self.remote}", "numberOfMsgPublished": self.traffic.published}
        form = {
            "remoteConnection": f"/{self.remote}",
            "subscriptionName": self.subscription,
            "subscriptionType": self.subscription_type,
            "numberOfMsgDelivered": self.traffic.delivered,
        }
        if self.durable is not None:
            form["subscriptionMode"] = "Durable" if self.durable else "NonDurable"
        return form


def by_topic(all_of_them: Iterable[WebSocketFigures]) -> dict[str, dict[str, list[dict[str, object]]]]:
    """Returns the ``ProxyTopicStat`` of each topic with a WebSocket."""
    found: dict[str, dict[str, list[dict[str, object]]]] = {}
    for told in all_of_them:
        kind = "producerStats" if told.subscription is None else "consumerStats"
        for topic in told.topics:
            found.setdefault(topic, {"producerStats": [], "consumerStats": []})[kind].append(told.form())
    return found


def by_namespace(traffic: Mapping[str, Traffic], before: Mapping[str, Traffic]) -> list[dict[str, object]]:
    """Returns Pulsar's ``Metrics`` of each namespace, with the traffic since ``before`` was recorded.

    :param traffic: the present totals, by namespace
    :param before: earlier totals, by namespace
    """
    return [
        {"dimensions": {"namespace": name}, "metrics": _rates(now, before.get(name, Traffic()))}
        for name, now in sorted(traffic.items())
    ]


def _rates(now: Traffic, before: Traffic) -> dict[str, int]:
    metrics = {
        "ns_msg_publish_rate": now.published - before.published,
        "ns_byte_publish_rate": now.published_bytes - before.published_bytes,
        "ns_msg_failure_rate": now.failed - before.failed,
        "ns_msg_deliver_rate": now.delivered - before.delivered,
        "ns_byte_deliver_rate": now.delivered_bytes - before.delivered_bytes,
        "ns_msg_ack_rate": now.acknowledged - before.acknowledged,
    }
    names = [str(bound) for bound in LATENCY_BUCKETS_US] + [f"{LATENCY_BUCKETS_US[-1]}_higher"]
    for name, new, old in zip(names, now.latencies, before.latencies, strict=True):
        metrics[f"ns_msg_publish_latency_{name}"] = new - old
    return metrics
