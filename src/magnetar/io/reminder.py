"""Wakes a task when there may be something to do."""

from __future__ import annotations

from magnetar.io.interfaces import Future, Loop


class Reminder:
    """A reminder while the task works, or before it waits, is not lost; several of them count once."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._reminded = False
        self._waiter: Future[None] | None = None

    def remind(self) -> None:
        """Wakes the waiting task, or its next wait."""
        self._reminded = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Waits for a reminder; returns at once after one since the last wait. Only one task may wait."""
        if not self._reminded:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._reminded = False
