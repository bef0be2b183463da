"""Authentication of a connection: at CONNECT, and again whenever the result may have changed.

The conversation is Pulsar's (PIP-30): CONNECT carries the first credentials; AUTH_CHALLENGE asks for new ones
before they expire, and AUTH_RESPONSE carries these. A client that sends none is disconnected.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.broker import events
from magnetar.broker.connections import answers
from magnetar.broker.connections.session import SessionState
from magnetar.broker.translation import to_broker_error
from magnetar.errors import AuthenticationFailure, BrokerError, InternalError
from magnetar.io.interfaces import Cancellable, Task
from magnetar.protocol.errors import FrameError
from magnetar.protocol.pulsar_api_pb2 import CommandAuthResponse, CommandConnect
from magnetar.security.authentication import Claim, Credentials
from magnetar.security.chain import renewed
from magnetar.security.principal import Principal

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection

log = logging.getLogger(__name__)

_LONGEST_TIMER_SECONDS = 86_400.0
_SHORTEST_SECONDS = 1.0
"""The shortest time between two challenges."""


class Authenticating:
    """Authenticates one connection."""

    __slots__ = ("_asked", "_challenged", "_claim", "_connection", "_refreshes", "_task", "_timer")

    def __init__(self, connection: Connection, request: CommandConnect) -> None:
        self._connection = connection
        self._claim = _claim_of(connection, request)
        self._asked: Claim | None = None
        """The claim that is being checked."""
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
        """Makes ``principal`` that of the session until its credentials expire."""
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
        """Asks the client for new credentials; it has until the old ones expire."""
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
        """Takes the client's answer to a challenge.

        :raises FrameError: there was no challenge
        """
        if not self._challenged:
            raise FrameError("AUTH_RESPONSE without a challenge")
        data = response.response.auth_data
        claim = self._claim
        if claim.original is not None:
            claim = replace(claim, original=replace(claim.original, data=data, again=False))
        else:
            claim = replace(claim, credentials=(replace(claim.credentials[0], data=data, again=False),))
        self._challenged = False
        self._ask(claim)

    def again(self) -> None:
        """Checks the credentials again, because what they were checked against has changed."""
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
        self._task = self._connection.broker.io.loop.create_task(self._renew(claim))

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
        request.auth_method_name, request.auth_data, connection.address, connection.peer_certificate
    )
    original = None
    if request.HasField("original_auth_data") or request.original_auth_method:
        data = request.original_auth_data.encode()
        original = Credentials(request.original_auth_method, data, connection.address)
    return Claim((own,), request.original_principal, original)
