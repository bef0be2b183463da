"""Telling one task that there may be something to do."""

from __future__ import annotations

from typing import Any

from magnetar.io.interfaces import Loop


class Reminder:
    """What is said while the task works, or before it waits, counts once and is not lost."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._reminded = False
        self._waiter: Any = None

    def remind(self) -> None:
        """Wakes the task that waits, or that will."""
        self._reminded = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until somebody reminds; at once when somebody has since the last time. One task at a time waits."""
        if not self._reminded:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._reminded = False
