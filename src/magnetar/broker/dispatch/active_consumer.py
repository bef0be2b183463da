"""The choice of the active consumer of a Failover subscription."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from magnetar.broker.dispatch.contract import AnyConsumer
from magnetar.naming.hashes import murmur3_positive

_POINTS = 100
"""Points of each consumer on the ring."""


def in_order(consumers: Sequence[AnyConsumer]) -> list[AnyConsumer]:
    """Sorts by priority level, then by name as Java compares strings."""
    return sorted(consumers, key=lambda c: (c.priority, c.name.encode("utf-16-be", "surrogatepass")))


def pick_active(
    consumers: Sequence[AnyConsumer], topic: str, partition: int, *, consistent_hashing: bool
) -> AnyConsumer:
    """Returns the active consumer: one of the best priority, by partition index or the topic's name.

    :param consumers: at least one, in the order of :func:`in_order`
    :param topic: the full name
    :param partition: -1 for a topic that is not partitioned
    """
    best = consumers[0].priority
    eligible = [consumer for consumer in consumers if consumer.priority == best]
    if partition >= 0 and not consistent_hashing:
        return eligible[partition % len(eligible)]
    ring: dict[int, AnyConsumer] = {}
    for consumer in eligible:
        for point in range(_POINTS):
            ring[murmur3_positive(f"{consumer.name}{point}".encode())] = consumer
    points = sorted(ring)
    index = bisect_left(points, murmur3_positive(topic.encode()))
    return ring[points[index % len(points)]]
