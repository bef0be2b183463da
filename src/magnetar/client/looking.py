"""What a client looks at now and then, for as long as somebody uses what it may change."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from magnetar.client.exceptions import PulsarException
from magnetar.io.interfaces import Cancellable, Loop

log = logging.getLogger(__name__)


class Looking:
    """One look at a time; the next begins a while after the last has ended, however that was."""

    def __init__(self, loop: Loop, name: str, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        """:param name: what is looked at

        :param seconds: between two looks; 0: nobody looks
        """
        self._loop = loop
        self._name = name
        self._seconds = seconds
        self._look = look
        self._timer: Cancellable | None = None
        self._task: Any = None
        self._ended = False

    def begin(self) -> None:
        """The first look is after the first while."""
        if self._seconds and not self._ended:
            self._timer = self._loop.call_later(self._seconds, self._start)

    def end(self) -> None:
        """Also of a look that is going on."""
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
