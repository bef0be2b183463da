"""Permits of a receiver queue whose size adapts to the program and to the client's memory limit."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.memory_limit import MemoryLimit
from magnetar.client.receiving import Permits


class ScaledPermits(Permits):
    """Permits of a queue that starts at one message. The size doubles when all permits are used and the
    program has received all messages, and is halved when the client's memory limit is nearly reached.
    """

    def __init__(self, most: int, give: Callable[[int], object], memory: MemoryLimit | None) -> None:
        """:param most: the maximum size of the queue in messages, above 0

        :param memory: the memory limit of the client; None: no limit
        """
        super().__init__(1, self._give_more)
        self._most = most
        self._send = give
        self._memory = memory
        self._at_broker = 0
        """Permits that the broker has received and not used yet."""
        self._was_full = False
        """Whether the broker has used all permits at least once since the queue last grew."""
        self._excess = 0
        """Number of messages for which no new permits will be sent, because the queue has shrunk."""
        if memory is not None:
            memory.shrinks(self._shrink)

    def _give_more(self, permits: int) -> None:
        self._at_broker += permits
        self._send(permits)

    def arrived(self, messages: int) -> None:
        self._at_broker -= messages
        if self._at_broker <= 0:
            self._was_full = True

    def ran_dry(self) -> None:
        if self._was_full and (self._memory is None or self._memory.is_low):
            self._was_full = False
            self.widen(min(self._queue_size * 2, self._most))

    def _shrink(self) -> None:
        size = max(self._queue_size // 2, 1)
        self._excess += self._queue_size - size
        self._queue_size = size
        self._threshold = max(1, size // 2)

    def use(self, messages: int) -> None:
        kept = min(messages, self._excess)
        self._excess -= kept
        super().use(messages - kept)

    def attached(self, *, listened: bool, waited: bool) -> None:
        self._at_broker = self._excess = 0
        super().attached(listened=listened, waited=waited)

    def end(self) -> None:
        if self._memory is not None:
            self._memory.keeps(self._shrink)
