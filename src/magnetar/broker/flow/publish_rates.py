"""Limits on what is published per second: a token bucket for messages and one for bytes."""

from __future__ import annotations

from magnetar.broker.flow.token_bucket import TokenBucket

_BURST_SECONDS = 1.0
"""After a pause as much as in this time is admitted at once."""


def _bucket(rate: float, now: float) -> TokenBucket | None:
    return TokenBucket(rate, rate * _BURST_SECONDS, now) if rate > 0 else None


class PublishLimiter:
    """Never refuses anything: connections that exceed the rate are not read for a while.

    :param messages: per second; 0 or below: no limit
    :param size: bytes per second; likewise
    :param now: monotonic seconds
    """

    def __init__(self, messages: float, size: float, now: float) -> None:
        self.use(messages, size, now)
        self.exceeded = 0
        """How often a connection was paused."""
        self.held_since = self.held_until = now
        """The beginning and the end of the present or last pause; monotonic seconds."""

    def use(self, messages: float, size: float, now: float) -> None:
        """Changes the limits."""
        self._messages = _bucket(messages, now)
        self._bytes = _bucket(size, now)

    def take(self, messages: int, size: int, now: float) -> float:
        """Counts what was published; returns for how many seconds the connection has to be paused."""
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
        """Seconds until what was published is within the rates again; 0: it is."""
        wait = 0.0
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                bucket.available(now)
                wait = max(wait, bucket.seconds_until(0, now))
        return wait

    @property
    def rates(self) -> tuple[float, float]:
        """Messages and bytes per second; 0: no limit."""
        messages, size = self._messages, self._bytes
        return (0.0 if messages is None else messages.rate, 0.0 if size is None else size.rate)


def publish_limiter(messages: float, size: float, now: float) -> PublishLimiter | None:
    """Returns None if there is no limit."""
    return PublishLimiter(messages, size, now) if messages > 0 or size > 0 else None
