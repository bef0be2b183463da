"""A consumer of a Key_Shared subscription, which keeps the slots of its unacknowledged messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import rshift
from typing import Any

from magnetar.broker.consumers.consumer import Consumer, ConsumerConnection, S
from magnetar.broker.consumers.draining import DrainingSlots
from magnetar.broker.consumers.key_ranges import KeySharedPolicy
from magnetar.broker.consumers.keyed_share import SLOT_SHIFT, KeyedShare
from magnetar.ledger.entry_run import EntryRun
from magnetar.managed_ledger.position import Position

_MESSAGES = (1 << SLOT_SHIFT) - 1


class KeyedConsumer(Consumer[S]):
    """``pending`` has ``slot << 32 | messages`` for each entry."""

    __slots__ = ("draining", "policy", "slots_drained")

    def __init__(
        self,
        policy: KeySharedPolicy,
        subscription: S,
        connection: ConsumerConnection,
        consumer_id: int,
        name: str,
        **more: Any,
    ) -> None:
        """:param more: arguments of :class:`Consumer`"""
        super().__init__(subscription, connection, consumer_id, name, **more)
        self.policy = policy
        self.draining = DrainingSlots()
        """Those of its subscription, once it has joined."""
        self.slots_drained = 0
        """Slots that were reassigned and of which it has acknowledged or returned everything."""

    def hold_packed(
        self, ledger_id: int, entry_ids: Sequence[int], packed: Sequence[int], messages: int
    ) -> None:
        """Holds entries, ``slot << 32 | messages`` each, with ``messages`` in total."""
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
        return messages

    def messages_held(self, ledger_id: int, entry_id: int) -> int:
        return super().messages_held(ledger_id, entry_id) & _MESSAGES

    def slot_held(self, ledger_id: int, entry_id: int) -> int | None:
        """Returns the slot of a position; None if it is not held."""
        packed = self.pending.get(ledger_id, {}).get(entry_id)
        return None if packed is None else packed >> SLOT_SHIFT

    def slots(self) -> Counter[int]:
        """Returns the number of entries it holds of each slot."""
        found: Counter[int] = Counter()
        for held in self.pending.values():
            found.update(map(rshift, held.values(), repeat(SLOT_SHIFT)))
        return found

    def held(self) -> Iterator[tuple[Position, int, int]]:
        """Yields every position it holds, with slot and number of messages."""
        for ledger_id, entries in self.pending.items():
            for entry_id, packed in entries.items():
                yield (ledger_id, entry_id), packed >> SLOT_SHIFT, packed & _MESSAGES

    def send_share(self, run: EntryRun, share: KeyedShare, count: int) -> int:
        """Sends and holds the first ``count`` entries of a share; returns their number of messages."""
        everything = count == len(share)
        sizes = share.sizes if everything else share.sizes[:count]
        messages = sum(sizes)
        ids, packed = (share.ids, share.packed) if everything else (share.ids[:count], share.packed[:count])
        self.hold_packed(run.ledger_id, ids, packed, messages)
        chosen = share.chosen if everything else share.chosen[:count]
        self.send_chosen(run, chosen, messages)
        return messages
