"""The next partition for messages without a key that are published by requests."""

from __future__ import annotations

from magnetar.naming.topic_name import TopicName

MOST_TOPICS = 1000
"""The most topics that are remembered; a forgotten topic starts at its first partition again."""


class RequestTurns:
    """A message counter for each of the topics that were published to most recently."""

    def __init__(self) -> None:
        self._next: dict[TopicName, int] = {}

    def take(self, topic: TopicName, count: int) -> int:
        """Returns the number of the first of ``count`` messages; its remainder selects the partition."""
        if not count:
            return 0
        turn = self._next.pop(topic, 0)
        self._next[topic] = turn + count
        if len(self._next) > MOST_TOPICS:
            del self._next[next(iter(self._next))]
        return turn
