"""The interface of a client's connection for the layers that pause, watch or redirect it; and its
keep-alive."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from magnetar.io.interfaces import Cancellable, Future, Loop
from magnetar.io.waiting import settle
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection


log = logging.getLogger(__name__)


class Assigned(NamedTuple):
    """The addresses of the broker that will serve a topic; an address that the broker does not have is
    empty."""

    url: str
    url_tls: str


class Departure:
    """Topics of one bundle that are being unloaded: commands of their clients are ignored until the clients
    know the new broker."""

    def __init__(self) -> None:
        self._farewells: list[Callable[[Assigned | None], None]] = []

    def add(self, farewell: Callable[[Assigned | None], None]) -> None:
        """Adds a client that must be notified before the topics are served elsewhere.

        :param farewell: notifies the client of the next broker (None: the client must look it up)
        """
        self._farewells.append(farewell)

    @property
    def waiting(self) -> int:
        return len(self._farewells)

    def tell(self, assigned: Assigned | None) -> None:
        """Tells all clients which broker will serve the topic next.

        :param assigned: the next broker; None: clients look their topics up
        """
        farewells, self._farewells = self._farewells, []
        for farewell in farewells:
            farewell(assigned)


@dataclass(frozen=True)
class KeepAliveSettings:
    """Settings of keep-alive, in seconds."""

    interval: float
    """The time between two checks; a client that is silent for two intervals is disconnected."""
    liveness_timeout: float
    """The timeout of a PING that is sent because another client needs to know whether this client is alive; 0
    or below: no such PING is sent."""


class KeepAlive:
    """The keep-alive of one connection: records when bytes arrive, and aborts the connection if it is
    dead.
    """

    __slots__ = (
        "_check_timer",
        "_connection",
        "_liveness_timer",
        "_loop",
        "_ping_sent",
        "_settings",
        "_traffic",
        "_waiting",
        "_wheel",
    )

    def __init__(
        self, connection: Connection, loop: Loop, wheel: TimerWheel, settings: KeepAliveSettings
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._wheel = wheel
        self._settings = settings
        self._traffic = False
        self._ping_sent = False
        self._check_timer: Cancellable | None = None
        self._liveness_timer: Cancellable | None = None
        self._waiting: list[Future[bool]] = []

    def start(self) -> None:
        self._schedule()

    def _schedule(self) -> None:
        self._check_timer = self._wheel.schedule(self._settings.interval, self._check)

    def heard(self) -> None:
        """Records that bytes have arrived from the client, so that the connection is alive."""
        self._traffic = True
        if self._waiting:
            self._answer(alive=True)

    def stop(self) -> None:
        """Stops the keep-alive of a closed connection."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._answer(alive=False)

    def _check(self) -> None:
        connection = self._connection
        if connection.closed:
            # The connection was closed an interval ago, and its client has not read what was still unsent.
            connection.abort()
            return
        if not connection.session.greeted:
            log.info("closing the connection: the client sent no CONNECT", extra={"peer": connection.address})
            connection.abort()
            return
        # A client whose input is not read because the broker is busy for it cannot show that it is alive.
        silent = not self._traffic and not connection.held_back
        if silent and self._ping_sent:
            log.info(
                "closing the connection: the client did not answer the keep-alive PING",
                extra={"peer": connection.address},
            )
            connection.abort()
            return
        self._ping_sent = silent
        # A throttled client gets no answer to its own PING meanwhile; this one shows it that the broker is
        # alive. Its answer stays in the socket, and nothing waits for it.
        if silent or connection.throttled:
            connection.send(BaseCommand(type=BaseCommand.PING, ping={}))
        self._traffic = False
        self._schedule()

    async def ask(self) -> bool:
        """Pings the client; returns False, after closing the connection, if no bytes arrive in time."""
        connection = self._connection
        if connection.closed:
            return False
        if self._settings.liveness_timeout <= 0 or connection.held_back:
            return True
        answer = self._loop.create_future()
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            connection.send(BaseCommand(type=BaseCommand.PING, ping={}))
            self._liveness_timer = self._wheel.schedule(self._settings.liveness_timeout, self._no_answer)
        return bool(await answer)

    def _no_answer(self) -> None:
        log.info(
            "closing the connection: the client did not answer the liveness check",
            extra={"peer": self._connection.address},
        )
        self._connection.abort()
        self._answer(alive=False)

    def _answer(self, *, alive: bool) -> None:
        if self._liveness_timer is not None:
            self._liveness_timer.cancel()
            self._liveness_timer = None
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            settle(answer, alive)
