"""A clock for the load generator, and a timer with a finer resolution than the event loop's 1 ms."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NONBLOCK = os.O_NONBLOCK
_SECOND = 1_000_000_000


class SharedClock:
    """A clock that never goes back, in nanoseconds since 1970; the clocks of processes on one machine differ
    by microseconds at most.
    """

    def __init__(self) -> None:
        self.offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return time.monotonic_ns() + self.offset


class _Moment(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSetting(ctypes.Structure):
    _fields_ = (("interval", _Moment), ("first", _Moment))


class Alarm:
    """A timer that calls a function at a given time; if the system has ``timerfd``, the call is at most about
    50 µs late.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: SharedClock, ring: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._file = -1
        self._handle: asyncio.TimerHandle | None = None
        self._library = ctypes.CDLL(None, use_errno=True)
        if hasattr(self._library, "timerfd_create"):
            self._file = self._library.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
        if self._file >= 0:
            loop.add_reader(self._file, self._rung)

    def set(self, moment: int) -> None:
        """Schedules the next call.

        :param moment: the time of the call, in nanoseconds of the clock; if this time is past, the function
            is called at once
        """
        monotonic = max(1, moment - self._clock.offset)
        if self._file < 0:
            if self._handle is not None:
                self._handle.cancel()
            delay = max(0.0, (monotonic - time.monotonic_ns()) / _SECOND)
            self._handle = self._loop.call_later(delay, self._ring)
            return
        setting = _TimerSetting()
        setting.first.seconds, setting.first.nanoseconds = divmod(monotonic, _SECOND)
        if self._library.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(setting), None) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_settime: {os.strerror(number)}")

    def _rung(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            # The timer was set again after it expired.
            return
        self._ring()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1
