"""How long slices of background work blocked the loop, and which work waits for its next slice."""

from __future__ import annotations

from collections import deque
from typing import Any


class Slices:
    """The longest slice of each kind of background work, over the present window and the one before."""

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._processor = 0.0
        self._processor_before = 0.0
        self.waiting: deque[Any] = deque()
        """Futures of works whose next slice is due, in the order of their turns."""
        self.giving = False
        """Whether the next of them gets the coming turn of the loop."""

    def note(self, kind: str, seconds: float, processor: float = 0.0) -> None:
        """Records a slice that blocked the loop for ``seconds``.

        :param processor: the processor time of its thread in seconds: for the rest, it waited for a processor
        """
        if seconds >= self._running.get(kind, 0.0):
            self._running[kind] = seconds
        if processor > self._processor:
            self._processor = processor

    def longest(self) -> dict[str, float]:
        """Returns seconds by kind."""
        kinds = self._running.keys() | self._before.keys()
        return {
            kind: max(self._running.get(kind, 0.0), self._before.get(kind, 0.0)) for kind in sorted(kinds)
        }

    def longest_processor(self) -> float:
        """Returns the processor time of the longest slice, in seconds."""
        return max(self._processor, self._processor_before)

    def new_window(self) -> None:
        self._before, self._running = self._running, {}
        self._processor_before, self._processor = self._processor, 0.0
