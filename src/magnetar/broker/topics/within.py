"""Producers and readers inside the broker, which publish to a topic and follow it without a client."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.flow.connection import Assigned
from magnetar.broker.publishing.producer import AccessMode, Producer, Publish
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError
from magnetar.io.waiting import fail, settle
from magnetar.ledger.entry_run import EntryRun
from magnetar.managed_ledger.position import Position

_READ_ENTRIES = 1_000
_READ_BYTES = 1 << 20


class NoConnection:
    """Stands for the connection of a producer that has no client."""

    address = "local"
    client_version = "broker"
    held_back = False
    supports_partial_producer = False
    non_persistent_pending = 0

    async def is_alive(self) -> bool:
        return True

    def stop_producer(self, producer: Producer) -> None:
        """Does nothing: no client waits for receipts."""

    def close_producer(self, producer: Producer, assigned: Assigned | None = None) -> None:
        """Does nothing: the next publish raises that the topic is closing."""

    def on_durable(
        self,
        producer: Producer,
        publish: Publish,
        ledger_id: int,
        first_entry_id: int,
        first: int,
        count: int,
        size: int,
    ) -> None:
        """Does nothing: the receipt is not needed."""

    def on_failed(
        self, producer: Producer, publish: Publish, first: int, count: int, size: int, error: BrokerError
    ) -> None:
        """Does nothing: the topic has logged the reason."""

    def on_passed(self, producer: Producer, publish: Publish, taken: int, size: int) -> None:
        raise AssertionError("a persistent topic stores what it takes")

    def producer_of(self, topic: Topic, name: str) -> Producer:
        """Returns a producer of that name for the broker's own messages; the topic does not list it."""
        return Producer(
            topic,
            self,
            0,
            name,
            user_provided_name=False,
            epoch=0,
            access_mode=AccessMode.Shared,
            topic_epoch=None,
            metadata={},
            connected_ms=topic.clock.wall_ms(),
        )


class TopicWriter(NoConnection):
    """A producer for the broker's own messages, which waits for the outcome of each."""

    def __init__(self, topic: Topic, name: str) -> None:
        """:param name: the producer's name for deduplication; unique in the cluster"""
        self._topic = topic
        self._waiting: deque[Any] = deque()
        self._producer = self.producer_of(topic, name)

    async def append(self, entry: bytes, sequence_id: int, messages: int = 1) -> Position:
        """Publishes one entry; returns its position when it is durable.

        :param entry: from the magic number to the end of the payload
        :raises TopicTerminated: the topic is terminated
        :raises ServiceNotReady: the topic is closing, or was lost to another broker
        :raises PersistenceFailure: the entry cannot be stored
        """
        ids = array("q", (sequence_id,))
        publish = Publish(self._producer, ids, ids, messages, self._topic.clock.monotonic())
        self._topic.publish(publish, entry, array("q", (0,)), array("q", (len(entry),)), len(entry))
        done = self._topic.loop.create_future()
        self._waiting.append(done)
        position: Position = await done
        return position

    # Outcomes, in the order of the appends

    def on_durable(
        self,
        producer: Producer,
        publish: Publish,
        ledger_id: int,
        first_entry_id: int,
        first: int,
        count: int,
        size: int,
    ) -> None:
        done = self._waiting.popleft()
        settle(done, (ledger_id, first_entry_id))

    def on_failed(
        self, producer: Producer, publish: Publish, first: int, count: int, size: int, error: BrokerError
    ) -> None:
        done = self._waiting.popleft()
        fail(done, error)


async def read_on(topic: Topic, after: Position, take: Callable[[EntryRun], None]) -> Position:
    """Passes everything behind a position to ``take``, in order; returns the last position that was read.

    Trimmed entries come from the compacted ledger; for a reader without a position, all that it covers do.

    :raises LedgerError: an entry cannot be read
    """
    ledgers, last = topic.managed_ledger.ledgers, topic.max_read_position
    compacted = topic.compaction.current
    if compacted is not None and after < compacted.horizon and after[0] < ledgers.first_id():
        after = await _read_compacted(compacted, after, take)
    position = ledgers.after(after)
    while position <= last:
        run = await topic.managed_ledger.reader.read(position, last, _READ_ENTRIES, _READ_BYTES)
        take(run)
        after = (run.ledger_id, run.first_entry_id + run.count - 1)
        position = ledgers.after(after)
    return after


async def _read_compacted(
    compacted: CompactedLedger, after: Position, take: Callable[[EntryRun], None]
) -> Position:
    compacted.use()
    try:
        at, count = await compacted.find((after[0], after[1] + 1)), await compacted.entries()
        while at < count:
            opened = await compacted.read(at, count - 1, _READ_BYTES)
            for run in opened.runs():
                take(run)
            at = opened.first + opened.count
    finally:
        compacted.release()
    return compacted.horizon
