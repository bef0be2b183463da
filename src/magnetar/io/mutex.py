"""One coroutine at a time: a lock for the loop that was handed over, not for the one that runs."""

from __future__ import annotations

from collections import deque
from typing import Any

from magnetar.io.interfaces import Loop


class Mutex:
    """``async with mutex:`` waits for its turn, first come, first served."""

    __slots__ = ("_loop", "_taken", "_waiters")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._taken = False
        self._waiters: deque[Any] = deque()

    async def __aenter__(self) -> None:
        if self._taken:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    # Cancelled with the turn already handed over: the next one gets it.
                    self._pass_on()
                raise
        self._taken = True

    async def __aexit__(self, *_exc: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._taken = False
