"""Records signals for later handling, because the terminal must be restored first."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTED = (*ENDING, signal.SIGTSTP, signal.SIGWINCH)


class Signals:
    """The recorded signals, and a file descriptor to wait for them."""

    def __init__(self) -> None:
        self.readable, self._writable = os.pipe()
        os.set_blocking(self.readable, False)
        os.set_blocking(self._writable, False)
        self._came: set[int] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Records signals, in place of their usual effect, inside the ``with`` statement."""
        before = {each: signal.signal(each, lambda number, _: self._came.add(number)) for each in _NOTED}
        woken_before = signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken_before)
            for number, handler in before.items():
                signal.signal(number, handler)

    def wake(self) -> None:
        """Wakes the waiting thread; may be called from other threads."""
        # A full pipe wakes as well.
        with suppress(BlockingIOError):
            os.write(self._writable, b"\0")

    def take(self) -> set[int]:
        """Returns the signals since the last call."""
        with suppress(BlockingIOError):
            while os.read(self.readable, 4096):
                pass
        came, self._came = self._came, set()
        return came
