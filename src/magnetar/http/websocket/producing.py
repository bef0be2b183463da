"""The WebSocket of a producer: publishes the messages that the client sends, and sends receipts to the
client.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.exceptions import PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.partitioned import PartitionedProducer
from magnetar.client.producer import Producer
from magnetar.http.engine.websocket import WebSocket
from magnetar.http.websocket.figures import Traffic, WebSocketFigures
from magnetar.http.websocket.forms import (
    NOT_SENT,
    BadForm,
    producer_ack,
    producer_message,
    producer_refusal,
)
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.tasks import TaskScope


class Producing:
    """The WebSocket of one producer; see :class:`magnetar.http.engine.websocket.Conversation`."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        topic: str,
        producer: Producer | PartitionedProducer,
        forget: Callable[[Producing], object],
    ) -> None:
        """:param forget: called when the WebSocket has ended"""
        self._loop = loop
        self._tasks = TaskScope(loop, "a WebSocket producer")
        self._clock = clock
        self._topic = topic
        self._producer = producer
        self._forget = forget
        self._socket: WebSocket | None = None
        self._traffic = Traffic()

    def told(self) -> WebSocketFigures:
        return WebSocketFigures((self._topic,), self._socket.remote if self._socket else "", self._traffic)

    def opened(self, socket: WebSocket) -> None:
        self._socket = socket

    def received(self, text: str) -> None:
        try:
            message = producer_message(text, self._clock.wall_ms())
        except BadForm as error:
            self._refuse(error.code, str(error), error.context)
            return
        content, context, began = message.payload, message.context, self._loop.time()

        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            if message_id is None:
                self._refuse(NOT_SENT, str(error), context)
                return
            self._traffic.was_published(len(content), self._loop.time() - began)
            if self._socket is not None:
                self._socket.send(producer_ack(message_id.serialize(), context))

        try:
            options = self._producer.message_options(message.options)
            self._producer.enqueue(content, done, None, options)
        except PulsarException as error:
            self._refuse(NOT_SENT, str(error), context)

    def go_on(self) -> None:
        """Does nothing: receipts are sent even if the client does not read, because each message of the
        client causes only one receipt.
        """

    def _refuse(self, code: int, reason: str, context: str | None) -> None:
        self._traffic.failed += 1
        if self._socket is not None:
            self._socket.send(producer_refusal(code, reason, context))

    def ended(self) -> None:
        self._socket = None
        self._forget(self)
        self._tasks.start(self._producer.close(), "closing the producer", may_fail=True)
