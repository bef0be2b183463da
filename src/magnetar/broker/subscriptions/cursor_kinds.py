"""What cursors of a topic are there for, told by their names, and what counts them.

A cursor holds back what it has not consumed, whatever its kind; everything else differs.
"""

from __future__ import annotations

from dataclasses import replace

from magnetar.errors import InvalidName, ProducerBusy
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.owned_ledgers import COMPACTION_CURSOR
from magnetar.naming.errors import InvalidName as UnusableName
from magnetar.naming.name_rules import check_subscription_name
from magnetar.naming.replicators import cluster_of_cursor
from magnetar.naming.shadows import is_shadow_cursor

COMPACTION = COMPACTION_CURSOR
DEDUPLICATION = "pulsar.dedup"


@dataclass(frozen=True, slots=True)
class CursorKind:
    owner: str
    """Whose it is, for people."""
    subscribed: bool
    """Whether it is a subscription that clients and operators see under its name."""
    expires: bool
    """Whether time to live moves it."""
    counts_for_quota: bool
    """Whether its backlog counts for quotas, and may be evicted at them."""
    keeps_topic: bool
    """Whether a topic that nobody uses stays for it."""


SUBSCRIPTION = CursorKind("consumers", subscribed=True, expires=True, counts_for_quota=True, keeps_topic=True)
"""Every name that is no other kind's."""

_NAMED = {
    # Moving it without compacting would lose the newest message of keys.
    COMPACTION: CursorKind(
        "compaction", subscribed=True, expires=False, counts_for_quota=False, keeps_topic=False
    ),
    # Its position is that of a snapshot of sequence ids: nobody reads behind it.
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
    """What the cursor of that name is there for.

    :param replicator_prefix: the setting ``replicatorPrefix``
    """
    named = _NAMED.get(name)
    if named is not None:
        return named
    if is_shadow_cursor(replicator_prefix, name):
        return _SHADOWED
    return SUBSCRIPTION if cluster_of_cursor(replicator_prefix, name) is None else _REPLICATION


def check_new_subscription(name: str, replicator_prefix: str) -> None:
    """:param replicator_prefix: the setting ``replicatorPrefix``; all names that begin with it are kept free

    :raises InvalidName: no subscription may have such a name
    :raises ProducerBusy: it is reserved; the error is the one that Pulsar has for taken names
    """
    try:
        check_subscription_name(name)
    except UnusableName as error:
        raise InvalidName(str(error)) from error
    if name.startswith(replicator_prefix) or not kind_of(name, replicator_prefix).subscribed:
        raise ProducerBusy("Subscription with reserved subscription name attempted")


def subscription_kind(name: str) -> CursorKind:
    """What a subscription of that name is there for: its cursor is none of replication or deduplication."""
    return _NAMED[COMPACTION] if name == COMPACTION else SUBSCRIPTION
