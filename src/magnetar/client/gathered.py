"""Several consumers used as one, and a consumer of several topics that a list or a pattern selects."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from magnetar.client.attachment import Services, close_all
from magnetar.client.batch_receiving import BatchReceivePolicy, receive_batch
from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import (
    AlreadyClosed,
    InvalidConfiguration,
    OperationNotSupported,
    PulsarException,
    TopicNotFound,
)
from magnetar.client.listening import Listened
from magnetar.client.message import Acknowledged, Message, RawEntry, SeekTarget
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.receiving import Arrivals
from magnetar.client.statements import AsyncMessages
from magnetar.client.stats import ConsumerStats, consumer_stats
from magnetar.client.timing import Looking
from magnetar.client.topic_watch import TopicWatch
from magnetar.client.watched_consumer import new_consumer
from magnetar.io.tasks import TaskScope
from magnetar.naming.topic_name import PARTITION_SUFFIX

if TYPE_CHECKING:
    from magnetar.client.transactions import AnyTransaction

T = TypeVar("T")
log = logging.getLogger(__name__)
Find = Callable[[bool], Awaitable[set[str]]]
"""Returns the names of the existing topics; a partitioned topic is replaced by its partitions. The argument
says whether missing topics of a list may be created.
"""


class GatheredConsumer(Listened, AsyncMessages):
    """Several consumers that are used like one :class:`Consumer`; derived classes define which consumer a
    message belongs to.
    """

    def __init__(self, services: Services, topic: str) -> None:
        """:param topic: descriptive name for errors and logs"""
        self._services = services
        self._loop = services.io.loop
        self._tasks = TaskScope(self._loop, topic)
        self._topic = topic
        self._turn = 0
        self._arrivals = Arrivals(self._loop)
        self.on_arrival: Callable[[], object] | None = None
        """As :attr:`Consumer.on_arrival`."""
        self._paused = False
        self._parts: list[Consumer] = []

    def _gather(self, part: Consumer) -> None:
        part.on_arrival = self._wake
        if self._paused:
            part.pause()
        self._parts.append(part)

    def _wake(self) -> None:
        self._arrivals.wake()
        if self.on_arrival is not None:
            self.on_arrival()

    async def open(self) -> None:
        """Opens all consumers.

        :raises PulsarException: a consumer cannot be opened; all consumers are closed
        """
        await self._services.opened(self._open_parts(), self.close)

    async def _open_parts(self) -> None:
        for part in self._parts:
            await part.open()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic()!r})"

    async def _next(self) -> Message:
        return await self.receive()

    def topic(self) -> str:
        return self._topic

    def is_connected(self) -> bool:
        return all(part.is_connected() for part in self._parts)

    def has_reached_end_of_topic(self) -> bool:
        """Whether all topics are terminated and all their messages are acknowledged."""
        return bool(self._parts) and all(part.has_reached_end_of_topic() for part in self._parts)

    async def receive(self, timeout_millis: float | None = None) -> Message:
        """Returns the next message of any topic; messages of a topic are in order.

        :raises Timeout: no message arrived in time
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        return await self._first(Consumer.take, timeout_millis)

    async def batch_receive(self, policy: BatchReceivePolicy | None = None) -> list[Message]:
        """Like :meth:`Consumer.batch_receive`, for all topics."""
        return await receive_batch(self._loop, self, policy or BatchReceivePolicy())

    async def receive_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """Like :meth:`Consumer.receive_entry`, for all topics."""
        return await self._first(Consumer.take_entry, timeout_millis)

    async def _first(self, take: Callable[[Consumer], T | None], timeout_millis: float | None) -> T:
        end = None if timeout_millis is None else self._loop.time() + timeout_millis / 1000
        while True:
            found = self._taken(take)
            if found is not None:
                return found
            self.check_open()
            await self._arrivals.wait(end, f"{self._topic}: no message arrived in time")

    def take_entry(self) -> RawEntry | None:
        """Like :meth:`Consumer.take_entry`, for all topics."""
        return self._taken(Consumer.take_entry)

    def take(self) -> Message | None:
        """Like :meth:`Consumer.take`, for all topics."""
        return self._taken(Consumer.take)

    def take_run(self, into: deque[Message]) -> int | None:
        """Like :meth:`Consumer.take_run`, for one topic or partition at a time."""
        return self._taken(lambda part: part.take_run(into))

    def take_back(self, message: Message) -> None:
        """Like :meth:`Consumer.take_back`; drops a message of a topic that was deleted meanwhile."""
        for part in self._parts:
            if part.topic() == message.topic_name():
                part.take_back(message)

    def _taken(self, take: Callable[[Consumer], T | None]) -> T | None:
        for _ in self._parts:
            self._turn = (self._turn + 1) % len(self._parts)
            found = take(self._parts[self._turn])
            if found is not None:
                return found
        return None

    def check_open(self) -> None:
        """Like :meth:`Consumer.check_open`."""
        raise NotImplementedError

    def _of(self, message: Acknowledged) -> Consumer:
        """Returns the consumer that received a message.

        :raises PulsarException: the message does not identify a consumer
        """
        raise NotImplementedError

    async def acknowledge(self, message: Acknowledged, *, transaction: AnyTransaction | None = None) -> None:
        """Like :meth:`Consumer.acknowledge`."""
        await self._of(message).acknowledge(message, transaction=transaction)

    def acknowledge_soon(self, message: Acknowledged) -> None:
        """Like :meth:`Consumer.acknowledge_soon`."""
        self._of(message).acknowledge_soon(message)

    def acknowledge_all(self, messages: deque[Acknowledged]) -> None:
        """Like :meth:`Consumer.acknowledge_all`."""
        while messages:
            self.acknowledge_soon(messages.popleft())

    async def acknowledge_cumulative(
        self, message: Acknowledged, *, transaction: AnyTransaction | None = None
    ) -> None:
        """Like :meth:`Consumer.acknowledge_cumulative`, for the topic of the message."""
        await self._of(message).acknowledge_cumulative(message, transaction=transaction)

    async def reconsume_later(
        self, message: Message, delay_ms: float, properties: Mapping[str, str] | None = None
    ) -> None:
        """Like :meth:`Consumer.reconsume_later`."""
        await self._of(message).reconsume_later(message, delay_ms, properties)

    def negative_acknowledge(self, message: Acknowledged) -> None:
        """Like :meth:`Consumer.negative_acknowledge`."""
        self._of(message).negative_acknowledge(message)

    def flush_acknowledgements(self) -> None:
        for part in self._parts:
            part.flush_acknowledgements()

    def redeliver_unacknowledged_messages(self) -> None:
        for part in self._parts:
            part.redeliver_unacknowledged_messages()

    async def seek(self, target: SeekTarget) -> None:
        """Seeks in all topics, or only in the topic of a message.

        :param target: to seek in all topics: the earliest or latest position, a publish time, or a function
            that returns one of these for the name of each topic; to seek in one partition: the id of a
            message in it
        :raises InvalidConfiguration: the id is not from a partition of the consumer, or the topics are a list
            or match a pattern, so that the id does not tell the topic
        """
        if callable(target):
            for part in tuple(self._parts):
                await part.seek(target)
            return
        ends = (MessageId.earliest, MessageId.latest)
        chosen = self._parts if isinstance(target, int) or target in ends else [self._of(target)]
        for part in tuple(chosen):
            await part.seek(target)

    async def get_last_message_id(self) -> MessageId:
        """Always fails: consumers of several topics or partitions do not support this operation.

        :raises OperationNotSupported: always, because each topic or partition has its own last message
        """
        raise OperationNotSupported(
            "several topics or partitions have no common last message; use a "
            "consumer of one topic or partition"
        )

    async def seek_to_last(self) -> None:
        """Like :meth:`Consumer.seek_to_last`, for each topic or partition."""
        for part in tuple(self._parts):
            await part.seek_to_last()

    async def has_message_available(self) -> bool:
        """Whether any topic or partition has a message after the last received message."""
        for part in tuple(self._parts):
            if await part.has_message_available():
                return True
        return False

    def widen_queue(self, receiver_queue_size: int) -> None:
        """Like :meth:`Consumer.widen_queue`, for each topic or partition."""
        for part in self._parts:
            part.widen_queue(receiver_queue_size)

    def pause(self) -> None:
        super().pause()
        self._paused = True
        for part in self._parts:
            part.pause()

    def resume(self) -> None:
        super().resume()
        self._paused = False
        for part in self._parts:
            part.resume()

    @property
    def stats(self) -> ConsumerStats:
        """Like :attr:`Consumer.stats`, for all topics or partitions together, and for each of them."""
        return consumer_stats({part.topic(): part.intervals for part in self._parts})

    @property
    def current_receiver_queue_size(self) -> int:
        """Like :attr:`Consumer.current_receiver_queue_size`, for all topics or partitions together."""
        return sum(part.current_receiver_queue_size for part in self._parts)

    async def unsubscribe(self) -> None:
        """Like :meth:`Consumer.unsubscribe`, for all topics or partitions."""
        await self.end_listening()
        for part in tuple(self._parts):
            await part.unsubscribe()

    async def close(self) -> None:
        """Like :meth:`Consumer.close`, for all topics or partitions."""
        await self.end_listening()
        await close_all(self._parts)


class TopicsConsumer(GatheredConsumer):
    """A consumer of several topics; used like a :class:`Consumer`.

    Message ids do not contain the topic, so programs must acknowledge messages, not ids.
    """

    def __init__(
        self,
        services: Services,
        find: Find,
        subscription: str,
        options: ConsumerOptions,
        discovery_seconds: float,
        pattern: str = "",
    ) -> None:
        """:param discovery_seconds: interval of checks for new topics and partitions, in seconds; 0: no
            checks

        :param pattern: the regular expression for the names of topics, with which the checks add and remove
            topics; empty for a list of topics, to which the checks only add partitions
        """
        super().__init__(services, pattern or f"topics of {subscription}")
        self._find = find
        self._subscription = subscription
        # One name for all topics, so that several consumers can be told apart.
        self._options = options.named(options.consumer_name or services.io.randomness.token(5).hex())
        self._come_and_go = bool(pattern) and discovery_seconds > 0
        self._by_topic: dict[str, Consumer] = {}
        self._looking = Looking(self._loop, self._topic, discovery_seconds, self._look)
        self._watch: TopicWatch | None = None
        self._closed = False

    async def open(self) -> None:
        await self._services.opened(self._open_parts(), self.close)
        self._looking.begin()

    async def _open_parts(self) -> None:
        for topic in sorted(await self._services.retrying(lambda: self._find(True))):
            try:
                await self._add(topic)
            except TopicNotFound:
                if not self._come_and_go:
                    raise

    def watch(self, namespace: str, pattern: str) -> None:
        """Asks a broker to report when topics that match a pattern are created or deleted."""
        self._watch = TopicWatch(self._services, namespace, pattern, self._looking.look_now)
        self._watch.begin()

    def subscription_name(self) -> str:
        return self._subscription

    def consumer_name(self) -> str:
        return self._options.consumer_name or ""

    @property
    def has_receipts(self) -> bool:
        """Like :attr:`Consumer.has_receipts`."""
        return self._options.ack_receipt_enabled

    def check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"{self._topic}: the consumer is closed")

    def _of(self, message: Acknowledged) -> Consumer:
        if isinstance(message, MessageId | RawEntry):
            raise InvalidConfiguration(
                "a consumer of several topics needs the message itself, because a message id does not "
                "contain the topic"
            )
        found = self._by_topic.get(message.topic_name())
        if found is None:
            raise InvalidConfiguration(
                f"{message.topic_name()} is no longer a topic of this consumer; "
                "the broker delivers the message again"
            )
        return found

    async def _add(self, topic: str) -> None:
        # Subscribing must not recreate a matching topic that was deleted.
        part = new_consumer(
            self._services, topic, self._subscription, self._options, makes_topic=not self._come_and_go
        )
        await part.open()
        if self._closed:
            await part.close()
            return
        self._by_topic[topic] = part
        self._gather(part)
        self._wake()

    async def _remove(self, topic: str) -> None:
        if topic in self._by_topic:
            await self._left(topic).close()

    def _left(self, topic: str) -> Consumer:
        """Removes the consumer of a topic, and returns this consumer."""
        part = self._by_topic.pop(topic)
        self._parts.remove(part)
        return part

    def _taken(self, take: Callable[[Consumer], T | None]) -> T | None:
        """Calls ``take`` for the consumers in turn; returns the first result that is not None, or None if
        there is no such result. Removes deleted topics.
        """
        while True:
            try:
                return super()._taken(take)
            except TopicNotFound:
                if not self._come_and_go:
                    raise
                gone = self._left(self._parts[self._turn].topic())
                self._tasks.start(gone.close(), "closing the consumer of a deleted topic", may_fail=True)

    async def _look(self) -> None:
        now, known = await self._find(False), set(self._by_topic)
        if self._come_and_go:
            await self._each(self._remove, known - now)
        await self._each(self._add, {topic for topic in now - known if self._may_come(topic)})

    def _may_come(self, topic: str) -> bool:
        """Whether a new topic may be added: with a pattern always, with a list only a new partition of a
        listed topic.
        """
        first = topic.rpartition(PARTITION_SUFFIX)[0] + PARTITION_SUFFIX + "0"
        return self._come_and_go or first in self._by_topic

    async def _each(self, change: Callable[[str], Awaitable[None]], topics: set[str]) -> None:
        """Applies a change to each topic; the failure for one topic does not affect other topics."""
        for topic in sorted(topics):
            try:
                await change(topic)
            except PulsarException as error:
                log.warning("%s: cannot add or remove %s; trying again later: %s", self._topic, topic, error)

    async def unsubscribe(self) -> None:
        await super().unsubscribe()
        await self.close()

    async def close(self) -> None:
        if self._closed:
            return
        await self.end_listening()
        self._closed = True
        self._looking.end()
        if self._watch is not None:
            self._watch.end()
        await super().close()
        self._wake()
