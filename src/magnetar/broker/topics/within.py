"""Producers and readers that are parts of the broker, and use a topic without a client."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate

from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.consumers.consumer import DROPPED_ID, NON_PERSISTENT_ID
from magnetar.broker.flow.connection import Assigned
from magnetar.broker.publishing.admission import JudgedPart, Verdict
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import AccessMode, Producer, Publish, PublishOutcomes
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError, ServiceNotReady, TopicTerminated
from magnetar.io.interfaces import Future
from magnetar.io.waiting import fail, settle
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import Position
from magnetar.security.authentication import Principal

_READ_ENTRIES = 1_000
_READ_BYTES = 1 << 20
Outcome = Position | BrokerError
"""The position of an entry, or the reason why it was not stored."""
STORED_ALREADY: Position = (-1, -1)
"""The position in the outcome of a duplicate."""


class NoConnection(PublishOutcomes):
    """Replaces the connection of a producer that has no client."""

    address = "local"
    client_version = "broker"
    held_back = False
    supports_partial_producer = False
    non_persistent_pending = 0

    @property
    def publishing(self) -> PublishOutcomes:
        return self

    async def is_alive(self) -> bool:
        return True

    def fail(self, error: BaseException) -> None:
        """Raises the error in the caller, because there is no connection to close.

        :raises BaseException: the error
        """
        raise error

    def stop_producer(self, producer: Producer) -> None:
        """Does nothing: no client waits for receipts."""

    def close_producer(self, producer: Producer, assigned: Assigned | None = None) -> None:
        """Does nothing: the next publish raises an error because the topic is closing."""

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
        raise AssertionError("a persistent topic must store every message, not pass it on")

    def producer_of(self, topic: Topic, name: str) -> Producer:
        """Returns a producer for the broker's own messages; the topic does not list this producer."""
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
    """A producer for the broker's own messages; it waits for the outcome of each message."""

    def __init__(self, topic: Topic, name: str) -> None:
        """:param name: the producer's name for deduplication; unique in the cluster"""
        self._topic = topic
        self._waiting: deque[Future[Position]] = deque()
        self.producer = self.producer_of(topic, name)

    async def append(self, entry: bytes, sequence_id: int, messages: int = 1) -> Position:
        """Publishes one entry; returns its position when it is durable.

        :param entry: the entry, from the magic number to the end of the payload
        :raises TopicTerminated: the topic is terminated
        :raises ServiceNotReady: the topic is closing, or was lost to another broker
        :raises PersistenceFailure: the entry cannot be stored
        """
        ids = array("q", (sequence_id,))
        return await self.submit(
            Publish(self.producer, ids, ids, messages, self._topic.clock.monotonic()), entry
        )

    async def submit(self, publish: Publish, entry: bytes) -> Position:
        """Publishes one entry for :attr:`producer`; see :meth:`append`."""
        self._topic.publish(publish, entry, array("q", (0,)), array("q", (len(entry),)), len(entry))
        done: Future[Position] = self._topic.loop.create_future()
        self._waiting.append(done)
        return await done

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
    """Passes all entries after a position to ``take``, in order; returns the last position that was read.

    If the ledger of ``after`` was trimmed, or ``after`` is before all ledgers, the entries of the compacted
    ledger are read first, in place of the original entries that it covers.

    :param after: the position before the first entry to read; (-1, -1): the reader has no position yet
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


class RequestProducer(NoConnection):
    """A producer for one request: it publishes once, and collects the outcome of each entry."""

    client_version = "http"

    def __init__(
        self,
        topic: AnyTopic,
        name: str,
        *,
        user_provided_name: bool,
        schema_version: bytes,
        principal: Principal,
        address: str,
    ) -> None:
        """:param address: ``host:port`` of the requester"""
        self._topic = topic
        self.address = address
        self.producer = Producer(
            topic,
            self,
            0,
            name,
            user_provided_name=user_provided_name,
            epoch=0,
            access_mode=AccessMode.Shared,
            topic_epoch=None,
            metadata={},
            connected_ms=topic.clock.wall_ms(),
            schema_version=schema_version,
            principal=principal,
        )
        self._outcomes: list[Outcome | None] = []
        self._under_way: dict[Publish, int] = {}
        """Publishes without a known outcome, each with the index of its first entry."""
        self._told: Future[None] | None = None
        """A future that is completed when all outcomes are known; None: nobody waits for them."""

    async def publish(self, entries: Sequence[bytes], sequence_ids: Sequence[int]) -> list[Outcome]:
        """Returns the outcome of each entry, once all are known.

        :param entries: the entries, each from the magic number to the end of its payload, with one message
        """
        ends = array("q", accumulate(map(len, entries)))
        starts = array("q", (0, *ends[:-1]))
        ids, buffer = array("q", sequence_ids), b"".join(entries)
        self._outcomes = [None] * len(entries)
        checks = self._topic.admission
        parts = None
        if checks is not None:
            none = array("q", (-1,)) * len(ids)
            parts = checks.judge(self.producer.name, ids, none, buffer, starts, ends, chunked=False)
        for part in parts if parts is not None else [JudgedPart(0, len(ids), Verdict.STORE)]:
            some = slice(part.first, part.end)
            self._publish_part(part, buffer, ids[some], starts[some], ends[some])
        if self._under_way:
            self._told = self._topic.loop.create_future()
            await self._told
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _publish_part(
        self, part: JudgedPart, buffer: bytes, ids: array[int], starts: array[int], ends: array[int]
    ) -> None:
        count, size = len(ids), sum(ends) - sum(starts)
        if isinstance(part.verdict, BrokerError):
            self._topic.hindered(Hindrance.of_refusal(part.verdict), str(part.verdict))
            self._came_out(part.first, [part.verdict] * count)
        elif part.verdict is Verdict.DUPLICATE:
            self._came_out(part.first, [STORED_ALREADY] * count)
        else:
            publish = Publish(self.producer, ids, ids, count, self._topic.clock.monotonic())
            self._under_way[publish] = part.first
            self.producer.pending += count
            self.producer.submitted += count
            try:
                self._topic.publish(publish, buffer, starts, ends, size)
            except (ServiceNotReady, TopicTerminated) as error:
                self.on_failed(self.producer, publish, 0, count, size, error)
                return
            self.producer.rate_in.messages += publish.messages
            self.producer.rate_in.bytes += size

    def _came_out(self, first: int, outcomes: Sequence[Outcome]) -> None:
        self._outcomes[first : first + len(outcomes)] = outcomes

    def _settled(self, publish: Publish, first: int, outcomes: Sequence[Outcome]) -> None:
        self.producer.pending -= len(outcomes)
        base = self._under_way[publish]
        self._came_out(base + first, outcomes)
        if None not in self._outcomes[base : base + len(publish.sequence_ids)]:
            del self._under_way[publish]
        if self._told is not None and not self._under_way:
            settle(self._told)

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
        self._settled(publish, first, [(ledger_id, first_entry_id + number) for number in range(count)])

    def on_failed(
        self, producer: Producer, publish: Publish, first: int, count: int, size: int, error: BrokerError
    ) -> None:
        self._settled(publish, first, [error] * count)

    def on_passed(self, producer: Producer, publish: Publish, taken: int, size: int) -> None:
        dropped = len(publish.sequence_ids) - taken
        self._settled(publish, 0, [NON_PERSISTENT_ID] * taken + [DROPPED_ID] * dropped)
