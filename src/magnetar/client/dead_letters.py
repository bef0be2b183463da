"""Dead letters: messages that were delivered too often go to another topic instead of the consumer (Pulsar's
"Dead letter topic")."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from magnetar.client.exceptions import AlreadyClosed, InvalidConfiguration, InvalidMessage, PulsarException
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.io.interfaces import Loop
from magnetar.io.locks import Mutex

log = logging.getLogger(__name__)

Position = tuple[int, int]


def default_dead_letter_topic(topic: str, subscription: str) -> str:
    """Returns the default dead letter topic."""
    return f"{topic}-{subscription}-DLQ"


@dataclass(frozen=True)
class DeadLetterPolicy:
    """The policy; names are those of the official Python client."""

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    """None: ``<topic>-<subscription>-DLQ``."""
    initial_subscription_name: str | None = None
    """A subscription that is created with the dead letter topic, which keeps its messages. None: none."""

    def check(self) -> None:
        """Checks the policy.

        :raises InvalidConfiguration: the limit of redeliveries is not above 0
        """
        if self.max_redeliver_count < 1:
            raise InvalidConfiguration(f"max_redeliver_count must be above 0, not {self.max_redeliver_count}")


class Sending(Protocol):
    """The part of a producer that dead letters use."""

    async def send(self, content: bytes, **options: Any) -> MessageId: ...
    async def close(self) -> None: ...


class DeadLetters:
    """The dead letters of one consumer."""

    def __init__(
        self,
        policy: DeadLetterPolicy,
        topic: str,
        subscription: str,
        open_producer: Callable[..., Awaitable[Sending]],
        acknowledge: Callable[[MessageId], object],
        loop: Loop,
    ) -> None:
        """:param topic: the topic of the consumer"""
        self._policy = policy
        self._subscription = subscription
        self._to = policy.dead_letter_topic or default_dead_letter_topic(topic, subscription)
        self._open_producer = open_producer
        self._acknowledge = acknowledge
        self._opening = Mutex(loop)
        self._producer: Sending | None = None
        self._closed = False
        self._last_time: dict[Position, list[Message]] = {}
        """Messages in their last delivery, by entry."""

    def taken(self, message: Message) -> None:
        """Notes that the consumer received a message."""
        if message.redelivery_count() >= self._policy.max_redeliver_count:
            self._last_time.setdefault(message.message_id().position, []).append(message)

    def remove(self, message_id: MessageId) -> None:
        """Notes that the consumer acknowledged a message, or an entry."""
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
        """Splits entries for redelivery into those to request, and messages for the dead letter topic."""
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
        """Publishes messages to the dead letter topic and acknowledges them.

        :returns: entries of messages for which that failed; request their redelivery
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
        """Returns the producer of the dead letter topic, shared by all callers."""
        async with self._opening:
            if self._producer is None:
                if self._closed:
                    raise AlreadyClosed(f"{self._to}: closed")
                named = self._policy.initial_subscription_name
                options = {"initial_subscription_name": named} if named else {}
                opened = await self._open_producer(self._to, **options)
                if self._closed:
                    await opened.close()
                    raise AlreadyClosed(f"{self._to}: closed")
                self._producer = opened
            return self._producer

    def _options_of(self, message: Message) -> dict[str, object]:
        origin = {
            "REAL_TOPIC": message.topic_name(),
            "REAL_SUBSCRIPTION": self._subscription,
            "ORIGIN_MESSAGE_ID": _java_text(message.message_id()),
        }
        options: dict[str, object] = {"properties": {**message.properties(), **origin}, **_keys_of(message)}
        if message.event_timestamp():
            options["event_timestamp"] = message.event_timestamp()
        return options

    async def close(self) -> None:
        self.forget()
        self._closed = True
        if self._producer is not None:
            await self._producer.close()
            self._producer = None


def _keys_of(message: Message) -> dict[str, object]:
    """Returns the keys as set by the producer, so that both topics have the same keys and the same order."""
    keys: dict[str, object] = {}
    if message.has_null_partition_key():
        keys["null_partition_key"] = True
    elif message.has_base64_encoded_key():
        try:
            keys["partition_key_bytes"] = message.partition_key_bytes()
        except InvalidMessage:
            # A key that is not Base64 is kept as it is, or the message could never be moved.
            keys["partition_key"] = message.partition_key()
    elif message.has_partition_key():
        keys["partition_key"] = message.partition_key()
    if message.ordering_key():
        keys["ordering_key"] = message.ordering_key()
    return keys


def _java_text(message_id: MessageId) -> str:
    """Returns ``ledger:entry:partition[:batch index]``."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"
