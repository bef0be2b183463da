"""A connection to a broker: the protocol on a socket, with keep-alive and time-outs of requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from magnetar.client.exceptions import (
    AuthenticationError,
    ConnectError,
    PulsarException,
    ReadError,
    Timeout,
    UnknownError,
)
from magnetar.client.observing import Observer
from magnetar.client.security import NO_AUTH_DATA, AuthData, lost_connection
from magnetar.client.wire import Runs, Wire
from magnetar.io.interfaces import Cancellable, ClientIo, Future, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import settle
from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandConnected

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 30.0


class Connection:
    """A connection to a broker: a protocol for :class:`magnetar.io.interfaces.Network`. Frames that are sent
    in one iteration of the event loop are written together.
    """

    def __init__(
        self,
        io: ClientIo,
        runs: Runs,
        *,
        proxy_to: str = "",
        auth_data: AuthData = NO_AUTH_DATA,
        get_auth_data: Callable[[], Awaitable[AuthData]] | None = None,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        observer: Observer | None = None,
    ) -> None:
        """:param proxy_to: ``host:port`` of the broker behind a proxy

        :param auth_data: the credentials in CONNECT
        :param get_auth_data: returns new credentials when the broker requests them; None: no credentials
        :param keep_alive: seconds without data from the broker before a PING is sent
        :param observer: measures the client; None: no measurements
        """
        self.wire = Wire(self, runs)
        self.ready: Future[None] = io.loop.create_future()
        """Done when the broker has answered CONNECT."""
        self.lost: Future[None] = io.loop.create_future()
        """Done when the transport is closed; with TLS, this may be some time after :meth:`close`."""
        self.closed = False
        self.server_version = ""
        self._loop = io.loop
        self._proxy_to = proxy_to
        self._auth_data = auth_data
        self._get_auth_data = get_auth_data
        self._tasks = TaskScope(io.loop, "a connection", self._internal_error)
        self._authenticating: Task[None] | None = None
        self._keep_alive = keep_alive
        self._observer = observer
        self._transport: Any = None
        self._frames: list[bytes | bytearray] = []
        self._planned = False
        self._heard = False
        self._asked = False
        self._timer: Cancellable | None = None
        self._error: PulsarException | None = None

    # The transport's side

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.wire.connect(self._proxy_to, *self._auth_data)
        self._timer = self._loop.call_later(self._keep_alive, self._check)

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        self._heard = True
        try:
            self.wire.receive(data)
        except FrameError as error:
            log.warning("closing the connection: %s", error)
            self.abort(ReadError(f"the broker broke the protocol: {error}"))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        settle(self.lost)
        self._end(self._error or lost_connection(exc, ready=self.ready.done()))

    def pause_writing(self) -> None:
        """Does nothing, because the producers' limits of pending messages also limit the bytes in the
        transport's write buffer.
        """

    def resume_writing(self) -> None:
        """Does nothing: see :meth:`pause_writing`."""

    # The wire's side

    def send(self, frame: bytes | bytearray) -> None:
        """Sends one or more frames, together with all other frames of this iteration of the event loop; does
        nothing on a closed connection.
        """
        if self.closed:
            return
        self._frames.append(frame)
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes the collected frames."""
        self._planned = False
        frames, self._frames = self._frames, []
        transport = self._transport
        if frames and not self.closed and transport is not None and not transport.is_closing():
            transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def _internal_error(self, work: str, error: BaseException) -> None:
        self.abort(UnknownError(f"{work} failed: {type(error).__name__}: {error}"))

    def connected(self, command: CommandConnected) -> None:
        self.server_version = command.server_version
        if self._observer is not None and not self.ready.done():
            self._observer.connected()
        settle(self.ready)

    def refused(self, error: PulsarException) -> None:
        self.abort(error)

    def pong(self) -> None:
        self._asked = False

    def challenged(self) -> None:
        if self._get_auth_data is None:
            self.abort(
                AuthenticationError("the broker requires authentication, but the client has no credentials")
            )
        elif self._authenticating is None:
            self._authenticating = self._tasks.start(self._respond(self._get_auth_data), "new credentials")

    async def _respond(self, get_auth_data: Callable[[], Awaitable[AuthData]]) -> None:
        try:
            self.wire.respond(*await get_auth_data())
        except PulsarException as error:
            self.abort(error)
        finally:
            self._authenticating = None

    # For users of the connection

    def ask(
        self, request_id: int, command: BaseCommand, seconds: float, *, or_forever: bool = False
    ) -> Future[BaseCommand]:
        """Sends a request; returns a future of the answer.

        The future's exceptions: the broker's error, Timeout, or the reason why the connection ended.

        :param or_forever: whether the broker may answer that the result follows later; after such an answer,
            there is no time-out
        """
        name = BaseCommand.Type.Name(command.type)
        future = self.expect(request_id, seconds, name, or_forever=or_forever)
        self.send(encode_command(command))
        return future

    def expect(
        self, request_id: int, seconds: float, name: str, *, or_forever: bool = False
    ) -> Future[BaseCommand]:
        """Like :meth:`ask`, but the caller sends the request.

        :param name: the name of the command
        """
        future = self._loop.create_future()

        def expired() -> None:
            if self.wire.pending.pop(request_id, None) is not None and not future.done():
                future.set_exception(Timeout(f"{name}: no answer within {seconds:g} s"))

        timer = self._loop.call_later(seconds, expired)

        def answer(answered: BaseCommand | None, error: PulsarException | None) -> None:
            timer.cancel()
            if future.done() or (or_forever and _is_waiting(answered)):
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(answered)

        if self.closed:
            answer(None, self._error or ConnectError("the connection is closed"))
        else:
            self.wire.pending[request_id] = answer
        return future

    def abort(self, error: PulsarException) -> None:
        """Closes the connection immediately; all its users get ``error``."""
        if self.closed:
            return
        self._error = error
        transport = self._transport
        if transport is not None:
            transport.abort()
        self._end(error)

    def ends(self) -> tuple[str, str] | None:
        """Returns the local and the remote address as ``host:port``; None without a socket."""
        if self._transport is None:
            return None
        own, other = (self._transport.get_extra_info(name) for name in ("sockname", "peername"))
        return f"{own[0]}:{own[1]}", f"{other[0]}:{other[1]}"

    def cut(self) -> None:
        """Aborts the transport of a closed connection, instead of waiting for the broker to close it."""
        if self._transport is not None:
            self._transport.abort()
        settle(self.lost)

    def close(self) -> None:
        """Sends collected frames and closes the connection."""
        if self.closed:
            return
        self.flush()
        self._error = ConnectError("the connection was closed")
        if self._transport is not None:
            self._transport.close()
        self._end(self._error)

    def _end(self, error: PulsarException) -> None:
        if self.closed:
            return
        self.closed = True
        self._error = error
        self._frames.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._authenticating is not None:
            self._authenticating.cancel()
        if self.ready.done() and not self.ready.cancelled() and self._observer is not None:
            self._observer.disconnected()
        if not self.ready.done():
            self.ready.set_exception(error)
            # Marks the exception as retrieved, because the opener may be cancelled.
            self.ready.exception()
        self.wire.lost(error)

    def _check(self) -> None:
        """Sends a PING if no data has arrived since the last check; closes the connection if nothing has
        arrived since the last PING.
        """
        if not self._heard:
            if self._asked:
                self.abort(ConnectError(f"the broker was silent for {2 * self._keep_alive:g} s"))
                return
            self._asked = True
            self.wire.ping()
        else:
            self._asked = False
        self._heard = False
        self._timer = self._loop.call_later(self._keep_alive, self._check)


def _is_waiting(command: BaseCommand | None) -> bool:
    """Whether an answer to PRODUCER says that the producer must wait for exclusive access; a second answer
    follows when the producer has access.
    """
    return (
        command is not None
        and command.type == BaseCommand.PRODUCER_SUCCESS
        and command.producer_success.HasField("producer_ready")
        and not command.producer_success.producer_ready
    )
