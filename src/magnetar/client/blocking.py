"""The blocking face: the names and shapes of the official Python client, on a loop in a background thread.

All methods may be called from any thread but the loop's own; callbacks run there and must not block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from magnetar.client import client as core
from magnetar.client.consumer import Consumer as AsyncConsumer
from magnetar.client.exceptions import AlreadyClosed, PulsarException, Result
from magnetar.client.message import Message, RawEntry
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer
from magnetar.client.producer import Producer as AsyncProducer
from magnetar.client.reader import Reader as AsyncReader
from magnetar.client.schema import TopicSchema
from magnetar.client.topics import TopicsConsumer
from magnetar.io.real.loop_thread import LoopThread, Slots

T = TypeVar("T")
_AHEAD = 200


class Client:
    """Producers, consumers and readers of one cluster, with blocking methods."""

    def __init__(self, service_url: str, **options: Any) -> None:
        """Options are those of :class:`magnetar.client.client.Client`, without ``io``.

        :raises InvalidUrl: it is no ``pulsar://`` address
        """
        self._thread = LoopThread("client")
        try:
            self._core = self._thread.run(_made(service_url, self._thread, options))
        except BaseException:
            self._thread.close()
            raise
        self._closed = False

    def create_producer(self, topic: str, **options: Any) -> Producer:
        """As the asyncio face; but without batching unless asked for, as in the official client.

        :raises PulsarException: the broker refused, or did not answer within the operation time-out
        """
        options.setdefault("batching_enabled", False)
        blocks = bool(options.get("block_if_queue_full", False))
        pending = int(options.get("max_pending_messages", 1000))
        made = self._run(self._core.create_producer(topic, **options))
        return Producer(made, self._thread, Slots(pending) if blocks else None)

    def subscribe(self, topic: str, subscription_name: str, **options: Any) -> Consumer:
        """:raises PulsarException: the broker refused, or did not answer within the operation time-out"""
        return Consumer(self._run(self._core.subscribe(topic, subscription_name, **options)), self._thread)

    def create_reader(self, topic: str, start_message_id: MessageId, **options: Any) -> Reader:
        """:raises PulsarException: the broker refused, or did not answer within the operation time-out"""
        return Reader(self._run(self._core.create_reader(topic, start_message_id, **options)), self._thread)

    def subscribe_to_pattern(self, pattern: str, subscription_name: str, **options: Any) -> Consumer:
        """:raises PulsarException: the broker refused, or did not answer within the operation time-out"""
        return Consumer(
            self._run(self._core.subscribe_to_pattern(pattern, subscription_name, **options)), self._thread
        )

    def schema(self, topic: str, version: bytes = b"") -> TopicSchema:
        """As the asyncio face.

        :raises TopicNotFound: it has none
        """
        return self._run(self._core.schema(topic, version))

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of a topic's partitions; of itself when it has none."""
        return self._run(self._core.get_topic_partitions(topic))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise AlreadyClosed("the client is closed")
        return self._thread.run(work)

    def close(self) -> None:
        """Closes all of its producers, consumers and readers; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.run(self._core.close())
        finally:
            self._thread.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _made(service_url: str, thread: LoopThread, options: dict[str, Any]) -> core.Client:
    return core.Client(service_url, io=thread.io, **options)


class Producer:
    """Made by :meth:`Client.create_producer`."""

    def __init__(
        self, producer: AsyncProducer | PartitionedProducer, thread: LoopThread, slots: Slots | None
    ) -> None:
        """:param slots: as many as messages may be pending, where senders are to wait for room"""
        self._producer = producer
        self._thread = thread
        self._slots = slots

    def topic(self) -> str:
        return self._producer.topic()

    def producer_name(self) -> str:
        return self._producer.producer_name()

    def last_sequence_id(self) -> int:
        """Of what was published last; -1 before that."""
        return self._producer.last_sequence_id()

    def is_connected(self) -> bool:
        return self._producer.is_connected()

    def send(self, content: bytes, **options: Any) -> MessageId:
        """Publishes one message and waits until the broker has it; as the asyncio face."""
        return self._thread.run(self._producer.send(content, **options))

    def send_async(
        self, content: bytes, callback: Callable[[Result, MessageId | None], object], **options: Any
    ) -> None:
        """Publishes one message; ``callback(result, message id)`` is called in the client's thread.

        With ``block_if_queue_full`` it waits while too many are pending, else the callback is told.
        """
        slots = self._slots
        if slots is not None:
            slots.take()
        self._thread.post(self._enqueue, content, callback, options)

    def _enqueue(
        self,
        content: bytes,
        callback: Callable[[Result, MessageId | None], object],
        options: dict[str, Any],
    ) -> None:
        slots = self._slots
        loop = self._thread.loop

        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            if slots is not None:
                slots.give()
            # In a call of its own, so that what it raises reaches the loop's handler and nothing else.
            loop.call_soon(callback, Result.Ok if error is None else error.result, message_id)

        producer = self._producer
        sequence_id = options.pop("sequence_id", None)
        try:
            producer.enqueue(content, done, sequence_id, producer.message_options(options))
        except PulsarException as error:
            done(None, error)

    def flush(self) -> None:
        """Waits until nothing is pending."""
        self._thread.run(self._flush())

    async def _flush(self) -> None:
        await self._producer.flush()

    def close(self) -> None:
        """Publishes what is pending, then ends; a second time does nothing."""
        self._thread.run(self._producer.close())


class Consumer:
    """Made by :meth:`Client.subscribe`.

    Up to 200 messages are taken from the loop's thread at once; :meth:`seek` and
    :meth:`redeliver_unacknowledged_messages` forget those that are not yet received.
    """

    def __init__(
        self, consumer: AsyncConsumer | PartitionedConsumer | TopicsConsumer, thread: LoopThread
    ) -> None:
        self._consumer = consumer
        self._thread = thread
        self._taken: deque[Message] = deque()
        self._fetching = 0

    def topic(self) -> str:
        return self._consumer.topic()

    def subscription_name(self) -> str:
        return self._consumer.subscription_name()

    def consumer_name(self) -> str:
        return self._consumer.consumer_name()

    def is_connected(self) -> bool:
        return self._consumer.is_connected()

    def receive(self, timeout_millis: float | None = None) -> Message:
        """The next message.

        :raises Timeout: none came in time
        :raises PulsarException: the consumer is closed, or has failed for good
        """
        while True:
            try:
                return self._taken.popleft()
            except IndexError:
                # Another thread may take what this one fetches: then it fetches again.
                self._thread.run(self._fetch(timeout_millis))

    async def _fetch(self, timeout_millis: float | None) -> None:
        taken = self._taken
        if taken:
            # Fetched for another thread since this one looked.
            return
        self._fetching += 1
        try:
            taken.append(await self._consumer.receive(timeout_millis))
        finally:
            self._fetching -= 1
        for _ in range(_AHEAD - 1):
            if self._fetching:
                # A thread that waits for the next message would not look at what is taken ahead of it.
                return
            message = self._consumer.take()
            if message is None:
                return
            taken.append(message)

    def receive_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """The next entry as it is stored; do not mix with :meth:`receive`."""
        return self._thread.run(self._consumer.receive_entry(timeout_millis))

    def acknowledge(self, message: Message | RawEntry | MessageId) -> None:
        """Acknowledges one message; with ``ack_receipt_enabled`` waits for the broker's answer."""
        consumer = self._consumer
        if consumer.has_receipts:
            self._thread.run(consumer.acknowledge(message))
        else:
            consumer.check_open()
            self._thread.post(consumer.acknowledge_soon, message)

    def acknowledge_cumulative(self, message: Message | RawEntry | MessageId) -> None:
        """Acknowledges all messages up to and including one; as :meth:`acknowledge`."""
        self._thread.run(self._consumer.acknowledge_cumulative(message))

    def negative_acknowledge(self, message: Message | RawEntry | MessageId) -> None:
        """Asks for it again, ``negative_ack_redelivery_delay_ms`` from now."""
        self._thread.post(self._consumer.negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Asks for everything again that this consumer got and did not acknowledge."""
        self._thread.run(self._redeliver())

    async def _redeliver(self) -> None:
        self._taken.clear()
        self._consumer.redeliver_unacknowledged_messages()

    def seek(self, messageid: MessageId | int) -> None:
        """Moves the subscription to a message, or to a publish time in ms since 1970."""
        self._thread.run(self._seek(messageid))

    async def _seek(self, target: MessageId | int) -> None:
        await self._consumer.seek(target)
        self._taken.clear()

    def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message; entry id -1 when it has none."""
        return self._thread.run(self._consumer.get_last_message_id())

    def unsubscribe(self) -> None:
        """Removes the subscription, and ends."""
        self._thread.run(self._consumer.unsubscribe())

    def close(self) -> None:
        """Sends acknowledgements that gather, and ends; a second time does nothing."""
        self._thread.run(self._close())

    async def _close(self) -> None:
        self._taken.clear()
        await self._consumer.close()


class Reader:
    """Made by :meth:`Client.create_reader`."""

    def __init__(self, reader: AsyncReader, thread: LoopThread) -> None:
        self._reader = reader
        self._thread = thread

    def topic(self) -> str:
        return self._reader.topic()

    def is_connected(self) -> bool:
        return self._reader.is_connected()

    def read_next(self, timeout_millis: float | None = None) -> Message:
        """The next message.

        :raises Timeout: none came in time
        :raises PulsarException: the reader is closed, or has failed for good
        """
        return self._thread.run(self._reader.read_next(timeout_millis))

    def read_next_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """The next entry as it is stored; do not mix with :meth:`read_next`."""
        return self._thread.run(self._reader.read_next_entry(timeout_millis))

    def read_entries(self, limit: int, timeout_millis: float | None = None) -> list[RawEntry]:
        """The next entry, and those behind it that are here already; at most ``limit``.

        :raises Timeout: none came in time
        :raises PulsarException: the reader is closed, or has failed for good
        """
        return self._thread.run(self._reader.read_entries(limit, timeout_millis))

    def widen_queue(self, receiver_queue_size: int) -> None:
        """Asks for so many messages ahead from now on; never for fewer than before."""
        self._thread.post(self._reader.widen_queue, receiver_queue_size)

    def has_message_available(self) -> bool:
        """Whether there is a message behind the one that was read last."""
        return self._thread.run(self._reader.has_message_available())

    def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message; entry id -1 when it has none."""
        return self._thread.run(self._reader.get_last_message_id())

    def seek(self, messageid: MessageId | int) -> None:
        """Goes on at a message, or at a publish time in ms since 1970."""
        self._thread.run(self._reader.seek(messageid))

    def close(self) -> None:
        self._thread.run(self._reader.close())
