"""Settings and figures that all replicated subscriptions of a broker share."""

from __future__ import annotations

from dataclasses import field

from magnetar.broker.flow.rates import Timings
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    enabled: bool = True
    """``enableReplicatedSubscriptions``"""
    snapshot_seconds: float = 1.0
    """``replicatedSubscriptionsSnapshotFrequencyMillis``: the shortest time between two snapshots
    of a topic."""
    timeout_seconds: float = 30.0
    """``replicatedSubscriptionsSnapshotTimeoutSeconds``: a snapshot that takes longer is given up."""
    cached: int = 10
    """``replicatedSubscriptionsSnapshotMaxCachedPerSubscription``"""


@dataclass(slots=True)
class SnapshotFigures:
    """Figures of all topics of a broker, since its start."""

    pending: int = 0
    """Snapshots in progress."""
    timed_out: int = 0
    taken: Timings = field(default_factory=Timings)
    """Their durations, in milliseconds."""
