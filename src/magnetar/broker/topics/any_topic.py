"""Topics of either kind."""

from __future__ import annotations

from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import PersistentTopicRequired

AnyTopic = Topic | NonPersistentTopic


def persistent(topic: AnyTopic) -> Topic:
    """The topic, for what only one that stores messages has.

    :raises PersistentTopicRequired: it is a non-persistent one
    """
    if isinstance(topic, NonPersistentTopic):
        raise PersistentTopicRequired("Need to provide a persistent topic name")
    return topic
