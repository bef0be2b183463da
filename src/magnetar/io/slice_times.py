"""How long pieces of background work kept the loop, and which work waits for its next piece."""

from __future__ import annotations

from collections import deque
from typing import Any


class Slices:
    """The longest slice of each kind of background work, over the window that runs and the one before."""

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._processor = 0.0
        self._processor_before = 0.0
        self.waiting: deque[Any] = deque()
        """Futures of works whose next slice is due, in the order in which they get a turn."""
        self.giving = False
        """Whether the next of them gets the coming turn of the loop."""

    def note(self, kind: str, seconds: float, processor: float = 0.0) -> None:
        """A piece of work kept the loop for so long.

        :param processor: seconds that its thread had the processor for: the rest it waited for one
        """
        if seconds >= self._running.get(kind, 0.0):
            self._running[kind] = seconds
        if processor > self._processor:
            self._processor = processor

    def longest(self) -> dict[str, float]:
        """Seconds by kind."""
        kinds = self._running.keys() | self._before.keys()
        return {
            kind: max(self._running.get(kind, 0.0), self._before.get(kind, 0.0)) for kind in sorted(kinds)
        }

    def longest_processor(self) -> float:
        """Seconds of the processor that the longest slice took."""
        return max(self._processor, self._processor_before)

    def new_window(self) -> None:
        self._before, self._running = self._running, {}
        self._processor_before, self._processor = self._processor, 0.0
