"""The assignment of slots to the consumers of a Key_Shared subscription, for the hot codec."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from magnetar.broker.consumers.key_ranges import KeySharedPolicy, Range, Segments, key_ranges, ranges_of
from magnetar.broker.consumers.keyed_consumer import KeyedConsumer
from magnetar.errors import ConsumerBusy
from magnetar.protocol.hot_codec import holder_of
from magnetar.protocol.hot_keys import RING_SLOTS

AnyKeyed = KeyedConsumer[Any]


class KeyDivision:
    """The first consumer determines how slots are divided; all others must ask for the same.

    ``ends``, ``holders`` and ``bounds`` are arguments of :func:`magnetar.protocol.hot_codec.group_by_holder`;
    the number of a consumer is its index in the last call of :meth:`divide`.
    """

    def __init__(self) -> None:
        self.policy = KeySharedPolicy()
        self._ranges = key_ranges(self.policy.mode, 0)
        self.segments: Segments = []
        self.ends = array("i")
        self.holders = array("i")
        self.bounds = array("i")

    @property
    def modulo(self) -> int:
        """The number of slots that keys are hashed to."""
        return self._ranges.modulo

    def join(self, consumer: AnyKeyed, others: Sequence[AnyKeyed], points: int) -> None:
        """:param points: of each consumer on the ring, 0 to halve ranges instead; the first consumer's value
            counts

        :raises ConsumerBusy: it asks for another division than the present consumers
        :raises ConsumerAssignFailure: its ranges are taken, or no slots are left for it
        """
        if others:
            self._check(consumer.policy)
        else:
            self.policy = consumer.policy
            self._ranges = key_ranges(self.policy.mode, points)
        self._ranges.add(consumer)

    def _check(self, policy: KeySharedPolicy) -> None:
        if policy.mode is not self.policy.mode:
            raise ConsumerBusy(
                f"Subscription is of different type. Active subscription key_shared mode of "
                f"'{self.policy.mode.name}' is different than the connecting consumer's key_shared mode "
                f"'{policy.mode.name}'."
            )
        if policy.allow_out_of_order != self.policy.allow_out_of_order:
            allows, other = "allows", "does not allow it"
            if not self.policy.allow_out_of_order:
                allows, other = "does not allow", "allows it"
            raise ConsumerBusy(
                f"Subscription is of different type. Active subscription {allows} out of order delivery "
                f"while the connecting consumer {other}."
            )

    def leave(self, consumer: AnyKeyed) -> None:
        self._ranges.remove(consumer)

    def divide(self, consumers: Sequence[AnyKeyed]) -> None:
        """Assigns the slots to the consumers."""
        numbers: dict[object, int] = {consumer: number for number, consumer in enumerate(consumers)}
        self.segments = self._ranges.segments()
        self.ends = array("i", [last for last, _holder in self.segments])
        self.holders = array("i", [numbers.get(holder, -1) for _last, holder in self.segments])
        self.bounds = array("i", bytes(4 * (len(consumers) + 2)))

    def ranges_of(self, consumer: AnyKeyed) -> list[Range]:
        """Returns the slots of a consumer. A ring has no slot 0."""
        return ranges_of(consumer, self.segments, first=int(self.modulo == RING_SLOTS))

    def holder(self, slot: int) -> int:
        """Returns the number of the consumer that has a slot; -1 if none has it."""
        return holder_of(slot, self.ends, self.holders)
