"""The system's clock and randomness."""

from __future__ import annotations

import os
import random
import time


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def processor(self) -> float:
        return time.thread_time()


class SystemRandomness:
    """Seeded by the system; :meth:`token` comes from the system and is fit for secrets."""

    def __init__(self) -> None:
        self._random = random.Random()

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, length: int) -> bytes:
        return os.urandom(length)
