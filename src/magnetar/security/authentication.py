"""Interfaces and results of authentication, and the numbers of successes and failures by provider.

A broker calls an :class:`Authenticator`, which uses one or more providers for each method; other packages
can add providers (``docs/security.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from magnetar.errors import AuthenticationFailure
from magnetar.lazy_dataclass import dataclass

PeerCertificate = Mapping[str, object]
"""A client's certificate, verified by TLS, in the form of Python's :meth:`ssl.SSLSocket.getpeercert`."""
NO_METHOD = ("", "none")
"""The method names that clients send if they have no credentials."""


@dataclass(slots=True)
class AuthenticationCounts:
    """Numbers of successful and failed authentications by one provider, over the binary and HTTP
    listeners.
    """

    provider: str
    """Pulsar's class name of the provider, without the package."""
    method: str
    succeeded: int = 0
    failed: int = 0


NO_COUNTS: Sequence[AuthenticationCounts] = ()
"""The counts of a broker that does not authenticate clients."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a client."""

    method: str
    """The name of an authentication method; empty: no method."""
    data: bytes = field(repr=False)
    peer: str
    """The client's address, ``host:port``."""
    certificate: PeerCertificate | None = None
    """The client's TLS certificate; None if the connection has no TLS or the client sent no certificate."""
    again: bool = False
    """Whether the credentials were accepted before, and the broker now checks that they are still valid."""

    @property
    def host(self) -> str:
        """The client's address without the port."""
        return self.peer.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The role that a provider determined from credentials."""

    role: str
    expires: float | None = None
    """The time of expiry, in seconds since 1970; None: never."""


class Provider(Protocol):
    """One authentication provider."""

    @property
    def method(self) -> str:
        """The name of the method: ``auth_method_name`` of CONNECT."""
        ...

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        """Returns the role to which the credentials belong. The call may take long; it is cancelled when the
        client disconnects.

        :raises AuthenticationFailure: the credentials are not valid; the client gets the message, which must
            not reveal valid credentials
        """
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """Registers ``changed``, to be called on the loop when the provider's data has changed. The
        provider's clients are then authenticated again."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The credentials of a new connection or of a request."""

    credentials: Sequence[Credentials]
    """Credentials in the client's order; the first valid ones determine the role."""
    original_role: str = ""
    """The role that a proxy acts for; empty: the client acts for itself."""
    original: Credentials | None = None
    """The credentials of the proxy's client, if the proxy forwards them."""


class Authenticator(Protocol):
    """Authenticates each connection of the binary listener and each HTTP request, which wait for the
    result."""

    @property
    def asks(self) -> bool:
        """Whether clients must authenticate."""
        ...

    async def authenticate(self, claim: Claim) -> Principal:
        """Returns the principal of a client. The call may take until the keep-alive time-out; it is cancelled
        when the client disconnects.

        :raises AuthenticationFailure: the client is not authenticated
        :raises AuthorizationFailure: the client may not act for the original role
        """
        ...

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """Registers ``changed``, to be called with the authentication methods whose clients must be
        authenticated again (None: all methods)."""
        ...

    @property
    def authentication_counts(self) -> Sequence[AuthenticationCounts]:
        """Returns the numbers of successes and failures by provider."""
        ...

    async def close(self) -> None:
        """Releases threads and files."""
        ...


class NobodyIsAsked:
    """Accepts all clients, regardless of their credentials."""

    asks = False
    authentication_counts = NO_COUNTS

    async def authenticate(self, claim: Claim) -> Principal:
        """Always returns the anonymous principal."""
        return ANONYMOUS

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """Does nothing, because nothing changes."""

    async def close(self) -> None:
        """Does nothing."""


def refused(reason: str) -> AuthenticationFailure:
    """Returns the error for credentials that are not valid."""
    return AuthenticationFailure(reason)


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client, on either listener; it is replaced when the client is authenticated again."""

    role: str
    """The name to which permissions are granted."""
    method: str
    """The name of the authentication method; empty if clients do not authenticate."""
    original_role: str | None = None
    """The role of the client behind a proxy; :attr:`role` is then the proxy's role."""
    expires: float | None = None
    """The time when the credentials expire, in seconds since 1970; None: never."""

    @property
    def named(self) -> str:
        """The principal in the form for logs."""
        role = self.role or "anonymous"
        return role if self.original_role is None else f"{self.original_role} (through {role})"


ANONYMOUS = Principal("", "")
"""A client without authentication, if authentication is not required."""
BROKER = Principal("broker", "internal")
"""The broker itself, when it does not act for a client; no client can get this principal."""
INTERNAL = frozenset({BROKER.method})
"""Names of methods that clients cannot use, because the broker uses them for its own principal."""
