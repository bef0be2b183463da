"""Signals, noted and looked at when there is time for them: the terminal has to be given back first."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTED = (*ENDING, signal.SIGTSTP, signal.SIGWINCH)


class Signals:
    """Those that came, and an end to wait for them."""

    def __init__(self) -> None:
        self.readable, self._writable = os.pipe()
        os.set_blocking(self.readable, False)
        os.set_blocking(self._writable, False)
        self._came: set[int] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """As long as this lasts they do nothing by themselves."""
        before = {each: signal.signal(each, lambda number, _: self._came.add(number)) for each in _NOTED}
        woken_before = signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken_before)
            for number, handler in before.items():
                signal.signal(number, handler)

    def wake(self) -> None:
        """For other threads: whoever waits goes on."""
        # What is full wakes as well.
        with suppress(BlockingIOError):
            os.write(self._writable, b"\0")

    def take(self) -> set[int]:
        """What came since it was asked last."""
        with suppress(BlockingIOError):
            while os.read(self.readable, 4096):
                pass
        came, self._came = self._came, set()
        return came
