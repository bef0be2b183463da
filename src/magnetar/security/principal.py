"""Who asks for something."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """What is known of a client, on either listener, until it is authenticated again."""

    role: str
    """The name that permissions are given to."""
    method: str
    """The name of the authentication method; empty if clients do not authenticate."""
    original_role: str | None = None
    """Behind a proxy, whose role is then :attr:`role`: the role of the proxy's own client."""
    expires: float | None = None
    """When the credentials expire, seconds since 1970; None: never."""

    @property
    def named(self) -> str:
        """As logs tell it."""
        role = self.role or "anonymous"
        return role if self.original_role is None else f"{self.original_role} (through {role})"


ANONYMOUS = Principal("", "")
"""A client that was not authenticated, because clients do not have to be."""

BROKER = Principal("broker", "internal")
"""The broker itself, where it asks for something on nobody's behalf; no client can become this."""
INTERNAL = frozenset({BROKER.method})
"""Methods that no client authenticates by."""
