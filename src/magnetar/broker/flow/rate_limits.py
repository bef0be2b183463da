"""Limits per second: token buckets, and the limits on publishing and subscribing that use them."""

from __future__ import annotations

from magnetar.broker.policies.values import SubscribeRate

_BURST_SECONDS = 1.0
"""The capacity of a bucket: the number of seconds whose tokens may be taken at once after a pause."""
_MOST = 1_000
"""The maximum number of remembered consumers. If there are more, the consumers whose token buckets are full
again are forgotten.
"""
Consumer = tuple[str, str, int]
"""Host, name and id of a consumer; all three stay the same after the consumer reconnects."""


class TokenBucket:
    """A token bucket: a rate limit whose overdraft is paid by waiting.

    Tokens are added over time, up to a capacity; taking tokens may leave a debt.

    :param rate: tokens per second, above 0
    :param capacity: the maximum number of tokens, above 0; also the initial number
    :param now: seconds of the monotonic clock, as in the methods
    :param step: the minimum time between two refills in seconds, so that a caller that repeatedly takes all
        tokens does not get smaller and smaller portions
    """

    __slots__ = ("_capacity", "_filled_at", "_rate", "_step", "_tokens")

    def __init__(self, rate: float, capacity: float, now: float, step: float = 0.0) -> None:
        self._rate = rate
        self._capacity = capacity
        self._step = step
        self._tokens = capacity
        self._filled_at = now

    @property
    def rate(self) -> float:
        """Returns the number of tokens per second."""
        return self._rate

    def use(self, rate: float, capacity: float, now: float) -> None:
        """Changes the rate; a debt stays."""
        self._fill(now)
        self._rate = rate
        self._capacity = capacity
        self._tokens = min(self._tokens, capacity)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._filled_at) * self._rate, self._capacity)
        self._filled_at = now

    def available(self, now: float) -> float:
        """Returns the tokens available; below 0: a debt."""
        if now - self._filled_at >= self._step:
            self._fill(now)
        return self._tokens

    def take(self, amount: float) -> None:
        """Takes tokens; the balance may become negative."""
        self._tokens -= amount

    def seconds_until(self, amount: float, now: float) -> float:
        """Returns the seconds until ``amount`` tokens, or a full bucket, are available; 0 if they are now."""
        missing = min(amount, self._capacity) - self._tokens
        if missing <= 0:
            return 0.0
        return max(missing / self._rate, self._step) - (now - self._filled_at)


def _bucket(rate: float, now: float) -> TokenBucket | None:
    return TokenBucket(rate, rate * _BURST_SECONDS, now) if rate > 0 else None


class PublishLimiter:
    """Limits of messages and bytes published per second, with a token bucket for each.

    Messages are never refused; connections that exceed the rate are not read for a while.

    :param messages: per second; 0 or below: no limit
    :param size: bytes per second; 0 or below: no limit
    :param now: monotonic seconds
    """

    def __init__(self, messages: float, size: float, now: float) -> None:
        self.use(messages, size, now)
        self.exceeded = 0
        """How often a connection was paused."""
        self.held_since = self.held_until = now
        """The beginning and the end of the current or last pause; monotonic seconds."""

    def use(self, messages: float, size: float, now: float) -> None:
        """Changes the limits."""
        self._messages = _bucket(messages, now)
        self._bytes = _bucket(size, now)

    def take(self, messages: int, size: int, now: float) -> float:
        """Counts published messages and bytes; returns the seconds for which the connection must pause."""
        for bucket, amount in ((self._messages, messages), (self._bytes, size)):
            if bucket is not None:
                bucket.available(now)
                bucket.take(amount)
        wait = self.debt(now)
        if wait:
            self.exceeded += 1
            if self.held_until < now:
                self.held_since = now
            self.held_until = max(self.held_until, now + wait)
        return wait

    def debt(self, now: float) -> float:
        """Returns the seconds until the published messages are within the rates again; 0 if they are now."""
        wait = 0.0
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                bucket.available(now)
                wait = max(wait, bucket.seconds_until(0, now))
        return wait

    @property
    def rates(self) -> tuple[float, float]:
        """Returns the limits of messages and bytes per second; 0: no limit."""
        messages, size = self._messages, self._bytes
        return (0.0 if messages is None else messages.rate, 0.0 if size is None else size.rate)


def publish_limiter(messages: float, size: float, now: float) -> PublishLimiter | None:
    """Returns a limiter; None if neither messages nor bytes are limited."""
    return PublishLimiter(messages, size, now) if messages > 0 or size > 0 else None


class SubscribeLimiter:
    """Limits how often each consumer of one topic subscribes; a consumer that subscribes too often is refused
    for a while.

    :param now: seconds of the monotonic clock, as in the methods
    """

    def __init__(self, rate: SubscribeRate) -> None:
        self._rate = rate
        self._period = max(1, rate.period_seconds)
        self._consumers: dict[Consumer, TokenBucket] = {}
        self.refused = 0

    def __len__(self) -> int:
        """Returns the number of remembered consumers."""
        return len(self._consumers)

    def admits(self, consumer: Consumer, now: float) -> bool:
        """Whether a consumer may subscribe now; if so, counts this attempt."""
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
    """Returns a limiter; None if there is no limit."""
    return SubscribeLimiter(rate) if rate.limited else None
