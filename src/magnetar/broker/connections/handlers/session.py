"""The handshake and keeping alive."""

from __future__ import annotations

import logging

from magnetar import __version__
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.session import SessionState
from magnetar.protocol.errors import FrameError
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security.principal import ANONYMOUS

log = logging.getLogger(__name__)

MAX_PROTOCOL_VERSION = 21


def connect(connection: Connection, command: BaseCommand) -> None:
    """CONNECT → CONNECTED; once a connection.

    ``proxy_to_broker_url`` is for proxies: a client that reaches this broker under another name than it
    advertises sends it, too, and is served as any other.
    """
    session = connection.session
    if session.state is not SessionState.NEW:
        raise FrameError("a second CONNECT")
    request = command.connect
    session.connecting()
    session.client_version = request.client_version
    session.protocol_version = min(request.protocol_version, MAX_PROTOCOL_VERSION)
    session.supports_partial_producer = request.feature_flags.supports_partial_producer
    session.open(ANONYMOUS)
    connection.broker.connections.handshakes += 1
    answer = BaseCommand(type=BaseCommand.CONNECTED)
    connected = answer.connected
    connected.server_version = f"Magnetar {__version__}"
    connected.protocol_version = session.protocol_version
    connected.max_message_size = connection.broker.max_message_size
    connected.feature_flags.supports_topic_watchers = connection.broker.topic_lists.enabled
    connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    connection.send(answer)


def ping(connection: Connection, _command: BaseCommand) -> None:
    connection.send(BaseCommand(type=BaseCommand.PONG, pong={}))


def pong(_connection: Connection, _command: BaseCommand) -> None:
    """Any traffic counts as a sign of life: nothing more to do."""


def auth_response(connection: Connection, _command: BaseCommand) -> None:
    """Answers a challenge that this broker never sends."""
    raise FrameError("AUTH_RESPONSE without a challenge")
