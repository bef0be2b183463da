"""How clients are authenticated.

What a broker asks is an :class:`Authenticator`; it goes by providers, one or more for each method, which
other packages can bring along (``docs/security.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from magnetar.errors import AuthenticationFailure
from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication_counts import NO_COUNTS, AuthenticationCounts
from magnetar.security.principal import ANONYMOUS, Principal

PeerCertificate = Mapping[str, object]
"""What TLS has verified of a client's certificate, as Python's :meth:`ssl.SSLSocket.getpeercert` tells it."""

NO_METHOD = ("", "none")
"""The method name that clients send when they have no credentials."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client sends to be authenticated."""

    method: str
    """The name of an authentication method; empty: by nothing."""
    data: bytes = field(repr=False)
    peer: str
    """``host:port`` of the client."""
    certificate: PeerCertificate | None = None
    """None: the connection has no TLS, or the client no certificate."""
    again: bool = False
    """The client was let in by it before: it is the broker that asks whether it counts still."""

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.peer.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The role that a provider found for credentials."""

    role: str
    expires: float | None = None
    """Seconds since 1970; None: never."""


class Provider(Protocol):
    """One authentication provider."""

    @property
    def method(self) -> str:
        """The name by which clients choose it: ``auth_method_name`` of CONNECT."""
        ...

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        """The role of credentials. May take its time; it is cancelled when the client goes.

        :raises AuthenticationFailure: they are not valid; the text goes to the client and must not tell it
            what would have been right
        """
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """``changed`` is called in the loop when what it goes by has changed: its clients are asked again."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """What a client says of itself on a new connection, or in a request."""

    credentials: Sequence[Credentials]
    """The first that are valid count."""
    original_role: str = ""
    """Whom a proxy speaks for; empty: for itself."""
    original: Credentials | None = None
    """Credentials of that client, where proxies pass them on."""


class Authenticator(Protocol):
    """Asked for each connection of the binary listener and for requests; the client waits for its answer."""

    @property
    def asks(self) -> bool:
        """False: everybody is taken as they come."""
        ...

    async def authenticate(self, claim: Claim) -> Principal:
        """Who the client is. May take its time: as long as the broker bears a silent client, at most; it is
        cancelled when the client goes.

        :raises AuthenticationFailure: it is not authenticated
        :raises AuthorizationFailure: it may not speak for whom it speaks
        """
        ...

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """``changed`` is called with the methods whose clients have to be authenticated again; None: all."""
        ...

    @property
    def authentication_counts(self) -> Sequence[AuthenticationCounts]:
        """How often authentication succeeded and failed, by provider."""
        ...

    async def close(self) -> None:
        """Lets go of threads and files."""
        ...


class NobodyIsAsked:
    """Takes everybody as they come, whatever they say of themselves."""

    asks = False
    authentication_counts = NO_COUNTS

    async def authenticate(self, claim: Claim) -> Principal:
        """Anonymous, always."""
        return ANONYMOUS

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """Nothing ever changes."""

    async def close(self) -> None:
        """It holds nothing."""


def refused(reason: str) -> AuthenticationFailure:
    """What is raised when credentials are not valid."""
    return AuthenticationFailure(reason)
