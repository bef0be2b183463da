"""A reader's WebSocket: whatever the client says is that it takes one more."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.consumer import Consumer
from magnetar.client.message import Message, MessageReference
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedConsumer


class Reading:
    """See :class:`magnetar.http.websocket.consuming.Receiving`.

    It stands on a consumer without a durable subscription.
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
        """Nothing is kept of what a reader has read."""

    def negative_acknowledge(self, message: MessageReference | MessageId) -> None:
        """Nor does it come again."""

    def has_reached_end_of_topic(self) -> bool:
        return self._consumer.has_reached_end_of_topic()

    async def unsubscribe(self) -> None:
        """There is nothing to remove."""

    async def close(self) -> None:
        await self._consumer.close()
