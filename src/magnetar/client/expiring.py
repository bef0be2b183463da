"""Items that expire after a common time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from magnetar.io.interfaces import Cancellable, Loop

K = TypeVar("K", bound=Hashable)


class Expiring(Generic[K]):
    """Items in the order of their start; one timer for all, and none while it is empty."""

    def __init__(self, loop: Loop, seconds: float, expired: Callable[[list[K]], object]) -> None:
        """:param seconds: above 0

        :param expired: called once with expired items
        """
        self._loop = loop
        self._seconds = seconds
        self._expired = expired
        self._ends: dict[K, float] = {}
        """The end of each item's time, in order."""
        self._timer: Cancellable | None = None

    def add(self, each: K) -> None:
        """Starts the time of an item, or restarts it."""
        self._ends.pop(each, None)
        self._ends[each] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._due)

    def remove(self, each: K) -> None:
        self._ends.pop(each, None)

    def remove_where(self, is_one: Callable[[K], bool]) -> None:
        for each in [each for each in self._ends if is_one(each)]:
            del self._ends[each]

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time() + 0.0005
        late: list[K] = []
        for each, end in self._ends.items():
            if end > now:
                self._timer = self._loop.call_at(end, self._due)
                break
            late.append(each)
        for each in late:
            del self._ends[each]
        if late:
            self._expired(late)

    def forget(self) -> None:
        """Removes all items."""
        self._ends.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
