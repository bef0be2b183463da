"""Message listeners: threads that call a program's function for each message of a consumer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import cycle

from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import PulsarException
from magnetar.client.gathered import GatheredConsumer
from magnetar.client.message import Message
from magnetar.io.real.loop_thread import CallThread
from magnetar.io.tasks import TaskScope

log = logging.getLogger("magnetar.client.pulsar")
_AT_ONCE = 100
"""Maximum number of messages that are passed to a listener's thread together."""


class ListenerThreads:
    """The listener threads of a client; each consumer uses one of them."""

    def __init__(self, count: int) -> None:
        """:param count: number of threads, at least 1"""
        self._threads = [CallThread(f"listener-{index}") for index in range(max(count, 1))]
        self._turns = cycle(self._threads)

    def next(self) -> CallThread:
        return next(self._turns)

    def end(self) -> None:
        for thread in self._threads:
            thread.end()


class ListenerFeed:
    """Passes the messages of one consumer to its listener, one after another."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        consumer: Consumer | GatheredConsumer,
        thread: CallThread,
        listener: Callable[[Message], object],
        *,
        one_at_a_time: bool,
    ) -> None:
        """Must be called on the loop.

        :param one_at_a_time: whether to request the next message only after the listener has returned, which
            a receiver queue size of 0 requires
        """
        self._loop = loop
        self._consumer = consumer
        self._thread = thread
        self._listener = listener
        self._limit = 1 if one_at_a_time else _AT_ONCE
        self._waiting: deque[Message] = deque()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._tasks = TaskScope(loop, f"listener of {consumer.topic()}")

    def begin(self) -> None:
        """Starts passing messages to the listener; must be called on the loop."""
        self._tasks.start(self._pass_on(), "passing on messages", may_fail=True)

    async def _pass_on(self) -> None:
        try:
            while True:
                await self._resumed.wait()
                if not self._waiting:
                    self._waiting.append(await self._consumer.receive())
                while len(self._waiting) < self._limit:
                    message = self._consumer.take()
                    if message is None:
                        break
                    self._waiting.append(message)
                await self._thread.call(self._loop, self._deliver)
        except PulsarException as error:
            log.debug("%s: no more messages for the listener: %s", self._consumer.topic(), error)

    def _deliver(self) -> None:
        """Calls the listener with the waiting messages; runs in the listener's thread."""
        while self._waiting and self._goes_on.is_set():
            message = self._waiting.popleft()
            try:
                self._listener(message)
            except Exception:
                log.exception("the listener failed for message %s", message.message_id())

    def pause(self) -> None:
        """Stops passing messages until :meth:`resume`; must be called on the loop."""
        self._goes_on.clear()
        self._resumed.clear()

    def resume(self) -> None:
        """Continues after :meth:`pause`; must be called on the loop."""
        self._goes_on.set()
        self._resumed.set()

    def end(self) -> None:
        """Stops passing messages for good; must be called on the loop."""
        self._goes_on.clear()
        self._waiting.clear()
        self._tasks.cancel()
