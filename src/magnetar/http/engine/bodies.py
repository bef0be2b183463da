"""Bounds the memory for the bodies of all requests together."""

from __future__ import annotations

from collections.abc import Callable

SPARED_BYTES = 16 * 1024
"""A body up to this size is never refused because of other bodies."""


Refuse = Callable[[], None]
"""Answers that there is no room and drops the body; also identifies the holder of the body."""


class Bodies:
    """Refuses the largest incomplete bodies when the limit is exceeded.

    So large uploads do not wait, and small requests are served whatever other clients send.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self.used = 0
        self._arriving: dict[Refuse, int] = {}
        self._complete: dict[Refuse, int] = {}

    def grew(self, holder: Refuse, size: int) -> None:
        """Counts arrived bytes. May call ``holder`` before it returns: then the body is refused."""
        self._arriving[holder] = self._arriving.get(holder, 0) + size
        self.used += size
        while self.used > self._max:
            largest = max(self._arriving, key=self._arriving.__getitem__, default=None)
            if largest is None or self._arriving[largest] <= SPARED_BYTES:
                return
            self.gone(largest)
            largest()

    def complete(self, holder: Refuse) -> None:
        """Notes that a body is complete; it stays until its request is answered."""
        if holder in self._arriving:
            self._complete[holder] = self._arriving.pop(holder)

    def gone(self, holder: Refuse) -> None:
        """Notes that a body was dropped; does nothing if there was none."""
        self.used -= self._arriving.pop(holder, 0) + self._complete.pop(holder, 0)
