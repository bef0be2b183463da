"""The bodies of all requests together: what clients may make the process hold."""

from __future__ import annotations

from collections.abc import Callable

SPARED_BYTES = 16 * 1024
"""A body up to this size is never refused for what others hold."""


Refuse = Callable[[], None]
"""Answers that there is no room, and lets go of the body; it stands for whoever holds that one."""


class Bodies:
    """Beyond the limit the largest of those that are not complete are refused.

    So whoever sends a lot waits for nobody, and whoever sends little is served whatever others do.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self.used = 0
        self._arriving: dict[Refuse, int] = {}
        self._complete: dict[Refuse, int] = {}

    def grew(self, holder: Refuse, size: int) -> None:
        """So many bytes arrived. ``holder`` may be called before this returns: its body is refused."""
        self._arriving[holder] = self._arriving.get(holder, 0) + size
        self.used += size
        while self.used > self._max:
            largest = max(self._arriving, key=self._arriving.__getitem__, default=None)
            if largest is None or self._arriving[largest] <= SPARED_BYTES:
                return
            self.gone(largest)
            largest()

    def complete(self, holder: Refuse) -> None:
        """It is there whole, and stays until its request is answered."""
        if holder in self._arriving:
            self._complete[holder] = self._arriving.pop(holder)

    def gone(self, holder: Refuse) -> None:
        """Nobody holds it any more; nothing happens when there was none."""
        self.used -= self._arriving.pop(holder, 0) + self._complete.pop(holder, 0)
