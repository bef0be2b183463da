"""One timer wheel for all timers of a process."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from magnetar.io.interfaces import Cancellable, Loop


class Timer:
    """A scheduled call in a timer wheel."""

    __slots__ = ("_args", "_callback", "_wheel")

    def __init__(self, wheel: TimerWheel, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._wheel = wheel
        self._callback: Callable[..., object] | None = callback
        self._args = args

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._args = ()
            self._wheel._timer_gone()

    def _run(self) -> None:
        callback, args = self._callback, self._args
        if callback is not None:
            self.cancel()
            callback(*args)


class TimerWheel:
    """Timers in slots of ``tick`` seconds, driven by at most one timer of the loop.

    A timer fires at most one tick late and never early; timers of one slot fire in the order in which they
    were scheduled. An empty wheel has no timer on the loop.
    """

    def __init__(self, loop: Loop, tick: float = 0.01) -> None:
        """:param tick: the duration of a slot in seconds, above 0"""
        if tick <= 0:
            raise ValueError(f"tick must be above 0, not {tick}")
        self._loop = loop
        self._tick = tick
        self._slots: dict[int, list[Timer]] = {}
        self._order: list[int] = []
        self._waiting = 0
        self._armed: Cancellable | None = None
        self._armed_slot = 0
        self.longest_delay = 0.0
        """Longest time by which a slot's timers fired late, in seconds, since a reader last set this to 0."""

    def __len__(self) -> int:
        """Returns the number of waiting timers."""
        return self._waiting

    def schedule(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Calls ``callback(*args)`` on the loop after ``delay`` seconds; 0: at the next tick."""
        slot = int((self._loop.time() + max(delay, 0.0)) / self._tick) + 1
        timer = Timer(self, callback, args)
        timers = self._slots.get(slot)
        if timers is None:
            self._slots[slot] = [timer]
            heapq.heappush(self._order, slot)
            if self._armed is None or slot < self._armed_slot:
                self._arm(slot)
        else:
            timers.append(timer)
        self._waiting += 1
        return timer

    def _arm(self, slot: int) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_slot = slot
        self._armed = self._loop.call_at(slot * self._tick, self._fire)

    def _timer_gone(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._slots.clear()
            self._order.clear()
            if self._armed is not None:
                self._armed.cancel()
                self._armed = None

    def _fire(self) -> None:
        self._armed = None
        now = self._loop.time()
        self.longest_delay = max(self.longest_delay, now - self._armed_slot * self._tick)
        # The loop may call slightly early: the armed slot is due in any case.
        due = max(self._armed_slot, int(now / self._tick))
        while self._order and self._order[0] <= due:
            for timer in self._slots.pop(heapq.heappop(self._order)):
                self._loop.call_soon(timer._run)
        if self._order and self._armed is None:
            self._arm(self._order[0])
