"""Dispatching to the consumers of a shared subscription: round robin, by priority level and permits."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from magnetar.broker.dispatch import AnyConsumer, DispatchedSubscription, DispatchSettings, bits_left
from magnetar.broker.loop_turn import READ_PRICE
from magnetar.broker.replay import ReplayPositions
from magnetar.ledger.entry_run import EntryRun
from magnetar.ledger.interface import LedgerError, NoSuchLedger
from magnetar.managed_ledger.entry_cache import lasting_run
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import batch_sizes


class SharedDispatcher:
    """Gives each consumer a few entries a turn; what comes back is delivered before anything new."""

    def __init__(self, subscription: DispatchedSubscription) -> None:
        self._subscription = subscription
        self._cursor = subscription.cursor
        self._settings = subscription.topic.dispatch_settings
        self.consumers: list[AnyConsumer] = []
        self._budget = subscription.topic.turn
        self._turn = 0
        self.replay = ReplayPositions()
        self.redelivery_counts: dict[Position, int] = {}
        self.unacked = 0
        self.blocked = False
        self._reading: Any = None
        self._retry: Any = None
        self._left: tuple[EntryRun, int, int] | None = None
        self._sizes = array("i", bytes(4 * 256))

    def use(self, settings: DispatchSettings) -> None:
        """Goes by other settings from now on; what blocks only by the former ones goes on."""
        self._settings = settings
        cap = settings.max_unacked_per_consumer
        for consumer in self.consumers:
            if consumer.blocked and (not cap or consumer.unacked < cap):
                consumer.blocked = False
        cap = settings.max_unacked_per_subscription
        if self.blocked and (not cap or self.unacked < cap):
            self.blocked = False
        self.read_more()

    @property
    def active(self) -> AnyConsumer | None:
        return None

    @property
    def is_reading(self) -> bool:
        """Whether a read from the ledger store is under way."""
        return self._reading is not None

    def add(self, consumer: AnyConsumer) -> None:
        if not self.consumers:
            self._cursor.rewind()
            self.rewound()
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: c.priority)

    def remove(self, consumer: AnyConsumer) -> None:
        """What it has not acknowledged goes to the others."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        pending, consumer.pending, consumer.unacked = consumer.pending, {}, 0
        if not self.consumers:
            self._cursor.rewind()
            self.rewound()
            return
        for ledger_id, held in pending.items():
            for entry_id, messages in held.items():
                self.unacked -= messages
                self.replay.add((ledger_id, entry_id))
        self._unblock()
        self.read_more()

    def flow(self, _consumer: AnyConsumer) -> None:
        self.read_more()

    def rewound(self) -> None:
        """The cursor was moved: nothing is kept of what was read or sent before."""
        self.replay.clear()
        self.redelivery_counts.clear()
        self._left = None
        self.unacked = 0
        self.blocked = False
        for consumer in self.consumers:
            consumer.pending = {}
            consumer.unacked = 0
            consumer.blocked = False

    def _next_consumer(self) -> AnyConsumer | None:
        """The next in turn of the best priority level that has one ready."""
        consumers = self.consumers
        count = len(consumers)
        best: AnyConsumer | None = None
        best_index = 0
        for step in range(count):
            index = (self._turn + step) % count
            consumer = consumers[index]
            if (best is None or consumer.priority < best.priority) and consumer.ready:
                best, best_index = consumer, index
                if consumer.priority == consumers[0].priority:
                    # They are sorted: nobody has a better one.
                    break
        if best is not None:
            self._turn = (best_index + 1) % count
        return best

    def read_more(self) -> None:
        """Sends what can be sent now."""
        while self._reading is None and not self.blocked:
            turn = self._turn
            consumer = self._next_consumer()
            if consumer is None:
                return
            if not self._budget.admits(self._subscription):
                self._turn = turn
                return
            limit = min(consumer.permits, self._settings.round_robin_entries)
            if self.replay:
                if not self._send_replay(consumer, limit):
                    return
            elif not self._send_new(consumer, limit):
                return

    def _send_new(self, consumer: AnyConsumer, limit: int) -> bool:
        """Sends up to ``limit`` entries; False when there are none at hand."""
        left = self._left
        if left is None:
            max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
            run = self._cursor.read_cached(self._settings.max_read_entries, max_bytes)
            if run is None:
                if self._cursor.has_more():
                    self._start(self._read(max_bytes), consumer, max_bytes)
                return False
            left = (run, 0, run.count)
        run, first, end = left
        stop = self._send(consumer, run, first, min(first + limit, end))
        self._left = (run, stop, end) if stop < end else None
        return True

    def _start(self, reading: Any, consumer: AnyConsumer, max_bytes: int) -> None:
        if self._retry is not None:
            reading.close()
            return
        self._budget.spend(READ_PRICE)
        self._reading = self._subscription.topic.loop.create_task(reading)
        consumer.connection.outgoing.unsent.expect(self._reading, max_bytes)

    async def _read(self, max_bytes: int) -> None:
        try:
            run = await self._cursor.read(self._settings.max_read_entries, max_bytes)
        except (LedgerError, ManagedLedgerError) as error:
            self._read_failed(error)
            return
        self._reading = None
        if run is not None:
            if self.consumers:
                # It may wait long: then not with a buffer much larger than itself.
                self._left = (lasting_run(run), 0, run.count)
            else:
                self._cursor.rewind()
        self.read_more()

    def _read_failed(self, error: Exception) -> None:
        self._reading = None
        self._subscription.read_failed(error)
        self._retry = self._subscription.topic.wheel.schedule(
            self._settings.read_retry_seconds, self._try_again
        )

    def _try_again(self) -> None:
        self._retry = None
        self.read_more()

    def _send(self, consumer: AnyConsumer, run: EntryRun, first: int, end: int) -> int:
        """Sends entries [first, end) as long as there are permits; returns where it stopped."""
        ledger_id = run.ledger_id
        count = end - first
        if len(self._sizes) < count:
            self._sizes = array("i", bytes(4 * count))
        sizes = self._sizes
        batch_sizes(run.buffer, run.starts, run.ends, first, count, sizes)
        count = consumer.entries_within_permits(sizes, count, self._allowance(consumer))
        end = first + count
        if self._all_plain(run, first, count):
            consumer.hold_range(ledger_id, run.first_entry_id + first, sizes, count)
            messages = sum(sizes[:count])
            consumer.send_first(run, first, end, messages)
            self.unacked += messages
        else:
            self._send_mixed(consumer, run, first, end)
        self._check_limits(consumer)
        return end

    def _send_mixed(self, consumer: AnyConsumer, run: EntryRun, first: int, end: int) -> None:
        """Entries of which some are consumed, delivered before, batches in part, or markers."""
        cursor, sizes, ledger_id = self._cursor, self._sizes, run.ledger_id
        counts = self.redelivery_counts
        plain_from = first
        messages = 0
        for index in range(first, end):
            entry_id = run.first_entry_id + index
            size = sizes[index - first]
            consumed = cursor.is_consumed(ledger_id, entry_id)
            remaining = bits_left(cursor.remaining_bits(ledger_id, entry_id), size)
            redelivered = counts.get((ledger_id, entry_id), 0) if counts else 0
            if not consumed and size and remaining is None and not redelivered:
                consumer.hold(ledger_id, entry_id, size)
                messages += size
                continue
            if plain_from < index:
                consumer.send_first(run, plain_from, index, messages)
                self.unacked += messages
                messages = 0
            plain_from = index + 1
            if consumed:
                continue
            if not size or remaining == 0:
                cursor.delete(ledger_id, entry_id)
                continue
            left = size if remaining is None else remaining.bit_count()
            consumer.hold(ledger_id, entry_id, left)
            self.unacked += left
            consumer.send_again(run, index, left, redelivered, remaining)
        if plain_from < end:
            consumer.send_first(run, plain_from, end, messages)
            self.unacked += messages

    def _all_plain(self, run: EntryRun, first: int, count: int) -> bool:
        """Nothing of it is consumed, delivered before, a batch in part, or a marker."""
        state = self._cursor.state
        return (
            not self.redelivery_counts
            and not state.batches
            and run.ledger_id not in state.ranges
            and state.mark_delete < (run.ledger_id, run.first_entry_id + first)
            and 0 not in self._sizes[:count]
        )

    def _allowance(self, consumer: AnyConsumer) -> int | None:
        """How many messages may be outstanding besides those that are; None for any number."""
        per_consumer = self._settings.max_unacked_per_consumer
        per_subscription = self._settings.max_unacked_per_subscription
        allowed = per_consumer - consumer.unacked if per_consumer else None
        if per_subscription:
            left = per_subscription - self.unacked
            allowed = left if allowed is None else min(allowed, left)
        return allowed

    def _check_limits(self, consumer: AnyConsumer) -> None:
        per_consumer = self._settings.max_unacked_per_consumer
        if per_consumer and consumer.unacked >= per_consumer:
            consumer.blocked = True
        per_subscription = self._settings.max_unacked_per_subscription
        if per_subscription and self.unacked >= per_subscription:
            self.blocked = True

    def _unblock(self) -> None:
        """Consumers and the subscription go on at half their limit."""
        half = self._settings.max_unacked_per_consumer // 2
        for consumer in self.consumers:
            if consumer.blocked and consumer.unacked <= half:
                consumer.blocked = False
        if self.blocked and self.unacked <= self._settings.max_unacked_per_subscription // 2:
            self.blocked = False

    # Redelivery

    def _send_replay(self, consumer: AnyConsumer, limit: int) -> bool:
        position, count = self.replay.first_range(limit)
        last = (position[0], position[1] + count - 1)
        reader = self._subscription.topic.managed_ledger.reader
        max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
        run = reader.read_cached(position, last, count, max_bytes)
        if run is None:
            self._start(self._read_replay(position, last, count, max_bytes), consumer, max_bytes)
            return False
        self._replay_run(consumer, run)
        return True

    async def _read_replay(self, position: Position, last: Position, count: int, max_bytes: int) -> None:
        reader = self._subscription.topic.managed_ledger.reader
        ledgers = self._subscription.topic.managed_ledger.ledgers
        if not ledgers.exists(position):
            self._reading = None
            self.replay.discard(position)
            self.read_more()
            return
        try:
            run = await reader.read(position, last, count, max_bytes)
        except (LedgerError, ManagedLedgerError) as error:
            if isinstance(error, NoSuchLedger) and position[0] not in ledgers:
                # It was consumed and trimmed while the read was on its way.
                self._reading = None
                self.replay.discard(position)
                self.read_more()
                return
            self._read_failed(error)
            return
        self._reading = None
        consumer = self._next_consumer()
        if consumer is not None and not self.blocked and position in self.replay:
            self._replay_run(consumer, run)
        self.read_more()

    def _replay_run(self, consumer: AnyConsumer, run: EntryRun) -> None:
        stop = self._send(consumer, run, 0, run.count)
        for index in range(stop):
            self.replay.discard((run.ledger_id, run.first_entry_id + index))

    def redeliver_all(self, consumer: AnyConsumer) -> None:
        """Everything this consumer has not acknowledged goes back to the subscription."""
        positions = [(ledger, entry) for ledger, held in consumer.pending.items() for entry in held]
        self.redeliver(consumer, positions)

    def redeliver(self, consumer: AnyConsumer, positions: Sequence[Position]) -> None:
        """These positions, where this consumer holds them, are delivered again, to anybody."""
        for position in positions:
            messages = consumer.let_go(*position)
            if messages is None:
                continue
            self.unacked -= messages
            self.redelivery_counts[position] = self.redelivery_counts.get(position, 0) + 1
            self.replay.add(position)
            consumer.redelivered.messages += messages
        self._unblock()
        self.read_more()

    def consumed(self, ledger_id: int, entry_id: int) -> None:
        """An entry was acknowledged."""
        if self.redelivery_counts:
            self.redelivery_counts.pop((ledger_id, entry_id), None)
        if self.replay:
            self.replay.discard((ledger_id, entry_id))

    def acknowledged(self, messages: int) -> None:
        """So many messages less are outstanding."""
        self.unacked -= messages
        was_blocked = self.blocked or any(c.blocked for c in self.consumers)
        if was_blocked:
            self._unblock()
            self.read_more()

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
