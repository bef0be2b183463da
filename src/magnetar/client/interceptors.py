"""Interceptors, which observe and can change the messages of a producer, a consumer or a reader; listeners
for the events of a consumer.

The client calls interceptors and listeners in its event loop, which they must not block. An exception in an
interceptor or a listener is logged and does not affect the message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from magnetar.client.exceptions import PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import MessageOptions

if TYPE_CHECKING:
    from magnetar.client.consumer import Consumer
    from magnetar.client.message import Message
    from magnetar.client.producer import Producer
    from magnetar.client.reader import Reader

log = logging.getLogger(__name__)


class OutgoingMessage:
    """A message that is about to be sent."""

    __slots__ = ("content", "notes", "options")

    def __init__(self, content: bytes, options: MessageOptions | None = None) -> None:
        """:param content: the payload, before compression and encryption

        :param options: the options of the message; None: no options
        """
        self.content = content
        self.options = options or MessageOptions()
        self.notes: dict[object, object] = {}
        """Data that interceptors keep until the outcome is known; each interceptor uses itself as the key."""

    def set_property(self, name: str, value: str) -> None:
        """Adds a property, or replaces its value.

        :param name: the name of the property
        :param value: its value
        """
        self.options.properties = {**(self.options.properties or {}), name: value}


class ProducerInterceptor:
    """Base class of producer interceptors, like Java's ``ProducerInterceptor``; its methods do nothing."""

    def eligible(self, message: OutgoingMessage) -> bool:
        """Returns whether :meth:`before_send` and :meth:`on_send_acknowledgement` get this message.

        :param message: the message, before its compression and encryption
        """
        return True

    def before_send(self, producer: Producer, message: OutgoingMessage) -> OutgoingMessage:
        """Returns the message to send: the given message, possibly changed, or another message.

        Called after the partition is chosen, in the order of the interceptors.

        :param producer: the producer; for a partitioned topic, the producer of the partition
        :param message: the message, as the previous interceptor returned it
        """
        return message

    def on_send_acknowledgement(
        self,
        producer: Producer,
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: PulsarException | None,
    ) -> None:
        """Called with the outcome of a message.

        :param producer: as for :meth:`before_send`
        :param message: the message as it was sent
        :param message_id: the id of the message; None after an error, or for a duplicate without an id
        :param error: the reason for a failure; None: the broker has sent a receipt
        """

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """Called when the number of partitions of the topic has changed.

        :param topic: the name of the partitioned topic
        :param partitions: the new number of its partitions
        """

    def close(self) -> None:
        """Called after the producer, or the producers of all partitions, are closed."""


class ConsumerInterceptor:
    """Base class of consumer interceptors, like Java's ``ConsumerInterceptor``; its methods do nothing. For
    several partitions or topics, the methods get the consumer of the message's partition or topic.
    """

    def before_consume(self, consumer: Consumer, message: Message) -> Message:
        """Returns the message that the program receives: the given message, or another message.

        Called when a message leaves the receiver queue, in the order of the interceptors. The blocking
        interface takes several messages at once, so this can be before the program receives the message.

        :param consumer: the consumer; for several topics or partitions, the consumer of the message's topic
            or partition
        :param message: the message, as the previous interceptor returned it
        """
        return message

    def on_acknowledge(
        self, consumer: Consumer, message_id: MessageId, error: PulsarException | None
    ) -> None:
        """Called after an acknowledgement; with ``ack_receipt_enabled`` after the broker's answer.

        :param consumer: as for :meth:`before_consume`
        :param message_id: the id of the message, or of an entry
        :param error: the reason for a failure; None: the acknowledgement was sent
        """

    def on_acknowledge_cumulative(
        self, consumer: Consumer, message_id: MessageId, error: PulsarException | None
    ) -> None:
        """Like :meth:`on_acknowledge`, for cumulative acknowledgements.

        :param consumer: as for :meth:`before_consume`
        :param message_id: the id of the last acknowledged message
        :param error: the reason for a failure; None: the acknowledgement was sent
        """

    def on_negative_acks_send(self, consumer: Consumer, message_ids: Sequence[MessageId]) -> None:
        """Called before redelivery of negatively acknowledged messages is requested.

        :param consumer: as for :meth:`before_consume`
        :param message_ids: the ids of the entries whose redelivery is requested
        """

    def on_ack_timeout_send(self, consumer: Consumer, message_ids: Sequence[MessageId]) -> None:
        """Called before redelivery is requested for messages that were not acknowledged in time.

        :param consumer: as for :meth:`before_consume`
        :param message_ids: the ids of the entries whose redelivery is requested
        """

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """Called when the number of partitions of the topic has changed.

        :param topic: the name of the partitioned topic
        :param partitions: the new number of its partitions
        """

    def close(self) -> None:
        """Called after the consumer, or the consumers of all partitions and topics, are closed."""


class ConsumerEventListener:
    """Base class of listeners for the events of a consumer, like Java's ``ConsumerEventListener`` and
    ``MessageListener.reachedEndOfTopic``; its methods do nothing. For several partitions or topics, the
    methods get the consumer of the partition or topic.
    """

    def became_active(self, consumer: Consumer, partition: int) -> None:
        """Called when the broker begins to deliver the messages of a Failover subscription to this consumer.

        :param consumer: the consumer
        :param partition: the index of its partition; -1: the topic is not partitioned
        """

    def became_inactive(self, consumer: Consumer, partition: int) -> None:
        """Called when the broker delivers the messages of a Failover subscription to another consumer.

        :param consumer: the consumer
        :param partition: the index of its partition; -1: the topic is not partitioned
        """

    def reached_end_of_topic(self, consumer: Consumer) -> None:
        """Called when the topic is terminated and all its messages are acknowledged, so that no message
        follows; again after each reconnection and seek.

        :param consumer: the consumer
        """


class ReaderInterceptor:
    """Base class of reader interceptors, like Java's ``ReaderInterceptor``; its methods do nothing."""

    def before_read(self, reader: Reader, message: Message) -> Message:
        """Returns the message that the program reads: the given message, or another message.

        Called when a message leaves the receiver queue, in the order of the interceptors. The blocking
        interface takes several messages at once, so this can be before the program reads the message.

        :param reader: the reader
        :param message: the message, as the previous interceptor returned it
        """
        return message

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """Called when the number of partitions of the topic has changed.

        :param topic: the name of the partitioned topic
        :param partitions: the new number of its partitions
        """

    def close(self) -> None:
        """Called after the reader is closed."""


class BeforeRead(ConsumerInterceptor):
    """Adapts a reader's interceptor to the interface of consumer interceptors."""

    def __init__(self, reader: Reader, interceptor: ReaderInterceptor) -> None:
        self._reader = reader
        self._interceptor = interceptor

    def __repr__(self) -> str:
        return repr(self._interceptor)

    def before_consume(self, consumer: Consumer, message: Message) -> Message:
        return self._interceptor.before_read(self._reader, message)

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self._interceptor.on_partitions_change(topic, partitions)

    def close(self) -> None:
        self._interceptor.close()


Kind = TypeVar("Kind", ProducerInterceptor, ConsumerInterceptor)
Notified = TypeVar("Notified")


def notify(name: str, notified: Notified | None, call: Callable[[Notified], object]) -> None:
    """Calls a method of an interceptor or event listener; logs its exception.

    :param name: the name of the method, for the log
    :param notified: the interceptor or event listener; None: nothing is called
    """
    if notified is None:
        return
    try:
        call(notified)
    except Exception:
        log.exception("%s of %r failed", name, notified)


class _Chain(Generic[Kind]):
    """The interceptors of a producer or consumer; all partitions of a topic share this object."""

    def __init__(self, interceptors: Sequence[Kind]) -> None:
        self._interceptors: tuple[Kind, ...] = tuple(interceptors)
        self._users = 0

    def each(self, name: str, call: Callable[[Kind], object]) -> None:
        """Calls each interceptor; logs the exceptions.

        :param name: the name of the method, for the log
        """
        for interceptor in self._interceptors:
            notify(name, interceptor, call)

    def partitions_changed(self, topic: str, partitions: int) -> None:
        self.each("on_partitions_change", lambda one: one.on_partitions_change(topic, partitions))

    def begin(self) -> None:
        """Called when a producer or consumer starts to use these interceptors."""
        self._users += 1

    def end(self) -> None:
        """Called when a producer or consumer stops using these interceptors; the last call closes them."""
        self._users -= 1
        if not self._users:
            self.each("close", lambda one: one.close())


class ProducerInterceptors(_Chain[ProducerInterceptor], ProducerInterceptor):
    """Calls several producer interceptors in order."""

    def intercepted(
        self, producer: Producer, message: OutgoingMessage
    ) -> tuple[OutgoingMessage, list[ProducerInterceptor]]:
        """Calls ``before_send`` of the eligible interceptors; returns the message to send, and the
        interceptors that must get its outcome.
        """
        eligible = []
        for interceptor in self._interceptors:
            try:
                if interceptor.eligible(message):
                    eligible.append(interceptor)
                    message = interceptor.before_send(producer, message)
            except Exception:
                log.exception("before_send of %r failed", interceptor)
        return message, eligible


class ConsumerInterceptors(_Chain[ConsumerInterceptor], ConsumerInterceptor):
    """Calls several consumer interceptors in order."""

    def before_consume(self, consumer: Consumer, message: Message) -> Message:
        for interceptor in self._interceptors:
            try:
                message = interceptor.before_consume(consumer, message)
            except Exception:
                log.exception("before_consume of %r failed", interceptor)
        return message


def producer_chain(interceptors: Sequence[ProducerInterceptor]) -> ProducerInterceptors:
    """Returns a chain of the interceptors, or the given object if it already is a chain."""
    [first, *others] = interceptors
    if isinstance(first, ProducerInterceptors) and not others:
        return first
    return ProducerInterceptors(interceptors)


def consumer_chain(interceptors: Sequence[ConsumerInterceptor]) -> ConsumerInterceptors:
    """Returns a chain of the interceptors, or the given object if it already is a chain."""
    [first, *others] = interceptors
    if isinstance(first, ConsumerInterceptors) and not others:
        return first
    return ConsumerInterceptors(interceptors)
