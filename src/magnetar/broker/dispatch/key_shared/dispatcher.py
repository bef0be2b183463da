"""Dispatching of a Key_Shared subscription: all messages of a key go to one consumer, in order.

Keys are hashed to slots, and each consumer has some of the slots. An entry that cannot be sent now waits for
permits of the slot's consumer, for the slot to drain (it was reassigned and its former holder still has
unacknowledged messages in it), or for a consumer that gets the slot. Later entries of the slot wait, too.
While entries wait for permits of a consumer, new entries of all its slots wait.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.key_shared import Range
from magnetar.broker.dispatch.key_shared.consumer import (
    SLOT_SHIFT,
    AnyKeyed,
    DrainingSlots,
    KeyDivision,
    KeyedShare,
    keyed,
)
from magnetar.broker.dispatch.key_shared.replay import KeyedReplay
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.waiting import (
    DELAYED,
    KEY_HELD,
    KEY_UNASSIGNED,
    KEYS_WAIT,
    LOOK_AHEAD,
    NOBODY_READY,
    RATE_LIMIT,
    READ_FAILED,
    TURN,
    Reason,
    lack_of_all,
)
from magnetar.broker.flow.loop_budget import LOOK_PRICE
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import (
    CHUNKED,
    MARKED,
    TRANSACTIONAL,
    KeyRouting,
    batch_sizes,
    group_by_holder,
    key_hash,
    key_slots,
    slot_of,
)

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription


class KeySharedDispatcher(ManyConsumersDispatcher[AnyKeyed]):
    """The dispatcher of a Key_Shared subscription. The policy of the first consumer determines how slots are
    divided; the other consumers must have the same policy.
    """

    replay: KeyedReplay
    _delivers_ahead = False
    """False: a due entry waits until all earlier entries were read, because an earlier entry may have the
    same key.
    """

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription, KeyedReplay())
        self.division = KeyDivision()
        self.draining = DrainingSlots()
        self._routing = KeyRouting()
        self._next = 0

    # Consumers

    def add(self, consumer: AnyConsumer) -> None:
        """Adds a consumer to the subscription.

        :raises ConsumerBusy: the consumer's Key_Shared mode or out-of-order setting differs from the setting
            of the other consumers
        :raises ConsumerAssignFailure: the requested ranges belong to another consumer, or no slots are left
        """
        consumer = keyed(consumer)
        self.division.join(consumer, self.consumers, self._settings.key_shared_points)
        if not self.consumers:
            self._cursor.rewind()
            self.rewound()
        consumer.draining = self.draining
        self.consumers.append(consumer)
        if len(self.consumers) == 1:
            self.waits.because(NOBODY_READY)
        self._divide()

    def remove(self, consumer: AnyConsumer) -> None:
        if consumer not in self.consumers:
            return
        consumer = keyed(consumer)
        self.consumers.remove(consumer)
        self.division.leave(consumer)
        held = list(consumer.held())
        consumer.pending, consumer.unacked = {}, 0
        if not self.consumers:
            self._cursor.rewind()
            self.rewound()
            return
        for position, slot, messages in held:
            self.unacked -= messages
            self.replay.add(position, slot, None, blocked=False)
        self._divide()
        self._unblock()
        self.read_more()

    def _divide(self) -> None:
        """Assigns the slots to the consumers."""
        self.division.divide(self.consumers)
        if not self.division.policy.allow_out_of_order:
            self.draining.recount(((each, each.slots()) for each in self.consumers), self._owner)
        self.replay.arrange(self._owner, self.draining.blocks)

    def ranges_of(self, consumer: AnyKeyed) -> list[Range]:
        """Returns the slots of a consumer."""
        return self.division.ranges_of(consumer)

    def _owner(self, slot: int) -> AnyKeyed | None:
        number = self.division.holder(slot)
        return self.consumers[number] if number >= 0 else None

    def why_not(self) -> Reason:
        found = super().why_not()
        if found is not KEYS_WAIT:
            return found
        if self.replay.holds_back():
            return KEY_HELD
        waited_for = [each for each in self.consumers if self.replay.waits_for(each)]
        return lack_of_all(waited_for) if waited_for else KEY_UNASSIGNED

    def rewound(self) -> None:
        super().rewound()
        self.draining.clear()
        self._cursor.read_again_from = None

    # Sending

    def read_more(self) -> None:
        while self._reading is None:
            if self.blocked:
                self.waits.because(self._blocked_by())
                return
            if self.draining.drained:
                self._go_on_with_drained()
            if not self._has_work():
                if self.consumers:
                    self.waits.because(NOBODY_READY)
                return
            self._take_due()
            throttle = self._subscription.throttle
            if throttle is not None and not (self._has_more() and throttle.admits()):
                self.waits.because(RATE_LIMIT)
                return
            if not self._budget.admits(self._subscription):
                self.waits.because(TURN)
                return
            if self._send_waiting():
                continue
            if self._reading is not None or not self._send_new():
                return

    def _has_work(self) -> bool:
        """Whether an entry, waiting or new, may be sent to a consumer now."""
        return self._left is not None or any(consumer.ready for consumer in self.consumers)

    def _go_on_with_drained(self) -> None:
        for slot in self.draining.drained:
            self.replay.unblock(slot, self._owner(slot))
        self.draining.drained.clear()

    def _send_waiting(self) -> bool:
        """Sends waiting entries of one ready consumer; returns False if no such entries are in the cache."""
        if not self.replay:
            return False
        count = len(self.consumers)
        for step in range(count):
            consumer = self.consumers[(self._next + step) % count]
            if not consumer.ready or not self.replay.waits_for(consumer):
                continue
            self._next = (self._next + step + 1) % count
            position = self.replay.front(consumer)
            assert position is not None
            last = self._subscription.topic.managed_ledger.max_read_position
            max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
            # A run of neighbouring entries has about as many for each consumer.
            entries = self._settings.max_read_entries * count
            reader = self._subscription.topic.managed_ledger.reader
            run = reader.read_cached(position, last, entries, max_bytes)
            if run is not None:
                self._send_waiting_of(consumer, run)
                return True
            reading = self._read_waiting(consumer, position, last, max_bytes)
            self._start(reading, consumer, max_bytes, again=True)
            return False
        return False

    async def _read_waiting(
        self, consumer: AnyKeyed, position: Position, last: Position, max_bytes: int
    ) -> None:
        run = await self._read_again(position, last, self._settings.max_read_entries, max_bytes)
        if (
            run is not None
            and not self.blocked
            and consumer in self.consumers
            and consumer.ready
            and self.replay.front(consumer) == position
        ):
            self._send_waiting_of(consumer, run)
        self.read_more()

    def _send_waiting_of(self, consumer: AnyKeyed, run: EntryRun) -> None:
        """Sends a consumer's waiting entries of a run; the first entry of the run is a waiting entry."""
        limit = min(consumer.permits, self._settings.max_read_entries)
        taken = self.replay.take(consumer, (run.ledger_id, run.last_entry_id), limit)
        if len(self._sizes) < run.count:
            self._sizes = array("i", bytes(4 * run.count))
        batch_sizes(run.buffer, run.starts, run.ends, 0, run.count, self._sizes)
        share = KeyedShare.of_positions(taken, run.first_entry_id, self._sizes)
        if self._subscription.throttle is not None:
            share = share.only(range(self._subscription.throttle.fitting_of(run, share.chosen, share.sizes)))
        state = self._cursor.state
        # Acknowledged entries no longer wait, except after a skip or expiry moved the mark-delete position.
        pending = self._subscription.pending
        plain = (
            not self.redelivery_counts
            and not state.batches
            and state.mark_delete < taken[0][0]
            and (pending is None or not pending.any)
        )
        sent = self._deliver(consumer, run, share, plain=plain)
        for position, slot in taken[sent:]:
            self.replay.add(position, slot, consumer, blocked=False)

    def _send_new(self) -> bool:
        """Sends the next run of new entries; entries that cannot be sent yet must wait. Returns False if no
        run can be taken now.
        """
        left = self._left
        if self._must_wait_for_acks():
            return False
        if left is None:
            if self._looks_far_enough():
                self.waits.because(LOOK_AHEAD)
                return False
            if not self._leap_over_waiting():
                self.waits.because(DELAYED)
                return False
            takers = [c for c in self.consumers if c.ready and not self.replay.waits_for(c)]
            if not takers:
                self.waits.because(NOBODY_READY if self._retry is None else READ_FAILED)
                return False
            # A run of neighbouring entries has about as many for each consumer.
            entries = self._settings.max_read_entries * len(takers)
            entries = min(entries, sum(c.permits for c in takers))
            if self._subscription.throttle is not None:
                entries = min(entries, self._entries_at_once())
            max_bytes = takers[0].read_bytes(self._settings.max_read_bytes)
            self._cursor.read_again_from = self.replay.lowest() if self.replay else None
            run = self._cursor.read_cached(entries, max_bytes)
            if run is None:
                if self._cursor.has_more():
                    self._start(self._read(self._settings.max_read_entries, max_bytes), takers[0], max_bytes)
                elif self._retry is None:
                    self.waits.because(KEYS_WAIT if self.replay else self._nothing_new())
                return False
            left = (run, 0, run.count)
        self._left = None
        self._route(*left)
        return True

    def _looks_far_enough(self) -> bool:
        """Whether reading pauses because too many entries wait."""
        per_consumer = self._settings.look_ahead_per_consumer
        per_subscription = self._settings.look_ahead_per_subscription
        waiting = len(self.replay)
        return bool(
            (per_consumer and waiting >= per_consumer * len(self.consumers))
            or (per_subscription and waiting >= per_subscription)
        )

    def _route(self, run: EntryRun, first: int, end: int) -> None:
        """Sends entries [first, end) to the holders of their slots; entries that cannot be sent now must
        wait.
        """
        count = end - first
        routing = self._routing
        if routing.capacity < count:
            routing = self._routing = KeyRouting(count)
        # All chunks of a message have the same key, so chunks need no special treatment.
        timed = batch_sizes(run.buffer, run.starts, run.ends, first, count, routing.sizes) & ~CHUNKED
        marked = timed & MARKED
        if timed & TRANSACTIONAL:
            marked |= self._leave_out_aborted(run, first, count, routing.sizes)
        timed &= ~(MARKED | TRANSACTIONAL)
        kept = marked > 0
        if kept:
            self._consume_markers(run, first, count, routing.sizes)
        if timed or self.delays is not None:
            kept = self._keep_back(run, first, count, routing.sizes, timed) or kept
        if self._subscription.throttle is not None:
            count = self._subscription.throttle.fitting(run, first, count, routing.sizes)
            if first + count < end:
                self._left = (run, first + count, end)
        division = self.division
        key_slots(run.buffer, run.starts, run.ends, first, count, division.modulo, routing.slots)
        bounds = division.bounds
        group_by_holder(routing, count, first, run.first_entry_id, division.ends, division.holders, bounds)
        plain = self._is_untouched(run, first)
        for number in range(len(self.consumers) + 1):
            start, stop = bounds[number], bounds[number + 1]
            if start == stop:
                continue
            share = KeyedShare.of_group(routing, start, stop)
            if kept:
                self._budget.spend(len(share) * LOOK_PRICE)
                share = share.only([place for place, size in enumerate(share.sizes) if size])
            if not plain:
                share = self._unconsumed(run, share)
            if self.draining.count:
                share = self._without_draining(run, share)
            consumer = self.consumers[number - 1] if number else None
            sent = 0
            if consumer is not None and self._takes(consumer):
                sent = self._deliver(consumer, run, share, plain=plain)
            for place in range(sent, len(share)):
                position = (run.ledger_id, share.ids[place])
                self.replay.add(position, share.slot(place), consumer, blocked=False)

    def _takes(self, consumer: AnyKeyed) -> bool:
        """Whether new entries may be sent to a consumer, because no waiting entries must be sent to it
        first."""
        return consumer.ready and not self.blocked and not self.replay.waits_for(consumer)

    def _unconsumed(self, run: EntryRun, share: KeyedShare) -> KeyedShare:
        consumed = self._cursor.is_consumed
        return share.only(
            [p for p, entry_id in enumerate(share.ids) if not consumed(run.ledger_id, entry_id)]
        )

    def _without_draining(self, run: EntryRun, share: KeyedShare) -> KeyedShare:
        """Removes the entries of draining slots from a share, lets them wait, and returns the other
        entries.
        """
        keep = []
        for place, entry_id in enumerate(share.ids):
            slot = share.slot(place)
            if self.draining.blocks(slot):
                self.draining.turned_away(slot)
                self.replay.add((run.ledger_id, entry_id), slot, None, blocked=True)
            else:
                keep.append(place)
        return share.only(keep)

    def _deliver(self, consumer: AnyKeyed, run: EntryRun, share: KeyedShare, *, plain: bool) -> int:
        """Sends entries of a run within the consumer's permits; returns how many of the share's entries were
        sent.

        :param plain: whether no entry was delivered before, and none is acknowledged, even in part
        """
        allowed = self._allowance(consumer)
        count = consumer.entries_within_permits(share.sizes, len(share), allowed)
        if self._filters is not None:
            slots = [share.slot(place) for place in range(count)]
            plain = self._filter(consumer, run, share.chosen[:count], share.sizes[:count], slots) and plain
        if count and plain:
            self.unacked += consumer.send_share(run, share, count)
        else:
            for place in range(count):
                self._deliver_one(consumer, run, share, place)
        self._check_limits(consumer)
        return count

    def _deliver_one(self, consumer: AnyKeyed, run: EntryRun, share: KeyedShare, place: int) -> None:
        entry_id = share.ids[place]
        found = self._remaining(run.ledger_id, entry_id, share.sizes[place])
        if found is None:
            return
        left, remaining = found
        consumer.hold_packed(run.ledger_id, [entry_id], [share.slot(place) << SLOT_SHIFT | left], left)
        self.unacked += left
        redelivered = self.redelivery_counts.get((run.ledger_id, entry_id), 0)
        consumer.send_again(run, share.chosen[place], left, redelivered, remaining)

    # Redelivery and acknowledgement

    def _wait_again(self, consumer: AnyConsumer, position: Position) -> int | None:
        packed = consumer.pending.get(position[0], {}).get(position[1])
        if packed is None:
            return None
        slot = packed >> SLOT_SHIFT
        messages = consumer.let_go(*position)
        self.replay.add(position, slot, self._owner(slot), blocked=self.draining.blocks(slot))
        return messages

    def _wait_for_filter(self, position: Position, slot: int) -> None:
        self.replay.add(position, slot, self._owner(slot), blocked=self.draining.blocks(slot))

    async def _hash_at(self, position: Position) -> int:
        run = await self._subscription.topic.managed_ledger.reader.read_one(position)
        hashed: int = key_hash(run.buffer, run.starts[0], run.ends[0])
        return hashed

    def _wait_as_due(self, position: Position, hashed: int) -> None:
        slot = slot_of(hashed, self.division.modulo)
        self.replay.add(position, slot, self._owner(slot), blocked=self.draining.blocks(slot))

    def acknowledged(self, messages: int) -> None:
        super().acknowledged(messages)
        if self.draining.drained:
            self.read_more()
