"""The memory limit of one client: it bounds the total size of messages. When it is reached, producers wait;
when it is nearly reached, receiver queues shrink.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import Done
from magnetar.io.interfaces import Loop

_LOW = 0.75
"""Receiver queues may grow while less than this fraction of the limit is used, as in Java clients."""
_HIGH = 0.95
"""Receiver queues shrink when this fraction of the limit is reached, as in Java clients."""

Turn = Callable[[], object]
"""Called when there is room: sends one waiting message of a producer, and registers itself again if the
producer has more.
"""


class MemoryLimit:
    """Counts the bytes of the client's messages. As in Java clients, a message is accepted as long as the
    limit is not reached, even if the message exceeds it; thus messages of any size can be sent.
    """

    def __init__(self, loop: Loop, limit: int) -> None:
        """:param limit: the limit in bytes, above 0"""
        if limit <= 0:
            raise InvalidConfiguration(f"memory_limit_bytes must be 0 or more, not {limit}")
        self._loop = loop
        self.limit = limit
        self.used = 0
        """Total size of the messages that count against the limit at present, in bytes."""
        self._waiting: deque[Turn] = deque()
        self._shrinking: list[Callable[[], object]] = []
        self._planned = False

    @property
    def has_room(self) -> bool:
        """Whether the limit is not reached, so that another message is accepted."""
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
        """Whether so little memory is in use that receiver queues may grow."""
        return self.used < self.limit * _LOW

    def shrinks(self, shrink: Callable[[], object]) -> None:
        """Registers ``shrink`` to be called whenever the limit is nearly reached, until :meth:`keeps`."""
        self._shrinking.append(shrink)

    def keeps(self, shrink: Callable[[], object]) -> None:
        """Unregisters ``shrink``; no effect if it is not registered."""
        if shrink in self._shrinking:
            self._shrinking.remove(shrink)

    def give(self, size: int) -> None:
        """Stops counting ``size`` bytes. If there is room, the event loop soon calls the waiting producers,
        in the order in which they started to wait.
        """
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
        """Cancels :meth:`wait` for ``turn``."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            self.give(0)

    def _go_on(self) -> None:
        self._planned = False
        while self._waiting and self.has_room:
            self._waiting.popleft()()
