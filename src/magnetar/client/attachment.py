"""What producers and consumers have in common: they are attached to their topic's broker, again and again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from magnetar.client.backoff import INITIAL_SECONDS, MAX_SECONDS, Backoff
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
from magnetar.client.wire import Assigned
from magnetar.io.interfaces import ClientIo
from magnetar.io.waiting import nobody_waits, sleep

log = logging.getLogger(__name__)

T = TypeVar("T")

PARTITIONS_SECONDS = 60.0
"""Between two looks for new partitions, as ``autoUpdatePartitionsInterval`` of Java clients."""

QUIET_SECONDS = 1.0
"""What takes longer than this because attempts fail is told, once, while it goes on."""


class Services:
    """What a client gives to its producers and consumers."""

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
        """:param open_producer: makes one for a topic, with the defaults

        :param delays: the first and the longest between two attempts, in seconds
        :param partitions_seconds: between two looks for partitions that came; 0: nobody looks
        """
        self.open_producer = open_producer
        self.io = io
        self.pool = pool
        self.lookup = lookup
        self.operation_timeout = operation_timeout
        """Seconds."""
        self.attachments: dict[int, Attachment] = {}
        """Producers and consumers that are open."""
        self.partitions_seconds = partitions_seconds
        self._delays = delays
        self._next_id = 0

    def backoff(self) -> Backoff:
        """For one row of attempts."""
        return Backoff(self.io.randomness, *self._delays)

    def new_id(self) -> int:
        """An id for a producer or a consumer; none is used twice."""
        self._next_id += 1
        return self._next_id

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What ``attempt`` answers; it is made again within the operation time-out while that may help.

        :raises PulsarException: what the last attempt raised
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


def take_back_unanswered(asked: Any, take_back: Callable[[], Any]) -> None:
    """Where nobody hears an answer, the broker may have done what it was asked for all the same.

    :param asked: the answer: it may not come in time, and whoever waits for it may be cancelled
    :param take_back: asks the broker to undo it
    """

    def ended(_asked: Any) -> None:
        if asked.cancelled() or isinstance(asked.exception(), Timeout):
            take_back().add_done_callback(nobody_waits)

    asked.add_done_callback(ended)


async def close_all(parts: Iterable[Attachment]) -> None:
    """:raises PulsarException: one of them could not be closed; the others are"""
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
        self._reattaching: Any = None
        self._assigned: Assigned | None = None
        """Where the broker that closed it says that its topic is."""
        self._last: TopicBroker | None = None
        """Where it was attached last."""
        self._lookup = services.lookup
        """That of the cluster in which its topic is."""
        self._asked: Any = None
        """The answer to what makes it known; None: it was never asked for."""

    def topic(self) -> str:
        return self._topic

    def is_connected(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Attaches for the first time, within the operation time-out.

        :raises PulsarException: why it cannot be
        """
        try:
            await self._services.retrying(self._attach)
        except PulsarException:
            self._closed = True
            raise
        self._services.attachments[self._id] = self

    async def _announce(self, connection: Connection) -> None:
        """Makes the producer or consumer known on a connection."""
        raise NotImplementedError

    def _attached(self, connection: Connection) -> None:
        """It is known there; what waited can go on."""
        raise NotImplementedError

    def _moved(self) -> None:
        """Its topic is in another cluster."""

    def _ended(self, error: PulsarException) -> None:
        """It will not work any more: whoever waits must hear of it."""
        raise NotImplementedError

    async def _attach(self) -> None:
        owner = await self._owner()
        connection = await self._services.pool.next(owner.broker, owner.through)
        await self._announce(connection)
        self._connection = connection
        self._backoff.reset()
        self._attached(connection)

    async def _owner(self) -> TopicBroker:
        """What the last broker said of the next one counts once: who fails there looks up."""
        assigned, self._assigned = self._assigned, None
        owner = self._lookup.assigned(assigned, self._last) if assigned is not None else None
        self._last = owner or await self._lookup.owner(self._topic)
        return self._last

    def check_open(self) -> None:
        """:raises PulsarException: it is closed, or has failed for good"""
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
        """From now on its topic is looked up in another cluster (PIP-188)."""
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
            # There is no other answer.
            self._asked.set_exception(NotConnected(f"{self._topic}: it has moved to another cluster"))

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        """:param assigned: where the topic is now; None: it has to be looked up"""
        self._assigned = assigned
        self._detached()

    def _detached(self) -> None:
        if self._connection is None:
            # It is being made known; whoever does that looks whether it still is.
            return
        self._connection = None
        if not self._closed and self._reattaching is None:
            self._reattaching = self._loop.create_task(self._reattach())

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
                    # Nobody waits for this task: those who wait for messages and receipts would go on so.
                    log.exception("%s: reconnecting failed with an internal error", self._topic)
                    self._fail(UnknownError(f"{self._topic}: {type(error).__name__}: {error}"))
                    return
        finally:
            self._reattaching = None

    async def _before_reattach(self) -> None:
        """Waits for what must have ended before it attaches again."""

    def _fail(self, error: PulsarException) -> None:
        if self._failure is None and not self._closed:
            self._failure = error
            self._ended(error)

    async def _goodbye(self, answer: Any) -> None:
        """Waits for the answer to a CLOSE command."""
        try:
            await answer
        except (ConnectError, ReadError) as error:
            # The broker forgets producers and consumers together with their connection.
            log.debug("%s: closed together with its connection: %s", self._topic, error)

    async def close(self) -> None:
        """Ends it in good order."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Attaches no more."""
        self._services.attachments.pop(self._id, None)
        self._closed = True
        self._connection = None
        if self._reattaching is not None:
            self._reattaching.cancel()
