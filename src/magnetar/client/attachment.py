"""The common part of producers and consumers: attaching to the topic's broker, and reattaching."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from magnetar.client.connection import Connection
from magnetar.client.dead_letters import Sending
from magnetar.client.exceptions import (
    AlreadyClosed,
    ConnectError,
    NotConnected,
    PulsarException,
    ReadError,
    Timeout,
    UnknownError,
    is_fatal,
    is_retryable,
)
from magnetar.client.lookup import Lookup, TopicBroker
from magnetar.client.pool import ConnectionPool
from magnetar.client.timing import INITIAL_SECONDS, MAX_SECONDS, Backoff
from magnetar.client.wire import Assigned
from magnetar.io.interfaces import ClientIo, Future, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import nobody_waits, sleep
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

log = logging.getLogger(__name__)

T = TypeVar("T")

PARTITIONS_SECONDS = 60.0
"""Between two checks for new partitions, like ``autoUpdatePartitionsInterval`` of Java clients."""

QUIET_SECONDS = 1.0
"""If attempts fail for longer than this, it is logged once while they continue."""


class Services:
    """The services of a client for its producers and consumers."""

    __slots__ = (
        "_delays",
        "_next_id",
        "attachments",
        "io",
        "lookup",
        "open_producer",
        "operation_timeout",
        "partitions_seconds",
        "pool",
    )

    def __init__(
        self,
        io: ClientIo,
        pool: ConnectionPool,
        lookup: Lookup,
        operation_timeout: float,
        open_producer: Callable[[str], Awaitable[Sending]],
        delays: tuple[float, float] = (INITIAL_SECONDS, MAX_SECONDS),
        partitions_seconds: float = PARTITIONS_SECONDS,
    ) -> None:
        """:param open_producer: creates a producer for a topic, with the defaults

        :param delays: the first and the longest delay between two attempts, in seconds
        :param partitions_seconds: between two checks for new partitions; 0: no checks
        """
        self.open_producer = open_producer
        self.io = io
        self.pool = pool
        self.lookup = lookup
        self.operation_timeout = operation_timeout
        """In seconds."""
        self.attachments: dict[int, Attachment] = {}
        """Open producers and consumers, by id."""
        self.partitions_seconds = partitions_seconds
        self._delays = delays
        self._next_id = 0

    def backoff(self) -> Backoff:
        """Returns the back-off for one series of attempts."""
        return Backoff(self.io.randomness, *self._delays)

    def new_id(self) -> int:
        """Returns a unique id for a producer or a consumer."""
        self._next_id += 1
        return self._next_id

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of ``attempt``; repeats it within the operation time-out while that may help.

        :raises PulsarException: the error of the last attempt
        """
        loop = self.io.loop
        end = loop.time() + self.operation_timeout
        said = loop.time() + QUIET_SECONDS
        backoff = self.backoff()
        while True:
            try:
                return await attempt()
            except PulsarException as error:
                delay = backoff.next()
                if not is_retryable(error) or loop.time() + delay >= end:
                    raise
                if loop.time() >= said:
                    said = end
                    left = end - loop.time()
                    log.warning("attempt failed; trying for another %.0f s: %s", left, error)
            await sleep(loop, delay)


def take_back_unanswered(asked: Future[BaseCommand], take_back: Callable[[], Future[BaseCommand]]) -> None:
    """Undoes a request whose answer was missed, because the broker may have carried it out.

    :param asked: the future of the answer, which may time out or be cancelled
    :param take_back: requests the broker to undo it
    """

    def ended(_asked: Future[BaseCommand]) -> None:
        if asked.cancelled() or isinstance(asked.exception(), Timeout):
            take_back().add_done_callback(nobody_waits)

    asked.add_done_callback(ended)


async def close_all(parts: Iterable[Attachment]) -> None:
    """:raises PulsarException: a part could not be closed; the others were"""
    failure: PulsarException | None = None
    for part in tuple(parts):
        try:
            await part.close()
        except PulsarException as error:
            failure = error
    if failure is not None:
        raise failure


class Attachment:
    """Base of producers and consumers."""

    def __init__(self, services: Services, topic: str) -> None:
        self._services = services
        self._loop = services.io.loop
        self._topic = topic
        self._connection: Connection | None = None
        self._id = services.new_id()
        self._closed = False
        self._failure: PulsarException | None = None
        self._backoff = services.backoff()
        self._tasks = TaskScope(self._loop, topic, self._internal_error)
        self._reattaching: Task[None] | None = None
        self._assigned: Assigned | None = None
        """The topic's new broker, as named by the broker that closed it."""
        self._last: TopicBroker | None = None
        """The last broker it was attached to."""
        self._lookup = services.lookup
        """The lookup of the topic's cluster."""
        self._asked: Future[BaseCommand] | None = None
        """The future of the answer to PRODUCER or SUBSCRIBE; None: not sent yet."""

    def topic(self) -> str:
        return self._topic

    def is_connected(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Attaches for the first time, within the operation time-out.

        :raises PulsarException: attaching failed
        """
        try:
            await self._services.retrying(self._attach)
        except PulsarException:
            self._closed = True
            raise
        self._services.attachments[self._id] = self

    async def _announce(self, connection: Connection) -> None:
        """Announces the producer or consumer on a connection."""
        raise NotImplementedError

    def _attached(self, connection: Connection) -> None:
        """Called when it is attached: waiting operations continue."""
        raise NotImplementedError

    def _moved(self) -> None:
        """Called when the topic has migrated to another cluster."""

    def _ended(self, error: PulsarException) -> None:
        """Called when it has failed for good: waiting callers get ``error``."""
        raise NotImplementedError

    async def _attach(self) -> None:
        owner = await self._owner()
        connection = await self._services.pool.next(owner.broker, owner.through)
        await self._announce(connection)
        self._connection = connection
        self._backoff.reset()
        self._attached(connection)

    async def _owner(self) -> TopicBroker:
        """Returns the topic's broker: the one named by the last broker, once, then that of a lookup."""
        assigned, self._assigned = self._assigned, None
        owner = self._lookup.assigned(assigned, self._last) if assigned is not None else None
        self._last = owner or await self._lookup.owner(self._topic)
        return self._last

    def check_open(self) -> None:
        """:raises PulsarException: the producer or consumer is closed, or has failed for good"""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise AlreadyClosed(f"{self._topic}: closed")

    def _connected_to(self) -> Connection:
        self.check_open()
        if self._connection is None:
            raise NotConnected(f"{self._topic}: not connected")
        return self._connection

    def connection_lost(self, error: PulsarException) -> None:
        self._detached()

    def migrated(self, there: Assigned) -> None:
        """Uses another cluster from now on, to which the topic has migrated (PIP-188)."""
        found = self._lookup.of_cluster(there)
        if found is None:
            log.warning(
                "%s: the topic has migrated to another cluster, but the broker sent no usable address of it",
                self._topic,
            )
            return
        log.info("%s: the topic has migrated to %s", self._topic, there.url or there.url_tls)
        self._lookup, self._last = found, None
        self._moved()
        if self._asked is not None and not self._asked.done():
            # The broker sends no other answer.
            self._asked.set_exception(NotConnected(f"{self._topic}: it has moved to another cluster"))

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        """:param assigned: the topic's new broker; None: a lookup is necessary"""
        self._assigned = assigned
        self._detached()

    def _detached(self) -> None:
        if self._connection is None:
            # Attaching is in progress, and checks for this at its end.
            return
        self._connection = None
        if not self._closed and self._reattaching is None:
            self._reattaching = self._tasks.start(self._reattach(), "reconnecting")

    async def _reattach(self) -> None:
        try:
            while not self._closed and self._connection is None:
                if self._assigned is None:
                    await sleep(self._loop, self._backoff.next())
                await self._before_reattach()
                if self._closed:
                    return
                try:
                    await self._attach()
                except PulsarException as error:
                    if is_fatal(error):
                        self._fail(error)
                        return
                    log.info("%s: cannot reconnect; trying again: %s", self._topic, error)
                except Exception as error:
                    # No caller awaits this task: callers waiting for messages or receipts must get the error.
                    log.exception("%s: reconnecting failed with an internal error", self._topic)
                    self._fail(UnknownError(f"{self._topic}: {type(error).__name__}: {error}"))
                    return
        finally:
            self._reattaching = None

    async def _before_reattach(self) -> None:
        """Waits for operations that must end before it attaches again."""

    def _internal_error(self, work: str, error: BaseException) -> None:
        self._fail(UnknownError(f"{self._topic}: {work} failed: {type(error).__name__}: {error}"))

    def _fail(self, error: PulsarException) -> None:
        if self._failure is None and not self._closed:
            self._failure = error
            self._ended(error)

    async def _goodbye(self, answer: Future[BaseCommand]) -> None:
        """Waits for the answer to a CLOSE command."""
        try:
            await answer
        except (ConnectError, ReadError) as error:
            # The broker forgets producers and consumers together with their connection.
            log.debug("%s: closed together with its connection: %s", self._topic, error)

    async def close(self) -> None:
        """Closes the producer or consumer in an orderly way."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Stops attaching."""
        self._services.attachments.pop(self._id, None)
        self._closed = True
        self._connection = None
        if self._reattaching is not None:
            self._reattaching.cancel()
