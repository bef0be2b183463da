"""If transactions are disabled, finds topics that have had transactions, and logs a warning.
A broker with disabled transactions delivers messages of aborted and open transactions, and messages that open
transactions have acknowledged, as Apache Pulsar does. It also compacts these messages, and replicates them
without the ids of their transactions. The warning tells operators before clients notice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.shadow import ShadowTopic
from magnetar.errors import BrokerError
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.namespace_name import NamespaceName

if TYPE_CHECKING:
    from magnetar.broker.transactions.buffer import SnapshotStore

log = logging.getLogger(__name__)

_SNAPSHOTS = ("__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes")
"""The local names of system topics; one exists in each namespace whose topics have had transactions."""
_COORDINATOR = "pulsar/system/persistent/__transaction_log_0"
"""The log of the first coordinator. It exists if clients have ever used transactions, because they connect to
all coordinators."""
_MAX_KNOWN = 100_000


@dataclass(frozen=True, slots=True)
class Left:
    """The data that transactions have left in a topic."""

    aborted: int | None
    """The number of aborted transactions in the last snapshot; None: no transaction has published to the
    topic."""
    subscriptions: tuple[str, ...]
    """The subscriptions in which transactions have acknowledged messages."""


def others_that_get(topic: Topic) -> list[str]:
    """Returns the names of the other clusters to which the messages of a topic are replicated."""
    return [each for each in topic.policies.replication_clusters if each != topic.settings.cluster]


class TransactionsOff:
    """Checks each topic once when it is loaded, at no cost if transactions were never used."""

    def __init__(
        self, topics: ServedTopics, metadata: MetadataStore, snapshots: Callable[[], SnapshotStore]
    ) -> None:
        """:param snapshots: returns a reader of snapshots; called for the first topic that may have a
        snapshot"""
        self._topics = topics
        self._make_snapshots = snapshots
        self._snapshots: SnapshotStore | None = None
        # Of namespaces, not of topics.
        self._stored = MetadataCache(metadata, ROOT, metadata.exists, most=_MAX_KNOWN)
        self.found: WeakKeyDictionary[Topic, Left] = WeakKeyDictionary()
        """The loaded topics that have had transactions."""

    def look(self, topic: Topic) -> None:
        """Checks a topic that is being loaded, without delaying the load."""
        topic.tasks.start(self._look(topic), "looking for transactions")

    async def _look(self, topic: Topic) -> None:
        try:
            left = await self._left_in(topic)
        except (BrokerError, LedgerError, MetadataError) as error:
            log.warning(
                "transactions are disabled, and whether the topic has had any cannot be determined",
                extra={"topic": topic.full_name, "error": str(error)},
            )
            return
        if left is None:
            return
        self.found[topic] = left
        log.warning(
            "transactions are disabled, and the topic has had some: messages of aborted and open ones are "
            "delivered, and what open ones have acknowledged",
            extra={
                "topic": topic.full_name,
                "aborted": left.aborted,
                "subscriptions": " ".join(left.subscriptions),
                "replicatedTo": " ".join(others_that_get(topic)),
            },
        )

    async def _left_in(self, topic: Topic) -> Left | None:
        if not await self._stored.get(f"{ROOT}/{_COORDINATOR}"):
            return None
        snapshot = None
        published = topic.source if isinstance(topic, ShadowTopic) else topic.name
        if await self._has_snapshots(published.namespace_name):
            if self._snapshots is None:
                self._snapshots = self._make_snapshots()
            snapshot = await self._snapshots.load(published)
        from magnetar.broker.transactions.pending_acks import pending_acks_of

        acked = [
            name
            for name, each in list(topic.subscriptions.items())
            if each.durable and await self._topics.managed_ledgers.exists(pending_acks_of(topic.name, name))
        ]
        if snapshot is None and not acked:
            return None
        return Left(None if snapshot is None else len(snapshot.aborted), tuple(acked))

    async def _has_snapshots(self, namespace: NamespaceName) -> bool:
        for kind in _SNAPSHOTS:
            if await self._stored.get(f"{ROOT}/{namespace}/persistent/{kind}"):
                return True
        return False
