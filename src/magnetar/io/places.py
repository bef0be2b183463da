"""So many coroutines at a time: a semaphore for the loop that was handed over, not for the one that runs."""

from __future__ import annotations

from collections import deque
from typing import Any

from magnetar.io.interfaces import Loop


class FairSemaphore:
    """``async with places:`` waits, first come, first served, until one of them is free."""

    __slots__ = ("_free", "_loop", "_most", "_waiters")

    def __init__(self, loop: Loop, most: int = 1) -> None:
        """:param most: how many there are, at least 1"""
        self._loop = loop
        self._most = self._free = most
        self._waiters: deque[Any] | None = None
        """Made when somebody has to wait: an empty one takes 760 bytes, and a topic has several places."""

    @property
    def taken(self) -> int:
        return self._most - self._free

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        waiter = self._loop.create_future()
        if self._waiters is None:
            self._waiters = deque()
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
        self._free += 1
