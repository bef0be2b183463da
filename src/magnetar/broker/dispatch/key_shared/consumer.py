"""Consumers of a Key_Shared subscription: the slots of each consumer, and the entries that it holds in each
slot."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import rshift
from typing import TYPE_CHECKING, Unpack

from magnetar.broker.consumers.consumer import (
    AnyConsumer,
    Consumer,
    ConsumerFacts,
    ConsumerSubscription,
    S_co,
)
from magnetar.broker.dispatch.key_shared import KeyedMember, KeySharedPolicy, Range
from magnetar.broker.dispatch.key_shared.ranges import Segments, key_ranges, ranges_of
from magnetar.errors import ConsumerBusy
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import KeyRouting, holder_of
from magnetar.protocol.hot_keys import RING_SLOTS

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection


SLOT_SHIFT = 32
"""The position of the slot in a number that combines a slot with a count of messages in the lower bits."""
_MESSAGES = (1 << SLOT_SHIFT) - 1


class KeyedConsumer(Consumer[S_co]):
    """A consumer of a Key_Shared subscription; ``pending`` has ``slot << 32 | messages`` for each entry."""

    __slots__ = ("draining", "policy", "slots_drained")

    def __init__(
        self,
        policy: KeySharedPolicy,
        subscription: S_co,
        connection: Connection,
        consumer_id: int,
        name: str,
        **more: Unpack[ConsumerFacts],
    ) -> None:
        """:param more: further arguments of :class:`Consumer`"""
        super().__init__(subscription, connection, consumer_id, name, **more)
        self.policy = policy
        self.draining = DrainingSlots()
        """The draining slots of the subscription, once the consumer has joined."""
        self.slots_drained = 0
        """The number of reassigned slots of which the consumer has acknowledged or returned all entries."""

    def hold_packed(
        self, ledger_id: int, entry_ids: Sequence[int], packed: Sequence[int], messages: int
    ) -> None:
        """Records that the consumer holds entries of a ledger.

        :param packed: ``slot << 32 | messages`` of each entry
        :param messages: the number of messages of all entries together
        """
        held = self.pending.get(ledger_id)
        if held is None:
            held = self.pending[ledger_id] = {}
        held.update(zip(entry_ids, packed, strict=True))
        self.unacked += messages

    def _gone(self, held: Sequence[int]) -> int:
        if self.draining.count:
            for packed in held:
                self._release(packed)
        return sum([packed & _MESSAGES for packed in held])

    def _release(self, packed: int) -> None:
        if self.draining.released(self, packed >> SLOT_SHIFT):
            self.slots_drained += 1

    def reduce(self, ledger_id: int, entry_id: int, messages: int) -> int:
        held = self.pending.get(ledger_id)
        if held is None or entry_id not in held:
            return 0
        # The slot in the higher bits stays.
        messages = min(messages, held[entry_id] & _MESSAGES)
        held[entry_id] -= messages
        self.unacked -= messages
        if self.unacked < 0:
            self._violated("unacknowledged messages", "at least 0", self.unacked)
        return messages

    def messages_held(self, ledger_id: int, entry_id: int) -> int:
        return super().messages_held(ledger_id, entry_id) & _MESSAGES

    def slots(self) -> Counter[int]:
        """Returns the number of entries that the consumer holds in each slot."""
        found: Counter[int] = Counter()
        for held in self.pending.values():
            found.update(map(rshift, held.values(), repeat(SLOT_SHIFT)))
        return found

    def held(self) -> Iterator[tuple[Position, int, int]]:
        """Yields the position of each entry that the consumer holds, with its slot and its number of
        messages."""
        for ledger_id, entries in self.pending.items():
            for entry_id, packed in entries.items():
                yield (ledger_id, entry_id), packed >> SLOT_SHIFT, packed & _MESSAGES

    def send_share(self, run: EntryRun, share: KeyedShare, count: int) -> int:
        """Sends the first ``count`` entries of a share, which the consumer then holds; returns their number
        of messages."""
        everything = count == len(share)
        sizes = share.sizes if everything else share.sizes[:count]
        messages = sum(sizes)
        ids, packed = (share.ids, share.packed) if everything else (share.ids[:count], share.packed[:count])
        self.hold_packed(run.ledger_id, ids, packed, messages)
        chosen = share.chosen if everything else share.chosen[:count]
        self.send_chosen(run, chosen, messages)
        return messages


AnyKeyed = KeyedConsumer[ConsumerSubscription]


def keyed(consumer: AnyConsumer) -> AnyKeyed:
    """Returns the consumer as a member of a Key_Shared subscription.

    :raises TypeError: the consumer was not made for a Key_Shared subscription
    """
    if not isinstance(consumer, KeyedConsumer):
        raise TypeError(f"consumer {consumer.name!r} has no slots: make a KeyedConsumer")
    return consumer


class KeyDivision:
    """The assignment of slots to the consumers of a Key_Shared subscription, for the compiled codec.

    The policy of the first consumer determines how slots are divided; the other consumers must have the same
    policy. ``ends``, ``holders`` and ``bounds`` are arguments of
    :func:`magnetar.protocol.hot_codec.group_by_holder`; the number of a consumer is its index in the last
    call of :meth:`divide`.
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
        """Returns the number of slots to which keys are hashed."""
        return self._ranges.modulo

    def join(self, consumer: AnyKeyed, others: Sequence[AnyKeyed], points: int) -> None:
        """Adds a consumer to the division, and assigns it slots.

        :param points: points of each consumer on the ring, 0 to halve ranges instead; only used for the first
            consumer
        :raises ConsumerBusy: the consumer's Key_Shared mode or out-of-order setting differs from the setting
            of ``others``
        :raises ConsumerAssignFailure: the requested ranges belong to another consumer, or no slots are left
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
        """Returns the slots of a consumer as ranges. On a hash ring, the lowest slot is 1, otherwise 0."""
        return ranges_of(consumer, self.segments, first=int(self.modulo == RING_SLOTS))

    def holder(self, slot: int) -> int:
        """Returns the number of the consumer that has a slot; -1 if no consumer has it."""
        return holder_of(slot, self.ends, self.holders)


class KeyedShare:
    """The entries of one run that go to one consumer of a Key_Shared subscription.

    Parallel arrays have, for each entry, its index in the run, its entry id, its number of messages, and
    ``slot << 32 | messages``.
    """

    __slots__ = ("chosen", "ids", "packed", "sizes")

    def __init__(self, chosen: array[int], ids: array[int], sizes: array[int], packed: array[int]) -> None:
        self.chosen = chosen
        self.ids = ids
        self.sizes = sizes
        self.packed = packed

    @classmethod
    def of_group(cls, routing: KeyRouting, start: int, stop: int) -> KeyedShare:
        """Returns the share with entries [start, stop) of ``routing``, which groups a run's entries by
        consumer."""
        return cls(
            routing.order[start:stop],
            routing.entry_ids[start:stop],
            routing.sorted_sizes[start:stop],
            routing.packed[start:stop],
        )

    @classmethod
    def of_positions(
        cls, taken: Sequence[tuple[Position, int]], first_entry_id: int, sizes_of_run: array[int]
    ) -> KeyedShare:
        """Returns the entries at the given positions, with their slots, in a run that begins with
        ``first_entry_id``."""
        ids = array("q", [position[1] for position, _slot in taken])
        chosen = array("q", [entry_id - first_entry_id for entry_id in ids])
        sizes = array("i", [sizes_of_run[index] for index in chosen])
        packed = [slot << SLOT_SHIFT | size for (_p, slot), size in zip(taken, sizes, strict=True)]
        return cls(chosen, ids, sizes, array("q", packed))

    def __len__(self) -> int:
        return len(self.chosen)

    def slot(self, place: int) -> int:
        return self.packed[place] >> SLOT_SHIFT

    def only(self, places: Sequence[int]) -> KeyedShare:
        """Returns a share with only the entries at the indexes ``places`` of the arrays."""
        return KeyedShare(
            array("q", [self.chosen[place] for place in places]),
            array("q", [self.ids[place] for place in places]),
            array("i", [self.sizes[place] for place in places]),
            array("q", [self.packed[place] for place in places]),
        )


class _Draining:
    __slots__ = ("attempts", "entries", "holder")

    def __init__(self, holder: KeyedMember, entries: int, attempts: int) -> None:
        self.holder = holder
        self.entries = entries
        self.attempts = attempts


class DrainingSlots:
    """Slots that were reassigned while their former holder still has unacknowledged messages in them.

    The new holder receives no message of a slot until the former holder has acknowledged or returned all its
    messages of the slot, so that two consumers never have messages of the same key.

    ``count`` is the number of slots that are draining, ``cleared`` the number of slots that have drained so
    far.
    """

    __slots__ = ("_slots", "cleared", "count", "drained")

    def __init__(self) -> None:
        self._slots: dict[int, _Draining] = {}
        self.count = 0
        self.cleared = 0
        self.drained: list[int] = []
        """Slots that have finished draining since the list was last emptied."""

    def recount(
        self,
        held: Iterable[tuple[KeyedMember, dict[int, int]]],
        owner: Callable[[int], KeyedMember | None],
    ) -> None:
        """Determines the draining slots after slots were reassigned.

        :param held: each consumer, with the number of entries that it holds in each slot
        :param owner: returns the consumer that has a slot now
        """
        former = self._slots
        self._slots = {}
        for holder, slots in held:
            for slot, entries in slots.items():
                if owner(slot) is holder:
                    continue
                known = former.get(slot)
                attempts = known.attempts if known is not None and known.holder is holder else 0
                self._slots[slot] = _Draining(holder, entries, attempts)
        self.count = len(self._slots)

    def blocks(self, slot: int) -> bool:
        """Whether messages of a slot must not be sent now."""
        return slot in self._slots

    def turned_away(self, slot: int) -> None:
        """Counts an entry that was not sent because its slot is draining."""
        self._slots[slot].attempts += 1

    def released(self, holder: KeyedMember, slot: int) -> bool:
        """Counts down the entries that a consumer holds in a slot; returns whether the slot has drained."""
        draining = self._slots.get(slot)
        if draining is None or draining.holder is not holder:
            return False
        draining.entries -= 1
        if draining.entries:
            return False
        del self._slots[slot]
        self.count -= 1
        self.cleared += 1
        self.drained.append(slot)
        return True

    def of(self, holder: KeyedMember) -> list[tuple[int, int, int]]:
        """Returns the slots that a consumer drains, ascending; for each slot also the number of its entries
        that the consumer holds, and the number of its entries that were not sent."""
        return sorted(
            (slot, draining.entries, draining.attempts)
            for slot, draining in self._slots.items()
            if draining.holder is holder
        )

    def entries(self) -> int:
        """Returns the number of entries that consumers hold in draining slots."""
        return sum(draining.entries for draining in self._slots.values())

    def clear(self) -> None:
        self._slots.clear()
        self.drained.clear()
        self.count = 0
