"""Which partition is next for messages without a key that come in requests."""

from __future__ import annotations

from magnetar.naming.topic_name import TopicName

MOST_TOPICS = 1000
"""Topics of which it is known; one that is forgotten begins at its first partition again."""


class RequestTurns:
    """A number for each topic that was published to last."""

    def __init__(self) -> None:
        self._next: dict[TopicName, int] = {}

    def take(self, topic: TopicName, count: int) -> int:
        """The number of the first of ``count`` messages; the partition is what is left of it."""
        if not count:
            return 0
        turn = self._next.pop(topic, 0)
        self._next[topic] = turn + count
        if len(self._next) > MOST_TOPICS:
            del self._next[next(iter(self._next))]
        return turn
