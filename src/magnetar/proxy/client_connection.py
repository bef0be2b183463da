"""A client's connection to a proxy: for lookups, or as a tunnel to a broker."""

from __future__ import annotations

import logging
from enum import Enum

from magnetar import __version__
from magnetar.errors import BrokerError, ServerErrorCode, ServiceNotReady
from magnetar.invariants import told
from magnetar.io.interfaces import Cancellable, Future, Task, Transport
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import nobody_waits, outcome, settle
from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandConnect, CommandConnected
from magnetar.proxy.broker_connection import BrokerConnection, BrokerLost, BrokerRefused, Commands
from magnetar.proxy.brokers import BrokerTarget, TargetDenied, is_in, target_of
from magnetar.proxy.client_authentication import ClientAuthentication
from magnetar.proxy.forwarded_address import HeaderRefused, read_header
from magnetar.proxy.lookups import LARGE, REQUESTS, answered
from magnetar.proxy.service import ProxyService
from magnetar.proxy.tunnel import Tunnel

log = logging.getLogger(__name__)

_SERVER_REQUEST_ID = 2**64 - 1
"""Request id of errors that do not answer a request."""
_LEAST_VERSION = 10
"""The lowest accepted protocol version; older clients do not support proxies."""
_VERSION = 21
_MAX_COMMAND_BYTES = 2 << 20
"""Maximum size of a command, in bytes; a token can have 1 MiB."""
_REQUESTS = 256
"""Number of requests in progress at which reading from the client stops."""
_SILENT_SECONDS = 30.0
"""Maximum time until CONNECT if keep-alive is disabled, in seconds."""


class State(Enum):
    HEADER = "a load balancer says where the client is"
    NEW = "CONNECT is to come"
    AUTHENTICATING = "it is asked who the client is"
    LOOKUPS = "the client looks up"
    JOINING = "a broker is being connected with"
    JOINED = "bytes go through"
    CLOSED = "closed"


class ClientConnection:
    """A client's connection, as the protocol of :class:`magnetar.io.interfaces.Network`, until a tunnel takes
    over.
    """

    def __init__(self, service: ProxyService) -> None:
        self._service = service
        self._loop = service.io.loop
        self._transport: Transport
        self._state = State.NEW
        self._commands = Commands(_MAX_COMMAND_BYTES)
        self._header = b""
        self._peer = ("", 0)
        self._counted = ""
        self._connect = CommandConnect()
        self._authentication: ClientAuthentication | None = None
        self._brokers: dict[BrokerTarget, Task[BrokerConnection]] = {}
        """By broker: the task that has opened, or is opening, the connection to it."""
        self._opening = TaskScope(self._loop, "connections to brokers")
        self._tasks = TaskScope(self._loop, "a connection of a client", self._failed)
        self._requests = 0
        self._pauses = 0
        self._large = Mutex(self._loop)
        self._full = False
        """Whether the client's write buffer is full, because the client does not read what the proxy
        sends."""
        self._room: Future[None] | None = None
        self._timer: Cancellable | None = None
        self._heard = False
        self._asked = False
        self._tunnel: Tunnel | None = None

    @property
    def address(self) -> str:
        host, port = self._peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    # the transport's side

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._peer = (str(peer[0]), int(peer[1]))
        if not self._service.opened(self, self.close):
            self._refuse(ServerErrorCode.SERVICE_NOT_READY, "Too many connections")
            return
        self._watch()
        if self._service.options.balancers:
            self._state = State.HEADER
        else:
            self._count()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._state is State.HEADER:
            data = self._read_header(self._header + data)
        if data and self._state is not State.CLOSED:
            self._commands.feed(data)
            self._take()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._full = True
        self._pause()

    def resume_writing(self) -> None:
        self._full = False
        if self._room is not None:
            settle(self._room)
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    # the client's address

    def _read_header(self, data: bytes) -> bytes:
        """Reads the PROXY header; returns the bytes after it; empty if the header is incomplete or
        refused.
        """
        try:
            header = read_header(data)
            if header is None:
                self._header = data
                return b""
            if header.size and not is_in(self._peer[0], self._service.options.balancers):
                raise HeaderRefused("the sender is not listed in magnetarHaProxyTrustedAddresses")
        except HeaderRefused as refusal:
            log.warning("PROXY header refused", extra={"peer": self.address, "reason": str(refusal)})
            self.close()
            return b""
        if header.host:
            self._peer = (header.host, header.port)
        self._header = b""
        self._state = State.NEW
        self._count()
        return data[header.size :]

    def _count(self) -> None:
        if self._service.counted(self._peer[0]):
            self._counted = self._peer[0]
        else:
            self._refuse(ServerErrorCode.SERVICE_NOT_READY, "Too many connections of this address")

    # commands

    def _take(self) -> None:
        try:
            while self._state in (State.NEW, State.LOOKUPS) and self._requests < _REQUESTS:
                command = self._commands.next()
                if command is None:
                    return
                self._handle(command)
        except FrameError as error:
            log.warning(
                "closing the connection: the client violated the protocol",
                extra={"peer": self.address, "reason": str(error)},
            )
            self.close()

    def _handle(self, command: BaseCommand) -> None:
        kind = command.type
        if self._state is State.NEW:
            if kind != BaseCommand.CONNECT:
                raise FrameError(f"The first command must be CONNECT, not type {kind}")
            self._connected(command.connect)
        elif kind in REQUESTS:
            self._requests += 1
            if self._requests == _REQUESTS:
                self._pause()
            self._tasks.start(self._answer(command), "answering a command")
        elif kind == BaseCommand.PING:
            self._send(BaseCommand(type=BaseCommand.PONG, pong={}))
        elif kind == BaseCommand.AUTH_RESPONSE and self._authentication is not None:
            try:
                self._authentication.answered(command.authResponse, self._watch_authentication, self._expired)
            except BrokerError as error:
                raise FrameError(str(error)) from error
        elif kind != BaseCommand.PONG:
            raise FrameError(f"{BaseCommand.Type.Name(kind)} must not be sent to a proxy")

    def _connected(self, request: CommandConnect) -> None:
        if request.protocol_version < _LEAST_VERSION:
            raise FrameError("the client's protocol version does not support proxies; use a newer client")
        self._connect = request
        self._state = State.AUTHENTICATING
        self._pause()
        self._tasks.start(self._let_in(request), "connecting a client")

    async def _let_in(self, request: CommandConnect) -> None:
        if self._service.authenticator.asks:
            certificate = self._transport.get_extra_info("peercert")
            authentication = ClientAuthentication(
                self._service.io, self._service.authenticator, request, self.address, certificate
            )
            try:
                await authentication.first()
            except BrokerError as error:
                log.warning("refusing a client", extra={"peer": self.address, "reason": str(error)})
                self._refuse(int(error.code), str(error))
                return
            self._authentication = authentication
        if self._state is not State.AUTHENTICATING:
            return
        if request.HasField("proxy_to_broker_url") and not self._service.options.redirects:
            self._state = State.JOINING
            await self._join(request.proxy_to_broker_url)
            return
        self._state = State.LOOKUPS
        self._watch_authentication()
        self._send(self._welcome(None))
        self._resume()
        self._take()

    def _welcome(self, broker: CommandConnected | None) -> BaseCommand:
        """Returns the command CONNECTED for the client.

        :param broker: the broker's answer; None: the proxy answers itself
        """
        answer = BaseCommand(type=BaseCommand.CONNECTED)
        if broker is not None:
            answer.connected.CopyFrom(broker)
            return answer
        answer.connected.server_version = f"Magnetar proxy {__version__}"
        answer.connected.protocol_version = min(self._connect.protocol_version, _VERSION)
        answer.connected.max_message_size = self._service.options.max_message_size
        answer.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
        return answer

    # lookups

    async def _answer(self, command: BaseCommand) -> None:
        try:
            if command.type in LARGE:
                await self._answer_large(command)
            else:
                self._send(await answered(self._service, self, command))
        finally:
            self._requests -= 1
            if self._requests == _REQUESTS - 1:
                self._resume()
                if self._state is State.LOOKUPS:
                    self._take()

    async def _answer_large(self, command: BaseCommand) -> None:
        """Sends large answers one at a time, each after the client has read the previous one, because large
        answers can have megabytes.
        """
        async with self._large:
            if self._full:
                self._room = self._loop.create_future()
                await self._room
            self._send(await answered(self._service, self, command))

    async def broker(self, target: BrokerTarget) -> BrokerConnection:
        """Returns the client's connection to a broker, for lookups; opens it if necessary."""
        task = self._brokers.get(target)
        if task is None or (task.done() and _is_of_no_use(task)):
            task = self._opening.answer(self._service.connected(target, self._told(), hand_over=False))
            task.add_done_callback(nobody_waits)
            self._brokers[target] = task
        return await outcome(self._loop, task)

    def _told(self, *, joined: bool = False) -> CommandConnect:
        """Returns the CONNECT command for a broker.

        :param joined: whether the connection with the broker becomes part of the client's tunnel; otherwise,
            the proxy uses it for lookups
        """
        asked, options = self._connect, self._service.options
        told = CommandConnect()
        told.client_version = asked.client_version
        told.protocol_version = min(asked.protocol_version, _VERSION)
        told.feature_flags.CopyFrom(asked.feature_flags)
        forwards = self._authentication is not None and options.forward_credentials
        # Otherwise a broker would request the proxy's credentials from the client, and the other way round.
        told.feature_flags.supports_auth_refresh = (
            asked.feature_flags.supports_auth_refresh and forwards if joined else not forwards
        )
        if self._authentication is not None:
            told.original_principal = self._authentication.principal.role
            if forwards:
                told.original_auth_method = self._authentication.credentials.method
                told.original_auth_data = self._authentication.credentials.data.decode("utf-8", "replace")
        return told

    # tunnel to a broker

    async def _join(self, url: str) -> None:
        service = self._service
        try:
            target = target_of(url.rpartition("://")[2])
            service.check(target)
        except TargetDenied as denied:
            service.figures.denied_targets += 1
            log.warning(
                "connection refused: its target is not an allowed broker",
                extra={"peer": self.address, "reason": str(denied)},
            )
            self._refuse(ServerErrorCode.SERVICE_NOT_READY, "BrokerTarget broker cannot be validated.")
            return
        try:
            broker = await service.connected(target, self._told(joined=True), hand_over=True)
        except BrokerRefused as refused:
            self._refuse(refused.code, str(refused))
            return
        except BrokerLost as lost:
            log.warning("broker does not answer", extra={"peer": self.address, "reason": str(lost)})
            self._refuse(ServerErrorCode.SERVICE_NOT_READY, f"{target} cannot be reached")
            return
        if self._state is not State.JOINING:
            broker.abort()
            return
        if broker.closed:
            # A tunnel on its transport would never notice the end.
            log.warning(
                "connection refused: the broker closed it immediately",
                extra={"peer": self.address, "broker": str(target)},
            )
            self._refuse(ServerErrorCode.SERVICE_NOT_READY, f"{target} closed the connection")
            return
        self._send(self._welcome(broker.ready.result()))
        self._state = State.JOINED
        self._unwatch()
        tunnel = self._tunnel = Tunnel(self._loop, self._transport, broker.transport, self._gone)
        service.tunnel_opened(tunnel, self.address, str(target))
        if self._authentication is not None and not service.options.forward_credentials:
            # Nothing else checks the expiry of the credentials.
            self._authentication.watch(None, self._send, tunnel.close)
        tunnel.open(self._commands.rest(), broker.rest())

    def _gone(self, tunnel: Tunnel) -> None:
        self._service.tunnel_gone(tunnel)
        self._end()

    # the client's credentials

    def _watch_authentication(self) -> None:
        if self._authentication is not None and self._state is State.LOOKUPS:
            self._authentication.watch(self._service.options.refresh_seconds, self._send, self._expired)

    def _expired(self) -> None:
        self._refuse(ServerErrorCode.AUTHENTICATION, "The credentials of the client have expired")

    # keeping alive

    def _watch(self) -> None:
        seconds = self._service.options.keep_alive_seconds or _SILENT_SECONDS
        self._timer = self._loop.call_later(seconds, self._look)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._state in (State.HEADER, State.NEW, State.AUTHENTICATING):
            self._abort()
            return
        if self._heard or not self._service.options.keep_alive_seconds:
            self._asked = False
        elif self._asked and self._state is State.LOOKUPS:
            self._abort()
            return
        elif self._state is State.LOOKUPS:
            self._asked = True
            self._send(BaseCommand(type=BaseCommand.PING, ping={}))
        self._heard = False
        self._watch()

    # outgoing commands, and the end

    def _failed(self, _name: str, error: BaseException) -> None:
        # The loop has the error, with its traceback.
        log.error("connection failed with an internal error", extra=told(error))
        self._refuse(int(ServiceNotReady("").code), "Internal error; see the log of the proxy")

    def _send(self, command: BaseCommand) -> None:
        if self._state is not State.CLOSED and not self._transport.is_closing():
            self._transport.write(encode_command(command))

    def _pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume(self) -> None:
        self._pauses -= 1
        if not self._pauses and self._state is not State.CLOSED and not self._transport.is_closing():
            self._transport.resume_reading()

    def _refuse(self, code: int, reason: str) -> None:
        command = BaseCommand(type=BaseCommand.ERROR)
        command.error.request_id = _SERVER_REQUEST_ID
        command.error.error, command.error.message = code, reason  # type: ignore[assignment]
        self._send(command)
        self.close()

    def close(self) -> None:
        """Closes the connection after pending data is sent."""
        if self._tunnel is not None:
            self._tunnel.close()
            return
        self._transport.close()
        self._let_go()

    def _abort(self) -> None:
        self._transport.abort()
        self._let_go()

    def _let_go(self) -> None:
        """Releases all resources except the connection itself."""
        self._state = State.CLOSED
        self._unwatch()
        if self._authentication is not None:
            self._authentication.close()
        for task in self._brokers.values():
            task.cancel()
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().abort()
        self._brokers.clear()

    def _end(self) -> None:
        self._let_go()
        self._tasks.cancel()
        self._service.closed(self, self._counted)
        self._counted = ""


def _is_of_no_use(task: Task[BrokerConnection]) -> bool:
    return bool(task.cancelled() or task.exception() is not None or task.result().closed)
