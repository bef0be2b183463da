"""The handshake and keep-alive."""

from __future__ import annotations

import logging

from magnetar import __version__
from magnetar.broker.connections.answers import SERVER_REQUEST_ID
from magnetar.broker.connections.authenticating import Authenticating
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.session import SessionState
from magnetar.broker.translation import to_broker_error
from magnetar.errors import InternalError
from magnetar.protocol.errors import FrameError
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandConnect
from magnetar.security.principal import ANONYMOUS

log = logging.getLogger(__name__)

MAX_PROTOCOL_VERSION = 21


def connect(connection: Connection, command: BaseCommand) -> None:
    """CONNECT → CONNECTED once the client is authenticated; only once per connection.

    Nothing more is read until then. ``proxy_to_broker_url`` is meant for proxies. Clients that reach this
    broker under another name than the advertised one send it too, and are served like any other.
    """
    session, request = connection.session, command.connect
    if session.state is not SessionState.NEW:
        raise FrameError("CONNECT was already sent on this connection")
    session.connecting()
    session.client_version = request.client_version
    session.protocol_version = min(request.protocol_version, MAX_PROTOCOL_VERSION)
    session.supports_partial_producer = request.feature_flags.supports_partial_producer
    session.supports_entry_metadata = request.feature_flags.supports_broker_entry_metadata
    session.supports_source_positions = request.feature_flags.supports_repl_dedup_by_lid_and_eid
    connection.pause_reading()
    session.handshake = connection.broker.io.loop.create_task(_authenticate(connection, request))


async def _authenticate(connection: Connection, request: CommandConnect) -> None:
    session, broker = connection.session, connection.broker
    authenticating = Authenticating(connection, request) if broker.authenticator.asks else None
    try:
        principal = await authenticating.first() if authenticating is not None else ANONYMOUS
    except Exception as error:  # noqa: BLE001 - told to the client
        session.handshake = None
        if session.state is SessionState.CONNECTING:
            broker.connections.unauthenticated += 1
            _refuse(connection, error)
        return
    session.handshake = None
    if session.state is not SessionState.CONNECTING:
        return
    session.open(principal, authenticating)
    broker.connections.handshakes += 1
    answer = BaseCommand(type=BaseCommand.CONNECTED)
    connected = answer.connected
    connected.server_version = f"Magnetar {__version__}"
    connected.protocol_version = session.protocol_version
    connected.max_message_size = broker.max_message_size
    connected.feature_flags.supports_topic_watchers = broker.topic_lists.enabled
    connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    connected.feature_flags.supports_repl_dedup_by_lid_and_eid = True
    connection.send(answer)
    if authenticating is not None:
        authenticating.authenticated(principal)
    connection.resume_reading()


def _refuse(connection: Connection, error: Exception) -> None:
    told = to_broker_error(error)
    if isinstance(told, InternalError):
        log.error(
            "closing the connection: authentication failed with an internal error",
            extra={"peer": connection.address},
            exc_info=error,
        )
    else:
        log.warning("refusing a client", extra={"peer": connection.address, "reason": str(told)})
    connection.send_error(SERVER_REQUEST_ID, told)
    connection.close()


def ping(connection: Connection, _command: BaseCommand) -> None:
    connection.send(BaseCommand(type=BaseCommand.PONG, pong={}))


def pong(_connection: Connection, _command: BaseCommand) -> None:
    """Does nothing: any traffic counts as a sign of life."""


def auth_response(connection: Connection, command: BaseCommand) -> None:
    """Takes the new credentials that AUTH_CHALLENGE asked for."""
    authenticating = connection.session.authenticating
    if authenticating is None:
        raise FrameError("AUTH_RESPONSE without a challenge")
    authenticating.answered(command.authResponse)
