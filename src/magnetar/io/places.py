"""So many coroutines at a time: a semaphore for the loop that was handed over, not for the one that runs."""

from __future__ import annotations

from collections import deque
from typing import Any

from magnetar.io.interfaces import Loop


class Places:
    """``async with places:`` waits, first come, first served, until one of them is free."""

    __slots__ = ("_loop", "_most", "_waiters", "taken")

    def __init__(self, loop: Loop, most: int) -> None:
        """:param most: how many there are, at least 1"""
        self._loop = loop
        self._most = most
        self._waiters: deque[Any] = deque()
        self.taken = 0

    async def __aenter__(self) -> None:
        if self.taken < self._most:
            self.taken += 1
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                # Cancelled with the place already handed over: the next one gets it.
                self._pass_on()
            raise

    async def __aexit__(self, *_exc: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.taken -= 1
