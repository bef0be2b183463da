"""Producers and consumers of a partitioned topic, which use a producer or consumer for each partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from magnetar.client.attachment import Services, close_all
from magnetar.client.consumer import Consumer
from magnetar.client.enums import HashingScheme, PartitionsRoutingMode
from magnetar.client.exceptions import (
    InvalidConfiguration,
    ProducerQueueIsFull,
    PulsarException,
)
from magnetar.client.gathered import GatheredConsumer
from magnetar.client.interceptors import consumer_chain, producer_chain
from magnetar.client.message import Acknowledged, meant_by
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.client.outgoing_message import Done, MessageOptions
from magnetar.client.producer import Producer
from magnetar.client.sending import AcceptsMessages
from magnetar.client.stats import ProducerStats, producer_stats
from magnetar.client.timing import Looking
from magnetar.client.transactional_sends import tracked
from magnetar.client.watched_consumer import new_consumer
from magnetar.client.watched_producer import new_producer
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.waiting import finished, nobody_waits, outcome
from magnetar.naming.hashes import boost_string_hash, java_string_hash, murmur3_positive

_Waiting = tuple[bytes, Done, int | None, MessageOptions | None]
Router = Callable[[bytes, MessageOptions | None, int], int]
"""Returns the index of the partition for a message, given the payload, the options and the number of
partitions.
"""


class PartitionedProducer(AcceptsMessages):
    """A producer of a partitioned topic; used like a :class:`Producer`.

    Messages with a key go to the same partition as with the official Java client; by default, other messages
    go to one partition until a batch would be complete, then to the next partition.
    """

    def __init__(
        self,
        services: Services,
        topic: str,
        partitions: int,
        options: ProducerOptions,
        *,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        message_router: Router | None = None,
        max_pending_messages_across_partitions: int = 50000,
        hashing_scheme: HashingScheme = HashingScheme.JavaStringHash,
        lazy_start_partitioned_producers: bool = False,
    ) -> None:
        """:param message_routing_mode: how the partition of a message without a key is chosen

        :param message_router: function that chooses the partition of each message, if
            ``message_routing_mode`` is CustomPartition
        :param max_pending_messages_across_partitions: maximum number of messages without a receipt on all
            partitions together, divided evenly among them
        :param hashing_scheme: the hash function that assigns keys to partitions; all producers of a topic
            must use the same function
        :param lazy_start_partitioned_producers: whether the producers of partitions are only opened when they
            get their first message; one of them is always opened at once
        :raises InvalidConfiguration: CustomPartition without a router, or the limit of all partitions is not
            above 0
        """
        if max_pending_messages_across_partitions < 1:
            raise InvalidConfiguration(
                "max_pending_messages_across_partitions must be above 0, not "
                f"{max_pending_messages_across_partitions}"
            )
        if message_routing_mode == PartitionsRoutingMode.CustomPartition and message_router is None:
            raise InvalidConfiguration("CustomPartition requires a message_router")
        self._services = services
        self._loop = services.io.loop
        self._topic = topic
        self._options = options
        self._mode = message_routing_mode
        self._router = message_router
        self._max_pending = max_pending_messages_across_partitions
        self._hashing = hashing_scheme
        self._turn = services.io.randomness.below(partitions)
        self._lazy = lazy_start_partitioned_producers
        self._parts = [self._producer(index, partitions) for index in range(partitions)]
        self._waiting: dict[int, deque[_Waiting]] = {}
        """By partition: messages that wait until the partition's producer is open."""
        self._opening: KeyedTasks[int, None] = KeyedTasks(TaskScope(services.io.loop, topic))
        self._opened: set[int] = set()
        self._looking = Looking(services.io.loop, topic, services.partitions_seconds, self._grow)

    def _producer(self, index: int, partitions: int) -> Producer:
        share = max(self._max_pending // partitions, 1)
        pending = min(self._options.max_pending_messages, share)
        options = replace(self._options, max_pending_messages=pending)
        return new_producer(self._services, f"{self._topic}-partition-{index}", options)

    async def open(self) -> None:
        """Opens the producers of all partitions.

        :raises PulsarException: a producer cannot be opened; all producers are closed
        """
        await self._services.opened(self._open_parts(), self.close)
        self._looking.begin()

    async def _open_parts(self) -> None:
        for index in [self._turn] if self._lazy else range(len(self._parts)):
            await self._open_part(index)

    async def _open_part(self, index: int) -> None:
        """Opens the producer of a partition, and sends the messages that wait for it."""
        try:
            if self._parts[index].is_closed:
                # An earlier attempt failed.
                self._parts[index] = self._producer(index, len(self._parts))
            await self._parts[index].open()
        except PulsarException as error:
            for _content, done, _sequence_id, _options in self._waiting.pop(index, ()):
                done(None, error)
            raise
        self._opened.add(index)
        for content, done, sequence_id, options in self._waiting.pop(index, ()):
            try:
                self._parts[index].enqueue_or_wait(content, done, sequence_id, options)
            except PulsarException as error:
                done(None, error)

    async def _grow(self) -> None:
        """Adds producers for new partitions; a partition gets messages as soon as its producer is open."""
        count = await self._services.lookup.partitions(self._topic, makes_topic=False)
        for index in range(len(self._parts), count):
            part = self._producer(index, count)
            if not self._lazy:
                await part.open()
                self._opened.add(index)
            self._parts.append(part)
            if self._options.interceptors:
                producer_chain(self._options.interceptors).partitions_changed(self._topic, index + 1)

    def __repr__(self) -> str:
        return f"PartitionedProducer({self.topic()!r})"

    def topic(self) -> str:
        return self._topic

    def producer_name(self) -> str:
        return self._parts[min(self._opened, default=0)].producer_name()

    def is_connected(self) -> bool:
        """Whether all producers that were opened are connected."""
        return all(self._parts[index].is_connected() for index in self._opened)

    def last_sequence_id(self) -> int:
        """The highest sequence id of all partitions."""
        return max(part.last_sequence_id() for part in self._parts)

    @property
    def stats(self) -> ProducerStats:
        """Like :attr:`Producer.stats`, for all partitions together, and for each of them."""
        return producer_stats({part.topic(): part.intervals for part in self._parts})

    @property
    def pending_messages(self) -> int:
        """Number of messages without a receipt, over all partitions."""
        waiting = sum(len(messages) for messages in self._waiting.values())
        return waiting + sum(part.pending_messages for part in self._parts)

    def _index(self, content: bytes, options: MessageOptions | None) -> int:
        count = len(self._parts)
        if self._router is not None:
            chosen = self._router(content, options, count)
            if not 0 <= chosen < count:
                raise InvalidConfiguration(
                    f"the message_router returned partition {chosen}; return an index from 0 to {count - 1}"
                )
            return chosen
        hashed = self._hash(options) if options is not None else None
        if hashed is not None:
            return hashed % count
        if self._mode == PartitionsRoutingMode.UseSinglePartition:
            return self._turn
        if self._options.batching_enabled:
            ms = self._services.io.clock.wall_ms() / self._options.batching_max_publish_delay_ms
            return (int(ms) + self._turn) % count
        self._turn = (self._turn + 1) % count
        return self._turn

    def _hash(self, options: MessageOptions) -> int | None:
        """Returns the hash of the key that determines the partition; None for a message without a key."""
        if self._hashing is HashingScheme.BoostHash:
            key = options.partition_key
            return None if key is None else boost_string_hash(key.encode())
        key = options.ordering_key or options.partition_key
        if key is None:
            return None
        java = self._hashing is HashingScheme.JavaStringHash
        return java_string_hash(key) if java else murmur3_positive(key.encode())

    def message_options(self, options: Mapping[str, object]) -> MessageOptions | None:
        """Like :meth:`Producer.message_options`."""
        return self._parts[0].message_options(options)

    async def send_content(
        self, content: bytes, sequence_id: int | None, options: MessageOptions | None
    ) -> MessageId:
        index = self._index(content, options)
        if index not in self._opened:
            await self._open_soon(index)
        return await self._parts[index].send_content(content, sequence_id, options)

    def _open_soon(self, index: int) -> Awaitable[None]:
        task = self._opening.answer(index, lambda: self._open_part(index))
        return outcome(self._services.io.loop, task)

    def enqueue(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        """Like :meth:`Producer.enqueue`."""
        index = self._index(content, options)
        if index in self._opened:
            self._parts[index].enqueue(content, done, sequence_id, options)
        else:
            self._enqueue_unopened(index, (content, done, sequence_id, options))

    def enqueue_or_wait(
        self, content: bytes, done: Done, sequence_id: int | None, options: MessageOptions | None
    ) -> None:
        """Like :meth:`Producer.enqueue_or_wait`."""
        index = self._index(content, options)
        if index in self._opened:
            self._parts[index].enqueue_or_wait(content, done, sequence_id, options)
        else:
            self._enqueue_unopened(index, (content, done, sequence_id, options))

    def _enqueue_unopened(self, index: int, message: _Waiting) -> None:
        """Queues a message for a partition whose producer is not open, and opens the producer.

        :raises ProducerQueueIsFull: too many messages are pending on all partitions together
        """
        if self.pending_messages >= self._max_pending:
            raise ProducerQueueIsFull(
                f"{self._topic}: {self.pending_messages} messages are pending, "
                "the maximum; wait for receipts, or use block_if_queue_full"
            )
        self._parts[index].check_open()
        content, done, sequence_id, options = message
        told = tracked(done, options)
        self._waiting.setdefault(index, deque()).append((content, told, sequence_id, options))
        # If opening fails, the waiting messages get the error.
        self._opening.answer(index, lambda: self._open_part(index)).add_done_callback(nobody_waits)

    def send_batches(self) -> None:
        """Like :meth:`Producer.send_batches`."""
        for part in self._parts:
            part.send_batches()

    async def flush(self) -> None:
        """Like :meth:`Producer.flush`."""
        for _index, task in self._opening.items():
            await finished(self._services.io.loop, task)
        for part in self._parts:
            await part.flush()

    async def close(self) -> None:
        """Like :meth:`Producer.close`."""
        self._looking.end()
        for _index, task in self._opening.items():
            await finished(self._services.io.loop, task)
        await close_all(self._parts)


class PartitionedConsumer(GatheredConsumer):
    """A consumer of a partitioned topic; used like a :class:`Consumer`."""

    def __init__(
        self,
        services: Services,
        topic: str,
        subscription: str,
        partitions: int,
        options: ConsumerOptions,
        *,
        max_total_receiver_queue_size_across_partitions: int = 50000,
    ) -> None:
        """:param max_total_receiver_queue_size_across_partitions: maximum number of messages requested ahead
        on all partitions together
        """
        self._subscription = subscription
        self._options = options
        self._max_total = max_total_receiver_queue_size_across_partitions
        self._looking = Looking(services.io.loop, topic, services.partitions_seconds, self._grow)
        super().__init__(services, topic)
        for index in range(partitions):
            self._gather(self._consumer(topic, index, partitions))

    def _consumer(self, topic: str, index: int, partitions: int) -> Consumer:
        each = max(min(self._options.receiver_queue_size, self._max_total // partitions), 1)
        name = f"{topic}-partition-{index}"
        return new_consumer(self._services, name, self._subscription, self._options.with_queue(each))

    async def open(self) -> None:
        await super().open()
        self._looking.begin()

    async def _grow(self) -> None:
        """Adds consumers for new partitions; brokers have already created the subscription on these
        partitions.
        """
        count = await self._services.lookup.partitions(self._topic, makes_topic=False)
        for index in range(len(self._parts), count):
            part = self._consumer(self._topic, index, count)
            await part.open()
            self._gather(part)
            if self._options.interceptors:
                consumer_chain(self._options.interceptors).partitions_changed(self._topic, index + 1)
            self._wake()

    def subscription_name(self) -> str:
        return self._parts[0].subscription_name()

    def consumer_name(self) -> str:
        return self._parts[0].consumer_name()

    def _of(self, message: Acknowledged) -> Consumer:
        message_id = meant_by(message)
        index = message_id.partition()
        if not 0 <= index < len(self._parts):
            raise InvalidConfiguration(f"{message_id} does not belong to a partition of {self._topic}")
        return self._parts[index]

    @property
    def has_receipts(self) -> bool:
        """Like :attr:`Consumer.has_receipts`."""
        return self._parts[0].has_receipts

    def check_open(self) -> None:
        self._parts[0].check_open()

    async def unsubscribe(self) -> None:
        await super().unsubscribe()
        self._looking.end()

    async def close(self) -> None:
        self._looking.end()
        await super().close()
