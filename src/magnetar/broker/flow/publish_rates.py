"""Bounds on what is published in a second: a bucket of tokens for messages and one for bytes."""

from __future__ import annotations

_BURST_SECONDS = 1.0
"""What may come at once after a pause: as much as in so many seconds."""


class _Bucket:
    __slots__ = ("_filled_at", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = rate * _BURST_SECONDS
        self._filled_at = now

    def take(self, amount: float, now: float) -> float:
        """Seconds until the bucket is out of debt."""
        filled = self._tokens + (now - self._filled_at) * self._rate
        self._tokens = min(filled, self._rate * _BURST_SECONDS) - amount
        self._filled_at = now
        return max(0.0, -self._tokens / self._rate)


class PublishLimiter:
    """What comes is never refused: whoever sends beyond the rate is not read for a while.

    :param messages: a second; 0 or below for any number
    :param size: bytes a second; likewise
    :param now: monotonic seconds
    """

    def __init__(self, messages: float, size: float, now: float) -> None:
        self._messages = _Bucket(messages, now) if messages > 0 else None
        self._bytes = _Bucket(size, now) if size > 0 else None
        self.exceeded = 0
        """How often somebody was made to wait."""

    def take(self, messages: int, size: int, now: float) -> float:
        """Counts what was published; returns for how many seconds its connection is not to be read."""
        wait = 0.0
        if self._messages is not None:
            wait = self._messages.take(messages, now)
        if self._bytes is not None:
            wait = max(wait, self._bytes.take(size, now))
        if wait:
            self.exceeded += 1
        return wait


def publish_limiter(messages: float, size: float, now: float) -> PublishLimiter | None:
    """None where there is no bound."""
    return PublishLimiter(messages, size, now) if messages > 0 or size > 0 else None
