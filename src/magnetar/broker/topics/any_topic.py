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
    """Returns the topic as a persistent one.

    :raises PersistentTopicRequired: the topic is non-persistent
    """
    if isinstance(topic, NonPersistentTopic):
        raise PersistentTopicRequired("Need to provide a persistent topic name")
    return topic


def still_open(topics: Sequence[T]) -> Sequence[T]:
    """Returns the topics, which were loaded one after another, if none has been closed meanwhile.

    :raises ServiceNotReady: a topic was unloaded while another was loaded, and no longer has its
        subscriptions here
    """
    for topic in topics:
        topic.check_open()
    return topics
