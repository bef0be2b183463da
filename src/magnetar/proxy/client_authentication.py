"""Authentication of a proxy's client at CONNECT, and again before its credentials expire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from magnetar import __version__
from magnetar.errors import AuthenticationFailure, BrokerError
from magnetar.io.interfaces import Cancellable, Io
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAuthResponse, CommandConnect
from magnetar.security.authentication import (
    ANONYMOUS,
    Authenticator,
    Claim,
    Credentials,
    PeerCertificate,
    Principal,
)
from magnetar.security.chain import renewed

_REFRESH = b"PulsarAuthRefresh"
_LONGEST_SECONDS = 86_400.0


class ClientAuthentication:
    """The authentication of a client on one connection."""

    def __init__(
        self,
        io: Io,
        authenticator: Authenticator,
        request: CommandConnect,
        peer: str,
        certificate: PeerCertificate | None,
    ) -> None:
        self._io = io
        self._authenticator = authenticator
        self.credentials = Credentials(request.auth_method_name, request.auth_data, peer, certificate)
        self.principal: Principal = ANONYMOUS
        self._refreshes = request.feature_flags.supports_auth_refresh
        self._timer: Cancellable | None = None
        self._tasks = TaskScope(io.loop, "the authentication of a client", owner_goes_on)
        self._challenged = False

    async def first(self) -> None:
        """Authenticates the client with the credentials in its CONNECT.

        :raises BrokerError: the client is not authenticated
        """
        self.principal = await self._authenticator.authenticate(Claim((self.credentials,)))

    @property
    def _left(self) -> float | None:
        expires = self.principal.expires
        return None if expires is None else max(expires - self._io.clock.wall_ms() / 1000, 0.0)

    def watch(
        self, refresh_seconds: float | None, send: Callable[[BaseCommand], object], end: Callable[[], object]
    ) -> None:
        """Requests new credentials before the current ones expire.

        :param refresh_seconds: how long before the expiry, in seconds; None: no credentials are requested
        :param send: sends the challenge to the client
        :param end: called at the expiry, if the client has not sent new credentials
        """
        self.stop()
        left = self._left
        if left is None:
            return
        if left > _LONGEST_SECONDS:
            again = self._io.loop.call_later
            self._timer = again(_LONGEST_SECONDS, self.watch, refresh_seconds, send, end)
        elif refresh_seconds is None or not self._refreshes or self._challenged:
            self._timer = self._io.loop.call_later(left, end)
        else:
            early = left - min(refresh_seconds, left / 2)
            self._timer = self._io.loop.call_later(early, self._challenge, refresh_seconds, send, end)

    def _challenge(
        self, refresh_seconds: float, send: Callable[[BaseCommand], object], end: Callable[[], object]
    ) -> None:
        self._challenged = True
        command = BaseCommand(type=BaseCommand.AUTH_CHALLENGE)
        command.authChallenge.server_version = f"Magnetar proxy {__version__}"
        command.authChallenge.challenge.auth_method_name = self.credentials.method
        command.authChallenge.challenge.auth_data = _REFRESH
        send(command)
        self.watch(refresh_seconds, send, end)

    def answered(
        self, response: CommandAuthResponse, authenticated: Callable[[], object], end: Callable[[], object]
    ) -> None:
        """Handles the client's answer to a challenge.

        :param authenticated: called when the new credentials have been accepted
        :param end: called when the new credentials have been refused
        :raises AuthenticationFailure: no challenge is open
        """
        if not self._challenged:
            raise AuthenticationFailure("AUTH_RESPONSE without a challenge")
        self._challenged = False
        fresh = replace(self.credentials, data=response.response.auth_data)

        async def ask() -> None:
            try:
                found = await self._authenticator.authenticate(Claim((fresh,)))
                self.principal = renewed(self.principal, found)
            except BrokerError:
                end()
                return
            except Exception:
                end()
                raise
            self.credentials = fresh
            authenticated()

        self._tasks.start(ask(), "the check of new credentials")

    def stop(self) -> None:
        """Stops the timers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Releases all resources at the end of the connection."""
        self.stop()
        self._tasks.cancel()
