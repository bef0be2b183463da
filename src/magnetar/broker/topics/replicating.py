"""What a topic knows of its replicators, which are made a room above it."""

from __future__ import annotations

from array import array
from typing import Any, Protocol

from magnetar.broker.flow.rates import Rate
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.position import Position


class AnyReplicating(Protocol):
    """A topic's replicator to one other cluster, whether the topic stores its messages or not."""

    remote: str
    """The name of the cluster, or the full name of the shadow topic."""
    sent: Rate
    """Messages and bytes that were sent, those that were sent again among them."""

    @property
    def where(self) -> str:
        """What it sends to, for people: a cluster, or a shadow topic."""
        ...

    @property
    def hindrance(self) -> str:
        """Why nothing is sent, in words; empty: nothing keeps it from sending."""
        ...

    @property
    def connected_ms(self) -> int:
        """When it was connected, in milliseconds since 1970; 0: it is not."""
        ...

    @property
    def connected(self) -> bool: ...
    def link(self) -> tuple[str, str] | None:
        """``host:port`` of both ends of its connection, its own end first; None while it is disconnected."""
        ...

    def delay_seconds(self) -> float:
        """How long the oldest entry without a receipt has been in flight; 0 if none is."""
        ...

    def rest(self) -> None:
        """Disconnects until the topic is used again."""
        ...

    def tick(self, seconds: float) -> bool:
        """Works out rates over the last window; returns whether anything still moves."""
        ...


class PassingOn(AnyReplicating, Protocol):
    """The replicator of a non-persistent topic: it sends at once, or not at all."""

    dropped: Rate
    """Messages for the other cluster that were not sent."""

    def pass_on(self, buffer: bytes, starts: array[int], ends: array[int], count: int) -> None:
        """Sends the first ``count`` of the entries ``buffer[starts[i]:ends[i]]``, or drops them."""
        ...

    def wake(self) -> None:
        """Connects again if it rests."""
        ...


class Replicating(AnyReplicating, Protocol):
    """The replicator of a persistent topic: it sends every message, from a cursor."""

    topic: Any
    cursor: Cursor
    expiring: bool
    """It is being looked up what has expired."""
    last_expire_ms: int
    expired: Rate
    """Entries that were not sent because they had expired."""
    skipped: int
    """Entries that operators and backlog quotas had skipped."""

    @property
    def name(self) -> str:
        """That of its cursor, as operators call it."""
        ...

    @property
    def closing(self) -> bool: ...
    def backlog(self) -> int:
        """Entries that the other cluster has not confirmed."""
        ...

    def policies_changed(self) -> None:
        """Goes by the policies of its topic as they are now."""
        ...

    def skip_to(self, position: Position) -> int:
        """Has everything up to a position never be sent; returns how many entries that were."""
        ...

    def lag_seconds(self) -> float:
        """Age of the oldest entry that the other cluster has not confirmed, by when it was stored here or
        found at the last load; 0: there is none."""
        ...
