"""Dead letters: messages with too many redeliveries go to another topic instead of the consumer (Pulsar's
"Dead letter topic"). Retry letters: messages that a consumer wants to receive later go to a retry topic,
which the consumer also consumes (Pulsar's "Retry letter topic").
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from magnetar.client.exceptions import AlreadyClosed, InvalidConfiguration, InvalidMessage, PulsarException
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.io.interfaces import Loop
from magnetar.io.locks import Mutex

log = logging.getLogger(__name__)

Position = tuple[int, int]
_TIMES = "RECONSUMETIMES"


def default_dead_letter_topic(topic: str, subscription: str) -> str:
    """Returns the name of the default dead letter topic."""
    return f"{topic}-{subscription}-DLQ"


@dataclass(frozen=True)
class DeadLetterPolicy:
    """The rules for dead letters of a consumer, with the official Python client's names."""

    max_redeliver_count: int
    """Number of redeliveries of a message (with ``retry_enabled``: of retries) before it becomes a dead
    letter; at least 1.
    """
    dead_letter_topic: str | None = None
    """The topic of dead letters. None: ``<topic>-<subscription>-DLQ``."""
    initial_subscription_name: str | None = None
    """A subscription that is created with the dead letter topic, so that the topic keeps its
    messages. None: no subscription.
    """
    retry_letter_topic: str | None = None
    """The topic of retry letters, for ``retry_enabled``. None: ``<topic>-<subscription>-RETRY``."""

    def check(self) -> None:
        """Checks the policy.

        :raises InvalidConfiguration: the limit of redeliveries is not above 0
        """
        if self.max_redeliver_count < 1:
            raise InvalidConfiguration(f"max_redeliver_count must be above 0, not {self.max_redeliver_count}")


MAX_RECONSUMPTIONS = 16
"""Default for the number of times that a message goes to the retry topic, as in the Java client."""


def retry_policy(policy: DeadLetterPolicy | None, topic: str, subscription: str) -> DeadLetterPolicy:
    """Returns the policy of a consumer with ``retry_enabled``, with default names for topics that the policy
    does not name.

    :param topic: the full name of the consumer's first topic
    """
    policy = policy or DeadLetterPolicy(MAX_RECONSUMPTIONS)
    return replace(
        policy,
        dead_letter_topic=policy.dead_letter_topic or default_dead_letter_topic(topic, subscription),
        retry_letter_topic=policy.retry_letter_topic or f"{topic}-{subscription}-RETRY",
    )


class Sending(Protocol):
    """The part of a producer's interface that retry letters and dead letters use."""

    async def send(self, content: bytes, **options: Any) -> MessageId: ...
    async def close(self) -> None: ...


class LetterTopic:
    """A topic to which a consumer publishes messages; its producer is opened when the first message is
    published.
    """

    def __init__(
        self, topic: str, open_producer: Callable[..., Awaitable[Sending]], loop: Loop, **options: object
    ) -> None:
        """:param options: options of the producer"""
        self.topic = topic
        self._open_producer = open_producer
        self._options = options
        self._opening = Mutex(loop)
        self._producer: Sending | None = None
        self._closed = False

    async def sending(self) -> Sending:
        """Returns the producer, which all callers share; opens it for the first caller.

        :raises PulsarException: the producer cannot be opened, or the consumer is closed
        """
        async with self._opening:
            if self._producer is None:
                if self._closed:
                    raise AlreadyClosed(f"{self.topic}: the consumer of the dead letters is closed")
                opened = await self._open_producer(self.topic, **self._options)
                if self._closed:
                    await opened.close()
                    raise AlreadyClosed(f"{self.topic}: the consumer of the dead letters is closed")
                self._producer = opened
            return self._producer

    async def close(self) -> None:
        """Closes the producer, if it is open. Idempotent.

        :raises PulsarException: the broker refused
        """
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()


class RetryLetters:
    """The retry letters of one consumer."""

    def __init__(
        self,
        policy: DeadLetterPolicy,
        subscription: str,
        open_producer: Callable[..., Awaitable[Sending]],
        loop: Loop,
    ) -> None:
        """:param policy: as :func:`retry_policy` returns it"""
        self._most = policy.max_redeliver_count
        self._subscription = subscription
        options: dict[str, object] = {"batching_enabled": False, "chunking_enabled": True}
        self._retry = LetterTopic(policy.retry_letter_topic or "", open_producer, loop, **options)
        if policy.initial_subscription_name:
            options["initial_subscription_name"] = policy.initial_subscription_name
        self._dead = LetterTopic(policy.dead_letter_topic or "", open_producer, loop, **options)

    async def publish(self, message: Message, delay_ms: float, properties: Mapping[str, str]) -> None:
        """Publishes a message to the retry topic, or to the dead letter topic after too many retries.

        :param delay_ms: delay before the message is delivered again, in milliseconds; 0: no delay
        :param properties: properties to add to the properties of the message
        :raises PulsarException: the message was not published
        """
        # A message that came from the retry topic keeps the origin that it has.
        given = {**_origin_of(message, self._subscription), **message.properties(), **properties}
        before = message.properties().get(_TIMES, "")
        times = int(before) + 1 if before.isdecimal() else 1
        given |= {_TIMES: str(times), "DELAY_TIME": str(round(delay_ms))}
        options = _options_of(message, given)
        if times > self._most:
            await (await self._dead.sending()).send(message.data(), **options)
            return
        if delay_ms > 0:
            options["deliver_after"] = timedelta(milliseconds=delay_ms)
        await (await self._retry.sending()).send(message.data(), **options)

    async def close(self) -> None:
        """Closes the producers.

        :raises PulsarException: the broker refused
        """
        try:
            await self._retry.close()
        finally:
            await self._dead.close()


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
        named = policy.initial_subscription_name
        options = {"initial_subscription_name": named} if named else {}
        to = policy.dead_letter_topic or default_dead_letter_topic(topic, subscription)
        self.buried = 0
        """Number of messages that were published to the dead letter topic."""
        self._to = LetterTopic(to, open_producer, loop, **options)
        self._acknowledge = acknowledge
        self._last_time: dict[Position, list[Message]] = {}
        """By entry: received messages that become dead letters instead of being redelivered."""

    def taken(self, message: Message) -> None:
        """Records that the program received a message."""
        if message.redelivery_count() >= self._policy.max_redeliver_count:
            self._last_time.setdefault(message.message_id().position, []).append(message)

    def remove(self, message_id: MessageId) -> None:
        """Records that the program acknowledged a message or an entry."""
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
        """Splits entries due for redelivery into entries to request from the broker, and messages to send to
        the dead letter topic.
        """
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

        :returns: the positions of messages that could not be published; the caller must request their
            redelivery
        """
        failed: dict[Position, None] = {}
        for message in messages:
            try:
                producer = await self._to.sending()
                given = {**message.properties(), **_origin_of(message, self._subscription)}
                await producer.send(message.data(), **_options_of(message, given))
                self._acknowledge(message.message_id())
                self.buried += 1
            except PulsarException as error:
                log.warning(
                    "%s: message %s cannot be published to this dead letter topic; requesting redelivery: %s",
                    self._to.topic,
                    message.message_id(),
                    error,
                )
                failed[message.message_id().position] = None
        return list(failed)

    async def close(self) -> None:
        self.forget()
        await self._to.close()


def _origin_of(message: Message, subscription: str) -> dict[str, str]:
    """Returns the properties that name the original topic and message id, as the Java client does."""
    return {
        "REAL_TOPIC": message.topic_name(),
        "REAL_SUBSCRIPTION": subscription,
        "ORIGIN_MESSAGE_ID": _java_text(message.message_id()),
    }


def _options_of(message: Message, properties: Mapping[str, str]) -> dict[str, object]:
    """Returns the send options that keep the keys and the event time of a message."""
    options: dict[str, object] = {"properties": properties, **_keys_of(message)}
    if message.event_timestamp():
        options["event_timestamp"] = message.event_timestamp()
    return options


def _keys_of(message: Message) -> dict[str, object]:
    """Returns the send options for the keys that the original producer set, so that the messages keep their
    keys and order in the dead letter or retry topic.
    """
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
    """Returns ``ledger:entry:partition``, followed by ``:index`` for a message of a batch."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"
