"""How often authentication succeeded and failed, by provider."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.lazy_dataclass import dataclass


@dataclass(slots=True)
class AuthenticationCounts:
    """Counts of one provider, on both listeners."""

    provider: str
    """As Pulsar names its own, without the package."""
    method: str
    succeeded: int = 0
    failed: int = 0


NO_COUNTS: Sequence[AuthenticationCounts] = ()
"""Of a broker that asks nobody."""
