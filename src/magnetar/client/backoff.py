"""The delay before the next attempt."""

from __future__ import annotations

from magnetar.io.interfaces import Randomness

INITIAL_SECONDS = 0.1
MAX_SECONDS = 60.0


class Backoff:
    """A delay that doubles with each attempt, less a random part of up to a fifth, so that clients spread."""

    __slots__ = ("_initial", "_max", "_next", "_randomness")

    def __init__(
        self, randomness: Randomness, initial: float = INITIAL_SECONDS, maximum: float = MAX_SECONDS
    ) -> None:
        """:param initial: seconds before the second attempt

        :param maximum: the longest delay in seconds
        """
        self._randomness = randomness
        self._initial = initial
        self._max = maximum
        self._next = initial

    def next(self) -> float:
        """Returns the seconds to wait now."""
        delay = self._next
        self._next = min(self._max, delay * 2)
        return delay * (1 - self._randomness.fraction() / 5)

    def reset(self) -> None:
        """Starts again with the initial delay, after a success."""
        self._next = self._initial
