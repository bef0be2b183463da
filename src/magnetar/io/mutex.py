"""One coroutine at a time: a lock for the loop that was handed over, not for the one that runs."""

from __future__ import annotations

from magnetar.io.places import FairSemaphore


class Mutex(FairSemaphore):
    """``Mutex(loop)`` has one place: ``async with mutex:`` waits for its turn, first come, first served."""

    __slots__ = ()
