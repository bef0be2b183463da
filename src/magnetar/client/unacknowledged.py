"""What a consumer took and has not acknowledged yet, so that it is asked for again after a time."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.io.interfaces import Cancellable, Loop

Position = tuple[int, int]


class Unacknowledged:
    """Entries by when they were taken; ``ackTimeout`` of official clients."""

    def __init__(self, loop: Loop, timeout: float, expired: Callable[[list[Position]], object]) -> None:
        """:param timeout: seconds, above 0

        :param expired: told of entries that nobody acknowledged in that time, once
        """
        self._loop = loop
        self._timeout = timeout
        self._expired = expired
        self._taken: dict[Position, float] = {}
        """In the order of their time."""
        self._timer: Cancellable | None = None

    def add(self, position: Position) -> None:
        """An entry, or one more message of a batch, was taken: its time begins, anew."""
        self._taken.pop(position, None)
        self._taken[position] = self._loop.time() + self._timeout
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._due)

    def remove(self, position: Position) -> None:
        self._taken.pop(position, None)

    def remove_until(self, bound: Position) -> None:
        """All up to and including one."""
        for position in [each for each in self._taken if each <= bound]:
            del self._taken[position]

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time() + 0.0005
        late: list[Position] = []
        for position, end in self._taken.items():
            if end > now:
                self._timer = self._loop.call_at(end, self._due)
                break
            late.append(position)
        for position in late:
            del self._taken[position]
        if late:
            self._expired(late)

    def forget(self) -> None:
        self._taken.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
