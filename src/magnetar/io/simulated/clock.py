"""Virtual time as a process sees it, and randomness from a seed."""

from __future__ import annotations

from random import Random

from magnetar.io.simulated.loop import SimulatedLoop

_EPOCH_MS = 1_700_000_000_000


class SimulatedClock:
    """The wall clock follows the loop's time, and jumps on request."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset_ms = 0
        """The error of the wall clock; may be below 0."""

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.offset_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def processor(self) -> float:
        """Work takes no virtual time."""
        return 0.0


class SimulatedRandomness:
    def __init__(self, random: Random) -> None:
        self._random = random

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, length: int) -> bytes:
        return self._random.randbytes(length)
