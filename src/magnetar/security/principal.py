"""The authenticated identity of a client."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass


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
