"""The first message of a consumer: brokers start at entries, and batches have several messages."""

from __future__ import annotations

from magnetar.client.message_id import MessageId


class StartPosition:
    """A start id; the ends of a topic are not messages and skip nothing."""

    __slots__ = ("_start", "inclusive")

    def __init__(self, start: MessageId | None, inclusive: bool) -> None:
        """:param inclusive: whether the message ``start`` is itself delivered"""
        if start is not None and (start == MessageId.latest or start.ledger_id() < 0):
            start = None
        self._start = start
        self.inclusive = inclusive

    @property
    def matters(self) -> bool:
        """Whether :meth:`skips` may still return True."""
        return self._start is not None

    def skips(self, found: MessageId) -> bool:
        """Whether a message or an entry is before the start; no check is needed for later ones."""
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
        """Whether ``last`` is delivered with this start; None if the start is not a message."""
        start = self._start
        if start is None:
            return None
        if start.batch_index() < 0 and last.position == start.position:
            return self.inclusive
        return last >= start if self.inclusive else last > start
