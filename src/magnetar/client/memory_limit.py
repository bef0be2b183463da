"""The limit of the memory that the messages of one client use, and the producers and consumers that adapt to
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import Done
from magnetar.io.interfaces import Loop

_LOW = 0.75
"""Fraction of the limit below which receiver queues grow, as in Java clients."""
_HIGH = 0.95
"""Fraction of the limit from which receiver queues shrink, as in Java clients."""

Turn = Callable[[], object]
"""Sends one waiting message of a producer, and waits again if the producer has more."""


class MemoryLimit:
    """Counts the bytes of messages. As in Java clients, one message can exceed the limit, so that a message
    larger than the limit can be sent.
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
        """Whether another message can be counted."""
        return self.used < self.limit

    @property
    def is_free(self) -> bool:
        """Whether there is room and no producer waits for room."""
        return self.has_room and not self._waiting

    def take(self, size: int) -> bool:
        """Counts a message of ``size`` bytes; returns False without counting it if there is no room."""
        if self.used >= self.limit:
            return False
        self.add(size)
        return True

    def add(self, size: int) -> None:
        """Counts ``size`` bytes of messages that are already in memory, regardless of the limit."""
        before = self.used
        self.used += size
        if before < self.limit * _HIGH <= self.used:
            for shrink in self._shrinking:
                shrink()

    @property
    def is_low(self) -> bool:
        """Whether the use is so low that receiver queues can grow."""
        return self.used < self.limit * _LOW

    def shrinks(self, shrink: Callable[[], object]) -> None:
        """Registers ``shrink`` to be called whenever the limit is nearly reached, until :meth:`keeps`."""
        self._shrinking.append(shrink)

    def keeps(self, shrink: Callable[[], object]) -> None:
        """Unregisters ``shrink``; no effect if it is not registered."""
        if shrink in self._shrinking:
            self._shrinking.remove(shrink)

    def give(self, size: int) -> None:
        """Stops counting ``size`` bytes. Waiting producers are called soon, in the order of their waiting."""
        self.used -= size
        if self._waiting and not self._planned and self.has_room:
            self._planned = True
            self._loop.call_soon(self._go_on)

    def until_done(self, size: int, done: Done) -> Done:
        """Returns a callback that stops counting ``size`` bytes and then calls ``done``."""

        def given_back(message_id: MessageId | None, error: PulsarException | None) -> None:
            self.give(size)
            done(message_id, error)

        return given_back

    def wait(self, turn: Turn) -> None:
        """Calls ``turn`` once when there is room; a second registration has no effect."""
        if turn not in self._waiting:
            self._waiting.append(turn)
            # There may be room already, after others that wait.
            self.give(0)

    def forget(self, turn: Turn) -> None:
        """Unregisters ``turn``."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            self.give(0)

    def _go_on(self) -> None:
        self._planned = False
        while self._waiting and self.has_room:
            self._waiting.popleft()()
