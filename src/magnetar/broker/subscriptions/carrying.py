"""What a subscription knows of its being replicated to other clusters, which is done a room above."""

from __future__ import annotations

from typing import Protocol


class Carrying(Protocol):
    """What tells other clusters how far a replicated subscription has come; it is made a room above."""

    @property
    def snapshots(self) -> int:
        """How many it has not passed yet."""
        ...

    @property
    def hindrance(self) -> str:
        """Why it does not move along in other clusters, in words; empty: nothing is known."""
        ...

    def met(self, entry: bytes) -> None:
        """The dispatcher comes across a marker."""
        ...

    def moved(self) -> None:
        """The mark-delete position may have moved."""
        ...


class Marks(Protocol):
    def subscriptions_changed(self) -> None:
        """A subscription was marked as replicated, or is no longer."""
        ...
