"""Transactions of a topic: its transaction buffer publishes markers to the topic, and its subscriptions have
pending acknowledgements."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.publishing.producer import TransactionEnd
from magnetar.broker.topics.entries import Marker
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.shadow import ShadowTopic
from magnetar.broker.topics.within import TopicWriter
from magnetar.broker.transactions import TransactionSettings, TxnId
from magnetar.broker.transactions.buffer import (
    ABORTED,
    COMMITTED,
    MARKER_PRODUCER,
    SnapshotStore,
    Store,
    TransactionBuffer,
    marker_entry,
)
from magnetar.io.interfaces import Io
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.managed_ledger.position import Position

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription
    from magnetar.broker.transactions.figures import BatchFigures
    from magnetar.broker.transactions.pending_acks import PendingAcks


class TransactionEnds(TopicWriter):
    """Writes the markers that end transactions."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic, MARKER_PRODUCER)

    async def end(self, txn: TxnId, commit: bool) -> Position:
        """Publishes a marker; returns its position when it is durable.

        :param commit: whether the marker commits the transaction; otherwise it aborts the transaction

        :raises TopicTerminated: the topic is terminated
        :raises ServiceNotReady: the topic is closing, or was lost to another broker
        :raises PersistenceFailure: the entry cannot be stored
        """
        topic = self._topic
        publish = TransactionEnd(self.producer, topic.clock.monotonic(), txn, commit=commit)
        # Subscriptions that have consumed everything before a marker consume it at once.
        topic.markers.on_their_way[publish] = Marker(COMMITTED if commit else ABORTED, b"", None)
        try:
            return await self.submit(publish, marker_entry(txn, topic.clock.wall_ms(), commit=commit))
        finally:
            topic.markers.on_their_way.pop(publish, None)


def transaction_buffer(topic: Topic, store: Store, settings: TransactionSettings) -> TransactionBuffer:
    """Returns a buffer for the transactions of a topic, empty at first."""
    ends = TransactionEnds(topic)
    return TransactionBuffer(
        topic.full_name,
        topic.managed_ledger,
        topic.loop,
        topic.wheel,
        topic.tasks,
        topic.clock.wall_ms,
        settings,
        store,
        ends.end,
        topic.read_more,
    )


async def prepare_transactions(
    topic: Topic,
    io: Io,
    managed_ledgers: ManagedLedgerFactory,
    snapshots: SnapshotStore,
    settings: TransactionSettings,
    batches: BatchFigures,
) -> None:
    """Prepares a topic for transactions: hides messages of open transactions before any entry is dispatched.

    :param batches: the statistics of batched writes to pending-ack logs
    :raises BrokerError: the state of transactions cannot be read now
    :raises LedgerError: the state of transactions, or an entry after it, cannot be read
    """
    own: Topic = weakref.proxy(topic)
    store, lost = partial(snapshots.store, topic.name), topic.pending_acks.lost

    async def open_pending(subscription: Subscription, tenure: Tenure, create: bool) -> PendingAcks | None:
        from magnetar.broker.transactions.pending_acks import open_pending_acks

        return await open_pending_acks(
            io,
            managed_ledgers,
            own.name,
            subscription.cursor,
            settings,
            own.policies.quorums,
            tenure,
            lost,
            create=create,
            figures=batches,
        )

    topic.pending_acks.open = open_pending
    topic.make_transactions = lambda: transaction_buffer(own, store, settings)
    if isinstance(topic, ShadowTopic):
        await topic.check_source(snapshots)
        return
    snapshot = await snapshots.load(topic.name)
    if snapshot is not None:
        topic.transactions = topic.make_transactions()
        await topic.transactions.recover(snapshot)
