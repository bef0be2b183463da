"""A subscription's view of its replication to other clusters, which a higher layer implements."""

from __future__ import annotations

from typing import Protocol


class Carrying(Protocol):
    """Reports the position of a replicated subscription to other clusters; implemented in a higher layer."""

    @property
    def snapshots(self) -> int:
        """The number of snapshots that the subscription has not passed yet."""
        ...

    @property
    def hindrance(self) -> str:
        """Why the subscription does not move in other clusters, as a sentence; empty: no reason is known."""
        ...

    def met(self, entry: bytes) -> None:
        """The dispatcher has read a marker."""
        ...

    def moved(self) -> None:
        """The mark-delete position may have moved."""
        ...


class Marks(Protocol):
    def subscriptions_changed(self) -> None:
        """A subscription was marked as replicated, or no longer is."""
        ...
