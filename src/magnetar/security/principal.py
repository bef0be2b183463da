"""Who asks for something."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """What is known of a client, on either door, until it proves something else."""

    role: str
    """The name that permissions are given to."""
    method: str
    """How the role was proven: the name of an authentication method; empty when nobody asked."""
    original_role: str | None = None
    """Behind a proxy, whose role is then :attr:`role`: the role of the proxy's own client."""
    expires: float | None = None
    """When the proof ends, seconds since 1970; None: never."""


ANONYMOUS = Principal("", "")
"""A client that was not asked for a proof."""
