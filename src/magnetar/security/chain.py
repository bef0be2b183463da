"""The authenticator of a broker with providers; supports proxies and an anonymous role.

The rules are Pulsar's (``AuthenticationService``, ``ServerCnx``, PIP-97). The client chooses the method. If
several providers have that method, the first that accepts the credentials decides. A client with an unknown
method is anonymous if an anonymous role is set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from magnetar.errors import AuthenticationFailure, AuthorizationFailure, BrokerError
from magnetar.io.interfaces import Io
from magnetar.io.waiting import sleep
from magnetar.lazy_dataclass import dataclass
from magnetar.security.authentication import (
    INTERNAL,
    NO_METHOD,
    Authenticated,
    AuthenticationCounts,
    Claim,
    Credentials,
    Principal,
    Provider,
    refused,
)
from magnetar.security.options import ProviderRefused

Changed = Callable[[frozenset[str] | None], None]
_FREE = 5
"""The number of failures of one address that are answered without a delay."""
_FIRST_SECONDS = 0.1
_MOST_SECONDS = 5.0
_FORGOTTEN_SECONDS = 60.0
_ADDRESSES = 10_000


class ProviderChain:
    """Implements :class:`magnetar.security.authentication.Authenticator`."""

    asks = True

    def __init__(
        self,
        io: Io,
        providers: Sequence[Provider],
        *,
        anonymous_role: str = "",
        proxy_roles: Callable[[], frozenset[str]] = frozenset,
        authenticate_original: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        """:param anonymous_role: the role of clients without credentials or with an unknown method; empty:
            such clients are refused
        :param proxy_roles: returns the current roles of proxies
        :param authenticate_original: whether proxies must forward the credentials of their clients
        :param names: the names of the providers, for metrics; empty: the names of their classes
        :raises ProviderRefused: a method has a reserved name
        """
        self._io = io
        self._providers: dict[str, list[tuple[Provider, AuthenticationCounts]]] = {}
        self.authentication_counts: list[AuthenticationCounts] = []
        """The counts of each provider, in the order of the providers."""
        for index, provider in enumerate(providers):
            if provider.method in INTERNAL or provider.method in NO_METHOD:
                raise ProviderRefused(
                    f"{provider.method!r} is reserved: it cannot be the authentication method of a provider"
                )
            name = names[index] if names else type(provider).__name__
            counts = AuthenticationCounts(name, provider.method)
            self.authentication_counts.append(counts)
            self._providers.setdefault(provider.method, []).append((provider, counts))
        self._anonymous = anonymous_role
        self._proxy_roles = proxy_roles
        self._authenticate_original = authenticate_original
        self._attempts = FailedAttempts(io)
        self._all = tuple(providers)

    @property
    def methods(self) -> frozenset[str]:
        """The methods that clients can choose."""
        return frozenset(self._providers)

    async def authenticate(self, claim: Claim) -> Principal:
        """Returns the principal of a client; see
        :meth:`magnetar.security.authentication.Authenticator.authenticate`."""
        try:
            authenticated, method = await self._first(claim.credentials)
            original = await self._original(claim)
        except AuthenticationFailure:
            if any(one.again for one in claim.credentials):
                # Not an attempt of the client; a client that is no longer accepted must end without delay.
                raise
            host = claim.credentials[0].host if claim.credentials else ""
            await sleep(self._io.loop, self._attempts.failed(host))
            raise
        if original is None:
            self._check_no_proxy(authenticated.role)
            return Principal(authenticated.role, method, None, authenticated.expires)
        self._check_proxy(authenticated.role, original.role)
        expiries = [at for at in (authenticated.expires, original.expires) if at is not None]
        speaks_for = None if original.role == authenticated.role else original.role
        return Principal(authenticated.role, method, speaks_for, min(expiries, default=None))

    async def _first(self, offered: Sequence[Credentials]) -> tuple[Authenticated, str]:
        failure: BrokerError | None = None
        for credentials in offered:
            for provider, counts in self._providers.get(credentials.method, ()):
                try:
                    authenticated = await provider.authenticate(credentials)
                    counts.succeeded += 1
                    return authenticated, provider.method
                except AuthenticationFailure as error:
                    counts.failed += 1
                    # The first error is that of the credentials that the client prefers.
                    failure = failure or error
        if failure is not None:
            raise failure
        if self._anonymous:
            return Authenticated(self._anonymous), ""
        named = next((c.method for c in offered if c.method not in NO_METHOD), None)
        if named is None:
            raise refused("Authentication required")
        raise refused(f"The broker does not know the authentication method {named[:100]!r}")

    async def _original(self, claim: Claim) -> Authenticated | None:
        if self._authenticate_original and claim.original is not None:
            authenticated, _method = await self._first([claim.original])
            return authenticated
        if claim.original_role and self._authenticate_original:
            raise refused("The proxy must pass on the credentials of its client")
        return Authenticated(claim.original_role) if claim.original_role else None

    def _check_no_proxy(self, role: str) -> None:
        if role in self._proxy_roles():
            raise AuthorizationFailure("The proxy must name the original principal")

    def _check_proxy(self, role: str, original: str) -> None:
        proxies = self._proxy_roles()
        if role not in proxies:
            if role != original:
                raise AuthorizationFailure("Only proxies may act for another client")
        elif original in proxies:
            raise AuthorizationFailure("A proxy may not act for another proxy")

    def listen(self, changed: Changed) -> None:
        for provider in self._all:
            provider.listen(lambda method=provider.method: changed(frozenset((method,))))  # type: ignore[misc]

    async def close(self) -> None:
        for provider in self._all:
            await provider.close()


def renewed(before: Principal, now: Principal) -> Principal:
    """Returns the principal after a repeated authentication.

    :raises AuthenticationFailure: the role has changed
    """
    if (before.role, before.original_role) != (now.role, now.original_role):
        raise refused("The role of a connection cannot change")
    return replace(before, expires=now.expires, method=now.method)


@dataclass(slots=True)
class _Failures:
    count: int
    last: float


class FailedAttempts:
    """Counts authentication failures by client address; only a limited number of the most recent addresses is
    kept."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._of: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        """Returns the number of remembered addresses."""
        return len(self._of)

    def failed(self, host: str) -> float:
        """Counts a failure; returns the seconds to wait before the client gets the answer."""
        now = self._io.clock.monotonic()
        found = self._of.pop(host, None)
        if found is None or now - found.last > _FORGOTTEN_SECONDS:
            found = _Failures(0, now)
        found.count += 1
        found.last = now
        self._of[host] = found
        if len(self._of) > _ADDRESSES:
            self._of.popitem(last=False)
        beyond = found.count - _FREE
        return min(_FIRST_SECONDS * 2 ** min(beyond - 1, 10), _MOST_SECONDS) if beyond > 0 else 0.0
