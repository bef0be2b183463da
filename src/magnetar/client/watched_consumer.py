"""A consumer with interceptors."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from magnetar.client.attachment import Services
from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import PulsarException
from magnetar.client.interceptors import consumer_chain
from magnetar.client.message import Acknowledged, Message, meant_by
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.receiving import Position
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.client.transactions import AnyTransaction


def new_consumer(
    services: Services, topic: str, subscription: str, options: ConsumerOptions, *, makes_topic: bool = True
) -> Consumer:
    """Creates a consumer of a topic or a partition, without opening it; the arguments are those of
    :class:`Consumer`.

    :raises InvalidConfiguration: an option is out of range
    """
    kind = InterceptedConsumer if options.interceptors else Consumer
    return kind(services, topic, subscription, options, makes_topic=makes_topic)


class InterceptedConsumer(Consumer):
    """A consumer with interceptors."""

    def __init__(
        self,
        services: Services,
        topic: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        makes_topic: bool = True,
    ) -> None:
        super().__init__(services, topic, subscription, options, makes_topic=makes_topic)
        self._partition = TopicName.parse(topic).partition_index
        self._chain = consumer_chain(options.interceptors)
        self._with_value = self._queue.intercept
        self._queue.intercept = self._before_consume
        self._redelivery.before_refused = self._before_refused
        self._redelivery.before_late = self._before_late

    async def open(self) -> None:
        await super().open()
        self._chain.begin()

    def _before_consume(self, message: Message) -> Message:
        if self._with_value is not None:
            message = self._with_value(message)
        return self._chain.before_consume(self, message)

    async def acknowledge(self, message: Acknowledged, *, transaction: AnyTransaction | None = None) -> None:
        failure: PulsarException | None = None
        try:
            await super().acknowledge(message, transaction=transaction)
        except PulsarException as error:
            failure = error
            raise
        finally:
            self._acknowledged(message, failure)

    def acknowledge_soon(self, message: Acknowledged) -> None:
        super().acknowledge_soon(message)
        self._acknowledged(message, None)

    def acknowledge_all(self, messages: deque[Acknowledged]) -> None:
        while messages:
            self.acknowledge_soon(messages.popleft())

    def _acknowledged(self, message: Acknowledged, error: PulsarException | None) -> None:
        message_id = meant_by(message)
        self._chain.each("on_acknowledge", lambda one: one.on_acknowledge(self, message_id, error))

    async def acknowledge_cumulative(
        self, message: Acknowledged, *, transaction: AnyTransaction | None = None
    ) -> None:
        failure: PulsarException | None = None
        try:
            await super().acknowledge_cumulative(message, transaction=transaction)
        except PulsarException as error:
            failure = error
            raise
        finally:
            message_id = meant_by(message)
            self._chain.each(
                "on_acknowledge_cumulative",
                lambda one: one.on_acknowledge_cumulative(self, message_id, failure),
            )

    def _before_refused(self, positions: list[Position]) -> None:
        ids = self._ids(positions)
        self._chain.each("on_negative_acks_send", lambda one: one.on_negative_acks_send(self, ids))

    def _before_late(self, positions: list[Position]) -> None:
        ids = self._ids(positions)
        self._chain.each("on_ack_timeout_send", lambda one: one.on_ack_timeout_send(self, ids))

    def _ids(self, positions: list[Position]) -> list[MessageId]:
        return [MessageId(self._partition, *position) for position in positions]

    def _end(self) -> None:
        was_open = self._attachment.opened and not self._attachment.closed
        super()._end()
        if was_open:
            self._chain.end()
