"""Connections to brokers: opened on demand, shared, closed when unused, and reopened after failures."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from magnetar.client.connection import KEEP_ALIVE_SECONDS, Connection
from magnetar.client.exceptions import AlreadyClosed, ConnectError, InvalidConfiguration
from magnetar.client.observing import Observer
from magnetar.client.security import NO_AUTH_DATA, Address, AuthData, connect_failure
from magnetar.client.timing import within
from magnetar.client.wire import Runs
from magnetar.io.interfaces import Cancellable, ClientIo, ConnectingNetwork
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.tls import TlsRefused
from magnetar.io.waiting import finished, nobody_waits, outcome

log = logging.getLogger(__name__)
_Key = tuple[Address, Address, int]
_LEAVING_SECONDS = 1.0
"""Maximum time in seconds that closing a client waits for brokers to close TLS connections."""
_CHANGED = "the client uses another cluster now"


class ConnectionPool:
    def __init__(
        self,
        io: ClientIo,
        *,
        per_broker: int,
        connection_timeout: float,
        network: ConnectingNetwork | None = None,
        get_auth_data: Callable[[], Awaitable[AuthData]] | None = None,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        max_idle: float = 0,
        observer: Observer | None = None,
    ) -> None:
        """:param per_broker: number of connections to each broker, used in turn; at least 1

        :param connection_timeout: maximum time until the broker answers CONNECT, in seconds
        :param network: the network; None: the network of ``io``
        :param get_auth_data: returns new credentials; None: no credentials
        :param max_idle: time after which an unused connection is closed, in seconds (up to a quarter longer);
            0: never
        :param observer: measures the client; None: no measurements
        """
        self._io = io
        self._per_broker = per_broker
        self._timeout = connection_timeout
        self._network = network or io.network
        self._get_auth_data = get_auth_data
        self._keep_alive = keep_alive
        self._max_idle = max_idle
        self._observer = observer
        self._runs = Runs()
        self._turns: dict[tuple[Address, Address], int] = {}
        self._closed = False
        self._tasks = TaskScope(io.loop, "connections")
        self._opening: KeyedTasks[_Key, Connection] = KeyedTasks(self._tasks)
        self._open: dict[_Key, Connection] = {}
        self._idle: dict[_Key, float] = {}
        """For each unused connection: the loop's time, in seconds, when it was first found unused."""
        self._leaving: list[Connection] = []
        """Closed connections whose transports may still be open."""
        self._looking: Cancellable | None = None
        """The timer of the next check for unused connections; None: there is no connection, or unused
        connections stay open.
        """

    async def next(self, broker: Address, through: Address) -> Connection:
        """Like :meth:`get`, but each call returns the next of the connections to ``broker``."""
        turn = self._turns.get((broker, through), 0)
        self._turns[broker, through] = (turn + 1) % self._per_broker
        return await self.get(broker, through, turn)

    async def get(self, broker: Address, through: Address, number: int = 0) -> Connection:
        """Returns a connection to ``broker``; opens it if necessary.

        :param through: the address to connect to: the broker itself, or a proxy
        :param number: index of the connection to this broker, from 0
        :raises ConnectError: the address does not answer
        :raises PulsarException: the broker refused CONNECT or did not answer it in time, or the client is
            closed
        """
        key = (broker, through, number)
        connection = self._open.get(key)
        if connection is not None and not connection.closed:
            self._idle.pop(key, None)
            return connection
        if self._closed:
            raise AlreadyClosed("the client is closed")
        opening = self._opening.answer(key, lambda: self._connect(key))
        # This caller may be cancelled meanwhile.
        opening.add_done_callback(nobody_waits)
        await finished(self._io.loop, opening)
        if opening.cancelled():
            if self._closed:
                raise AlreadyClosed("the client is closed")
            raise ConnectError(_CHANGED)
        return opening.result()

    def change(
        self,
        network: ConnectingNetwork,
        get_auth_data: Callable[[], Awaitable[AuthData]] | None,
    ) -> None:
        """Closes all connections, and opens later connections with another network and other credentials."""
        self._network = network
        self._get_auth_data = get_auth_data
        self._tasks.cancel()
        left, self._open = self._open, {}
        self._turns.clear()
        self._idle.clear()
        for connection in left.values():
            connection.abort(ConnectError(_CHANGED))

    async def _connect(self, key: _Key) -> Connection:
        broker, through, _ = key
        made: list[Connection] = []
        auth_data = NO_AUTH_DATA
        connected = False

        def factory() -> Connection:
            made.append(
                Connection(
                    self._io,
                    self._runs,
                    proxy_to="" if broker == through else str(broker),
                    auth_data=auth_data,
                    get_auth_data=self._get_auth_data,
                    keep_alive=self._keep_alive,
                    observer=self._observer,
                )
            )
            return made[-1]

        async def establish() -> Connection:
            nonlocal auth_data
            if self._get_auth_data is not None:
                auth_data = await self._get_auth_data()
            await self._network.connect(through.host, through.port, factory)
            await outcome(self._io.loop, made[-1].ready)
            return made[-1]

        try:
            connection = await within(self._io.loop, self._timeout, establish(), f"connecting to {through}")
            self._open[key] = connection
            connected = True
            self._idle.pop(key, None)
            if self._max_idle and self._looking is None:
                self._look_later()
        except TlsRefused as error:
            raise InvalidConfiguration(str(error)) from error
        except OSError as error:
            raise connect_failure(str(through), error) from error
        finally:
            if not connected and self._observer is not None:
                self._observer.not_connected()
            # Also after a cancellation: a connection that did not get ready must not stay open.
            for each in made:
                if self._open.get(key) is not each:
                    each.abort(ConnectError(f"connecting to {through} was given up"))
        return connection

    def _look_later(self) -> None:
        self._looking = self._io.loop.call_later(self._max_idle / 4, self._close_idle)

    def _close_idle(self) -> None:
        """Closes connections that were unused for too long, and removes closed connections from the pool."""
        self._looking = None
        now = self._io.loop.time()
        for key, connection in tuple(self._open.items()):
            if connection.wire.is_used:
                self._idle.pop(key, None)
                continue
            since = self._idle.setdefault(key, now)
            if connection.closed or now - since >= self._max_idle:
                if not connection.closed:
                    log.debug("closing the connection to %s, unused for %.0f s", key[0], now - since)
                    self._leave(connection)
                del self._open[key], self._idle[key]
        if self._open:
            self._look_later()

    def _leave(self, connection: Connection) -> None:
        connection.close()
        self._leaving = [each for each in self._leaving if not each.lost.done()]
        self._leaving.append(connection)

    async def close(self) -> None:
        """Closes all connections, and waits until their transports are closed; waiting callers get
        AlreadyClosed.

        With TLS, the broker must confirm the closing; this method waits for the confirmation for at most one
        second.
        """
        self._closed = True
        self._tasks.cancel()
        if self._looking is not None:
            self._looking.cancel()
        for connection in self._open.values():
            self._leave(connection)
        self._open.clear()
        timer = self._io.loop.call_later(_LEAVING_SECONDS, self._cut)
        try:
            for connection in tuple(self._leaving):
                await finished(self._io.loop, connection.lost)
        finally:
            timer.cancel()

    def _cut(self) -> None:
        for connection in self._leaving:
            connection.cut()
