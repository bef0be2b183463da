"""The common part of dispatchers to several consumers: reads, limits of unacknowledged messages,
redelivery."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, TypeVar

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.contract import (
    DispatchSettings,
    Replay,
    bits_left,
    bits_not_pending,
    charge_rejected,
    filter_verdict,
)
from magnetar.broker.dispatch.filters import FilterResult
from magnetar.broker.dispatch.late import LateDelivery
from magnetar.broker.dispatch.waiting import (
    ACK_STATE,
    NO_CONSUMER,
    NOBODY_READY,
    READING,
    UNACKED_BROKER,
    UNACKED_SUBSCRIPTION,
    WHATEVER_IS_LEFT,
    Reason,
    lack_of_all,
)
from magnetar.broker.flow.loop_budget import FILTER_PRICE
from magnetar.invariants import must
from magnetar.io.interfaces import Cancellable
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import EntryRun, LedgerError, NoSuchLedger
from magnetar.managed_ledger.acknowledged import WHOLE
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import MARKED, AckRun

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription
    from magnetar.broker.transactions.pending_acks import Acked


C = TypeVar("C", bound=AnyConsumer)


class ManyConsumersDispatcher(LateDelivery[C]):
    """The common part of dispatchers to several consumers. Each consumer keeps the entries that it has not
    acknowledged; ``unacked`` is the number of unacknowledged messages of all consumers."""

    def __init__(self, subscription: Subscription, replay: Replay) -> None:
        super().__init__(subscription, replay)
        self.redelivery_counts: dict[Position, int] = {}
        self.unacked = 0
        self.blocked = False
        """Whether too many messages are unacknowledged, of this subscription or of the whole broker."""
        self._over = False
        self._held = False
        self._filters = subscription.filters
        self._filter_timers: dict[Cancellable, None] = {}
        self._all_unacked = subscription.topic.unacked_limit
        self._sizes = array("i", bytes(4 * 256))
        self._begin_delays()

    def use(self, settings: DispatchSettings) -> None:
        """Applies changed settings, and unblocks consumers that the new settings do not block."""
        self._settings = settings
        self._filters = self._subscription.filters
        cap = settings.max_unacked_per_consumer
        for consumer in self.consumers:
            if consumer.blocked and (not cap or consumer.unacked < cap):
                consumer.blocked = False
        cap = settings.max_unacked_per_subscription
        if self._over and (not cap or self.unacked < cap):
            self._over = False
            self.blocked = self._held
        if self.delays is not None:
            self.delays.use(settings.delays)
        self.read_more()

    @property
    def active(self) -> AnyConsumer | None:
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether a consumer is ready for new entries, but the topic has none."""
        return (
            not self.blocked
            and self._left is None
            and any(c.permits > 0 and not c.blocked for c in self.consumers)
            and not self._cursor.has_more()
        )

    def why_not(self) -> Reason:
        """Returns the reason why nothing is sent now."""
        found = self.waits.reason
        if found not in WHATEVER_IS_LEFT and not self._has_more():
            return self._nothing_new()
        if found is NOBODY_READY:
            # Consumers may have become ready during a read.
            return lack_of_all(self.consumers) if self._reading is None else READING
        return found

    def _blocked_by(self) -> Reason:
        return UNACKED_BROKER if self._held else UNACKED_SUBSCRIPTION

    @abstractmethod
    def add(self, consumer: AnyConsumer) -> None: ...

    @abstractmethod
    def remove(self, consumer: AnyConsumer) -> None:
        """Removes a consumer; its unacknowledged messages go to the other consumers."""

    @abstractmethod
    def _wait_again(self, consumer: AnyConsumer, position: Position) -> int | None:
        """Takes an entry away from the consumer that holds it, and adds the entry to the replay list; returns
        the number of its messages, or None if the consumer does not hold the entry."""

    def flow(self, _consumer: AnyConsumer) -> None:
        self.read_more()

    def rewound(self) -> None:
        """Called after the cursor was moved: discards all entries that had been read or sent."""
        self.replay.clear()
        self.redelivery_counts.clear()
        if self.delays is not None:
            self.delays.rewound()
        self._forget_put_off()
        self._left = None
        self.unacked = 0
        self._over = False
        self.blocked = self._held
        for consumer in self.consumers:
            consumer.pending = {}
            consumer.unacked = 0
            consumer.blocked = False
        if self._all_unacked is not None:
            self._all_unacked.changed(self)
        self.waits.because(NOBODY_READY if self.consumers else NO_CONSUMER)

    # Reading

    def _has_more(self) -> bool:
        """Whether there are entries to send, for the first time or again."""
        return len(self.replay) > 0 or self._left is not None or self._cursor.has_more()

    def _must_wait_for_acks(self) -> bool:
        """Whether to pause because the cursor has more individual acknowledgements than can be stored."""
        storage = self._cursor.storage
        if not self._settings.pause_on_ack_state or storage is None or storage.keeps_all:
            return False
        self._subscription.awaits_acks = True
        self.waits.because(ACK_STATE)
        return True

    def _entries_at_once(self) -> int:
        """Returns the maximum number of new entries per read, at least 1."""
        throttle, most = self._subscription.throttle, self._settings.max_read_entries
        return most if throttle is None else max(1, min(most, throttle.messages))

    def _is_served(self) -> bool:
        return bool(self.consumers)

    def _keep(self, run: EntryRun) -> None:
        self._left = (run, 0, run.count)

    async def _read_again(
        self, position: Position, last: Position, count: int, max_bytes: int
    ) -> EntryRun | None:
        """Reads entries again; returns None if they were deleted or cannot be read now."""
        reader = self._subscription.topic.managed_ledger.reader
        ledgers = self._subscription.topic.managed_ledger.ledgers
        if not ledgers.exists(position):
            self.replay.discard(position)
            self._reading = None
            return None
        try:
            run = await reader.read(position, last, count, max_bytes)
        except (LedgerError, ManagedLedgerError) as error:
            trimmed = isinstance(error, NoSuchLedger) and position[0] not in ledgers
            if trimmed or self._cursor.skip_lost(position, error):
                # The entry was acknowledged and trimmed during the read, or is lost.
                self.replay.discard(position)
                self._reading = None
            else:
                self._read_failed(error)
            return None
        self._reading = None
        return run

    # The deliverable part of a run

    def _is_untouched(self, run: EntryRun, first: int) -> bool:
        """Whether no entry of a run from ``first`` on is acknowledged, even in part, or rescheduled by a
        filter."""
        pending = self._subscription.pending
        if self._put_off or (pending is not None and pending.any):
            return False
        state = self._cursor.state
        entry_id = run.first_entry_id + first
        if state.batches or state.mark_delete >= (run.ledger_id, entry_id):
            return False
        ranges = state.ranges.get(run.ledger_id)
        return ranges is None or ranges.end() <= entry_id

    def _remaining(self, ledger_id: int, entry_id: int, size: int) -> tuple[int, int | None] | None:
        """Returns how many messages of an entry are left to deliver, and their bits in the batch (None: all).

        Returns None if no message is left: the entry is acknowledged, possibly in an open transaction, or a
        filter rescheduled it.
        """
        cursor = self._cursor
        if cursor.is_consumed(ledger_id, entry_id) or (ledger_id, entry_id) in self._put_off:
            return None
        remaining = bits_left(cursor.remaining_bits(ledger_id, entry_id), size)
        if not size or remaining == 0:
            cursor.delete(ledger_id, entry_id)
            return None
        pending = self._subscription.pending
        if pending is not None and pending.any:
            remaining = bits_not_pending(remaining, size, pending.bits_of(ledger_id, entry_id))
            if remaining == 0:
                return None
        return (size, None) if remaining is None else (remaining.bit_count(), remaining)

    def _leave_out_aborted(self, run: EntryRun, first: int, count: int, sizes: array[int]) -> int:
        """Sets the sizes of entries of aborted transactions to 0, as for markers; returns ``MARKED`` if there
        are such entries, otherwise 0.

        :param sizes: the number of messages of each entry; index 0 is entry ``first``
        """
        transactions = self._subscription.topic.transactions
        return MARKED if transactions is not None and transactions.mask(run, first, count, sizes) else 0

    def _consume_markers(self, run: EntryRun, first: int, count: int, sizes: Sequence[int]) -> None:
        """Acknowledges the markers among ``count`` entries, recognized by their size 0.

        :param sizes: the number of messages of each entry; index 0 is entry ``first``
        """
        cursor, before = self._cursor, self._cursor.mark_delete
        for place in range(count):
            if not sizes[place]:
                self._subscription.meets_marker(run, first + place)
                cursor.delete(run.ledger_id, run.first_entry_id + first + place)
        self._subscription.after_ack(before)

    # Filters

    def _filter(
        self, consumer: C, run: EntryRun, indexes: Sequence[int], sizes: Sequence[int], slots: Sequence[int]
    ) -> bool:
        """Applies the filters to entries that are about to be sent; returns whether all entries are accepted.

        Rejected entries are acknowledged; rescheduled entries wait for a while.

        :param slots: slots of the entries in a Key_Shared subscription; otherwise empty
        """
        cursor, before = self._cursor, self._cursor.mark_delete
        put_off: list[tuple[Position, int]] = []
        rejected = 0
        for place, index in enumerate(indexes):
            position = (run.ledger_id, run.first_entry_id + index)
            if position in self._put_off or not sizes[place] or cursor.is_consumed(*position):
                continue
            self._budget.spend(FILTER_PRICE)
            verdict = filter_verdict(self._subscription, consumer, run, index, sizes[place])
            if verdict is FilterResult.REJECT:
                cursor.delete(*position)
                rejected += 1
                charge_rejected(self._subscription, self._settings, run, index, sizes[place])
            elif verdict is FilterResult.RESCHEDULE:
                put_off.append((position, slots[place] if slots else 0))
        if put_off:
            self._put_off.update((position, None) for position, _slot in put_off)
            wheel = self._subscription.topic.wheel
            again = self._settings.filter_again_seconds
            timer: Cancellable = wheel.schedule(again, lambda: self._filter_again(timer, put_off))
            self._filter_timers[timer] = None
        if rejected:
            self._subscription.after_ack(before)
        return not rejected and not put_off

    def _filter_again(self, timer: Cancellable, put_off: Sequence[tuple[Position, int]]) -> None:
        del self._filter_timers[timer]
        for position, slot in put_off:
            del self._put_off[position]
            if not self._cursor.is_consumed(*position):
                self.redelivery_counts[position] = self.redelivery_counts.get(position, 0) + 1
                self._wait_for_filter(position, slot)
        self.read_more()

    def _forget_put_off(self) -> None:
        self._put_off.clear()
        for timer in self._filter_timers:
            timer.cancel()
        self._filter_timers.clear()

    @abstractmethod
    def _wait_for_filter(self, position: Position, slot: int) -> None:
        """Adds to the replay list an entry that a filter rescheduled."""

    # Limits

    def _allowance(self, consumer: C) -> int | None:
        """Returns how many more messages may become unacknowledged; None: no limit."""
        per_consumer = self._settings.max_unacked_per_consumer
        per_subscription = self._settings.max_unacked_per_subscription
        allowed = per_consumer - consumer.unacked if per_consumer else None
        if per_subscription:
            left = per_subscription - self.unacked
            allowed = left if allowed is None else min(allowed, left)
        return allowed

    def _check_limits(self, consumer: C) -> None:
        per_consumer = self._settings.max_unacked_per_consumer
        if per_consumer and consumer.unacked >= per_consumer:
            consumer.blocked = True
        per_subscription = self._settings.max_unacked_per_subscription
        if per_subscription and self.unacked >= per_subscription:
            self._over = self.blocked = True
        if self.blocked is not (self._over or self._held):
            self._violated("blocked", self._over or self._held, self.blocked)
        if self._all_unacked is not None:
            self._all_unacked.changed(self)

    def _unblock(self) -> None:
        """Unblocks each consumer that has at most half as many unacknowledged messages as its limit permits,
        and likewise the subscription."""
        if self.unacked < 0:
            self._violated("unacknowledged messages", "at least 0", self.unacked)
        if self._all_unacked is not None:
            self._all_unacked.changed(self)
        half = self._settings.max_unacked_per_consumer // 2
        for consumer in self.consumers:
            if consumer.blocked and consumer.unacked <= half:
                consumer.blocked = False
        if self._over and self.unacked <= self._settings.max_unacked_per_subscription // 2:
            self._over = False
            self.blocked = self._held

    def fail(self, error: BaseException) -> None:
        self._subscription.fail(error)

    def hold(self) -> None:
        """Blocks the subscription: the broker's limit of unacknowledged messages is reached, and the
        subscription exceeds its share of this limit.
        """
        self._held = self.blocked = True

    def let_go_on(self) -> None:
        self._held = False
        self.blocked = self._over
        self._subscription.topic.loop.call_soon(self._subscription.go_on)

    # Redelivery and acknowledgement

    def redeliver_all(self, consumer: AnyConsumer) -> None:
        """Moves all unacknowledged entries of a consumer to the replay list."""
        positions = [(ledger, entry) for ledger, held in consumer.pending.items() for entry in held]
        self.redeliver(consumer, positions)

    def redeliver(self, consumer: AnyConsumer, positions: Sequence[Position]) -> None:
        """Moves the entries at ``positions`` that the consumer holds to the replay list; any consumer may get
        them.
        """
        for position in positions:
            messages = self._wait_again(consumer, position)
            if messages is None:
                continue
            self.unacked -= messages
            self.redelivery_counts[position] = self.redelivery_counts.get(position, 0) + 1
            consumer.redelivered.messages += messages
        self._unblock()
        self.read_more()

    def acknowledged(self, messages: int) -> None:
        """Subtracts ``messages`` from the number of unacknowledged messages."""
        self.unacked -= messages
        if self.unacked < 0:
            self._violated("unacknowledged messages", "at least 0", self.unacked)
        if self._all_unacked is not None:
            self._all_unacked.changed(self)
        was_blocked = self.blocked or any(c.blocked for c in self.consumers)
        if was_blocked:
            self._unblock()
            self.read_more()

    def let_go_run(self, consumer: AnyConsumer, run: AckRun) -> None:
        """Removes the entries that ``consumer`` has acknowledged; other consumers may hold some of them."""
        ledger_ids, entry_ids = run.ledger_ids, run.entry_ids
        released, others = consumer.let_go_run(ledger_ids, entry_ids, run.count)
        for index in others:
            released += self.let_go_elsewhere(ledger_ids[index], entry_ids[index])
        counts = self.redelivery_counts
        if counts:
            for index in range(run.count):
                counts.pop((ledger_ids[index], entry_ids[index]), None)
        self.acknowledged(released)

    def let_go_elsewhere(self, ledger_id: int, entry_id: int) -> int:
        """Removes an entry from the consumer that holds it, because another consumer has acknowledged it.

        :returns: the number of messages that the holder had not acknowledged; 0: no consumer holds the entry
        """
        for other in self.consumers:
            messages: int | None = other.let_go(ledger_id, entry_id)
            if messages is not None:
                return messages
        self.let_go_waiting((ledger_id, entry_id))
        return 0

    def consumed_elsewhere(self) -> None:
        """Removes the entries at or below the mark-delete position, after the position was moved without
        acknowledgements: no consumer holds them any more, and they do not wait."""
        last = self._cursor.mark_delete
        released = 0
        for consumer in self.consumers:
            for ledger_id in [each for each in consumer.pending if each <= last[0]]:
                held = consumer.pending[ledger_id]
                for entry_id in [e for e in held if (ledger_id, e) <= last]:
                    released += consumer.let_go(ledger_id, entry_id) or 0
        for position in [p for p in self.redelivery_counts if p <= last]:
            del self.redelivery_counts[position]
        self.replay.drop_through(last)
        if self.delays is not None:
            self.delays.drop_through(last)
        self.acknowledged(released)

    def let_go_pending(self, consumer: AnyConsumer, acked: Sequence[Acked]) -> int:
        """Subtracts the messages that ``consumer`` has acknowledged in a transaction from the number of
        unacknowledged messages; returns how many were subtracted.
        """
        released = 0
        pending = self._subscription.pending
        for each in acked:
            ledger_id, entry_id = each.position
            bits = each.bits
            if bits != WHOLE:
                released += consumer.reduce(ledger_id, entry_id, bits.bit_count())
                left = bits_left(self._cursor.remaining_bits(ledger_id, entry_id), each.batch_size)
                held = 0 if pending is None else pending.bits_of(ledger_id, entry_id)
                if bits_not_pending(left, each.batch_size, held) != 0:
                    continue
            messages = consumer.let_go(ledger_id, entry_id)
            released += self.let_go_elsewhere(ledger_id, entry_id) if messages is None else messages
        self.acknowledged(released)
        return released

    def held_in_part(self, positions: Sequence[Position]) -> set[Position]:
        """Returns the positions in ``positions`` whose entries a consumer holds."""
        return {each for each in positions if self._holder(each) is not None}

    def _holder(self, position: Position) -> C | None:
        return next((c for c in self.consumers if position[1] in c.pending.get(position[0], {})), None)

    async def give_back(self, positions: Sequence[Position], in_part: Container[Position]) -> None:
        """Redelivers the entries that an aborted transaction had acknowledged.

        :param in_part: positions of batches of which, at the time of the abort, a consumer held messages that
            the transaction had not acknowledged
        """
        ledgers = self._subscription.topic.managed_ledger.ledgers
        for position in positions:
            if not ledgers.exists(position):
                # A client acknowledged what was never stored, or it was trimmed.
                continue
            while (hashed := await self._hash_or_none(position)) is None and not self._closed:
                await sleep(self._subscription.topic.loop, self._settings.read_retry_seconds)
            if hashed is None or self._closed:
                return
            if self._cursor.is_consumed(*position):
                continue
            holder = self._holder(position)
            if holder is not None:
                # Another entry was delivered since.
                if position in in_part:
                    self.redeliver(holder, [position])
                continue
            self.redelivery_counts[position] = self.redelivery_counts.get(position, 0) + 1
            if position < self._unread() and position not in self.replay:
                self._wait_as_due(position, hashed)
        self.read_more()

    async def _hash_or_none(self, position: Position) -> int | None:
        """Returns the result of :meth:`_hash_at`; 0 for a consumed entry; None if the entry cannot be read
        now."""
        try:
            return await self._hash_at(position)
        except (LedgerError, ManagedLedgerError) as error:
            if self._cursor.is_consumed(*position) or self._cursor.skip_lost(position, error):
                return 0
            self._subscription.read_failed(error)
            return None

    async def _hash_at(self, position: Position) -> int:
        """Returns the hash of an entry's key if the key determines the consumer of the entry, otherwise 0."""
        return 0

    def close(self) -> None:
        self._forget_put_off()
        self._closed = True
        self.forget_delays(moved=False)
        self._cancel_retry()

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the counts do not match the consumers, or a consumer holds an entry that
            waits for delivery
        """
        for consumer in self.consumers:
            consumer.check()
            must(not consumer.closed, consumer.name, "is connected and closed")
            for ledger_id, held in consumer.pending.items():
                for entry_id in held:
                    waits = (ledger_id, entry_id) in self.replay
                    if self.delays is not None:
                        waits = waits or (ledger_id, entry_id) in self.delays.waiting
                    must(not waits, consumer.name, "holds", (ledger_id, entry_id), "which waits for delivery")
        if self.delays is not None:
            self.delays.check()
        held_by_all = sum(consumer.unacked for consumer in self.consumers)
        name = self._subscription.name
        must((self.waits.reason is NO_CONSUMER) == (not self.consumers), name, "waits:", self.waits.reason)
        must(self.unacked == held_by_all, name, "counts", self.unacked, "unacknowledged of", held_by_all)
        must(self.blocked == (self._over or self._held), name, "is blocked for no reason, or is not")
