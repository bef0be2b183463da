"""A topic's view of its replicators, which a higher layer implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from magnetar.broker.flow.rates import Rate

if TYPE_CHECKING:
    pass


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
