"""Pacing of compaction: while clients publish, it rests most of the time."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.io.interfaces import Clock, Loop
from magnetar.io.waiting import sleep

_RESTS = 3.0
"""Seconds of rest per second of work, so that at most one in four publishes meanwhile is delayed."""

_LONGEST_SECONDS = 0.25
"""The longest rest."""

_LATELY_SECONDS = 0.1
"""Clients count as publishing for this long after the last publish."""


class GivingWay:
    """Paces one compaction, from its first step on.

    :param published: returns the number of publishes so far, on all topics
    """

    def __init__(self, loop: Loop, clock: Clock, published: Callable[[], int]) -> None:
        self._loop = loop
        self._clock = clock
        self._published = published
        self._known = published()
        self._published_at = clock.monotonic() - _LATELY_SECONDS
        self._went_on = clock.monotonic()

    def gives(self) -> bool:
        """Whether clients are publishing."""
        now, count = self._clock.monotonic(), self._published()
        if count != self._known:
            self._known, self._published_at = count, now
        return now - self._published_at < _LATELY_SECONDS

    async def rest(self) -> None:
        """Rests between two steps; returns at once when no client publishes."""
        if self.gives():
            took = self._clock.monotonic() - self._went_on
            await sleep(self._loop, min(_RESTS * took, _LONGEST_SECONDS))
        self._went_on = self._clock.monotonic()
