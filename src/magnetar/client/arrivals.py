"""Waiters for the arrival of something."""

from __future__ import annotations

from typing import Any

from magnetar.client.exceptions import Timeout
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import fail, settle


class Arrivals:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiters: list[Any] = []

    def __bool__(self) -> bool:
        """Whether there are waiters."""
        return bool(self._waiters)

    async def wait(self, end: float | None, late: str) -> None:
        """Waits until :meth:`wake` is called.

        :param end: time of the loop; None: without limit
        :param late: text of the error
        :raises Timeout: :meth:`wake` was not called in time
        """
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = self._loop.call_at(end, fail, waiter, Timeout(late)) if end is not None else None
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                # Not woken, but timed out or cancelled.
                self._waiters.remove(waiter)

    def wake(self) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            settle(waiter)
