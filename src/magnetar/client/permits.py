"""Permits: the number of messages that a consumer requests ahead."""

from __future__ import annotations

from collections.abc import Callable


class Permits:
    """The permits of one consumer. The broker sends at most as many messages as it has permits for.

    With a queue of size 0 nothing is requested ahead, but one message at a time when the program receives.
    """

    def __init__(self, queue_size: int, give: Callable[[int], object]) -> None:
        """:param give: sends permits to the broker, if there is a connection"""
        self._queue_size = queue_size
        self._threshold = max(1, queue_size // 2)
        self._give = give
        self._used = 0
        self._one_is_asked_for = False

    def use(self, messages: int) -> None:
        """Counts received messages; permits for as many are sent once per half a queue."""
        if self._queue_size == 0:
            return
        self._used += messages
        if self._used >= self._threshold:
            used, self._used = self._used, 0
            self._give(used)

    def ask_for_one(self) -> None:
        """Requests one message, with a queue of size 0."""
        if self._queue_size == 0 and not self._one_is_asked_for:
            self._one_is_asked_for = True
            self._give(1)

    def arrived(self) -> None:
        """Notes an arrival: the next message needs another :meth:`ask_for_one`."""
        self._one_is_asked_for = False

    def widen(self, queue_size: int) -> None:
        """Enlarges the queue; a smaller size has no effect."""
        more = queue_size - self._queue_size
        if more > 0:
            self._queue_size = queue_size
            self._threshold = max(1, queue_size // 2)
            self._give(more)

    def attached(self, *, listened: bool, waited: bool) -> None:
        """Sends permits on a new connection, whose broker has none.

        :param listened: whether a listener takes arriving messages
        :param waited: whether the program waits for a message
        """
        self._used = 0
        self._one_is_asked_for = self._queue_size == 0 and (waited or (listened and self._one_is_asked_for))
        permits = 1 if self._one_is_asked_for else self._queue_size
        if permits:
            self._give(permits)
