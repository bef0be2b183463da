"""Periodic checks of a client, for example for new partitions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from magnetar.client.exceptions import PulsarException
from magnetar.io.interfaces import Cancellable, Loop, Task

log = logging.getLogger(__name__)


class Looking:
    """One check at a time; the interval starts at the end of the last one, whatever its outcome."""

    def __init__(self, loop: Loop, name: str, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        """:param name: of the checked topic or topics, for the log

        :param seconds: between two checks; 0: no checks
        """
        self._loop = loop
        self._name = name
        self._seconds = seconds
        self._look = look
        self._timer: Cancellable | None = None
        self._task: Task[None] | None = None
        self._ended = False

    def begin(self) -> None:
        """Starts the interval before the next check."""
        if self._seconds and not self._ended:
            self._timer = self._loop.call_later(self._seconds, self._start)

    def end(self) -> None:
        """Stops, and cancels a check in progress."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._look()
        except PulsarException as error:
            log.warning("%s: looking up topics failed; trying again later: %s", self._name, error)
        finally:
            self._task = None
            self.begin()
