"""The official client's producers, consumers and readers: blocking, and usable from any thread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from magnetar.client import blocking
from magnetar.client.blocking_consumer import FetchedMessages
from magnetar.client.consumer import Consumer as AsyncConsumer
from magnetar.client.enums import ConsumerType
from magnetar.client.exceptions import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    PulsarException,
    Result,
)
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.message import Acknowledged, Message
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer
from magnetar.client.producer import Producer as AsyncProducer
from magnetar.client.reader import Reader as AsyncReader
from magnetar.io.real.loop_thread import Slots
from magnetar.pulsar.boundary import Calls, check_type, check_type_or_none, official
from magnetar.pulsar.enums import BatchLimits
from magnetar.pulsar.listening import ListenerFeed
from magnetar.pulsar.message import PulsarMessage, TopicMessageId, acknowledged, known
from magnetar.pulsar.schema.schema import Schema

AnyConsumer = AsyncConsumer | PartitionedConsumer | TopicsConsumer
_NOT_SET = (None, None, None, None, None, False, None, None, None)
_NO_ID = MessageId()
SendCallback = Callable[[Result, TopicMessageId], object]


def message_options(
    properties: object,
    partition_key: object,
    ordering_key: object,
    sequence_id: object,
    replication_clusters: object,
    disable_replication: object,
    event_timestamp: object,
    deliver_at: object,
    deliver_after: object,
) -> dict[str, object]:
    """Returns the options of a message for ``magnetar.client``; unset options are omitted.

    :raises ValueError: an option has the wrong type
    """
    unchecked = (
        properties,
        partition_key,
        ordering_key,
        sequence_id,
        replication_clusters,
        disable_replication,
        event_timestamp,
        deliver_at,
        deliver_after,
    )
    if unchecked == _NOT_SET:
        return {}
    given = {
        "properties": check_type_or_none(dict, properties, "properties"),
        "partition_key": check_type_or_none(str, partition_key, "partition_key"),
        "ordering_key": check_type_or_none(str, ordering_key, "ordering_key"),
        "sequence_id": check_type_or_none(int, sequence_id, "sequence_id"),
        "replication_clusters": check_type_or_none(list, replication_clusters, "replication_clusters"),
        "disable_replication": check_type(bool, disable_replication, "disable_replication"),
        "event_timestamp": check_type_or_none(int, event_timestamp, "event_timestamp"),
        "deliver_at": check_type_or_none(int, deliver_at, "deliver_at"),
        "deliver_after": check_type_or_none(timedelta, deliver_after, "deliver_after"),
    }
    return {name: value for name, value in given.items() if value}


def encoded(schema: Schema, content: object, options: dict[str, object]) -> bytes:
    """Encodes a value as the payload of a message; for None, sets ``null_value`` in the options.

    :raises TypeError: the schema does not accept the value
    :raises ValueError: the schema did not return bytes
    """
    if content is None:
        options["null_value"] = True
        return b""
    return check_type(bytes, schema.encode(content), "data")


class Producer:
    """A producer; see ``Client.create_producer``."""

    def __init__(
        self,
        calls: Calls,
        producer: AsyncProducer | PartitionedProducer,
        schema: Schema,
        slots: Slots | None = None,
    ) -> None:
        """:param slots: a semaphore with one slot per pending message, on which senders wait while the queue
        is full; None: senders get ProducerQueueIsFull instead
        """
        self._calls = calls
        self._producer = producer
        self._schema = schema
        self._sender = blocking.Producer(producer, calls.thread, slots)
        self._topic = producer.topic()
        self._closed = False

    def topic(self) -> str:
        return self._producer.topic()

    def producer_name(self) -> str:
        return self._producer.producer_name()

    def last_sequence_id(self) -> int:
        """Returns the sequence id of the last published message; -1: no message was published yet."""
        return self._producer.last_sequence_id()

    def send(
        self,
        content: object,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> TopicMessageId:
        """Publishes one message and waits for the receipt.

        :param content: a value of the producer's schema; None: the message has no value
        :param event_timestamp: event time, in milliseconds since 1970
        :param deliver_at: time in milliseconds since 1970 before which Shared and KeyShared subscriptions do
            not deliver the message
        :raises PulsarException: the message was not published, or no receipt came in time
        """
        options = message_options(
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        data = encoded(self._schema, content, options)
        if self._calls.closed:
            raise official(AlreadyClosed("the client is closed"))
        with self._calls.errors():
            return known(self._sender.send(data, **options), self._topic)

    def send_async(
        self,
        content: object,
        callback: SendCallback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Publishes one message without waiting; ``callback(result, message id)`` is called in the client's
        thread.

        If ``block_if_queue_full`` is on, the call waits while too many messages are pending.
        """
        options = message_options(
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        data = encoded(self._schema, content, options)
        topic = self._topic

        def done(result: Result, message_id: MessageId | None) -> None:
            if callback is not None:
                callback(result, known(message_id if message_id is not None else _NO_ID, topic))

        if self._calls.closed:
            done(Result.AlreadyClosed, None)
        else:
            try:
                self._sender.send_async(data, done, **options)
            except (AlreadyClosed, RuntimeError):
                if not self._calls.closed:
                    raise
                # The client was closed while this thread waited.
                done(Result.AlreadyClosed, None)

    def flush(self) -> None:
        """Sends the open batches, and waits until no message is pending."""
        self._calls.run(self._flush())

    async def _flush(self) -> None:
        await self._producer.flush()

    def close(self) -> None:
        """Publishes pending messages, then closes the producer.

        :raises AlreadyClosed: the producer is already closed
        """
        if self._closed:
            raise official(AlreadyClosed(f"{self.topic()}: the producer is already closed"))
        self._closed = True
        self._calls.run(self._producer.close())

    def is_connected(self) -> bool:
        return not self._calls.closed and self._producer.is_connected()


class Consumer:
    """A consumer; see ``Client.subscribe``."""

    def __init__(
        self,
        calls: Calls,
        consumer: AnyConsumer,
        schema: Schema,
        kind: ConsumerType,
        limits: BatchLimits | None = None,
        forget: Callable[[object], object] = lambda _consumer: None,
    ) -> None:
        """:param limits: the limits at which :meth:`batch_receive` returns; None: the default limits

        :param forget: called when the consumer is closed
        """
        self._calls = calls
        self._consumer = consumer
        self._schema = schema
        self._kind = kind
        self._limits = limits if limits is not None else BatchLimits(-1, 10 * 1024 * 1024, 100)
        self._forget = forget
        self._fetched = FetchedMessages(consumer, calls.thread)
        self._receiver = blocking.Consumer(consumer, calls.thread, self._fetched)
        self._by_topic = isinstance(consumer, TopicsConsumer)
        self._listening: ListenerFeed | None = None

    def topic(self) -> str:
        return self._consumer.topic()

    def subscription_name(self) -> str:
        return self._consumer.subscription_name()

    def consumer_name(self) -> str:
        return self._consumer.consumer_name()

    def unsubscribe(self) -> None:
        """Deletes the subscription, and closes the consumer."""
        self._calls.run(self._consumer.unsubscribe())

    def _check_receives(self) -> None:
        """Checks that the program may call the methods that receive messages.

        :raises AlreadyClosed: the client is closed
        :raises InvalidConfiguration: the consumer has a listener
        """
        if self._calls.closed:
            raise official(AlreadyClosed("the client is closed"))
        if self._listening is not None:
            error = InvalidConfiguration(f"{self.topic()}: its message listener receives the messages")
            raise official(error) from error

    def receive(self, timeout_millis: int | None = None) -> PulsarMessage:
        """Waits for the next message, and returns it.

        :raises Timeout: no message arrived in time
        :raises PulsarException: the consumer is closed or has failed permanently
        """
        if self._calls.closed or self._listening is not None:
            self._check_receives()
        if timeout_millis is not None:
            check_type(int, timeout_millis, "timeout_millis")
        message = self._fetched.next()
        if message is None:
            with self._calls.errors():
                message = self._receiver.receive(timeout_millis)
        return PulsarMessage._wrap(message, self._schema)

    def batch_receive(self) -> list[PulsarMessage]:
        """Returns several messages together, as the consumer's ``batch_receive_policy`` limits them; an empty
        list if no message arrives in time.
        """
        self._check_receives()
        with self._calls.errors():
            messages = self._receiver.batch_receive(self._limits.limits)
        return [PulsarMessage._wrap(message, self._schema) for message in messages]

    def _meant(self, message: object) -> Acknowledged:
        if type(message) is PulsarMessage:
            return message._message
        return acknowledged(message, by_topic=self._by_topic)

    def acknowledge(self, message: PulsarMessage | MessageId | Message) -> None:
        """Acknowledges one message.

        :raises PulsarException: the consumer is closed, or does not know the message's topic
        """
        meant = self._meant(message)
        if self._calls.closed:
            raise official(AlreadyClosed("the client is closed"))
        if self._by_topic:
            self._calls.run(self._consumer.acknowledge(meant))
            return
        try:
            self._receiver.acknowledge(meant)
        except (PulsarException, RuntimeError) as error:
            self._calls.translate(error)
            raise

    def acknowledge_cumulative(self, message: PulsarMessage | MessageId | Message) -> None:
        """Acknowledges all messages up to and including the given message.

        :raises CumulativeAcknowledgementNotAllowedError: the subscription is Shared or KeyShared
        """
        meant = self._meant(message)
        if self._kind in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise official(
                CumulativeAcknowledgementNotAllowedError(
                    f"a {self._kind.name} subscription allows no cumulative acknowledgement"
                )
            )
        self._calls.run(self._consumer.acknowledge_cumulative(meant))

    def negative_acknowledge(self, message: PulsarMessage | MessageId | Message) -> None:
        """Requests redelivery of a message after ``negative_ack_redelivery_delay_ms``."""
        self._calls.run(self._negative_acknowledge(self._meant(message)))

    async def _negative_acknowledge(self, meant: Acknowledged) -> None:
        self._consumer.negative_acknowledge(meant)

    def pause_message_listener(self) -> None:
        """Stops passing messages to the listener, until :meth:`resume_message_listener` is called.

        :raises InvalidConfiguration: the consumer has no listener
        """
        self._calls.thread.post(self._listener().pause)

    def resume_message_listener(self) -> None:
        """Continues to pass messages to the listener.

        :raises InvalidConfiguration: the consumer has no listener
        """
        self._calls.thread.post(self._listener().resume)

    def _listener(self) -> ListenerFeed:
        if self._listening is None:
            error = InvalidConfiguration(f"{self.topic()}: the consumer has no message listener")
            raise official(error) from error
        return self._listening

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests redelivery of all unacknowledged messages of this consumer."""
        with self._calls.errors():
            self._receiver.redeliver_unacknowledged_messages()

    def seek(self, messageid: MessageId | int) -> None:
        """Seeks: resets the subscription to a message id, or to a publish time in milliseconds since 1970."""
        with self._calls.errors():
            self._receiver.seek(seek_target(messageid))

    def close(self) -> None:
        """Sends collected acknowledgements, and closes the consumer. Idempotent."""
        self._forget(self)
        if not self._calls.closed:
            self._calls.run(self._close())

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.end()
        await self._consumer.close()

    def is_connected(self) -> bool:
        return not self._calls.closed and self._consumer.is_connected()

    def get_last_message_id(self) -> TopicMessageId:
        """Returns the id of the topic's last message.

        :raises OperationNotSupported: the consumer has several topics or partitions
        """
        return known(self._calls.run(self._consumer.get_last_message_id()), self.topic())


class Reader:
    """A reader; see ``Client.create_reader``."""

    def __init__(
        self,
        calls: Calls,
        reader: AsyncReader,
        schema: Schema,
        forget: Callable[[object], object] = lambda _reader: None,
    ) -> None:
        """:param forget: called when the reader is closed"""
        self._calls = calls
        self._reader = reader
        self._schema = schema
        self._forget = forget
        self._listening: ListenerFeed | None = None

    def topic(self) -> str:
        return self._reader.topic()

    def read_next(self, timeout_millis: int | None = None) -> PulsarMessage:
        """Waits for the next message, and returns it.

        :raises Timeout: no message arrived in time
        :raises PulsarException: the reader is closed or has failed permanently
        """
        if self._listening is not None:
            error = InvalidConfiguration(f"{self.topic()}: its reader listener receives the messages")
            raise official(error) from error
        if timeout_millis is not None:
            check_type(int, timeout_millis, "timeout_millis")
        return PulsarMessage._wrap(self._calls.run(self._reader.read_next(timeout_millis)), self._schema)

    def has_message_available(self) -> bool:
        """Whether the topic has a message after the message that was read last."""
        return self._calls.run(self._reader.has_message_available())

    def seek(self, messageid: MessageId | int) -> None:
        """Seeks: continues reading at a message id, or at a publish time in milliseconds since 1970."""
        self._calls.run(self._reader.seek(seek_target(messageid)))

    def close(self) -> None:
        """Closes the reader. Idempotent."""
        self._forget(self)
        if not self._calls.closed:
            self._calls.run(self._close())

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.end()
        await self._reader.close()

    def is_connected(self) -> bool:
        return not self._calls.closed and self._reader.is_connected()


def seek_target(messageid: object) -> MessageId | int:
    """Checks the target of a seek, and returns it in the form of ``magnetar.client``.

    :raises ValueError: the argument is neither a message id nor a time
    """
    if isinstance(messageid, MessageId | int):
        return messageid
    raise ValueError(f"invalid seek_arg type {type(messageid)}")
