"""Interfaces of authentication, its result, and its counts by provider.

A broker calls an :class:`Authenticator`, which uses providers, one or more for each method; other packages
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
"""The method name that clients send when they have no credentials."""


@dataclass(slots=True)
class AuthenticationCounts:
    """Counts of one provider, for both listeners."""

    provider: str
    """Pulsar's class name of the provider, without the package."""
    method: str
    succeeded: int = 0
    failed: int = 0


NO_COUNTS: Sequence[AuthenticationCounts] = ()
"""The counts without authentication."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a client."""

    method: str
    """The name of an authentication method; empty: no method."""
    data: bytes = field(repr=False)
    peer: str
    """``host:port`` of the client."""
    certificate: PeerCertificate | None = None
    """None: the connection has no TLS, or the client sent no certificate."""
    again: bool = False
    """The credentials were accepted before: the broker checks whether they are still valid."""

    @property
    def host(self) -> str:
        """The client's address without the port."""
        return self.peer.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The role that a provider determined from credentials."""

    role: str
    expires: float | None = None
    """Seconds since 1970; None: never."""


class Provider(Protocol):
    """One authentication provider."""

    @property
    def method(self) -> str:
        """The name of the method: ``auth_method_name`` of CONNECT."""
        ...

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        """Returns the role of credentials. May take long; it is cancelled when the client disconnects.

        :raises AuthenticationFailure: the credentials are not valid; the text goes to the client and must
            not reveal valid credentials
        """
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """Registers ``changed``, to be called in the loop when the provider's data have changed: its clients
        are authenticated again."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The credentials of a new connection or of a request."""

    credentials: Sequence[Credentials]
    """The first valid ones count."""
    original_role: str = ""
    """The role that a proxy acts for; empty: itself."""
    original: Credentials | None = None
    """Credentials of the proxy's client, if the proxy forwards them."""


class Authenticator(Protocol):
    """Authenticates each connection of the binary listener, and each HTTP request; clients wait for it."""

    @property
    def asks(self) -> bool:
        """False: clients do not authenticate."""
        ...

    async def authenticate(self, claim: Claim) -> Principal:
        """Returns the principal of a client. May take long, limited by the keep-alive time-out; it is
        cancelled when the client disconnects.

        :raises AuthenticationFailure: the client is not authenticated
        :raises AuthorizationFailure: the client may not act for the original role
        """
        ...

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """Registers ``changed``, to be called with the methods whose clients must be authenticated again;
        None: all."""
        ...

    @property
    def authentication_counts(self) -> Sequence[AuthenticationCounts]:
        """Returns the numbers of successes and failures by provider."""
        ...

    async def close(self) -> None:
        """Releases threads and files."""
        ...


class NobodyIsAsked:
    """Accepts all clients, whatever credentials they send."""

    asks = False
    authentication_counts = NO_COUNTS

    async def authenticate(self, claim: Claim) -> Principal:
        """Always returns the anonymous principal."""
        return ANONYMOUS

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """Does nothing: nothing changes."""

    async def close(self) -> None:
        """Does nothing."""


def refused(reason: str) -> AuthenticationFailure:
    """Returns the error for credentials that are not valid."""
    return AuthenticationFailure(reason)


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity of a client, on either listener, until it is authenticated again."""

    role: str
    """The name that permissions are granted to."""
    method: str
    """The name of the authentication method; empty if clients do not authenticate."""
    original_role: str | None = None
    """The role of the client behind a proxy; :attr:`role` is the proxy's then."""
    expires: float | None = None
    """When the credentials expire, seconds since 1970; None: never."""

    @property
    def named(self) -> str:
        """The form for logs."""
        role = self.role or "anonymous"
        return role if self.original_role is None else f"{self.original_role} (through {role})"


ANONYMOUS = Principal("", "")
"""A client without authentication, if authentication is not required."""
BROKER = Principal("broker", "internal")
"""The broker itself, when it does not act for a client; no client can get this principal."""
INTERNAL = frozenset({BROKER.method})
"""Methods that clients cannot use."""
