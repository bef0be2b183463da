"""A reader's WebSocket: each command of the client permits one more message."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.consumer import Consumer
from magnetar.client.message import Message, MessageReference
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedConsumer


class Reading:
    """See :class:`magnetar.http.websocket.consuming.Receiving`.

    Uses a consumer without a durable subscription.
    """

    def __init__(self, consumer: Consumer | PartitionedConsumer) -> None:
        self._consumer = consumer

    def take(self) -> Message | None:
        return self._consumer.take()

    @property
    def on_arrival(self) -> Callable[[], object] | None:
        return self._consumer.on_arrival

    @on_arrival.setter
    def on_arrival(self, told: Callable[[], object] | None) -> None:
        self._consumer.on_arrival = told

    def acknowledge_soon(self, message: MessageReference | MessageId) -> None:
        """Does nothing: readers do not acknowledge."""

    def negative_acknowledge(self, message: MessageReference | MessageId) -> None:
        """Does nothing: readers get no redelivery."""

    def has_reached_end_of_topic(self) -> bool:
        return self._consumer.has_reached_end_of_topic()

    async def unsubscribe(self) -> None:
        """Does nothing: the subscription is not durable."""

    async def close(self) -> None:
        await self._consumer.close()
