"""One subscription on several topics: those of a list, or all that match a pattern."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from magnetar.client.attachment import Services
from magnetar.client.consumer import Consumer
from magnetar.client.consumer_options import ConsumerOptions
from magnetar.client.exceptions import AlreadyClosed, InvalidConfiguration, PulsarException, TopicNotFound
from magnetar.client.gathered import GatheredConsumer, T
from magnetar.client.looking import Looking
from magnetar.client.message import Acknowledged, RawEntry
from magnetar.client.message_id import MessageId
from magnetar.io.waiting import nobody_waits
from magnetar.naming.topic_name import PARTITION_SUFFIX

log = logging.getLogger(__name__)

Find = Callable[[bool], Awaitable[set[str]]]
"""Returns the present topics, with each partition; the argument permits creating those of a list."""

DISCOVERY_SECONDS = 60.0
"""Between two checks for changed topics, like ``patternAutoDiscoveryPeriod`` of Java clients."""


class TopicsConsumer(GatheredConsumer):
    """A consumer of several topics; used like a :class:`Consumer`.

    Message ids do not contain the topic, so acknowledge messages, not ids.
    """

    def __init__(
        self,
        services: Services,
        find: Find,
        subscription: str,
        options: ConsumerOptions,
        discovery_seconds: float,
        *,
        come_and_go: bool,
    ) -> None:
        """:param discovery_seconds: between two checks for changes; 0: no checks

        :param come_and_go: whether topics may be added and removed; else only partitions are added
        """
        super().__init__(services, f"topics of {subscription}")
        self._services = services
        self._find = find
        self._subscription = subscription
        # One name for all topics, so that several consumers can be told apart.
        self._options = options.named(options.consumer_name or services.io.randomness.token(5).hex())
        self._come_and_go = come_and_go
        self._by_topic: dict[str, Consumer] = {}
        self._looking = Looking(self._loop, self._topic, discovery_seconds, self._look)
        self._closed = False

    async def open(self) -> None:
        try:
            for topic in sorted(await self._services.retrying(lambda: self._find(True))):
                try:
                    await self._add(topic)
                except TopicNotFound:
                    if not self._come_and_go:
                        raise
        except PulsarException:
            await self.close()
            raise
        self._looking.begin()

    def subscription_name(self) -> str:
        return self._subscription

    def consumer_name(self) -> str:
        return self._options.consumer_name or ""

    @property
    def has_receipts(self) -> bool:
        """As :attr:`Consumer.has_receipts`."""
        return self._options.ack_receipt_enabled

    def check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"{self._topic}: closed")

    def _of(self, message: Acknowledged) -> Consumer:
        if isinstance(message, MessageId | RawEntry):
            raise InvalidConfiguration(
                "a consumer of several topics can acknowledge messages, but not message ids"
            )
        found = self._by_topic.get(message.topic_name())
        if found is None:
            raise InvalidConfiguration(f"{message.topic_name()} is no longer one of the topics")
        return found

    async def _add(self, topic: str) -> None:
        # Subscribing must not recreate a matching topic that was deleted.
        part = Consumer(
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
        """Removes the consumer of a topic, and returns it."""
        part = self._by_topic.pop(topic)
        self._parts.remove(part)
        return part

    def _taken(self, take: Callable[[Consumer], T | None]) -> T | None:
        """Takes from the next consumer; leaves out deleted topics until they are found again."""
        while True:
            try:
                return super()._taken(take)
            except TopicNotFound:
                if not self._come_and_go:
                    raise
                gone = self._left(self._parts[self._turn].topic())
                self._loop.create_task(gone.close()).add_done_callback(nobody_waits)

    async def _look(self) -> None:
        now, known = await self._find(False), set(self._by_topic)
        if self._come_and_go:
            await self._each(self._remove, known - now)
        await self._each(self._add, {topic for topic in now - known if self._may_come(topic)})

    def _may_come(self, topic: str) -> bool:
        """Whether to add a topic; with a list, only further partitions of a consumed topic."""
        first = topic.rpartition(PARTITION_SUFFIX)[0] + PARTITION_SUFFIX + "0"
        return self._come_and_go or first in self._by_topic

    async def _each(self, change: Callable[[str], Awaitable[None]], topics: set[str]) -> None:
        """Applies a change to each topic; the failure of one does not affect others."""
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
        self._closed = True
        self._looking.end()
        await super().close()
        self._wake()
