"""The handshake, authentication and keep-alive."""

from __future__ import annotations

import logging
from dataclasses import replace

from magnetar import __version__
from magnetar.broker import events
from magnetar.broker.connections import answers
from magnetar.broker.connections.answers import SERVER_REQUEST_ID
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.session import SessionState
from magnetar.broker.translation import to_broker_error
from magnetar.errors import AuthenticationFailure, BrokerError, InternalError
from magnetar.io.interfaces import Cancellable, Task
from magnetar.protocol.errors import FrameError
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAuthResponse, CommandConnect
from magnetar.security.authentication import ANONYMOUS, Claim, Credentials, PeerCertificate, Principal
from magnetar.security.chain import renewed

log = logging.getLogger(__name__)
MAX_PROTOCOL_VERSION = 21
_LONGEST_TIMER_SECONDS = 86_400.0
_SHORTEST_SECONDS = 1.0
"""The minimum time between two challenges, in seconds."""


def connect(connection: Connection, command: BaseCommand) -> None:
    """Handles CONNECT → CONNECTED once the client is authenticated; only once per connection.

    No further commands are read until then. ``proxy_to_broker_url`` is meant for proxies. Clients that reach
    this broker under another name than the advertised name also send this field, and are served normally.
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
    connection.input.pause()
    session.handshake = connection.start(_authenticate(connection, request), "the authentication of a client")


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
    connected.max_message_size = broker.limits.max_message_size
    connected.feature_flags.supports_topic_watchers = broker.topic_lists.enabled
    connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    connected.feature_flags.supports_repl_dedup_by_lid_and_eid = True
    connection.send(answer)
    if authenticating is not None:
        authenticating.authenticated(principal)
    connection.input.resume()


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
    """Does nothing, because any traffic counts as a sign of life."""


def auth_response(connection: Connection, command: BaseCommand) -> None:
    """Accepts the new credentials that AUTH_CHALLENGE asked for."""
    authenticating = connection.session.authenticating
    if authenticating is None:
        raise FrameError("The client sent AUTH_RESPONSE, but the broker sent no AUTH_CHALLENGE")
    authenticating.answered(command.authResponse)


class Authenticating:
    """Authenticates one connection: at CONNECT, and again whenever the result may have changed.

    The conversation is Pulsar's (PIP-30): CONNECT contains the first credentials; AUTH_CHALLENGE asks for new
    credentials before the old credentials expire, and AUTH_RESPONSE contains the new credentials. A client
    that does not answer is disconnected.
    """

    __slots__ = ("_asked", "_challenged", "_claim", "_connection", "_refreshes", "_task", "_timer")

    def __init__(self, connection: Connection, request: CommandConnect) -> None:
        self._connection = connection
        self._claim = _claim_of(connection, request)
        self._asked: Claim | None = None
        """The claim that is being checked; None: no check is in progress."""
        self._refreshes = request.feature_flags.supports_auth_refresh
        self._challenged = False
        self._timer: Cancellable | None = None
        self._task: Task[None] | None = None

    @property
    def methods(self) -> frozenset[str]:
        """The authentication methods of the client, and of the original client behind a proxy."""
        own = self._connection.session.principal.method
        return frozenset((own, self._claim.original.method) if self._claim.original is not None else (own,))

    async def first(self) -> Principal:
        """Authenticates the credentials in CONNECT and returns the principal.

        :raises AuthenticationFailure: the credentials are not accepted
        :raises AuthorizationFailure: the proxy may not act for the original client
        """
        return await self._connection.broker.authenticator.authenticate(self._claim)

    def authenticated(self, principal: Principal) -> None:
        """Makes ``principal`` the session's principal until its credentials expire."""
        self._cancel_timer()
        if principal.expires is None:
            return
        broker = self._connection.broker
        left = max(principal.expires - broker.io.clock.wall_ms() / 1000, 0.0)
        due, seconds = self._end, left
        if self._refreshes and left > _SHORTEST_SECONDS:
            # Credentials of a shorter life are refreshed at half of it, so that a client is not asked
            # continually.
            early = min(broker.settings.authentication_refresh_seconds, left / 2)
            due, seconds = self._refresh, max(left - early, _SHORTEST_SECONDS)
        if seconds > _LONGEST_TIMER_SECONDS:
            due, seconds = self._look_again, _LONGEST_TIMER_SECONDS
        self._timer = broker.wheel.schedule(seconds, due)

    def _look_again(self) -> None:
        self.authenticated(self._connection.session.principal)

    def _refresh(self) -> None:
        """Asks the client for new credentials, which must arrive before the old credentials expire."""
        self._timer = None
        if not self._challenged:
            # Otherwise the answer to an earlier challenge is still in transit.
            self._challenged = True
            asked = self._claim.original or self._claim.credentials[0]
            self._connection.send(answers.auth_challenge(asked.method))
        expires = self._connection.session.principal.expires
        if expires is not None:
            left = expires - self._connection.broker.io.clock.wall_ms() / 1000
            self._timer = self._connection.broker.wheel.schedule(max(left, 0.0), self._end)

    def _end(self) -> None:
        self._timer = None
        self._refuse(AuthenticationFailure("The credentials of the client have expired"))

    def answered(self, response: CommandAuthResponse) -> None:
        """Accepts the client's answer to a challenge.

        :raises FrameError: there was no challenge
        """
        if not self._challenged:
            raise FrameError("The client sent AUTH_RESPONSE, but the broker sent no AUTH_CHALLENGE")
        data = response.response.auth_data
        claim = self._claim
        if claim.original is not None:
            claim = replace(claim, original=replace(claim.original, data=data, again=False))
        else:
            claim = replace(claim, credentials=(replace(claim.credentials[0], data=data, again=False),))
        self._challenged = False
        self._ask(claim)

    def again(self) -> None:
        """Checks the credentials again, because the data that they are checked against has changed."""
        if self._asked is not None:
            # The check in progress may have used the former state.
            self._ask(self._asked)
            return
        claim = self._claim
        original = replace(claim.original, again=True) if claim.original is not None else None
        credentials = [replace(one, again=True) for one in claim.credentials]
        self._ask(replace(claim, credentials=credentials, original=original))

    def _ask(self, claim: Claim) -> None:
        if self._task is not None:
            self._task.cancel()
        self._asked = claim
        self._task = self._connection.start(self._renew(claim), "the check of new credentials")

    async def _renew(self, claim: Claim) -> None:
        connection = self._connection
        try:
            found = await connection.broker.authenticator.authenticate(claim)
            principal = renewed(connection.session.principal, found)
        except Exception as error:  # noqa: BLE001 - told to the client
            self._task = self._asked = None
            self._refuse(to_broker_error(error))
            return
        self._task = self._asked = None
        if connection.session.state is SessionState.OPEN:
            self._claim = claim
            connection.session.principal = principal
            self.authenticated(principal)

    def _refuse(self, error: BrokerError) -> None:
        connection = self._connection
        if connection.closed:
            return
        if isinstance(error, InternalError):
            log.error(
                "closing the connection: authentication failed with an internal error",
                extra={"peer": connection.address},
                exc_info=error,
            )
        events.unauthenticated(connection.address, connection.session.principal.named, str(error))
        connection.send_error(answers.SERVER_REQUEST_ID, error)
        connection.close()

    def stop(self) -> None:
        """Stops timers and checks when the connection ends."""
        self._cancel_timer()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _claim_of(connection: Connection, request: CommandConnect) -> Claim:
    own = Credentials(
        request.auth_method_name, request.auth_data, connection.address, _peer_certificate(connection)
    )
    original = None
    if request.HasField("original_auth_data") or request.original_auth_method:
        data = request.original_auth_data.encode()
        original = Credentials(request.original_auth_method, data, connection.address)
    return Claim((own,), request.original_principal, original)


def _peer_certificate(connection: Connection) -> PeerCertificate | None:
    """Returns the client certificate that TLS has verified; None without TLS or without a certificate."""
    transport = connection.transport
    found: PeerCertificate | None = transport.get_extra_info("peercert") if transport is not None else None
    return found
