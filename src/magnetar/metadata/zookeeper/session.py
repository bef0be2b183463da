"""A session with a ZooKeeper ensemble. The session survives its connections, and knows when it may expire.

The server counts the session timeout from the time at which it received the last answered request, or from a
later time. The session counts as lost if 5/6 of the timeout have passed since the last answered request was
sent. At this time, no server can have expired the session yet; so this process gives up everything that the
session owns before another session can own it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from magnetar.io.interfaces import Cancellable, Clock, ConnectingNetwork, Future, Loop, Randomness
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import fail, finished, nobody_waits, settle, sleep
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.following import SessionListeners
from magnetar.metadata.interface import (
    ChangeKind,
    MetadataRefused,
    MetadataUnavailable,
    SessionEvent,
)
from magnetar.metadata.zookeeper.address import EnsembleAddress
from magnetar.metadata.zookeeper.connection import Request, Take, ZooKeeperConnection
from magnetar.metadata.zookeeper.messages import (
    AUTH_XID,
    OK,
    SET_WATCHES_XID,
    Greeting,
    Operation,
    auth,
    connect,
    error_of,
    set_watches,
)

log = logging.getLogger(__name__)

_NO_PASSWORD = bytes(16)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_SOUND_SECONDS = 1.0
"""After a connection that lasted less than this time, in seconds, the client pauses, as after a refusal."""
_MAX_WAITING = 100_000
"""The maximum number of requests that wait for a connection."""


class Outside(NamedTuple):
    """The parts of the environment that a session uses."""

    loop: Loop
    clock: Clock
    randomness: Randomness
    network: ConnectingNetwork


@dataclass(frozen=True, slots=True)
class SessionSettings:
    timeout_ms: int = 30_000
    """The requested timeout (``metadataStoreSessionTimeoutMillis``); the server answers with the granted
    one."""
    digest: bytes = field(default=b"", repr=False)
    """``user:password`` of the digest scheme; empty: no authentication."""


class ZooKeeperSession:
    """A session, begun by :meth:`start`. Requests wait for the first connection and, after the loss of a
    connection, for the next connection.
    """

    def __init__(
        self,
        outside: Outside,
        address: EnsembleAddress,
        settings: SessionSettings,
        on_event: Callable[[ChangeKind, str], None],
    ) -> None:
        """:param on_event: called with the kind of change and the path when a watched node has changed"""
        self._loop, self._clock, self._randomness, self._network = outside
        self._address = address
        self._settings = settings
        self._on_event = on_event
        self._listeners = SessionListeners()
        self._connection: ZooKeeperConnection | None = None
        self._state: SessionEvent | None = None
        """The state of the session; None: there has been no session yet."""
        self._waiting: deque[Request] = deque()
        self._watched: list[str] = []
        self._timeout = settings.timeout_ms / 1000
        self._password = _NO_PASSWORD
        self._last_zxid = 0
        self._alive_at = 0.0
        """The time at which the last answered request was sent, in seconds of the monotonic clock."""
        self._ended_connection: Future[None] | None = None
        self._greeted: Future[Greeting | None] = outside.loop.create_future()
        self._opened: Future[None] = outside.loop.create_future()
        self._timer: Cancellable | None = None
        self._tasks = TaskScope(outside.loop, "the session with ZooKeeper", self._internal_error)
        self._closed = False
        self.session_id = 0
        """The id of the session; 0: no session."""
        self.server = ""
        """``host:port`` of the server of the current or last connection; empty: there was no connection
        yet."""
        self.trouble = "no server has answered yet"
        """The reason why there is no connection, for messages."""

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def start(self) -> None:
        self._tasks.start(self._keep_connected(), "its connections")

    async def opened(self, limit_seconds: float) -> bool:
        """Waits at most ``limit_seconds`` for the first connection; returns whether the session is
        connected."""
        await finished(self._loop, self._opened, lambda call: self._loop.call_later(limit_seconds, call))
        return self.connected

    def listen(self, listener: Callable[[SessionEvent], None]) -> None:
        """Reports the current state in the next turn of the loop, then each event."""
        self._listeners.add(listener)
        if self._state is not None and not self._closed:
            event = self._state
            state = SessionEvent.CONNECTED if event is SessionEvent.RECONNECTED else event
            self._loop.call_soon(listener, state)

    def watch(self, path: str, packet: bytes) -> None:
        """Watches all changes at and below a path, across connections and sessions.

        :param packet: the request that sets the watch
        """
        self._watched.append(path)
        if self._connection is not None:
            request = self._made(Operation.ADD_WATCH, path, packet, lambda _reader: None, repeatable=False)
            # If it gets lost, the next connection sends it first.
            request.future.add_done_callback(nobody_waits)
            self._connection.send(request)

    def ask(
        self, operation: Operation, path: str, packet: bytes, take: Take, *, repeatable: bool = False
    ) -> Any:
        """Sends a request; returns a future of the result of ``take``.

        :param path: the path of the node, for errors
        :param repeatable: whether the request changes nothing, so that it is sent again if the connection is
            lost
        :raises MetadataRefused: the session is closed, or too many requests are waiting
        """
        if self._closed:
            raise MetadataRefused("the metadata store is closed")
        request = self._made(operation, path, packet, take, repeatable=repeatable)
        if self._connection is not None and not self._waiting:
            self._connection.send(request)
        elif len(self._waiting) >= _MAX_WAITING:
            raise MetadataRefused(f"{len(self._waiting)} requests already wait for ZooKeeper")
        else:
            self._waiting.append(request)
        return request.future

    async def close(self) -> None:
        """Ends the session at the server, if a server answers within a second. Idempotent."""
        if self._closed:
            return
        self._closed = True
        connection = self._connection
        if connection is not None:
            request = self._made(Operation.CLOSE_SESSION, "/", b"", lambda _reader: None, repeatable=False)
            connection.send(request)
            request.future.add_done_callback(nobody_waits)
            await finished(self._loop, request.future, lambda call: self._loop.call_later(1.0, call))
            connection.end("closed")
        self._stop_timer()
        self._fail_waiting(MetadataRefused("the metadata store is closed"))
        await self._tasks.close()

    def _made(
        self, operation: Operation, path: str, packet: bytes, take: Take, *, repeatable: bool
    ) -> Request:
        future = self._loop.create_future()
        now = self._clock.monotonic()
        return Request(operation, path, packet, take, future, repeatable, now)

    async def _keep_connected(self) -> None:
        pause, hosts = 0.0, self._shuffled()
        while True:
            for host, port in hosts:
                await sleep(self._loop, pause)
                if await self._connect(host, port):
                    begun = self._clock.monotonic()
                    if self._ended_connection is not None:
                        await finished(self._loop, self._ended_connection)
                    if self._clock.monotonic() >= begun + _SOUND_SECONDS:
                        pause = 0.0
                        continue
                else:
                    self._give_up_waiting()
                longest = min(_LONGEST_PAUSE, self._timeout / 6)
                pause = min(longest, max(_FIRST_PAUSE, pause * 2)) * (0.5 + self._randomness.fraction() / 2)

    def _internal_error(self, _work: str, error: BaseException) -> None:
        """Gives up the session, because nothing renews it any more, and connects again later."""
        self._lost(f"an internal error: {error}")
        if self._connection is not None:
            self._connection.end("an internal error")
        self._fail_waiting(MetadataRefused(f"connecting to ZooKeeper failed with an internal error: {error}"))
        self._loop.call_later(_LONGEST_PAUSE, self._start_again)

    def _start_again(self) -> None:
        if not self._closed:
            self.start()

    def _shuffled(self) -> list[tuple[str, int]]:
        hosts = list(self._address.hosts)
        for index in range(len(hosts) - 1, 0, -1):
            other = self._randomness.below(index + 1)
            hosts[index], hosts[other] = hosts[other], hosts[index]
        return hosts

    async def _connect(self, host: str, port: int) -> bool:
        """Connects to a server; returns True if the session continues, or has begun, on the new
        connection."""
        made = ZooKeeperConnection(self, self._loop, self._clock)
        self.server = f"{host}:{port}"
        self._greeted = self._loop.create_future()
        self._ended_connection = self._loop.create_future()
        limit = max(1.0, self._timeout / 3)
        attempt = self._tasks.answer(self._network.connect(host, port, lambda: made))
        try:
            in_time = await finished(self._loop, attempt, lambda call: self._loop.call_later(limit, call))
            if not in_time:
                attempt.cancel()
                # The connection may just have been made: its end must not count as the end of the next one.
                made.end("it does not answer")
                return False
            error = attempt.exception()
            if error is not None:
                self._has_trouble(str(error) or type(error).__name__)
                return False
            asked_at, asked_for = self._clock.monotonic(), self.session_id
            made.open(connect(self._last_zxid, self._settings.timeout_ms, self.session_id, self._password))
            if not await finished(self._loop, self._greeted, lambda call: self._loop.call_later(limit, call)):
                made.end("it does not answer the request for a session")
                return False
            greeting = self._greeted.result()
            if greeting is None:
                return False
            if asked_for != self.session_id:
                # The session of the greeting was given up meanwhile.
                made.end("the session was lost")
                return False
            if greeting.session_id == 0:
                self._lost("ZooKeeper says that the session has expired")
                made.end("the session has expired")
                return False
            self._begin(made, greeting, asked_at)
            return self.connected
        except BaseException:
            attempt.cancel()
            made.end("closed")
            raise

    def _has_trouble(self, reason: str) -> None:
        if self.trouble != reason:
            log.warning("cannot connect to ZooKeeper", extra={"server": self.server, "reason": reason})
        self.trouble = reason

    def _begin(self, connection: ZooKeeperConnection, greeting: Greeting, asked_at: float) -> None:
        same = greeting.session_id == self.session_id
        if self.session_id and not same:
            self._lost("ZooKeeper has made another session")
        self.session_id, self._password = greeting.session_id, greeting.password
        self._timeout = greeting.timeout_ms / 1000
        if self._clock.monotonic() >= asked_at + self._timeout * 5 / 6:
            # The greeting itself came too late to rely on the session.
            self._lost("ZooKeeper answered too late")
            connection.end("too late")
            return
        self._alive_at = asked_at
        self._connection = connection
        self._start_timer()
        log.info(
            "connected to ZooKeeper",
            extra={"server": self.server, "session": f"{self.session_id:#x}", "timeout": greeting.timeout_ms},
        )
        self.trouble = ""
        if self._settings.digest:
            connection.send_apart(AUTH_XID, Operation.AUTH, auth("digest", self._settings.digest))
        if self._watched:
            connection.send_apart(
                SET_WATCHES_XID, Operation.SET_WATCHES2, set_watches(self._last_zxid, self._watched)
            )
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            connection.send(request)
        self._tell(SessionEvent.CONNECTED if self._state is None else SessionEvent.RECONNECTED)
        settle(self._opened)

    def _tell(self, event: SessionEvent) -> None:
        self._state = event
        self._listeners.tell(event)

    def _lost(self, reason: str) -> None:
        if not self.session_id:
            return
        log.error(
            "ZooKeeper session lost",
            extra={"server": self.server, "session": f"{self.session_id:#x}", "reason": reason},
        )
        self.session_id, self._password = 0, _NO_PASSWORD
        self._stop_timer()
        connection = self._connection
        if connection is not None:
            connection.end(reason)
        self._tell(SessionEvent.LOST)
        self._fail_waiting(MetadataRefused(f"the session with ZooKeeper is lost: {reason}"))

    def _fail_waiting(self, error: MetadataUnavailable) -> None:
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            fail(request.future, error)

    def _give_up_waiting(self) -> None:
        """Fails requests that have waited for a connection longer than a session timeout."""
        oldest = self._clock.monotonic() - self._timeout
        while self._waiting and self._waiting[0].asked_at < oldest:
            error = MetadataRefused(f"there is no connection to ZooKeeper: {self.trouble}")
            fail(self._waiting.popleft().future, error)

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(self._timeout / 6, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Checks the connection and the session; called six times per timeout, and when the session may have
        expired."""
        now = self._clock.monotonic()
        end = self._alive_at + self._timeout * 5 / 6
        if now >= end:
            self._lost("no answer arrived for 5/6 of the session timeout")
            return
        connection = self._connection
        if connection is not None:
            if now - max(connection.last_heard, self._alive_at) >= self._timeout * 2 / 3:
                connection.end("it does not answer")
            elif now - self._alive_at >= self._timeout / 6:
                connection.ping()
        self._timer = self._loop.call_later(min(self._timeout / 6, end - now), self._look)

    def on_greeting(self, greeting: Greeting) -> None:
        settle(self._greeted, greeting)

    def on_answer(self, request: Request, error: int, result: object) -> None:
        if error == OK:
            settle(request.future, result)
        else:
            fail(request.future, error_of(error, request.path))

    def on_alive(self, sent_at: float) -> None:
        self._alive_at = max(self._alive_at, sent_at)

    def on_event(self, kind: ChangeKind, path: str) -> None:
        self._on_event(kind, path)

    def on_zxid(self, zxid: int) -> None:
        self._last_zxid = max(self._last_zxid, zxid)

    def on_refused(self, error: int) -> None:
        assert self._connection is not None
        self._has_trouble(f"it answered the first request of the connection with error {error}")
        self._connection.end(self.trouble)

    def on_lost(self, unanswered: Sequence[Request], reason: str) -> None:
        settle(self._greeted, None)
        was_connected = self._connection is not None
        self._connection = None
        if self._ended_connection is not None:
            settle(self._ended_connection)
        again = [request for request in unanswered if request.repeatable and not self._closed]
        self._waiting.extendleft(reversed(again))
        for request in unanswered:
            if not request.repeatable or self._closed:
                fail(
                    request.future, MetadataUnavailable(f"{request.path}: the connection was lost: {reason}")
                )
        if self._closed:
            return
        self._has_trouble(reason)
        if was_connected and self.session_id:
            self._tell(SessionEvent.DISCONNECTED)
