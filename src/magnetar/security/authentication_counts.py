"""Numbers of successful and failed authentications, by provider."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.lazy_dataclass import dataclass


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
