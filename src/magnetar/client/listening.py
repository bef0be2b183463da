"""Message listeners: functions of a program that the client calls with each message of a consumer or a
reader.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from inspect import isawaitable
from typing import TYPE_CHECKING
from zlib import crc32

from magnetar.client.exceptions import PulsarException
from magnetar.client.message import Message
from magnetar.client.receiving import Arrivals
from magnetar.io.interfaces import Loop
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished

if TYPE_CHECKING:
    from magnetar.client.consumer import Consumer
    from magnetar.client.gathered import GatheredConsumer
    from magnetar.client.options import ConsumerOptions
    from magnetar.client.reader import Reader
    from magnetar.io.interfaces import Task

log = logging.getLogger(__name__)
MessageListener = Callable[..., object]
"""Called with a consumer or a reader and a message; a coroutine that it returns is awaited."""
During = Callable[[Message], AbstractContextManager[object]]
"""Returns a context manager, in whose block the listener is called with a message."""
_calling: ContextVar[ListenerCalls | None] = ContextVar("magnetar-listening", default=None)
"""The object that made the current call of a listener; None outside of such calls. It is needed so that a
listener that closes its own consumer does not wait for itself.
"""


class ThreadedListener:
    """Base class of listeners that run on threads of their own."""

    def end(self) -> None:
        """Called after the listener's last message."""


class ListenerCalls:
    """Passes the messages of one consumer to its listener: one at a time, or concurrently for different
    keys.
    """

    def __init__(
        self,
        loop: Loop,
        consumer: Consumer | GatheredConsumer,
        options: ConsumerOptions,
        *,
        reader: Reader | None = None,
        ended: Callable[[], object],
        during: During | None = None,
    ) -> None:
        """:param options: the options of the consumer, which contain the listener

        :param reader: the reader to which the consumer belongs; None: there is no reader
        :param ended: called after the listener's last message
        :param during: returns the context manager in which the listener is called; None: no context manager
        """
        self._loop = loop
        self._consumer = consumer
        self._reader = reader
        self._listener = options.message_listener
        self._concurrency = options.listener_concurrency
        self._tasks = TaskScope(loop, f"listener of {consumer.topic()}")
        self._main: Task[None] | None = None
        self._calls = 0
        self._turn = 0
        self._lanes: dict[int, deque[Message]] = {}
        """Messages that wait for earlier messages of the same lane, by the lane's number. A lane is a queue
        for the messages of one or several keys; the listener gets these messages one at a time. A lane is in
        the dictionary while it has a task that calls the listener.
        """
        self._waiting = 0
        self._progress = Arrivals(loop)
        self._paused = False
        self._ending = False
        self._ended = ended
        self._during: During = during or nullcontext

    def begin(self) -> None:
        """Starts passing messages to the listener."""
        self._main = self._tasks.start(self._pass_on(), "passing on messages", may_fail=True)

    def pause(self) -> None:
        """Stops passing messages to the listener, until :meth:`resume` is called."""
        self._paused = True

    def resume(self) -> None:
        """Continues after :meth:`pause`."""
        self._paused = False
        self._progress.wake()

    async def _pass_on(self) -> None:
        _calling.set(self)
        try:
            while not self._ending:
                message = await self._consumer.receive()
                if self._concurrency == 1:
                    await self._call(message)
                else:
                    await self._put(message)
        except PulsarException as error:
            if not self._ending:
                log.warning("%s: the listener gets no more messages: %s", self._consumer.topic(), error)
        finally:
            if isinstance(self._listener, ThreadedListener):
                self._listener.end()
            self._ended()

    async def _put(self, message: Message) -> None:
        """Queues a message for the listener, after earlier messages of the same key; waits while the queue is
        full.
        """
        lane = self._lane(message)
        if lane in self._lanes:
            self._lanes[lane].append(message)
        else:
            self._lanes[lane] = deque([message])
            self._tasks.start(self._serve(lane), "passing on messages", may_fail=True)
        self._waiting += 1
        while self._waiting >= 2 * self._concurrency and not self._ending:
            await self._progress.wait(None, "")

    def _lane(self, message: Message) -> int:
        key = message.ordering_key() or message.partition_key()
        if key:
            return crc32(key.encode()) % self._concurrency
        self._turn = (self._turn + 1) % self._concurrency
        return self._turn

    async def _serve(self, lane: int) -> None:
        messages = self._lanes[lane]
        try:
            while messages and not self._ending:
                await self._call(messages.popleft())
                self._waiting -= 1
                self._progress.wake()
        finally:
            del self._lanes[lane]

    async def _call(self, message: Message) -> None:
        while self._paused and not self._ending:
            await self._progress.wait(None, "")
        if self._ending or self._listener is None:
            return
        self._calls += 1
        try:
            with self._during(message):
                made = self._listener(self._reader or self._consumer, message)
                if isawaitable(made):
                    await made
        except Exception:
            log.exception(
                "%s: the listener failed for message %s", message.topic_name(), message.message_id()
            )
            self._refuse(message)
        finally:
            self._calls -= 1
            self._progress.wake()

    def _refuse(self, message: Message) -> None:
        if self._reader is not None:
            # A reader goes on with the next message.
            return
        try:
            self._consumer.negative_acknowledge(message)
        except PulsarException as error:
            log.debug("%s: closed during a call of the listener: %s", message.topic_name(), error)

    async def end(self) -> None:
        """Stops passing messages to the listener, and waits for calls in progress. A listener that closes its
        own consumer does not wait for its own call.
        """
        self._ending = True
        self._progress.wake()
        while self._calls and _calling.get() is not self:
            await self._progress.wait(None, "")
        if not self._calls:
            main = self._main
            self._tasks.cancel()
            if main is not None and _calling.get() is not self:
                await finished(self._loop, main)


class Listened:
    """Base class of consumers that may have a message listener."""

    listening: ListenerCalls | None = None
    """The object that passes the messages to the listener; None: no listener, the program receives the
    messages.
    """

    async def end_listening(self) -> None:
        """Stops passing messages to the listener, and waits for calls in progress."""
        if self.listening is not None:
            await self.listening.end()

    def pause(self) -> None:
        """Stops requesting messages and passing them to the listener, until :meth:`resume` is called. The
        program can still receive messages that have arrived.
        """
        if self.listening is not None:
            self.listening.pause()

    def resume(self) -> None:
        """Continues after :meth:`pause`."""
        if self.listening is not None:
            self.listening.resume()


def listen(
    loop: Loop,
    consumer: Consumer | GatheredConsumer,
    options: ConsumerOptions,
    all_of_client: dict[ListenerCalls, None],
    during: During | None = None,
    reader: Reader | None = None,
) -> None:
    """Passes the messages of an opened consumer to the listener in its options, if any.

    :param all_of_client: the active listeners of the client, to which this listener is added
    :param during: returns the context manager in which the listener is called; None: no context manager
    :param reader: the reader to pass to the listener; None: the listener gets the consumer
    """
    if options.message_listener is not None:
        made = ListenerCalls(
            loop,
            consumer,
            options,
            reader=reader,
            ended=lambda: all_of_client.pop(made, None),
            during=during,
        )
        all_of_client[made] = None
        consumer.listening = made
        made.begin()
