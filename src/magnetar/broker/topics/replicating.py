"""What a topic knows of its replicators, which are made a room above it."""

from __future__ import annotations

from typing import Any, Protocol

from magnetar.broker.flow.rates import Rate
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.position import Position


class Replicating(Protocol):
    """A topic's replicator to one other cluster."""

    remote: str
    """The name of the cluster."""
    topic: Any
    cursor: Cursor
    expiring: bool
    """It is being looked up what has expired."""
    last_expire_ms: int
    sent: Rate
    """Messages and bytes that were sent, those that were sent again among them."""
    expired: Rate
    """Entries that were not sent because they had expired."""
    skipped: int
    """Entries that operators and backlog quotas had skipped."""

    @property
    def name(self) -> str:
        """That of its cursor, as operators call it."""
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
    def closing(self) -> bool: ...
    def backlog(self) -> int:
        """Entries that the other cluster has not confirmed."""
        ...

    def policies_changed(self) -> None:
        """Goes by the policies of its topic as they are now."""
        ...

    def rest(self) -> None:
        """Disconnects until something is published: the topic is not used."""
        ...

    def skip_to(self, position: Position) -> int:
        """Has everything up to a position never be sent; returns how many entries that were."""
        ...

    @property
    def connected(self) -> bool: ...
    def link(self) -> tuple[str, str] | None:
        """``host:port`` of both ends of its connection, its own end first; None while it is disconnected."""
        ...

    def delay_seconds(self) -> float:
        """How long the oldest entry without a receipt has been on its way; 0: there is none."""
        ...

    def lag_seconds(self) -> float:
        """Age of the oldest entry that the other cluster has not confirmed, by when it was stored here or
        found at the last load; 0: there is none."""
        ...

    def tick(self, seconds: float) -> bool:
        """Works out rates over the last window; returns whether anything still moves."""
        ...
