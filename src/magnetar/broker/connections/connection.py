"""A client connection on the event loop: combines its input, session, publishing and writing.

Reading stops when the client or all clients together have too many publishes in flight, when the broker holds
too many partial frames, or during authentication; all other work continues. Outgoing frames are gathered over
one turn of the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import NoReturn

from magnetar.broker.connections import answers
from magnetar.broker.connections.answers import Requests
from magnetar.broker.connections.permissions import ask_again
from magnetar.broker.connections.publishing import Publishing
from magnetar.broker.connections.reading import ACKS, BAD_SEND, FLOW, NOTHING, SENDS, Reader
from magnetar.broker.connections.session import Session, SessionState
from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.flow.connection import Assigned, KeepAlive
from magnetar.broker.flow.loop_budget import FRAMES_PRICE, REQUEST_PRICE
from magnetar.broker.flow.outgoing import Outgoing
from magnetar.broker.publishing.producer import Producer
from magnetar.broker.service import BrokerService
from magnetar.errors import BrokerError
from magnetar.invariants import BrokenInvariant, told, violated
from magnetar.io.interfaces import Buffer, Task, Transport
from magnetar.io.slices import start_each
from magnetar.naming.namespace_name import NamespaceName
from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

log = logging.getLogger(__name__)

_OPEN = SessionState.OPEN
_ACTIVE_CONSUMER_VERSION = 12
_FRAMES_UNASKED = 32
"""The number of runs of frames that are handled before the loop budget is checked."""


class Input:
    """Handles the commands of one connection's client in order, and pauses reading."""

    __slots__ = ("_broker", "_connection", "_halted", "_handle_command", "_pauses", "_session", "reader")

    def __init__(
        self,
        connection: Connection,
        broker: BrokerService,
        session: Session,
        handle_command: Callable[[Connection, BaseCommand], None],
    ) -> None:
        """:param handle_command: handles all commands except FLOW, plain SENDs and plain ACKs"""
        self._connection = connection
        self._broker = broker
        self._session = session
        self._handle_command = handle_command
        self.reader = Reader(broker.limits.max_frame, broker.send_run, broker.ack_run)
        self._pauses = 0
        self._halted = False
        """Whether parsing has stopped: from the first pause until reading resumes."""

    def handle(self) -> None:
        """Handles the received bytes, until the client must wait or only the beginning of a frame is left."""
        reader, publishing, session = self.reader, self._connection.publishing, self._session
        unasked = _FRAMES_UNASKED
        try:
            while reader.position < reader.limit and not self._halted:
                room = self._broker.limits.max_pending_publishes - publishing.pending
                found = reader.next(room if room > 0 else 1)
                if found == SENDS and session.state is _OPEN:
                    publishing.publish(reader.buffer, reader.sends)
                elif not self._take(found):
                    break
                unasked -= 1
                if not unasked:
                    unasked = _FRAMES_UNASKED
                    self._broker.budget.spend(FRAMES_PRICE)
                    if reader.position < reader.limit and not self._halted:
                        self._wait_for_turn()
            if reader.position >= reader.limit:
                # Entries hold references to the parts that they need.
                reader.buffer = b""
        except FrameError as error:
            log.warning(
                "closing the connection: the client violated the protocol",
                extra={"peer": session.address, "reason": str(error)},
            )
            self._connection.close()
        except Exception as error:  # noqa: BLE001 - reported
            connection = self._connection
            if isinstance(error, BrokenInvariant) and error.owner_ends and not connection.failed:
                # A topic ends, and its clients are told. The others of this connection go on.
                _report(connection, error)
                self._broker.limits.readable.add(self)
                return
            connection.fail(error)
            connection.close()

    def _take(self, found: int) -> bool:
        """Handles what :meth:`Reader.next` has found, except SENDs of an open session.

        :return: False if a command must wait for another turn of the loop, or no complete frame is left
        :raises FrameError: the first command is not CONNECT
        """
        session, reader = self._session, self.reader
        if found == NOTHING:
            self._broker.limits.partial_frames.grew(self._connection, reader.partial)
            return False
        if session.state is not _OPEN and reader.kind != BaseCommand.CONNECT:
            raise FrameError(f"the first command must be CONNECT, not type {reader.kind}")
        if found == ACKS:
            consumer = session.consumers.get(reader.acks.consumer_id)
            if consumer is not None:
                consumer.subscription.acknowledge_run(consumer, reader.acks)
        elif found == FLOW:
            consumer_id, permits = reader.flow
            consumer = session.consumers.get(consumer_id)
            if consumer is not None:
                consumer.subscription.flow(consumer, permits)
        elif found == BAD_SEND:
            self._connection.publishing.refuse_damaged(reader.sends)
        elif self._wait_for_turn():
            return False
        else:
            self._take_command()
        return True

    def _take_command(self) -> None:
        self._broker.budget.spend(REQUEST_PRICE)
        command = self.reader.command()
        if self._session.state is not _OPEN and command.type != BaseCommand.CONNECT:
            # If a command has two types the last one counts.
            raise FrameError(f"the first command must be CONNECT, not type {command.type}")
        self._handle_command(self._connection, command)

    def _wait_for_turn(self) -> bool:
        """Whether the rest of the received bytes must wait for another turn of the loop."""
        if self._broker.budget.admits(self):
            return False
        self.pause()
        return True

    def go_on(self) -> None:
        """Handles further frames in another turn of the loop; they count against the budget of that turn."""
        self._pauses -= 1
        if self._pauses < 0:
            self._violated_pauses()
        self.read_on()

    def overfull(self, stop: bool) -> None:
        """Pauses reading if ``stop`` is true, because the client does not read the frames sent to it;
        otherwise ends this pause."""
        if stop:
            self.pause()
        else:
            self.resume()

    def pause(self) -> None:
        """Stops reading until :meth:`resume` has been called as many times as this method."""
        self._pauses += 1
        self._halted = True
        transport = self._connection.transport
        if self._pauses == 1 and transport is not None and not transport.is_closing():
            transport.pause_reading()

    def resume(self) -> None:
        """Ends one pause; when no pause is left, reading resumes, in the next turn at the earliest."""
        self._pauses -= 1
        if self._pauses < 0:
            self._violated_pauses()
        if not self._pauses and not self._session.ended:
            self._broker.limits.readable.add(self)

    def read_on(self) -> None:
        """Handles the bytes received already, then reads more."""
        if self._pauses or self._session.ended:
            return
        self._halted = False
        if self.reader.position < self.reader.limit:
            self.handle()
        transport = self._connection.transport
        if not self._halted and transport is not None and not transport.is_closing():
            transport.resume_reading()

    def _violated_pauses(self) -> NoReturn:
        found, self._pauses = self._pauses, 0
        violated(
            self._connection.fail, f"pauses of reading from {self._session.address}", "at least 0", found
        )


class Connection:
    """A client connection, a protocol for :class:`magnetar.io.interfaces.Network`."""

    def __init__(
        self,
        broker: BrokerService,
        handle: Callable[[Connection, BaseCommand], None],
        listener: str = "",
    ) -> None:
        """:param handle: handles all commands except FLOW, plain SENDs and plain ACKs

        :param listener: the advertised listener of the address that the client used; empty: no listener
        """
        self.broker = broker
        self.listener = listener
        self.transport: Transport | None = None
        # A client may have ten thousand producers and consumers: closing all of them takes the loop 0.2 s.
        self.session = Session(partial(start_each, broker.io, "departures"))
        self.non_persistent_pending = 0
        """The number of publishes in flight on non-persistent topics."""
        self.input = Input(self, broker, self.session, handle)
        self.failed = False
        """Whether :meth:`fail` was called."""
        self.outgoing = Outgoing(
            broker.io.loop, self.session.read_more, self.input.overfull, broker.limits.unsent, self.fail
        )
        self.publishing = Publishing(self, broker, self.session, self.outgoing)
        self.requests = Requests(self, broker.io.loop)
        self.keep_alive = KeepAlive(self, broker.io.loop, broker.wheel, broker.limits.keep_alive)

    # State that other parts read

    @property
    def host(self) -> str:
        return self.session.host

    @property
    def address(self) -> str:
        return self.session.address

    @property
    def client_version(self) -> str:
        return self.session.client_version

    @property
    def supports_partial_producer(self) -> bool:
        return self.session.supports_partial_producer

    @property
    def pending_publishes(self) -> int:
        return self.publishing.pending

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or closing, so that its client's commands are ignored."""
        return self.session.ended

    @property
    def throttled(self) -> bool:
        """Whether reading is paused because the client exceeds a publish rate."""
        return self.publishing.slowed > 0

    @property
    def held_back(self) -> bool:
        """Whether reading is paused because the broker is still processing earlier input."""
        if self.publishing.paused or self.throttled or self.broker.limits.publish_buffer.holds(self):
            return True
        return self.requests.paused and not self.outgoing.paused

    # Called by the transport

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        self.outgoing.use(transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.session.host = str(peer[0])
            self.session.address = f"{peer[0]}:{peer[1]}"
        refusal = self.broker.connections.opened(self)
        if refusal is not None:
            self.send_error(answers.SERVER_REQUEST_ID, refusal)
            self.close()
            return
        self.keep_alive.start()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.session.state is SessionState.CLOSED:
            return
        self.transport = None
        self.outgoing.use(None)
        self.keep_alive.stop()
        self.session.closed()
        self._let_go()
        self.broker.connections.closed(self)

    def _let_go(self) -> None:
        """Releases the resources of the connection except its producers and consumers."""
        reader = self.input.reader
        if reader.partial:
            self.broker.limits.partial_frames.gone(self)
        reader.drop()
        self.broker.topic_lists.close_all(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.outgoing.pause()

    def resume_writing(self) -> None:
        self.outgoing.resume()

    def data_received(self, data: bytes) -> None:
        if self.session.state is not _OPEN and self.session.ended:
            return
        self.keep_alive.heard()
        reader = self.input.reader
        partial = reader.partial
        if not reader.feed(data):
            self.broker.limits.partial_frames.grew(self, len(data))
            return
        if partial:
            self.broker.limits.partial_frames.gone(self)
        self.input.handle()

    # Writing

    def queue(self, frames: Buffer) -> None:
        """Sends frames together with all other frames of this turn of the loop."""
        if self.session.state is _OPEN or not self.session.ended:
            self.outgoing.queue(frames)

    def send(self, command: BaseCommand) -> None:
        self.queue(encode_command(command))

    def send_success(self, request_id: int) -> None:
        self.send(answers.success(request_id))

    def send_error(self, request_id: int, error: BrokerError) -> None:
        self.send(answers.failure(request_id, error))

    # Authentication and authorization

    async def authenticate_again(self, methods: frozenset[str] | None) -> None:
        """Authenticates the client again after a change of the data that credentials are checked against.

        :param methods: the changed authentication methods; None: all
        """
        session = self.session
        if session.authenticating is not None and (
            methods is None or methods & session.authenticating.methods
        ):
            session.authenticating.again()

    async def ask_again(self, touched: frozenset[NamespaceName | str] | None) -> None:
        """Checks again the permissions of everything that the client has opened, after a change of
        permissions.

        :param touched: the changed namespaces, and the names of the changed tenants; None: everything
        :raises MetadataFailure: the permissions cannot be read
        """
        if not self.closed:
            await ask_again(self, self.broker.authorizer, touched)

    # Closing by the broker

    async def is_alive(self) -> bool:
        """Pings the client; returns False if it does not answer, in which case the connection is closed."""
        return await self.keep_alive.ask()

    def stop_producer(self, producer: Producer) -> None:
        """Accepts no more SENDs of a producer; receipts for earlier SENDs are still sent."""
        self.session.stop_producer(producer)

    def close_producer(self, producer: Producer, assigned: Assigned | None = None) -> None:
        """Closes a producer and tells the client, which opens it again.

        :param assigned: the broker that serves the topic; None: the client looks the topic up
        """
        self.session.stop_producer(producer)
        if producer.producer_id not in self.session.producers:
            # Otherwise the client has reused the id for another producer, and knows that this one is closed.
            self.send(answers.close_producer(producer.producer_id, assigned))

    def stop_consumer(self, consumer: AnyConsumer) -> None:
        """Accepts no more commands for a consumer."""
        self.session.forget_consumer(consumer)

    def close_consumer(self, consumer: AnyConsumer, assigned: Assigned | None = None) -> None:
        """Closes a consumer and tells the client, which opens it again.

        :param assigned: the broker that serves the topic; None: the client looks the topic up
        """
        self.session.forget_consumer(consumer)
        if consumer.consumer_id not in self.session.consumers:
            # Otherwise the client has reused the id for another consumer, and knows that this one is closed.
            self.send(answers.close_consumer(consumer.consumer_id, assigned))

    def send_end_of_topic(self, consumer: AnyConsumer) -> None:
        self.send(answers.end_of_topic(consumer.consumer_id))

    def send_migrated(self, consumer: AnyConsumer, there: Assigned) -> bool:
        """Tells a client that its consumer's topic has moved to another cluster; returns False if the client
        does not support this."""
        if self.session.follows_topics:
            self.send(answers.consumer_migrated(consumer.consumer_id, there.url, there.url_tls))
        return self.session.follows_topics

    def send_active_consumer_change(self, consumer: AnyConsumer, active: bool) -> None:
        """Tells a Failover consumer whether it is the active consumer; old clients do not support this."""
        if self.session.protocol_version >= _ACTIVE_CONSUMER_VERSION:
            self.send(answers.active_consumer_change(consumer.consumer_id, active))

    def fail(self, error: BaseException, *, reported: bool = False) -> None:
        """Closes the connection in a later turn of the loop, after an internal error; other connections
        continue. Later calls have no effect.

        :param reported: whether the error was reported to the loop already
        """
        if self.failed:
            return
        self.failed = True
        log.error(
            "closing the connection after an internal error", extra={"peer": self.address, **told(error)}
        )
        if not reported:
            _report(self, error)
        self.broker.io.loop.call_soon(self.close)

    def start(self, work: Coroutine[object, None, None], name: str) -> Task[None]:
        """Starts a task that answers the client; if it fails unexpectedly, the connection is closed, because
        the client would otherwise wait forever."""
        task = self.broker.client_tasks.start(work, name)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error, reported=True)

    def close(self) -> None:
        """Sends queued frames, then closes the connection; its producers and consumers are removed at
        once."""
        if self.session.ended:
            return
        self.outgoing.flush()
        self._end()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Closes the connection at once; unsent frames are lost."""
        self._end()
        if self.transport is not None:
            self.transport.abort()

    def _end(self) -> None:
        if not self.session.ended:
            self.session.closing()
            self._let_go()


def _report(connection: Connection, error: BaseException) -> None:
    message = f"a command on the connection of {connection.address} met an internal error"
    connection.broker.io.loop.call_exception_handler({"message": message, "exception": error})
