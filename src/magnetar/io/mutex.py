"""A lock for the loop that is passed in, not for the running one: one coroutine at a time."""

from __future__ import annotations

from magnetar.io.places import FairSemaphore


class Mutex(FairSemaphore):
    """``Mutex(loop)`` has one place: ``async with mutex:`` waits for its turn, first come, first served."""

    __slots__ = ()
