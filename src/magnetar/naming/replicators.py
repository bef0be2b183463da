"""Names for replication between clusters and for shadow topics (PIP-180).

The names are Apache Pulsar's (4.0), so that Pulsar and Magnetar clusters can replicate to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName

DEFAULT_PREFIX = "pulsar.repl"
"""The default of ``replicatorPrefix``, which must be the same in clusters that replicate to each other."""
SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"
"""The property of a replicated message that contains the message's position in the source cluster, as
``LEDGER:ENTRY``."""
LEDGER_MARK = "_LID"
"""The deduplication cursor stores a producer's last stored source position in two properties: the producer's
name with this suffix names the ledger id, and the producer's name with :data:`ENTRY_MARK` the entry id."""
ENTRY_MARK = "_EID"
_ARROW = "-->"
SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""The property that makes a topic a shadow topic: the full name of its source."""


def producer_name(prefix: str, local: str, remote: str) -> str:
    """Returns the name of the producer with which cluster ``local`` sends its messages to cluster ``remote``.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    return f"{prefix}.{local}{_ARROW}{remote}"


def cursor_name(prefix: str, remote: str) -> str:
    """Returns the name of the cursor that records which messages were sent to cluster ``remote``.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    return f"{prefix}.{remote}"


def remote_cluster_of(prefix: str, producer_name: str) -> str | None:
    """Returns the cluster whose replicator has a producer with this name; None if the producer belongs to a
    client.

    Every name that begins with the prefix and a dot belongs to a replicator. For the producer of a source
    topic at its shadow topic, the result is the name of the source.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    reserved = f"{prefix}."
    if not producer_name.startswith(reserved):
        return source_of_producer(prefix, producer_name)
    return producer_name[len(reserved) :].partition(_ARROW)[0]


def cluster_of_cursor(prefix: str, name: str) -> str | None:
    """Returns the cluster whose replicator has a cursor with this name; None for any other cursor.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    reserved = f"{prefix}."
    return name[len(reserved) :] if name.startswith(reserved) else None


def shadow_source(properties: Mapping[str, str], name: TopicName) -> TopicName | None:
    """Returns the source topic of the topic ``name``, given its properties; None: no shadow topic.

    If the property of a partition contains a topic without a partition, the source is that topic's partition
    with the same index.

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
    """Returns the name of the source's cursor that records which messages were announced to a shadow topic.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    return f"{prefix}-{quote(str(shadow), safe='')}"


def is_shadow_cursor(prefix: str, name: str) -> bool:
    """Whether a cursor with this name records which messages were announced to a shadow topic.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    return name.startswith(f"{prefix}-persistent%3A%2F%2F")


def shadow_producer(prefix: str, source: TopicName, shadow: TopicName) -> str:
    """Returns the name of the producer with which the broker of a source announces messages to a shadow
    topic.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    return f"{prefix}-{source}{_ARROW}{shadow}"


def source_of_producer(prefix: str, producer_name: str) -> str | None:
    """Returns the source topic that has a producer with this name; None for any other producer.

    :param prefix: the value of the setting ``replicatorPrefix``
    """
    reserved = f"{prefix}-persistent://"
    if not producer_name.startswith(reserved) or f"{_ARROW}persistent://" not in producer_name:
        return None
    return producer_name[len(prefix) + 1 :].partition(_ARROW)[0]
