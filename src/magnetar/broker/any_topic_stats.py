"""Statistics of topics of either kind."""

from __future__ import annotations

from typing import Any

from magnetar.broker import non_persistent_stats as passing
from magnetar.broker import topic_stats as stored
from magnetar.broker.any_topic import AnyTopic
from magnetar.broker.non_persistent_topic import NonPersistentTopic

Json = dict[str, Any]


def topic_stats(
    topic: AnyTopic, owner: str, *, backlog_size: bool, publishers: bool, consumers: bool
) -> Json:
    """``TopicStats`` or ``NonPersistentTopicStats``; ``owner`` is the broker's ``host:port``."""
    if isinstance(topic, NonPersistentTopic):
        return passing.topic_stats(topic, owner, publishers=publishers, consumers=consumers)
    return stored.topic_stats(
        topic, owner, backlog_size=backlog_size, publishers=publishers, consumers=consumers
    )


def internal_stats(topic: AnyTopic, *, metadata: bool) -> Json:
    """``PersistentTopicInternalStats``; ``metadata`` adds a line on each ledger."""
    if isinstance(topic, NonPersistentTopic):
        return passing.internal_stats(topic)
    return stored.internal_stats(topic, metadata=metadata)
