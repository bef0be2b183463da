"""The memory that all messages of one client may use, and the producers and consumers that adapt to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import Done
from magnetar.io.interfaces import Loop

_LOW = 0.75
"""Receiver queues grow below this part of the limit, as in Java clients."""
_HIGH = 0.95
"""Receiver queues shrink when this part of the limit is reached, as in Java clients."""

Turn = Callable[[], object]
"""Sends one message of a producer, and waits again if it has more."""


class MemoryLimit:
    """Counts the contents of messages.

    As in Java clients, one message may exceed the limit, so that a message larger than the limit can be sent.
    """

    def __init__(self, loop: Loop, limit: int) -> None:
        """:param limit: in bytes, above 0"""
        if limit <= 0:
            raise InvalidConfiguration(f"memory_limit_bytes must be 0 or more, not {limit}")
        self._loop = loop
        self.limit = limit
        self.used = 0
        """In bytes."""
        self._waiting: deque[Turn] = deque()
        self._shrinking: list[Callable[[], object]] = []
        self._planned = False

    @property
    def has_room(self) -> bool:
        """Whether a message may be counted."""
        return self.used < self.limit

    @property
    def is_free(self) -> bool:
        """Whether there is room, and no producer waits for it."""
        return self.has_room and not self._waiting

    def take(self, size: int) -> bool:
        """Counts a message; returns False, and counts nothing, if there is no room."""
        if self.used >= self.limit:
            return False
        self.add(size)
        return True

    def add(self, size: int) -> None:
        """Counts messages that are in the memory already, whatever the limit."""
        before = self.used
        self.used += size
        if before < self.limit * _HIGH <= self.used:
            for shrink in self._shrinking:
                shrink()

    @property
    def is_low(self) -> bool:
        """Whether there is so much room that receiver queues may grow."""
        return self.used < self.limit * _LOW

    def shrinks(self, shrink: Callable[[], object]) -> None:
        """Calls ``shrink`` each time that the limit is nearly reached, until :meth:`keeps`."""
        self._shrinking.append(shrink)

    def keeps(self, shrink: Callable[[], object]) -> None:
        """Does not call ``shrink`` any more; has no effect without :meth:`shrinks`."""
        if shrink in self._shrinking:
            self._shrinking.remove(shrink)

    def give(self, size: int) -> None:
        """Ends counting a message. Waiting producers get their turn soon, in the order in which they came."""
        self.used -= size
        if self._waiting and not self._planned and self.has_room:
            self._planned = True
            self._loop.call_soon(self._go_on)

    def until_done(self, size: int, done: Done) -> Done:
        """Returns a callback that ends counting a message and calls ``done``."""

        def given_back(message_id: MessageId | None, error: PulsarException | None) -> None:
            self.give(size)
            done(message_id, error)

        return given_back

    def wait(self, turn: Turn) -> None:
        """Calls ``turn`` when there is room; waiting twice has no effect."""
        if turn not in self._waiting:
            self._waiting.append(turn)
            # There may be room already, behind others that wait.
            self.give(0)

    def forget(self, turn: Turn) -> None:
        """Does not call ``turn`` any more."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            self.give(0)

    def _go_on(self) -> None:
        self._planned = False
        while self._waiting and self.has_room:
            self._waiting.popleft()()
