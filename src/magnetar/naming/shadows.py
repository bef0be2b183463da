"""Names for shadow topics (PIP-180), as in Apache Pulsar 4.0."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from magnetar.naming.errors import InvalidName
from magnetar.naming.topic_name import TopicName

SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""The property that makes a topic a shadow topic: the full name of its source."""

_ARROW = "-->"


def shadow_source(properties: Mapping[str, str], name: TopicName) -> TopicName | None:
    """Returns the source of a topic with these properties; None if it is not a shadow topic.

    A partition whose source is named without a partition is the shadow of the partition with the same index.

    :raises InvalidName: the property is not the name of a persistent topic
    """
    text = properties.get(SHADOW_SOURCE)
    if not text:
        return None
    source = TopicName.parse(text)
    if not source.persistent:
        raise InvalidName(f"{SHADOW_SOURCE} must be a persistent topic, not {text!r}")
    return source.partition(name.partition_index) if source.partition_index < 0 else source


def shadow_cursor(prefix: str, shadow: TopicName) -> str:
    """Returns the name of the source's cursor at what has been announced to a shadow topic.

    :param prefix: ``replicatorPrefix``
    """
    return f"{prefix}-{quote(str(shadow), safe='')}"


def is_shadow_cursor(prefix: str, name: str) -> bool:
    """Whether a cursor of that name is for a shadow topic.

    :param prefix: ``replicatorPrefix``
    """
    return name.startswith(f"{prefix}-persistent%3A%2F%2F")


def shadow_producer(prefix: str, source: TopicName, shadow: TopicName) -> str:
    """Returns the name of the producer with which the broker of a source announces messages to a shadow
    topic.

    :param prefix: ``replicatorPrefix``
    """
    return f"{prefix}-{source}{_ARROW}{shadow}"


def source_of_producer(prefix: str, producer_name: str) -> str | None:
    """Returns the source that has a producer of that name; None: it is another producer.

    :param prefix: ``replicatorPrefix``
    """
    reserved = f"{prefix}-persistent://"
    if not producer_name.startswith(reserved) or f"{_ARROW}persistent://" not in producer_name:
        return None
    return producer_name[len(prefix) + 1 :].partition(_ARROW)[0]
