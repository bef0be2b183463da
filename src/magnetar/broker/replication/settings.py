"""What all replicators of a broker share: settings, and the memory for entries in flight."""

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
    """The name of the broker's own cluster."""
    queue_size: int = 1000
    """``replicationProducerQueueSize``: entries of a replicator in flight."""
    start_at_earliest: bool = False
    """``replicationStartAt``: an added cluster also gets the messages that are stored already."""
    makes_topics: bool = True
    """``createTopicToRemoteClusterForReplication``: topics are created in the other clusters as well."""
    check_seconds: float = 600.0
    """``replicationPolicyCheckDurationSeconds``: the period of the check that topics have the replicators of
    their policies; 0: no checks."""
    migration_check_seconds: float = 0.0
    """``clusterMigrationCheckDurationSeconds``: the period of the check whether loaded topics shall migrate
    to another cluster; 0: only the load of a topic checks it."""
    makes_resources_of_moved: bool = False
    """``clusterMigrationAutoResourceCreation``: what a topic needs is created in the other cluster first."""
    backoff: tuple[float, float] = (0.1, 60.0)
    """The shortest and the longest delay between two attempts, in seconds."""
    subscriptions: SubscriptionSettings = field(default_factory=SubscriptionSettings)


class _Waiting(Protocol):
    def go_on(self) -> None: ...


class InFlightBytes:
    """The bytes that all replicators together have sent and that are not confirmed."""

    def __init__(self, loop: Loop, limit: Callable[[], int]) -> None:
        """:param limit: ``magnetarReplicationBufferBytes``; when it is reached, replicators wait in turn"""
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
        """Whether the limit is reached; unlike :meth:`admits`, this registers no waiting replicator."""
        return self.used >= self._limit()

    def leave(self, taker: _Waiting) -> None:
        """Removes a waiting replicator."""
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
    """What all replicators are constructed with."""

    io: Io
    clusters: Callable[[], RemoteClusters]
    """How clusters are reached, the own one included."""
    schemas: SchemaRegistry
    partitions: Callable[[TopicName], Awaitable[int]]
    """Returns the number of a topic's partitions here; 0 for a topic without any."""
    settings: Callable[[], ReplicationSettings]
    """Returns the current settings."""
    in_flight: InFlightBytes
