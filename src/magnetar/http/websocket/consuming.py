"""The WebSocket of a consumer or reader: sends messages and receives acknowledgements. Message ids do not
contain the topic; so if the consumer has several topics, the topic of each message is remembered until the
client acknowledges the message.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Protocol

from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import PulsarException
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.message import Message, MessageReference
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedConsumer
from magnetar.errors import InvalidRequest
from magnetar.http.engine.websocket import INTERNAL_ERROR, INVALID, NORMAL, WebSocket
from magnetar.http.websocket.figures import Traffic, WebSocketFigures
from magnetar.http.websocket.forms import (
    BadForm,
    ConsumerCommand,
    consumer_command,
    consumer_message,
    consumer_message_parts,
    end_of_topic,
)
from magnetar.http.websocket.parameters import message_id_of
from magnetar.io.interfaces import Loop
from magnetar.io.tasks import TaskScope
from magnetar.lazy_dataclass import dataclass

log = logging.getLogger("magnetar.http")
_AT_ONCE = 64
"""Maximum number of messages that are sent in one iteration of the event loop."""
_BYTES_AT_ONCE = 256 * 1024
"""Maximum number of bytes that are sent in one iteration of the event loop; the last message can exceed
it.
"""
_UNREADABLE = "Failed to de-serialize from JSON"
Answered = MessageReference | MessageId


class Receiving(Protocol):
    """The methods of a consumer or reader that a WebSocket uses."""

    on_arrival: Callable[[], object] | None

    def take(self) -> Message | None: ...
    def acknowledge_soon(self, message: Answered) -> None: ...
    def negative_acknowledge(self, message: Answered) -> None: ...
    def has_reached_end_of_topic(self) -> bool: ...
    async def unsubscribe(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """The rules by which a WebSocket delivers messages to its client."""

    topics: tuple[str, ...]
    subscription: str
    subscription_type: str = "Exclusive"
    durable: bool | None = None
    pulls: bool = False
    """Whether the client requests messages with permits (pull mode); otherwise it gets messages until
    :attr:`pending` are unacknowledged.
    """
    pending: int = 1000
    several: bool = False
    """Whether the messages can come from more than one topic."""


class Consuming:
    """The WebSocket of one consumer or reader; see :class:`magnetar.http.engine.websocket.Conversation`."""

    def __init__(
        self, loop: Loop, terms: Terms, consumer: Receiving, forget: Callable[[Consuming], object]
    ) -> None:
        """:param forget: called when the WebSocket has ended"""
        self._loop = loop
        self._tasks = TaskScope(loop, "a WebSocket consumer", self._internal_error)
        self._terms = terms
        self._consumer = consumer
        self._forget = forget
        self._socket: WebSocket | None = None
        self._traffic = Traffic()
        self._room = 0 if terms.pulls else max(1, terms.pending)
        """Number of messages that may be sent now."""
        self._topics: dict[str, str] = {}
        """The topics of unacknowledged messages, by message id; only used if the consumer has several
        topics.
        """
        self._unsent: Message | None = None
        """The last message that was sent, until the client has read it.

        While this reference exists, the memory of the message counts against the limit.
        """
        self._parts: Iterator[tuple[str, bool]] | None = None
        """The remaining parts of a large message that is being sent."""
        self._others_first = False
        """Whether sending pauses until the next iteration of the event loop, so that other work comes
        first.
        """

    def told(self) -> WebSocketFigures:
        terms = self._terms
        return WebSocketFigures(
            terms.topics,
            self._socket.remote if self._socket else "",
            self._traffic,
            terms.subscription,
            terms.subscription_type,
            terms.durable,
        )

    def opened(self, socket: WebSocket) -> None:
        self._socket = socket
        self._consumer.on_arrival = self._send_more
        self._send_more()

    # out

    def go_on(self) -> None:
        self._send_more()

    def _send_more(self) -> None:
        """Sends messages that have arrived, as long as the client permits it and reads fast enough."""
        socket = self._socket
        if socket is None or self._others_first:
            return
        sent = size = 0
        if socket.takes:
            self._unsent = None
        try:
            if self._parts is not None:
                self._send_part(socket, self._parts)
                return
            while self._room > 0 and socket.takes:
                message = self._consumer.take()
                if message is None:
                    return
                if len(message.data()) > _BYTES_AT_ONCE:
                    self._begin_parts(socket, message)
                    return
                self._send(socket, message)
                sent += 1
                size += len(message.data())
                if not socket.takes:
                    self._unsent = message
                if sent == _AT_ONCE or size > _BYTES_AT_ONCE:
                    self._others_first = True
                    self._loop.call_soon(self._after_others)
                    return
        except PulsarException as error:
            log.info("consumer of a WebSocket ended", extra={"peer": socket.remote, "reason": str(error)})
            socket.close(INTERNAL_ERROR, str(error))
        except Exception:
            # The caller serves other consumers, too, so nothing is raised.
            log.exception(
                "consumer of a WebSocket failed with an internal error", extra={"peer": socket.remote}
            )
            socket.close(INTERNAL_ERROR, "Internal error")

    def _after_others(self) -> None:
        self._others_first = False
        self._send_more()

    def _send(self, socket: WebSocket, message: Message) -> None:
        socket.send(consumer_message(message, self._told_id(message)))

    def _told_id(self, message: Message) -> str:
        self._room -= 1
        message_id = b64encode(message.message_id().serialize()).decode()
        if self._terms.several:
            self._topics[message_id] = message.topic_name()
        self._traffic.was_delivered(len(message.data()))
        return message_id

    def _begin_parts(self, socket: WebSocket, message: Message) -> None:
        self._parts = consumer_message_parts(message, self._told_id(message))
        self._send_part(socket, self._parts)

    def _send_part(self, socket: WebSocket, parts: Iterator[tuple[str, bool]]) -> None:
        """Sends the next part of a large message if the client reads fast enough; further parts follow in
        later iterations of the event loop.
        """
        if not socket.takes:
            return
        part, last = next(parts)
        socket.send_part(part, last=last)
        if last:
            self._parts = None
        self._others_first = True
        self._loop.call_soon(self._after_others)

    def _make_room(self, messages: int) -> None:
        waited = self._room <= 0
        self._room += messages
        if waited:
            self._send_more()

    # in

    def received(self, text: str) -> None:
        socket = self._socket
        if socket is None:
            return
        try:
            self._carry_out(socket, consumer_command(text))
        except (BadForm, InvalidRequest) as error:
            socket.close(INVALID, f"{_UNREADABLE}: {error}")
        except PulsarException as error:
            socket.close(INTERNAL_ERROR, str(error))

    def _carry_out(self, socket: WebSocket, command: ConsumerCommand) -> None:
        if command.type == "permit":
            if command.permits is None:
                raise InvalidRequest("Missing required permitMessages field for 'permit' command")
            if self._terms.pulls:
                self._make_room(command.permits)
        elif command.type == "unsubscribe":
            self._tasks.start(self._unsubscribe(socket), "unsubscribing")
        elif command.type == "isEndOfTopic":
            socket.send(end_of_topic(self._consumer.has_reached_end_of_topic()))
        else:
            self._answered(command, refused=command.type == "negativeAcknowledge")

    def _answered(self, command: ConsumerCommand, *, refused: bool) -> None:
        if command.message_id is None:
            raise InvalidRequest("messageId is missing")
        message_id = message_id_of(command.message_id)
        topic = self._topics.pop(command.message_id, None)
        if topic is not None or not self._terms.several:
            message = message_id if topic is None else MessageReference(topic, message_id)
            if refused:
                self._consumer.negative_acknowledge(message)
            else:
                self._consumer.acknowledge_soon(message)
                self._traffic.acknowledged += 1
        # Otherwise the id was acknowledged before: the message was delivered more than once, or belongs to
        # a non-persistent topic, where all ids are the same. Each delivery took a permit.
        if not self._terms.pulls:
            self._make_room(1)

    def _internal_error(self, work: str, error: BaseException) -> None:
        if self._socket is not None:
            self._socket.close(INTERNAL_ERROR, f"{work} failed: {type(error).__name__}: {error}")

    async def _unsubscribe(self, socket: WebSocket) -> None:
        self._consumer.on_arrival = None
        try:
            await self._consumer.unsubscribe()
        except PulsarException as error:
            socket.close(INTERNAL_ERROR, str(error))
            return
        socket.close(NORMAL, "Unsubscribed")

    def ended(self) -> None:
        self._socket = self._unsent = self._parts = None
        self._forget(self)
        self._topics.clear()
        self._tasks.start(self._consumer.close(), "closing the consumer", may_fail=True)


class Reading:
    """Adapts a consumer with a non-durable subscription, so that the WebSocket of a reader can use it; see
    :class:`magnetar.http.websocket.consuming.Receiving`.
    """

    def __init__(self, consumer: Consumer | PartitionedConsumer | TopicsConsumer) -> None:
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
        """Does nothing, because readers do not acknowledge messages."""

    def negative_acknowledge(self, message: MessageReference | MessageId) -> None:
        """Does nothing, because readers get no redeliveries."""

    def has_reached_end_of_topic(self) -> bool:
        return self._consumer.has_reached_end_of_topic()

    async def unsubscribe(self) -> None:
        """Does nothing, because the subscription is not durable."""

    async def close(self) -> None:
        await self._consumer.close()
