"""A topic's view of its replicators, which a higher layer implements."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.flow.rates import Rate
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.position import Position

if TYPE_CHECKING:
    from magnetar.broker.topics.persistent import Topic


class AnyReplicating(Protocol):
    """A topic's replicator to one other cluster, whether the topic stores its messages or not."""

    remote: str
    """The name of the cluster, or the full name of the shadow topic."""
    sent: Rate
    """Messages and bytes that were sent, repeated ones included."""

    @property
    def where(self) -> str:
        """The destination in texts: a cluster or a shadow topic."""
        ...

    @property
    def hindrance(self) -> str:
        """Why nothing is sent, as a sentence; empty: sending is possible."""
        ...

    @property
    def connected_ms(self) -> int:
        """The time of the connection in milliseconds since 1970; 0: it is not connected."""
        ...

    @property
    def connected(self) -> bool: ...
    def link(self) -> tuple[str, str] | None:
        """``host:port`` of both ends of the connection, this broker's first; None while it is
        disconnected."""
        ...

    def delay_seconds(self) -> float:
        """Returns how long the oldest entry without a receipt has been in flight; 0 if none is."""
        ...

    def rest(self) -> None:
        """Disconnects until the topic is used again."""
        ...

    def tick(self, seconds: float) -> bool:
        """Updates rates over the last window; returns whether there is still traffic."""
        ...


class PassingOn(AnyReplicating, Protocol):
    """The replicator of a non-persistent topic: it sends messages at once or not at all."""

    dropped: Rate
    """Messages for the other cluster that were not sent."""

    def pass_on(self, buffer: bytes, starts: array[int], ends: array[int], count: int) -> None:
        """Sends the first ``count`` of the entries ``buffer[starts[i]:ends[i]]``, or drops them."""
        ...

    def wake(self) -> None:
        """Reconnects if it rests."""
        ...


class Replicating(AnyReplicating, Protocol):
    """The replicator of a persistent topic: it sends every message, with a cursor."""

    topic: Topic
    cursor: Cursor
    expiring: bool
    """Whether a search for expired entries is in progress."""
    last_expire_ms: int
    expired: Rate
    """Entries that expired before they were sent."""
    skipped: int
    """Entries that operators or backlog quotas skipped."""

    @property
    def name(self) -> str:
        """The name of its cursor, as operators know it."""
        ...

    @property
    def closing(self) -> bool: ...
    def backlog(self) -> int:
        """Returns the number of entries that the other cluster has not confirmed."""
        ...

    def policies_changed(self) -> None:
        """Applies the current policies of the topic."""
        ...

    def skip_to(self, position: Position) -> int:
        """Skips everything up to a position, which is never sent; returns the number of skipped entries."""
        ...

    def lag_seconds(self) -> float:
        """Returns the age of the oldest entry that the other cluster has not confirmed, since it was stored
        here or found at the last load; 0: there is none."""
        ...
