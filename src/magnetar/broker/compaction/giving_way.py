"""Compaction gives way to publishing: while anybody publishes it rests most of the time."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.io.interfaces import Clock, Loop
from magnetar.io.waiting import sleep

_RESTS = 3.0
"""For each second of work so many of rest: one in four of those who publish meanwhile may notice it."""

_LONGEST_SECONDS = 0.25
"""Of one rest."""

_LATELY_SECONDS = 0.1
"""Whoever published so long ago may do so again any moment."""


class GivingWay:
    """Of one compaction, from its first step on.

    :param published: how often anybody has published so far, on any topic
    """

    def __init__(self, loop: Loop, clock: Clock, published: Callable[[], int]) -> None:
        self._loop = loop
        self._clock = clock
        self._published = published
        self._known = published()
        self._published_at = clock.monotonic() - _LATELY_SECONDS
        self._went_on = clock.monotonic()

    def gives(self) -> bool:
        """Whether anybody publishes."""
        now, count = self._clock.monotonic(), self._published()
        if count != self._known:
            self._known, self._published_at = count, now
        return now - self._published_at < _LATELY_SECONDS

    async def rest(self) -> None:
        """Between two steps; returns at once when nobody publishes."""
        if self.gives():
            took = self._clock.monotonic() - self._went_on
            await sleep(self._loop, min(_RESTS * took, _LONGEST_SECONDS))
        self._went_on = self._clock.monotonic()
