"""The kinds of a topic's cursors, recognized by their names, and the differences between the kinds.

A cursor of any kind prevents the trimming of entries that it has not consumed.
"""

from __future__ import annotations

from dataclasses import replace

from magnetar.errors import InvalidName, ProducerBusy
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.side_ledgers import COMPACTION_CURSOR
from magnetar.naming.name_rules import InvalidName as UnusableName
from magnetar.naming.name_rules import check_subscription_name
from magnetar.naming.replicators import cluster_of_cursor, is_shadow_cursor

COMPACTION = COMPACTION_CURSOR
DEDUPLICATION = "pulsar.dedup"


@dataclass(frozen=True, slots=True)
class CursorKind:
    owner: str
    """What the cursor belongs to, in the words of error texts."""
    subscribed: bool
    """Whether the cursor is a subscription, visible to clients and operators under its name."""
    expires: bool
    """Whether messages of the cursor expire (time to live)."""
    counts_for_quota: bool
    """Whether backlog quotas count the backlog of the cursor, and may evict messages from it."""
    keeps_topic: bool
    """Whether the cursor keeps an inactive topic from being deleted."""


SUBSCRIPTION = CursorKind("consumers", subscribed=True, expires=True, counts_for_quota=True, keeps_topic=True)
"""The kind of each cursor whose name belongs to no other kind."""

_NAMED = {
    # Moving it without a compaction would lose the newest message of keys.
    COMPACTION: CursorKind(
        "compaction", subscribed=True, expires=False, counts_for_quota=False, keeps_topic=False
    ),
    # Its position is that of a snapshot of sequence ids: no messages are read from it.
    DEDUPLICATION: CursorKind(
        "deduplication", subscribed=False, expires=False, counts_for_quota=False, keeps_topic=False
    ),
}
_REPLICATION = CursorKind(
    "replication to another cluster",
    subscribed=False,
    expires=True,
    counts_for_quota=True,
    keeps_topic=True,
)
_SHADOWED = replace(_REPLICATION, owner="a shadow topic")


def kind_of(name: str, replicator_prefix: str) -> CursorKind:
    """Returns the kind of the cursor with that name.

    :param replicator_prefix: the setting ``replicatorPrefix``
    """
    named = _NAMED.get(name)
    if named is not None:
        return named
    if is_shadow_cursor(replicator_prefix, name):
        return _SHADOWED
    return SUBSCRIPTION if cluster_of_cursor(replicator_prefix, name) is None else _REPLICATION


def check_new_subscription(name: str, replicator_prefix: str) -> None:
    """Checks the name of a new subscription.

    :param replicator_prefix: the setting ``replicatorPrefix``; all names that begin with it are reserved
    :raises InvalidName: the name is not valid for a subscription
    :raises ProducerBusy: the name is reserved (Pulsar uses this error)
    """
    try:
        check_subscription_name(name)
    except UnusableName as error:
        raise InvalidName(str(error)) from error
    if name.startswith(replicator_prefix) or not kind_of(name, replicator_prefix).subscribed:
        raise ProducerBusy("Subscription with reserved subscription name attempted")


def subscription_kind(name: str) -> CursorKind:
    """Returns the kind of a subscription by its name: compaction, or a subscription of clients."""
    return _NAMED[COMPACTION] if name == COMPACTION else SUBSCRIPTION
