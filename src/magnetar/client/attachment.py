"""The common part of producers and consumers: attaching to the topic's broker, and attaching again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

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
from magnetar.client.memory_limit import MemoryLimit
from magnetar.client.observing import Observer
from magnetar.client.pool import ConnectionPool
from magnetar.client.receiving import Arrivals
from magnetar.client.timing import INITIAL_SECONDS, MAX_SECONDS, Backoff
from magnetar.client.wire import Assigned, ConsumerEnd, ProducerEnd, Wire
from magnetar.io.interfaces import ClientIo, Future, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, nobody_waits, sleep
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

if TYPE_CHECKING:
    from magnetar.client.coordinators import TransactionCoordinators
    from magnetar.client.listening import ListenerCalls

log = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E")

PARTITIONS_SECONDS = 60.0
"""Interval of checks for new partitions, in seconds, like ``autoUpdatePartitionsInterval`` of Java
clients.
"""

QUIET_SECONDS = 1.0
"""Seconds during which failed attempts are not logged; then one line is logged, and attempts continue."""


class Services:
    """The parts of a client that its producers and consumers use."""

    __slots__ = (
        "_delays",
        "_next_id",
        "attachments",
        "closing",
        "coordinators",
        "io",
        "listenings",
        "lookup",
        "memory",
        "observer",
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
        open_producer: Callable[..., Awaitable[Sending]],
        delays: tuple[float, float] = (INITIAL_SECONDS, MAX_SECONDS),
        partitions_seconds: float = PARTITIONS_SECONDS,
        *,
        memory: MemoryLimit | None = None,
        observer: Observer | None = None,
    ) -> None:
        """:param open_producer: creates a producer for a topic, with the default options

        :param delays: the initial and the maximum delay between two attempts, in seconds
        :param partitions_seconds: interval of checks for new partitions, in seconds; 0: no checks
        :param memory: the limit of the messages of all producers; None: no limit
        :param observer: measures the client; None: no measurements
        """
        self.observer = observer
        self.memory = memory
        self.open_producer = open_producer
        self.io = io
        self.pool = pool
        self.lookup = lookup
        self.operation_timeout = operation_timeout
        """Time-out of a request, in seconds."""
        self.attachments: dict[int, Attached] = {}
        """Open producers and consumers, by id."""
        self.closing = TaskScope(io.loop, "client")
        """Tasks that close producers and consumers whose opening failed or was cancelled; see :meth:`opened`.
        """
        self.coordinators: TransactionCoordinators | None = None
        """The transaction coordinators; None until the client uses a transaction in this cluster."""
        self.listenings: dict[ListenerCalls, None] = {}
        """The objects that pass messages to message listeners."""
        self.partitions_seconds = partitions_seconds
        self._delays = delays
        self._next_id = 0

    def transaction_coordinators(self) -> TransactionCoordinators:
        """Returns the transaction coordinators of the client's cluster."""
        if self.coordinators is None:
            # Imported late: most clients use no transactions.
            from magnetar.client.coordinators import TransactionCoordinators

            self.coordinators = TransactionCoordinators(self)
        return self.coordinators

    def backoff(self) -> Backoff:
        """Returns the back-off delays for one series of attempts."""
        return Backoff(self.io.randomness, *self._delays)

    def new_id(self) -> int:
        """Returns a unique id for a producer, a consumer or a watcher."""
        self._next_id += 1
        return self._next_id

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of ``attempt``; after a temporary error, repeats the attempt within the
        operation time-out.

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

    async def opened(
        self, opening: Awaitable[None], close: Callable[[], Coroutine[object, None, None]]
    ) -> None:
        """Waits for ``opening``. If it fails or the caller is cancelled, calls ``close`` to undo the opening;
        a cancelled caller does not wait for ``close``.

        :raises PulsarException: the error of ``opening``
        """
        try:
            await opening
        except BaseException as error:
            work = self.closing.start(close(), "closing what a failed call has opened", may_fail=True)
            if isinstance(error, PulsarException):
                await finished(self.io.loop, work)
            raise


def take_back_unanswered(asked: Future[BaseCommand], take_back: Callable[[], Future[BaseCommand]]) -> None:
    """Undoes a request whose answer did not arrive, because the broker may have carried out the request.

    :param asked: the future of the answer, which can time out or be cancelled
    :param take_back: requests the broker to undo the request
    """

    def ended(_asked: Future[BaseCommand]) -> None:
        if asked.cancelled() or isinstance(asked.exception(), Timeout):
            take_back().add_done_callback(nobody_waits)

    asked.add_done_callback(ended)


def answers(asked: Future[BaseCommand]) -> bool:
    """Whether the broker has answered a request with success."""
    return asked.done() and not asked.cancelled() and asked.exception() is None


async def close_all(parts: Iterable[Attached]) -> None:
    """Closes several producers or consumers.

    :raises PulsarException: one of them could not be closed; all others are closed
    """
    failure: PulsarException | None = None
    for part in tuple(parts):
        try:
            await part.close()
        except PulsarException as error:
            failure = error
    if failure is not None:
        raise failure


class Attachment(Generic[E]):
    """Keeps a producer or a consumer attached to the topic's broker: registers it at the broker, and
    registers it again after each disconnection.
    """

    def __init__(
        self,
        services: Services,
        topic: str,
        end: E,
        ends: Callable[[Wire], dict[int, E]],
        *,
        announce: Callable[[Connection], Awaitable[None]],
        close_command: Callable[[int], BaseCommand],
        attached: Callable[[Connection], object],
        ended: Callable[[PulsarException], object],
        moved: Callable[[], object] | None = None,
        before_reattach: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """:param end: the producer or consumer, which receives the events of a connection

        :param ends: returns the producers or consumers of a connection, by id
        :param announce: registers ``end`` at the broker of a connection, with :meth:`introduce`
        :param close_command: returns CLOSE_PRODUCER or CLOSE_CONSUMER with the given request id
        :param attached: called after attaching, so that waiting operations continue
        :param ended: called after a permanent failure, so that waiting callers get the error
        :param moved: called when the topic has migrated to another cluster; None: no callback
        :param before_reattach: waits for operations that must be complete before the producer or consumer is
            attached again
        """
        self.topic = topic
        self.id = services.new_id()
        self.connection: Connection | None = None
        """The connection to the topic's broker; None while not attached."""
        self.closed = False
        self.failure: PulsarException | None = None
        """The permanent failure of the producer or consumer; None: no failure."""
        self.opened = False
        """Whether the producer or consumer was ever attached."""
        self._services = services
        self._loop = services.io.loop
        self._end = end
        self._ends = ends
        self._announce = announce
        self._close_command = close_command
        self._attached = attached
        self._ended = ended
        self._moved = moved
        self._before_reattach = before_reattach
        self._backoff = services.backoff()
        self._tasks = TaskScope(self._loop, topic, self._internal_error)
        self._reattaching: Task[None] | None = None
        self._waiters = Arrivals(self._loop)
        self._assigned: Assigned | None = None
        """The topic's new broker, as the former broker named it when it closed the producer or consumer;
        None: the former broker named no broker, or the name was used already.
        """
        self._last: TopicBroker | None = None
        """The broker that the producer or consumer was attached to last; None: it was not attached to a
        broker of the present cluster.
        """
        self._lookup = services.lookup
        """The lookup of the topic's cluster."""
        self._asked: Future[BaseCommand] | None = None
        """The future of the answer to PRODUCER or SUBSCRIBE; None: not sent yet."""

    async def open(self) -> None:
        """Attaches for the first time, within the operation time-out; waiting for exclusive access has no
        limit.

        :raises PulsarException: attaching failed
        """
        try:
            await self._services.retrying(self._attach)
        except BaseException:
            self.closed = True
            raise
        self.opened = True

    async def _attach(self) -> None:
        owner = await self._owner()
        connection = await self._services.pool.next(owner.broker, owner.through)
        await self._announce(connection)
        self.connection = connection
        self._backoff.reset()
        self._attached(connection)
        self._waiters.wake()

    async def _owner(self) -> TopicBroker:
        """Returns the topic's broker: the broker that the former broker named as the new owner (used only
        once), otherwise the broker that a lookup returns.
        """
        assigned, self._assigned = self._assigned, None
        owner = self._lookup.assigned(assigned, self._last) if assigned is not None else None
        self._last = owner or await self._lookup.owner(self.topic)
        return self._last

    async def introduce(
        self, connection: Connection, command: Callable[[int], BaseCommand], *, or_forever: bool = False
    ) -> BaseCommand:
        """Registers the producer or consumer for the events of a connection, sends PRODUCER or SUBSCRIBE, and
        returns the answer.

        :param command: returns the command with the given request id
        :param or_forever: as in :meth:`Connection.ask`
        :raises PulsarException: the broker refused, or closed the producer or consumer again
        """
        ends, wire = self._ends, connection.wire
        request_id = wire.new_request_id()
        ends(wire)[self.id] = self._end
        seconds = self._services.operation_timeout
        asked = self._asked = connection.ask(request_id, command(request_id), seconds, or_forever=or_forever)
        take_back_unanswered(asked, lambda: self._take_back(connection))
        try:
            answered = await asked
        except PulsarException:
            self.forget(connection)
            raise
        except BaseException:
            if answers(asked):
                # The caller was cancelled in the turn of the loop in which the answer arrived.
                self._take_back(connection).add_done_callback(nobody_waits)
            raise
        if ends(wire).get(self.id) is not self._end:
            raise NotConnected(
                f"{self.topic}: the broker closed the producer or consumer before it was open; try again"
            )
        return answered

    def _take_back(self, connection: Connection) -> Future[BaseCommand]:
        self.forget(connection)
        return self.ask(connection, self._close_command)

    def forget(self, connection: Connection) -> None:
        """Unregisters the producer or consumer from the events of a connection."""
        self._ends(connection.wire).pop(self.id, None)

    def ask(self, connection: Connection, command: Callable[[int], BaseCommand]) -> Future[BaseCommand]:
        """Sends a request, and returns a future of the answer: see :meth:`Connection.ask`.

        :param command: returns the command with the given request id
        """
        request_id = connection.wire.new_request_id()
        return connection.ask(request_id, command(request_id), self._services.operation_timeout)

    def check_open(self) -> None:
        """Checks that the producer or consumer can be used.

        :raises PulsarException: the producer or consumer is closed or has failed permanently
        """
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise AlreadyClosed(f"{self.topic}: the producer or consumer is closed")

    def connected_to(self) -> Connection:
        """Returns the connection to the topic's broker.

        :raises PulsarException: the producer or consumer is not attached, is closed or has failed permanently
        """
        self.check_open()
        if self.connection is None:
            raise NotConnected(
                f"{self.topic}: there is no connection to the broker at present; try again later"
            )
        return self.connection

    def elsewhere(self) -> bool:
        """Whether the topic has migrated away from the cluster of the client's transaction coordinators."""
        return self._lookup is not self._services.lookup

    async def until_attached(self) -> None:
        """Waits until the producer or consumer is attached, at most for the operation time-out.

        :raises PulsarException: the producer or consumer was not attached in time, is closed or has failed
            permanently
        """
        if self.connection is not None:
            return
        self.check_open()
        end = self._loop.time() + self._services.operation_timeout
        await self._waiters.wait(end, f"{self.topic}: no connection to the broker was made in time")
        self.check_open()

    def migrated(self, there: Assigned) -> None:
        """Attaches from now on to the cluster to which the topic has migrated (PIP-188)."""
        found = self._lookup.of_cluster(there)
        if found is None:
            log.warning(
                "%s: the topic has migrated to another cluster, but the broker sent no usable "
                "address of that cluster",
                self.topic,
            )
            return
        log.info("%s: the topic has migrated to %s", self.topic, there.url or there.url_tls)
        self._lookup, self._last = found, None
        if self._moved is not None:
            self._moved()
        if self._asked is not None and not self._asked.done():
            # The broker sends no other answer.
            self._asked.set_exception(NotConnected(f"{self.topic}: it has moved to another cluster"))

    def cluster_changed(self) -> None:
        """Attaches to the client's new cluster from now on; the client closes the connections to the former
        cluster.
        """
        self._lookup = self._services.lookup
        self._assigned = self._last = None

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        """Called when the broker has closed the producer or consumer.

        :param assigned: the topic's new broker; None: a lookup is necessary
        """
        self._assigned = assigned
        self.lost()

    def lost(self) -> None:
        """Attaches again, after the connection was lost or the broker closed the producer or consumer."""
        if self.connection is None:
            # Attaching is in progress, and checks for this at its end.
            return
        self.connection = None
        if not self.closed and self._reattaching is None:
            self._reattaching = self._tasks.start(self._reattach(), "reconnecting")

    async def _reattach(self) -> None:
        try:
            while not self.closed and self.connection is None:
                if self._assigned is None:
                    await sleep(self._loop, self._backoff.next())
                if self._before_reattach is not None:
                    await self._before_reattach()
                if self.closed:
                    return
                try:
                    await self._attach()
                except PulsarException as error:
                    if is_fatal(error):
                        self.fail(error)
                        return
                    log.info("%s: cannot reconnect; trying again: %s", self.topic, error)
                except Exception as error:
                    # No caller awaits this task: callers waiting for messages or receipts must get the error.
                    log.exception("%s: reconnecting failed with an internal error", self.topic)
                    self.fail(UnknownError(f"{self.topic}: {type(error).__name__}: {error}"))
                    return
        finally:
            self._reattaching = None

    def _internal_error(self, work: str, error: BaseException) -> None:
        self.fail(UnknownError(f"{self.topic}: {work} failed: {type(error).__name__}: {error}"))

    def fail(self, error: PulsarException) -> None:
        """Records a permanent failure, unless a failure is already recorded or the attachment is stopped."""
        if self.failure is None and not self.closed:
            self.failure = error
            self._ended(error)
            self._waiters.wake()

    def stop(self) -> None:
        """Ends all attempts to attach."""
        part = self._services.attachments.pop(self.id, None)
        observer = self._services.observer
        if part is not None and observer is not None:
            observer.closed(part)
        self.closed = True
        self.connection = None
        if self._reattaching is not None:
            self._reattaching.cancel()
        self._waiters.wake()

    async def say_goodbye(self, connection: Connection | None) -> None:
        """Sends the CLOSE command and waits for the answer; does nothing if ``connection`` is None or
        closed.
        """
        if connection is None or connection.closed:
            return
        try:
            await self.ask(connection, self._close_command)
        except (ConnectError, ReadError) as error:
            # The broker forgets producers and consumers together with their connection.
            log.debug("%s: closed together with its connection: %s", self.topic, error)
        self.forget(connection)


class Attached:
    """Base class of producers and consumers."""

    def __init__(
        self, services: Services, attachment: Attachment[ProducerEnd] | Attachment[ConsumerEnd]
    ) -> None:
        self._services = services
        self._attachment = attachment

    def topic(self) -> str:
        """The full name of the topic."""
        return self._attachment.topic

    def is_connected(self) -> bool:
        """Whether a connection to the broker exists now; a lost connection is replaced automatically."""
        return self._attachment.connection is not None

    @property
    def is_closed(self) -> bool:
        """Whether the producer or consumer was closed, or could not be opened."""
        return self._attachment.closed

    async def open(self) -> None:
        """Attaches for the first time, within the operation time-out; waiting for exclusive access has no
        limit.

        :raises PulsarException: attaching failed
        """
        await self._attachment.open()
        self._services.attachments[self._attachment.id] = self
        if self._services.observer is not None:
            self._services.observer.opened(self)

    def check_open(self) -> None:
        """Checks that the producer or consumer can be used.

        :raises PulsarException: the producer or consumer is closed or has failed permanently
        """
        self._attachment.check_open()

    def forked(self, error: PulsarException) -> None:
        """Called in a forked child process, which cannot use the producer or consumer, because the
        connections belong to the parent process.
        """
        self._attachment.failure = error
        self._attachment.closed = True

    def end_interval(self) -> None:
        """Ends the current statistics interval, and logs its statistics if there was any activity."""
        raise NotImplementedError

    async def close(self) -> None:
        """Closes the producer or consumer after pending work is done."""
        raise NotImplementedError

    def cluster_changed(self) -> None:
        """Attaches to the client's new cluster from now on."""
        self._attachment.cluster_changed()

    # Events of the connection

    def connection_lost(self, error: PulsarException) -> None:
        self._attachment.lost()

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        """Called when the broker has closed the producer or consumer.

        :param assigned: the topic's new broker; None: a lookup is necessary
        """
        self._attachment.closed_by_broker(assigned)

    def migrated(self, there: Assigned) -> None:
        """Attaches from now on to the cluster to which the topic has migrated (PIP-188)."""
        self._attachment.migrated(there)
