"""Markers in a topic: entries that brokers write for each other, and that consumers never get.

A marker is handled when it is durable: subscriptions that have consumed everything before it consume it at
once, and the replication of subscriptions (in a higher layer) is notified.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from magnetar.broker.publishing.producer import Publish
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.position import Position

_NOWHERE = (-1, -1)


@dataclass(frozen=True, slots=True)
class Marker:
    kind: int
    """``marker_type`` of its metadata."""
    payload: bytes
    origin: str | None
    """The cluster that it came from; None: this broker wrote it."""


class MarkerReader(Protocol):
    """Acts on markers, and is notified when a subscription is marked as replicated."""

    def stored(self, marker: Marker, position: Position) -> None:
        """A marker is durable at a position."""
        ...

    def subscriptions_changed(self) -> None:
        """A subscription was marked as replicated, or no longer is."""
        ...


class TopicMarkers:
    """The markers of one topic."""

    def __init__(self, ledgers: LedgerList) -> None:
        self._ledgers = ledgers
        self._first = self._last = _NOWHERE
        """The adjacent markers at the end of the topic, with nothing between them."""
        self.on_their_way: dict[Publish, Marker] = {}
        """Handed to the ledger, and not durable yet."""
        self.reader: MarkerReader | None = None
        """None: the topic is in one cluster only."""

    def durable(self, appends: Sequence[Append], subscriptions: Iterable[Subscription]) -> None:
        """Handles the markers among the entries that have become durable."""
        for append in appends:
            marker = self.on_their_way.pop(append.context, None)
            if marker is None:
                continue
            position = (append.ledger_id, append.first_entry_id)
            if self._ledgers.before(position) != self._last:
                self._first = position
            self._last = position
            for subscription in subscriptions:
                self.pass_over(subscription)
            if self.reader is not None:
                self.reader.stored(marker, position)

    def pass_over(self, subscription: Subscription) -> None:
        """Consumes the markers at the end of the topic, if a subscription has consumed everything before
        them."""
        subscription.pass_markers(self._first, self._last)

    def failed(self, appends: Sequence[Append]) -> None:
        """Forgets markers that will not be stored."""
        for append in appends:
            self.on_their_way.pop(append.context, None)

    def subscriptions_changed(self) -> None:
        if self.reader is not None:
            self.reader.subscriptions_changed()
