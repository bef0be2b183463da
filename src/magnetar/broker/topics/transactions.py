"""What the transaction buffer of a topic needs of the topic: it publishes markers there."""

from __future__ import annotations

from magnetar.broker.publishing.producer import TransactionEnd
from magnetar.broker.topics.entries import Marker
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.within import TopicWriter
from magnetar.broker.transactions import TransactionSettings, TxnId
from magnetar.broker.transactions.buffer import (
    ABORTED,
    COMMITTED,
    MARKER_PRODUCER,
    Store,
    TransactionBuffer,
    marker_entry,
)
from magnetar.managed_ledger.position import Position


class TransactionEnds(TopicWriter):
    """Writes the markers that end transactions."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic, MARKER_PRODUCER)

    async def end(self, txn: TxnId, commit: bool) -> Position:
        """Publishes a marker; returns its position when it is durable.

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
