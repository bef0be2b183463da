"""Timers on a clock that can be advanced beyond the real time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from itertools import count
from typing import TypeVar

T = TypeVar("T")


class QuietLoop(asyncio.SelectorEventLoop):
    """The real loop; it can tell whether further calls are ready to run."""

    @property
    def is_quiet(self) -> bool:
        """Whether no other call is ready to run; pending events of sockets are not visible here."""
        return not self._ready  # type: ignore[attr-defined]  # asyncio has no public word for it


class AdvancingTimer:
    """A call that is scheduled for a certain time of the advanced clock."""

    __slots__ = ("_args", "_callback")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args

    @property
    def waits(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def run(self) -> None:
        callback, args = self._callback, self._args
        self.cancel()
        if callback is not None:
            callback(*args)


class AdvancingLoop:
    """A :class:`magnetar.io.interfaces.Loop` that wraps a real loop; only its timers use the advanced time.

    Futures and tasks belong to the real loop, because sockets and threads use only that loop and its time.
    """

    def __init__(self, loop: QuietLoop, ahead: float = 0.0) -> None:
        """:param ahead: how far the clock is ahead of the real clock at the start, in seconds"""
        self._loop = loop
        self.ahead = ahead
        """How far the clock is ahead of the real clock, in seconds."""
        self._timers: list[tuple[float, int, AdvancingTimer]] = []
        self._numbers = count()
        self._armed: asyncio.Handle | None = None

    def time(self) -> float:
        return self._loop.time() + self.ahead

    def call_soon(self, callback: Callable[..., object], *args: object) -> asyncio.Handle:
        return self._loop.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> AdvancingTimer:
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> AdvancingTimer:
        timer = AdvancingTimer(callback, args)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        if self._timers[0][2] is timer:
            self._arm()
        return timer

    def create_future(self) -> asyncio.Future[object]:
        return self._loop.create_future()

    def create_task(self, coroutine: Coroutine[object, None, T]) -> asyncio.Task[T]:
        return self._loop.create_task(coroutine)

    def call_exception_handler(self, context: dict[str, object]) -> None:
        self._loop.call_exception_handler(context)

    def next_due(self) -> float | None:
        """Returns the time at which the next timer is due, on the clock of :meth:`time`; None: no timer
        waits.
        """
        while self._timers and not self._timers[0][2].waits:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def skip(self, seconds: float) -> None:
        """Advances time; timers that are due then are called in the next turn of the loop, in the order of
        their times.

        :param seconds: by how much time advances, in seconds; above 0
        """
        self.ahead += seconds
        self._arm()

    def _arm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        due = self.next_due()
        if due is None:
            return
        left = due - self.time()
        # A due timer is called in the next turn, not after the loop has checked its own timers again.
        self._armed = (
            self._loop.call_later(left, self._fire) if left > 0 else self._loop.call_soon(self._fire)
        )

    def _fire(self) -> None:
        self._armed = None
        # The loop may call slightly early: the armed timer is due in any case.
        now = max(self.time(), self._timers[0][0]) if self._timers else 0.0
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.waits:
                self._loop.call_soon(timer.run)
        self._arm()
