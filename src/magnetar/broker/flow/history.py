"""Recent rates in and out: a small ring of numbers for each topic that was busy."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

WINDOWS = 60
"""Statistics windows (``statsUpdateFrequencyInSecs``) that are kept."""

MOST_KEPT = 8192
"""Topics that are kept; a ring takes less than 1 KiB with its name, so all together less than 8 MiB."""

ALL = ""
"""In place of a topic: the whole broker."""


class _Ring:
    __slots__ = ("newest", "values")

    def __init__(self, window: int) -> None:
        self.newest = window
        self.values = array("f", bytes(4 * 2 * WINDOWS))

    def go_to(self, window: int) -> None:
        """Moves on to a window; those in between without rates count as idle."""
        for missed in range(max(self.newest + 1, window - WINDOWS + 1), window + 1):
            at = missed % WINDOWS * 2
            self.values[at] = self.values[at + 1] = 0.0
        self.newest = window


class RateHistory:
    """Rates of the last :data:`WINDOWS` windows by topic, without topics that were idle all the time."""

    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}
        self._window = -1
        """The number of the window; -1 before the first."""

    def __len__(self) -> int:
        return len(self._rings)

    def new_window(self) -> None:
        """Begins the next window, and removes rings that are idle in all windows."""
        self._window += 1
        if self._window % WINDOWS == 0:
            oldest = self._window - WINDOWS
            self._rings = {name: ring for name, ring in self._rings.items() if ring.newest > oldest}

    def add(self, topic: str, rate_in: float, rate_out: float) -> None:
        """Adds messages per second to the present window; ignores new topics while there are too many."""
        ring = self._rings.get(topic)
        if ring is None:
            if len(self._rings) >= MOST_KEPT:
                return
            ring = self._rings[topic] = _Ring(self._window)
        elif ring.newest != self._window:
            ring.go_to(self._window)
        at = self._window % WINDOWS * 2
        ring.values[at] += rate_in
        ring.values[at + 1] += rate_out

    def of(self, topic: str) -> tuple[Sequence[float], Sequence[float]]:
        """Returns messages per second in and out, the oldest first, for the known windows; empty if idle."""
        ring = self._rings.get(topic)
        if ring is None:
            return (), ()
        ring.go_to(self._window)
        # The oldest follows the newest.
        first = (self._window + 1) % WINDOWS * 2
        values = ring.values[first:] + ring.values[:first]
        known = min(WINDOWS, self._window + 1)
        return values[0::2][-known:], values[1::2][-known:]
