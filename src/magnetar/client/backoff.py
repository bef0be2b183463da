"""How long to wait before the next attempt."""

from __future__ import annotations

from magnetar.io.interfaces import Randomness

INITIAL_SECONDS = 0.1
MAX_SECONDS = 60.0


class Backoff:
    """Doubles from attempt to attempt; each delay is shortened by up to a fifth, so that clients spread."""

    __slots__ = ("_initial", "_max", "_next", "_randomness")

    def __init__(
        self, randomness: Randomness, initial: float = INITIAL_SECONDS, maximum: float = MAX_SECONDS
    ) -> None:
        """:param initial: seconds before the second attempt

        :param maximum: seconds that no delay exceeds
        """
        self._randomness = randomness
        self._initial = initial
        self._max = maximum
        self._next = initial

    def next(self) -> float:
        """Seconds to wait now."""
        delay = self._next
        self._next = min(self._max, delay * 2)
        return delay * (1 - self._randomness.fraction() / 5)

    def reset(self) -> None:
        """It worked: the next failure begins anew."""
        self._next = self._initial
