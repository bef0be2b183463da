"""A proxy's connection to a broker, for the lookups of a client or for a tunnel."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from magnetar import __version__
from magnetar.errors import ServerErrorCode
from magnetar.io.interfaces import Future, Loop, Task, Transport
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import fail, nobody_waits, settle
from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import decode_command, encode_command
from magnetar.protocol.hot_codec import frame_end, next_frame
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandConnect, CommandConnected

log = logging.getLogger(__name__)
GetAuthData = Callable[[], Awaitable[tuple[str, bytes]]]
"""Returns the name of an authentication method, and the proxy's credentials."""
ANSWERS = {
    BaseCommand.LOOKUP_RESPONSE: "lookupTopicResponse",
    BaseCommand.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    BaseCommand.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    BaseCommand.ERROR: "error",
}
"""For each type of answer: the field of ``BaseCommand`` that contains the message with the request id."""
_SIZE_BYTES = 4


class BrokerLost(Exception):
    """The connection to a broker has ended."""


class BrokerRefused(Exception):
    """A broker has refused the proxy or its client."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class BrokerConnection:
    """A connection to a broker, as the protocol of :class:`magnetar.io.interfaces.Network`."""

    def __init__(
        self,
        loop: Loop,
        connect: CommandConnect,
        max_frame: int,
        get_auth_data: GetAuthData | None,
        *,
        hand_over: bool,
    ) -> None:
        """:param connect: the CONNECT command for the broker
        :param get_auth_data: returns new credentials when the broker requests them; None: no credentials
        :param hand_over: whether to stop reading after CONNECTED, because a tunnel takes over
        """
        self.ready: Future[None] = loop.create_future()
        """Completed when the broker answers with CONNECTED; otherwise it fails with BrokerRefused or
        BrokerLost."""
        self.ready.add_done_callback(nobody_waits)
        self.transport: Transport
        self._made = False
        self.closed = False
        self._loop = loop
        self._connect = connect
        self._commands = Commands(max_frame)
        self._get_auth_data = get_auth_data
        self._hand_over = hand_over
        self._pending: dict[int, Future[BaseCommand]] = {}
        self._next_id = 1
        self._tasks = TaskScope(loop, "a connection to a broker", lambda _work, _error: self.abort())
        self._proving: Task[None] | None = None

    # the transport's side

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        self._made = True
        self._send(BaseCommand(type=BaseCommand.CONNECT, connect=self._connect))

    def data_received(self, data: bytes) -> None:
        self._commands.feed(data)
        try:
            while not self._handed_over:
                command = self._commands.next()
                if command is None:
                    return
                self._take(command)
        except FrameError as error:
            log.warning(
                "closing the connection: a broker violated the protocol", extra={"reason": str(error)}
            )
            self.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._proving is not None:
            self._proving.cancel()
        lost = BrokerLost(f"the connection to the broker has ended{f': {exc}' if exc else ''}")
        fail(self.ready, lost)
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            fail(answer, lost)

    def pause_writing(self) -> None:
        """Does nothing: requests are few, and bounded per client."""

    def resume_writing(self) -> None:
        """Does nothing: see :meth:`pause_writing`."""

    # for users of the connection

    def ask(self, command: BaseCommand, field: str) -> Future[BaseCommand]:
        """Sends a request with a request id of this connection; returns a future of the answer, which can
        fail with BrokerLost.

        :param field: the name of the field that contains the command's message
        """
        answer = self._loop.create_future()
        answer.add_done_callback(nobody_waits)
        if self.closed:
            answer.set_exception(BrokerLost("the connection to the broker has ended"))
            return answer
        number = self._next_id
        self._next_id += 1
        getattr(command, field).request_id = number
        self._pending[number] = answer
        self._send(command)
        return answer

    def rest(self) -> bytes:
        """Removes and returns the bytes that were received after CONNECTED."""
        return self._commands.rest()

    def abort(self) -> None:
        self.closed = True
        if self._made:
            self.transport.abort()

    # incoming commands

    @property
    def _handed_over(self) -> bool:
        return self._hand_over and self.ready.done()

    def _take(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.CONNECTED and not self.ready.done():
            if self._hand_over:
                self.transport.pause_reading()
            settle(self.ready, CommandConnected.FromString(command.connected.SerializeToString()))
        elif command.type == BaseCommand.PING:
            self._send(BaseCommand(type=BaseCommand.PONG, pong={}))
        elif command.type == BaseCommand.AUTH_CHALLENGE:
            self._challenged()
        elif command.type == BaseCommand.ERROR and not self.ready.done():
            fail(self.ready, BrokerRefused(int(command.error.error), command.error.message))
            self.abort()
        elif command.type in ANSWERS:
            answer = self._pending.pop(getattr(command, ANSWERS[command.type]).request_id, None)
            if answer is not None:
                settle(answer, command)

    def _challenged(self) -> None:
        if self._get_auth_data is None:
            fail(
                self.ready,
                BrokerRefused(ServerErrorCode.AUTHENTICATION, "The credentials of the proxy cannot be used"),
            )
            self.abort()
        elif self._proving is None:
            self._proving = self._tasks.start(self._respond(self._get_auth_data), "new credentials")

    async def _respond(self, get_auth_data: GetAuthData) -> None:
        try:
            method, data = await get_auth_data()
        except ValueError as error:
            log.error("cannot use the credentials of the proxy", extra={"reason": str(error)})
            self.abort()
            return
        finally:
            self._proving = None
        command = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
        command.authResponse.client_version = f"Magnetar proxy {__version__}"
        command.authResponse.protocol_version = self._connect.protocol_version
        command.authResponse.response.auth_method_name = method
        command.authResponse.response.auth_data = data
        self._send(command)

    def _send(self, command: BaseCommand) -> None:
        if not self.transport.is_closing():
            self.transport.write(encode_command(command))


class Commands:
    """Parses the commands of one side of a connection. Commands that arrive complete are not copied; the
    pieces of other commands are joined once.
    """

    __slots__ = ("_data", "_max_frame", "_more", "_needed", "_position")

    def __init__(self, max_frame: int) -> None:
        """:param max_frame: maximum size of a frame, in bytes"""
        self._max_frame = max_frame
        self._data = b""
        self._position = 0
        self._more = bytearray()
        """Bytes that arrived after :attr:`_data`."""
        self._needed = 0
        """The number of bytes that must have arrived before the next attempt to find a frame."""

    def feed(self, data: bytes) -> None:
        if self._position == len(self._data) and not self._more:
            self._data, self._position = data, 0
        else:
            self._more += data

    def next(self) -> BaseCommand | None:
        """Returns the next command; None: no complete command has arrived.

        :raises FrameError: the bytes are not a command, or are a command with an entry
        """
        if len(self._data) - self._position + len(self._more) < self._needed or not self._find():
            return None
        command = decode_command(self._data, self._position)
        if command.type in (BaseCommand.SEND, BaseCommand.MESSAGE):
            raise FrameError("the broker sent a frame with an entry on a connection for lookups")
        self._position = frame_end(self._data, self._position)
        self._needed = 0
        return command

    def _find(self) -> bool:
        """Whether the bytes contain a complete frame."""
        if next_frame(self._data, self._position, len(self._data), self._max_frame):
            return True
        if self._more:
            self._data, self._position = self.rest(), 0
            if next_frame(self._data, 0, len(self._data), self._max_frame):
                return True
        size = self._data[self._position : self._position + _SIZE_BYTES]
        whole = len(size) == _SIZE_BYTES
        self._needed = _SIZE_BYTES + (int.from_bytes(size, "big") if whole else 0)
        return False

    def rest(self) -> bytes:
        """Removes and returns all remaining bytes."""
        rest = self._data[self._position :] + bytes(self._more)
        self._data, self._position = b"", 0
        self._more.clear()
        return rest
