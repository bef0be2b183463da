"""A consumer of an Exclusive subscription that receives only some of the keys, as readers may ask for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from magnetar.broker.consumers.consumer import Consumer, ConsumerConnection, S
from magnetar.broker.consumers.key_ranges import Range
from magnetar.broker.consumers.non_persistent_run import NonPersistentRun
from magnetar.ledger.entry_run import EntryRun
from magnetar.protocol.hot_codec import key_slots
from magnetar.protocol.hot_keys import RANGE_SLOTS


class RangedConsumer(Consumer[S]):
    """Receives the entries whose slots are in its ranges; the others stay unacknowledged."""

    __slots__ = ("ranges",)

    def __init__(
        self,
        ranges: Sequence[Range],
        subscription: S,
        connection: ConsumerConnection,
        consumer_id: int,
        name: str,
        **more: Any,
    ) -> None:
        """:param more: arguments of :class:`Consumer`"""
        super().__init__(subscription, connection, consumer_id, name, **more)
        self.ranges = ranges

    def wanted(self, run: EntryRun | NonPersistentRun, first: int, end: int) -> list[int]:
        """Returns the indexes of the entries [first, end) of a run that it receives."""
        slots = array("i", bytes(4 * (end - first)))
        key_slots(run.buffer, run.starts, run.ends, first, end - first, RANGE_SLOTS, slots)
        return [
            first + index
            for index, slot in enumerate(slots)
            if any(low <= slot <= high for low, high in self.ranges)
        ]
