"""Limits on how often one consumer subscribes: one that subscribes too often is refused for a while."""

from __future__ import annotations

from magnetar.broker.flow.token_bucket import TokenBucket
from magnetar.broker.policies.values import SubscribeRate

_MOST = 1_000
"""Consumers that are remembered; above it, those that may subscribe as often as new ones are forgotten."""

Consumer = tuple[str, str, int]
"""Host, name and id of a consumer, which are the same after it reconnects."""


class SubscribeLimiter:
    """Limits the consumers of one topic.

    :param now: seconds of the monotonic clock, as in the methods
    """

    def __init__(self, rate: SubscribeRate) -> None:
        self._rate = rate
        self._period = max(1, rate.period_seconds)
        self._consumers: dict[Consumer, TokenBucket] = {}
        self.refused = 0

    def __len__(self) -> int:
        """The number of remembered consumers."""
        return len(self._consumers)

    def admits(self, consumer: Consumer, now: float) -> bool:
        """Whether the consumer may subscribe now; if so it is counted."""
        bucket = self._consumers.get(consumer)
        if bucket is None:
            if len(self._consumers) >= _MOST:
                self._forget_full(now)
            most = self._rate.per_consumer
            bucket = self._consumers[consumer] = TokenBucket(most / self._period, most, now)
        if bucket.available(now) < 1:
            self.refused += 1
            return False
        bucket.take(1)
        return True

    def _forget_full(self, now: float) -> None:
        most = self._rate.per_consumer
        self._consumers = {
            each: bucket for each, bucket in self._consumers.items() if bucket.available(now) < most
        }
        if len(self._consumers) >= _MOST:
            # More than any topic has: the oldest is forgotten, and starts with a full bucket.
            del self._consumers[next(iter(self._consumers))]


def subscribe_limiter(rate: SubscribeRate) -> SubscribeLimiter | None:
    """Returns None if there is no limit."""
    return SubscribeLimiter(rate) if rate.limited else None
