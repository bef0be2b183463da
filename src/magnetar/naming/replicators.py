"""Names for replication between clusters: of producers, cursors, and message properties.

They are those of Apache Pulsar 4.0, so that Pulsar and Magnetar clusters can replicate to each other.
"""

from __future__ import annotations

from magnetar.naming.shadows import source_of_producer

DEFAULT_PREFIX = "pulsar.repl"
"""The default of ``replicatorPrefix``, which must be the same in clusters that replicate to each other."""

SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"
"""Property of a replicated message: its position in the cluster that it comes from, as ``LEDGER:ENTRY``."""

LEDGER_MARK = "_LID"
"""The suffix of a producer's name in the property of the deduplication cursor with the ledger id of the last
stored source position. :data:`ENTRY_MARK` is the suffix for its entry id."""
ENTRY_MARK = "_EID"

_ARROW = "-->"


def producer_name(prefix: str, local: str, remote: str) -> str:
    """Returns the name of the producer with which a cluster sends its messages to another.

    :param prefix: ``replicatorPrefix``
    """
    return f"{prefix}.{local}{_ARROW}{remote}"


def cursor_name(prefix: str, remote: str) -> str:
    """Returns the name of the cursor at what has been sent to another cluster.

    :param prefix: ``replicatorPrefix``
    """
    return f"{prefix}.{remote}"


def remote_cluster_of(prefix: str, producer_name: str) -> str | None:
    """Returns the cluster whose replicator has a producer of that name; None: the producer belongs to a
    client.

    Every name that begins with the prefix and a dot belongs to a replicator. For the producer of a source
    topic at its shadow topic, the result is the name of the source.

    :param prefix: ``replicatorPrefix``
    """
    reserved = f"{prefix}."
    if not producer_name.startswith(reserved):
        return source_of_producer(prefix, producer_name)
    return producer_name[len(reserved) :].partition(_ARROW)[0]


def cluster_of_cursor(prefix: str, name: str) -> str | None:
    """Returns the cluster whose replicator has a cursor of that name; None: it is another cursor.

    :param prefix: ``replicatorPrefix``
    """
    reserved = f"{prefix}."
    return name[len(reserved) :] if name.startswith(reserved) else None
