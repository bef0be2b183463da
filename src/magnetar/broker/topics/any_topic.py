"""Topics of either kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import PersistentTopicRequired

AnyTopic = Topic | NonPersistentTopic
T = TypeVar("T", bound=AnyTopic)


def persistent(topic: AnyTopic) -> Topic:
    """The topic, for what only one that stores messages has.

    :raises PersistentTopicRequired: it is a non-persistent one
    """
    if isinstance(topic, NonPersistentTopic):
        raise PersistentTopicRequired("Need to provide a persistent topic name")
    return topic


def still_open(topics: Sequence[T]) -> Sequence[T]:
    """The topics, which were loaded one after another, before their subscriptions are read.

    :raises ServiceNotReady: one was unloaded while the next was loaded: its subscriptions are gone from here
    """
    for topic in topics:
        topic.check_open()
    return topics
