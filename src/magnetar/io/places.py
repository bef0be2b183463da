"""A semaphore for the loop that is passed in, not for the running one: a number of coroutines at a time."""

from __future__ import annotations

from collections import deque
from typing import Any

from magnetar.io.interfaces import Loop


class FairSemaphore:
    """``async with places:`` waits, first come, first served, until one of them is free."""

    __slots__ = ("_free", "_loop", "_most", "_waiters")

    def __init__(self, loop: Loop, most: int = 1) -> None:
        """:param most: the number of places, at least 1"""
        self._loop = loop
        self._most = self._free = most
        self._waiters: deque[Any] | None = None
        """Made for the first waiter: an empty deque takes 760 bytes, and a topic has several semaphores."""

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
                # Cancelled after the place was handed over: the next waiter gets it.
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
