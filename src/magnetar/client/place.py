"""From which message on a consumer delivers: brokers start at entries, and batches hold several messages."""

from __future__ import annotations

from magnetar.client.message_id import MessageId


class StartPosition:
    """A start id; the ends of a topic name no message and skip nothing."""

    __slots__ = ("_start", "inclusive")

    def __init__(self, start: MessageId | None, inclusive: bool) -> None:
        """:param inclusive: whether the message that ``start`` names is delivered itself"""
        if start is not None and (start == MessageId.latest or start.ledger_id() < 0):
            start = None
        self._start = start
        self.inclusive = inclusive

    @property
    def matters(self) -> bool:
        """Whether :meth:`skips` has anything to tell."""
        return self._start is not None

    def skips(self, found: MessageId) -> bool:
        """Whether a message, or an entry, lies before it; what comes later need not be asked about."""
        start = self._start
        if start is None:
            return False
        if found.position != start.position:
            if found.position < start.position:
                return True
            self._start = None
            return False
        if start.batch_index() < 0 or found.batch_index() < 0:
            return not self.inclusive and start.batch_index() < 0
        if self.inclusive:
            return found.batch_index() < start.batch_index()
        return found.batch_index() <= start.batch_index()

    def is_before(self, last: MessageId) -> bool | None:
        """Whether ``last`` is delivered from here on; None where it names no message."""
        start = self._start
        if start is None:
            return None
        if start.batch_index() < 0 and last.position == start.position:
            return self.inclusive
        return last >= start if self.inclusive else last > start
