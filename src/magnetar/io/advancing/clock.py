"""The system's clock, put ahead."""

from __future__ import annotations

from magnetar.io.advancing.loop import AdvancingLoop
from magnetar.io.interfaces import Clock


class AdvancingClock:
    """See :class:`magnetar.io.interfaces.Clock`."""

    def __init__(self, real: Clock, loop: AdvancingLoop) -> None:
        self._real = real
        self._loop = loop

    def wall_ms(self) -> int:
        return self._real.wall_ms() + round(self._loop.ahead * 1000)

    def monotonic(self) -> float:
        return self._real.monotonic() + self._loop.ahead

    def processor(self) -> float:
        return self._real.processor()
