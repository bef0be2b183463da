"""Messages that were delivered often enough: they go to another topic instead of once more to the consumer
(Pulsar's "Dead letter topic")."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from magnetar.client.exceptions import AlreadyClosed, InvalidConfiguration, InvalidMessage, PulsarException
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.io.interfaces import Loop
from magnetar.io.mutex import Mutex

log = logging.getLogger(__name__)

Position = tuple[int, int]


def default_dead_letter_topic(topic: str, subscription: str) -> str:
    """The topic for dead letters where the policy names none."""
    return f"{topic}-{subscription}-DLQ"


@dataclass(frozen=True)
class DeadLetterPolicy:
    """Names of the official Python client."""

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    """None: ``<topic>-<subscription>-DLQ``."""

    def check(self) -> None:
        """:raises InvalidConfiguration: the count is not above 0"""
        if self.max_redeliver_count < 1:
            raise InvalidConfiguration("max_redeliver_count must be above 0")


class Sending(Protocol):
    """As much of a producer as it takes."""

    async def send(self, content: bytes, **options: Any) -> MessageId: ...
    async def close(self) -> None: ...


class DeadLetters:
    """Of one consumer."""

    def __init__(
        self,
        policy: DeadLetterPolicy,
        topic: str,
        subscription: str,
        open_producer: Callable[[str], Awaitable[Sending]],
        acknowledge: Callable[[MessageId], object],
        loop: Loop,
    ) -> None:
        """:param topic: where the messages come from"""
        self._policy = policy
        self._subscription = subscription
        self._to = policy.dead_letter_topic or default_dead_letter_topic(topic, subscription)
        self._open_producer = open_producer
        self._acknowledge = acknowledge
        self._opening = Mutex(loop)
        self._producer: Sending | None = None
        self._closed = False
        self._last_time: dict[Position, list[Message]] = {}
        """Those that have come for the last time, by entry."""

    def taken(self, message: Message) -> None:
        """The consumer was given a message."""
        if message.redelivery_count() >= self._policy.max_redeliver_count:
            self._last_time.setdefault(message.message_id().position, []).append(message)

    def remove(self, message_id: MessageId) -> None:
        """The consumer has acknowledged a message, or an entry."""
        messages = self._last_time.get(message_id.position)
        if messages is None:
            return
        if message_id.batch_index() >= 0:
            messages[:] = [each for each in messages if each.message_id() != message_id]
        if message_id.batch_index() < 0 or not messages:
            del self._last_time[message_id.position]

    def forget(self) -> None:
        self._last_time.clear()

    def split(self, positions: list[Position]) -> tuple[list[Position], list[Message]]:
        """Of entries that are wanted again: those to ask for, and the messages that go to the other topic."""
        dead: list[Message] = []
        again = []
        for position in positions:
            messages = self._last_time.pop(position, None)
            if messages is None:
                again.append(position)
            else:
                dead += messages
        return again, dead

    async def bury(self, messages: list[Message]) -> list[Position]:
        """Publishes messages to the other topic and acknowledges them.

        :returns: entries of those for which that did not work: they are to be asked for again
        """
        failed: dict[Position, None] = {}
        for message in messages:
            try:
                producer = await self._sending()
                await producer.send(message.data(), **self._options_of(message))
                self._acknowledge(message.message_id())
            except PulsarException as error:
                log.warning(
                    "%s: cannot publish message %s here; requesting its redelivery: %s",
                    self._to,
                    message.message_id(),
                    error,
                )
                failed[message.message_id().position] = None
        return list(failed)

    async def _sending(self) -> Sending:
        """The producer on the other topic: one, however many wait for it."""
        async with self._opening:
            if self._producer is None:
                if self._closed:
                    raise AlreadyClosed(f"{self._to}: closed")
                opened = await self._open_producer(self._to)
                if self._closed:
                    await opened.close()
                    raise AlreadyClosed(f"{self._to}: closed")
                self._producer = opened
            return self._producer

    def _options_of(self, message: Message) -> dict[str, Any]:
        origin = {
            "REAL_TOPIC": message.topic_name(),
            "REAL_SUBSCRIPTION": self._subscription,
            "ORIGIN_MESSAGE_ID": _java_text(message.message_id()),
        }
        options: dict[str, Any] = {"properties": {**message.properties(), **origin}, **_keys_of(message)}
        if message.event_timestamp():
            options["event_timestamp"] = message.event_timestamp()
        return options

    async def close(self) -> None:
        self.forget()
        self._closed = True
        if self._producer is not None:
            await self._producer.close()
            self._producer = None


def _keys_of(message: Message) -> dict[str, Any]:
    """As its producer gave them, so that both topics have the same order and the same keys."""
    keys: dict[str, Any] = {}
    if message.has_null_partition_key():
        keys["null_partition_key"] = True
    elif message.has_base64_encoded_key():
        try:
            keys["partition_key_bytes"] = message.partition_key_bytes()
        except InvalidMessage:
            # What is no Base64 is kept as it is: it would else never go.
            keys["partition_key"] = message.partition_key()
    elif message.has_partition_key():
        keys["partition_key"] = message.partition_key()
    if message.ordering_key():
        keys["ordering_key"] = message.ordering_key()
    return keys


def _java_text(message_id: MessageId) -> str:
    """``ledger:entry:partition[:batch index]``."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"
