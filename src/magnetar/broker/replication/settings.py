"""What all replicators of a broker have in common: settings, and the memory for what is on its way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.replication.subscriptions.settings import SubscriptionSettings
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.io.interfaces import Io, Loop
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.replication.clusters import RemoteClusters


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    cluster: str
    """The broker's own, by its name."""
    queue_size: int = 1000
    """``replicationProducerQueueSize``: entries of a replicator on their way."""
    start_at_earliest: bool = False
    """``replicationStartAt``: a cluster that is added gets what is stored already."""
    makes_topics: bool = True
    """``createTopicToRemoteClusterForReplication``: topics come into being in the other clusters, too."""
    check_seconds: float = 600.0
    """``replicationPolicyCheckDurationSeconds``: between two checks whether topics have the replicators that
    their policies want; 0: there are none."""
    migration_check_seconds: float = 0.0
    """``clusterMigrationCheckDurationSeconds``: between two checks whether loaded topics are to move to
    another cluster; 0: that is looked at when a topic is loaded."""
    makes_resources_of_moved: bool = False
    """``clusterMigrationAutoResourceCreation``: what a topic needs is made in the other cluster first."""
    backoff: tuple[float, float] = (0.1, 60.0)
    """The first and the longest time between two attempts, in seconds."""
    subscriptions: SubscriptionSettings = field(default_factory=SubscriptionSettings)


class _Waiting(Protocol):
    def go_on(self) -> None: ...


class InFlightBytes:
    """The bytes that all replicators together have sent without a receipt."""

    def __init__(self, loop: Loop, limit: Callable[[], int]) -> None:
        """:param limit: ``magnetarReplicationBufferBytes``; who finds it reached waits for its turn"""
        self._loop = loop
        self._limit = limit
        self.used = 0
        self._waiting: dict[_Waiting, None] = {}
        self._planned = False

    def admits(self, taker: _Waiting) -> bool:
        """Whether ``taker`` may send now; if not, its ``go_on`` is called when there is room."""
        if self.used < self._limit():
            self._waiting.pop(taker, None)
            return True
        self._waiting[taker] = None
        return False

    @property
    def used_up(self) -> bool:
        """Nothing may be sent now; asking for that makes nobody wait."""
        return self.used >= self._limit()

    def leave(self, taker: _Waiting) -> None:
        """It does not wait any more."""
        self._waiting.pop(taker, None)

    def take(self, size: int) -> None:
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size
        if self._waiting and not self._planned:
            self._planned = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._planned = False
        waiting, self._waiting = self._waiting, {}
        for taker in waiting:
            taker.go_on()


@dataclass(frozen=True, slots=True)
class Common:
    """What all replicators are made with."""

    io: Io
    clusters: Callable[[], RemoteClusters]
    """How clusters are reached, this one among them."""
    schemas: SchemaRegistry
    partitions: Callable[[TopicName], Awaitable[int]]
    """How many a topic has here; 0: it has none."""
    settings: Callable[[], ReplicationSettings]
    """As they are now."""
    in_flight: InFlightBytes
