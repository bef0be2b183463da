"""A token bucket: a rate limit whose overdraft is paid by waiting."""

from __future__ import annotations


class TokenBucket:
    """Tokens are added over time, up to a capacity; taking may leave a debt.

    :param rate: tokens per second, above 0
    :param capacity: the most tokens, above 0; also the initial number
    :param now: seconds of the monotonic clock, as in the methods
    :param step: the shortest time between two refills, in seconds: without it, taking all tokens repeatedly
        would get fewer and fewer at a time
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
        """Tokens per second."""
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
        """Takes tokens, also more than are available."""
        self._tokens -= amount

    def seconds_until(self, amount: float, now: float) -> float:
        """Returns the seconds until that many tokens (at most the capacity) are available; 0: they are."""
        missing = min(amount, self._capacity) - self._tokens
        if missing <= 0:
            return 0.0
        return max(missing / self._rate, self._step) - (now - self._filled_at)
