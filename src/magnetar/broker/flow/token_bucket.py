"""A bucket of tokens: what may flow in a second. Whoever takes more than there is pays by waiting."""

from __future__ import annotations


class TokenBucket:
    """Tokens come with time, up to a capacity; taking may leave a debt.

    :param rate: tokens a second, above 0
    :param capacity: what may be there at most, above 0; so much is there at first
    :param now: seconds of the monotonic clock; so is every ``now`` below
    :param step: seconds that pass at least between two fillings: whoever takes all that is there, again and
        again, would else go on with ever less of it
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
        """Tokens a second."""
        return self._rate

    def use(self, rate: float, capacity: float, now: float) -> None:
        """From now on they come at another rate; a debt stays."""
        self._fill(now)
        self._rate = rate
        self._capacity = capacity
        self._tokens = min(self._tokens, capacity)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._filled_at) * self._rate, self._capacity)
        self._filled_at = now

    def available(self, now: float) -> float:
        """Tokens that are there; below 0 for a debt."""
        if now - self._filled_at >= self._step:
            self._fill(now)
        return self._tokens

    def take(self, amount: float) -> None:
        """Takes tokens, whether they are there or not."""
        self._tokens -= amount

    def seconds_until(self, amount: float, now: float) -> float:
        """When so many are there, at most the capacity; 0: they are."""
        missing = min(amount, self._capacity) - self._tokens
        if missing <= 0:
            return 0.0
        return max(missing / self._rate, self._step) - (now - self._filled_at)
