"""How many messages a consumer asks for ahead."""

from __future__ import annotations

from collections.abc import Callable


class Permits:
    """Of one consumer. The broker sends as many messages as it has permits for.

    With a queue of size 0 nothing is asked for ahead: one message at a time, when somebody wants it.
    """

    def __init__(self, queue_size: int, give: Callable[[int], object]) -> None:
        """:param give: tells the broker of so many more, if there is a connection"""
        self._queue_size = queue_size
        self._threshold = max(1, queue_size // 2)
        self._give = give
        self._used = 0
        self._one_is_asked_for = False

    def use(self, messages: int) -> None:
        """So many messages were taken: the broker may send as many more, told once per half a queue."""
        if self._queue_size == 0:
            return
        self._used += messages
        if self._used >= self._threshold:
            used, self._used = self._used, 0
            self._give(used)

    def ask_for_one(self) -> None:
        """Where nothing is asked for ahead."""
        if self._queue_size == 0 and not self._one_is_asked_for:
            self._one_is_asked_for = True
            self._give(1)

    def arrived(self) -> None:
        """Something came: who wants one more has to ask again."""
        self._one_is_asked_for = False

    def widen(self, queue_size: int) -> None:
        """Asks for so many messages ahead from now on; never for fewer than before."""
        more = queue_size - self._queue_size
        if more > 0:
            self._queue_size = queue_size
            self._threshold = max(1, queue_size // 2)
            self._give(more)

    def attached(self, *, listened: bool, waited: bool) -> None:
        """The broker of a new connection knows of none.

        :param listened: whether a listener takes what comes
        :param waited: whether somebody waits for a message
        """
        self._used = 0
        self._one_is_asked_for = self._queue_size == 0 and (waited or (listened and self._one_is_asked_for))
        permits = 1 if self._one_is_asked_for else self._queue_size
        if permits:
            self._give(permits)
