"""Several consumers that are used as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from magnetar.client.arrivals import Arrivals
from magnetar.client.attachment import Services, close_all
from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import OperationNotSupported, PulsarException
from magnetar.client.message import Acknowledged, Message, RawEntry
from magnetar.client.message_id import MessageId

T = TypeVar("T")


class GatheredConsumer:
    """Used like a :class:`Consumer`; derived classes find the consumer of a message."""

    def __init__(self, services: Services, topic: str, parts: Iterable[Consumer] = ()) -> None:
        """:param topic: name for messages and errors"""
        self._loop = services.io.loop
        self._topic = topic
        self._turn = 0
        self._arrivals = Arrivals(self._loop)
        self.on_arrival: Callable[[], object] | None = None
        """As :attr:`Consumer.on_arrival`."""
        self._parts: list[Consumer] = []
        for part in parts:
            self._gather(part)

    def _gather(self, part: Consumer) -> None:
        part.on_arrival = self._wake
        self._parts.append(part)

    def _wake(self) -> None:
        self._arrivals.wake()
        if self.on_arrival is not None:
            self.on_arrival()

    async def open(self) -> None:
        """:raises PulsarException: a consumer cannot be opened; then none is open"""
        try:
            for part in self._parts:
                await part.open()
        except PulsarException:
            await self.close()
            raise

    def topic(self) -> str:
        return self._topic

    def is_connected(self) -> bool:
        return all(part.is_connected() for part in self._parts)

    def has_reached_end_of_topic(self) -> bool:
        """Whether all topics are terminated and all their messages were delivered."""
        return bool(self._parts) and all(part.has_reached_end_of_topic() for part in self._parts)

    async def receive(self, timeout_millis: float | None = None) -> Message:
        """Returns the next message of any topic; in order within each topic.

        :raises Timeout: no message arrived in time
        :raises PulsarException: the consumer is closed, or has failed for good
        """
        return await self._next(Consumer.take, timeout_millis)

    async def receive_entry(self, timeout_millis: float | None = None) -> RawEntry:
        """As :meth:`Consumer.receive_entry`."""
        return await self._next(Consumer.take_entry, timeout_millis)

    async def _next(self, take: Callable[[Consumer], T | None], timeout_millis: float | None) -> T:
        end = None if timeout_millis is None else self._loop.time() + timeout_millis / 1000
        while True:
            found = self._taken(take)
            if found is not None:
                return found
            self.check_open()
            await self._arrivals.wait(end, f"{self._topic}: no message arrived in time")

    def take(self) -> Message | None:
        """As :meth:`Consumer.take`."""
        return self._taken(Consumer.take)

    def _taken(self, take: Callable[[Consumer], T | None]) -> T | None:
        for _ in self._parts:
            self._turn = (self._turn + 1) % len(self._parts)
            found = take(self._parts[self._turn])
            if found is not None:
                return found
        return None

    def check_open(self) -> None:
        """As :meth:`Consumer.check_open`."""
        raise NotImplementedError

    def _of(self, message: Acknowledged) -> Consumer:
        """Returns the consumer of a message.

        :raises PulsarException: it cannot be determined
        """
        raise NotImplementedError

    async def acknowledge(self, message: Acknowledged) -> None:
        """As :meth:`Consumer.acknowledge`."""
        await self._of(message).acknowledge(message)

    def acknowledge_soon(self, message: Acknowledged) -> None:
        """As :meth:`Consumer.acknowledge_soon`."""
        self._of(message).acknowledge_soon(message)

    async def acknowledge_cumulative(self, message: Acknowledged) -> None:
        """As :meth:`Consumer.acknowledge_cumulative`, for the topic of the message."""
        await self._of(message).acknowledge_cumulative(message)

    def negative_acknowledge(self, message: Acknowledged) -> None:
        """As :meth:`Consumer.negative_acknowledge`."""
        self._of(message).negative_acknowledge(message)

    def flush_acknowledgements(self) -> None:
        for part in self._parts:
            part.flush_acknowledgements()

    def redeliver_unacknowledged_messages(self) -> None:
        for part in self._parts:
            part.redeliver_unacknowledged_messages()

    async def seek(self, target: MessageId | int) -> None:
        """Moves all consumers to an end or a publish time; any other id moves the consumer of its topic."""
        ends = (MessageId.earliest, MessageId.latest)
        chosen = self._parts if isinstance(target, int) or target in ends else [self._of(target)]
        for part in tuple(chosen):
            await part.seek(target)

    async def get_last_message_id(self) -> MessageId:
        """:raises OperationNotSupported: always, as each topic or partition has its own"""
        raise OperationNotSupported("the last message of several topics or partitions is not defined")

    async def unsubscribe(self) -> None:
        """As :meth:`Consumer.unsubscribe`."""
        for part in tuple(self._parts):
            await part.unsubscribe()

    async def close(self) -> None:
        """As :meth:`Consumer.close`."""
        await close_all(self._parts)
