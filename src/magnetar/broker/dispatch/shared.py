"""Dispatching to the consumers of a shared subscription: round robin, by priority level and permits."""

from __future__ import annotations

from array import array
from typing import Any

from magnetar.broker.dispatch.contract import AnyConsumer, DispatchedSubscription
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.replay import ReplayPositions
from magnetar.broker.flow.loop_budget import LOOK_PRICE
from magnetar.ledger.entry_run import EntryRun
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import batch_sizes


class SharedDispatcher(ManyConsumersDispatcher[Any]):
    """Gives each consumer a few entries a turn; what comes back is delivered before anything new."""

    replay: ReplayPositions

    def __init__(self, subscription: DispatchedSubscription) -> None:
        super().__init__(subscription, ReplayPositions())
        self._next = 0

    def add(self, consumer: AnyConsumer) -> None:
        if not self.consumers:
            self._cursor.rewind()
            self.rewound()
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: c.priority)

    def remove(self, consumer: AnyConsumer) -> None:
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

    def _next_consumer(self) -> AnyConsumer | None:
        """The next in turn of the best priority level that has one ready."""
        consumers = self.consumers
        count = len(consumers)
        best: AnyConsumer | None = None
        best_index = 0
        for step in range(count):
            index = (self._next + step) % count
            consumer = consumers[index]
            if (best is None or consumer.priority < best.priority) and consumer.ready:
                best, best_index = consumer, index
                if consumer.priority == consumers[0].priority:
                    # They are sorted: nobody has a better one.
                    break
        if best is not None:
            self._next = (best_index + 1) % count
        return best

    def read_more(self) -> None:
        while self._reading is None and not self.blocked:
            begin = self._next
            consumer = self._next_consumer()
            if consumer is None:
                return
            self._take_due()
            throttle = self._subscription.throttle
            if throttle is not None and not (self._has_more() and throttle.admits()):
                self._next = begin
                return
            if not self._budget.admits(self._subscription):
                self._next = begin
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
        if self._must_wait_for_acks():
            return False
        if left is None:
            if not self._leap_over_waiting():
                return False
            max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
            run = self._cursor.read_cached(self._entries_at_once(), max_bytes)
            if run is None:
                if self._cursor.has_more():
                    self._start(self._read(max_bytes), consumer, max_bytes)
                return False
            left = (run, 0, run.count)
        run, first, end = left
        stop = self._send(consumer, run, first, min(first + limit, end))
        self._left = (run, stop, end) if stop < end else None
        return True

    def _send(
        self, consumer: AnyConsumer, run: EntryRun, first: int, end: int, *, again: bool = False
    ) -> int:
        """Sends entries [first, end) as long as there are permits; returns where it stopped.

        :param again: they were read before, and wait for nothing but to be delivered
        """
        ledger_id = run.ledger_id
        count = end - first
        if len(self._sizes) < count:
            self._sizes = array("i", bytes(4 * count))
        sizes = self._sizes
        timed = batch_sizes(run.buffer, run.starts, run.ends, first, count, sizes)
        kept = False
        if not again and (timed or self.delays is not None):
            kept = self._keep_back(run, first, count, sizes, timed)
        count = consumer.entries_within_permits(sizes, count, self._allowance(consumer))
        if self._subscription.throttle is not None:
            count = self._subscription.throttle.fitting(run, first, count, sizes)
        end = first + count
        if self._filters is not None:
            self._filter(consumer, run, range(first, end), sizes[:count], ())
        if kept:
            self._budget.spend(count * LOOK_PRICE)
        if not self.redelivery_counts and self._is_untouched(run, first) and 0 not in sizes[:count]:
            consumer.hold_range(ledger_id, run.first_entry_id + first, sizes, count)
            messages = sum(sizes[:count])
            consumer.send_first(run, first, end, messages)
            self.unacked += messages
        else:
            self._send_mixed(consumer, run, first, end, kept=kept)
        self._check_limits(consumer)
        return end

    def _send_mixed(self, consumer: AnyConsumer, run: EntryRun, first: int, end: int, *, kept: bool) -> None:
        """Entries of which some are consumed, delivered before, or batches in part.

        :param kept: some are kept back: their sizes are 0
        """
        sizes, ledger_id, counts = self._sizes, run.ledger_id, self.redelivery_counts
        plain_from = first
        messages = 0
        for index in range(first, end):
            entry_id = run.first_entry_id + index
            size = sizes[index - first]
            found = None if kept and not size else self._remaining(ledger_id, entry_id, size)
            redelivered = counts.get((ledger_id, entry_id), 0) if counts else 0
            if found is not None and found[1] is None and not redelivered:
                consumer.hold(ledger_id, entry_id, size)
                messages += size
                continue
            if plain_from < index:
                consumer.send_first(run, plain_from, index, messages)
                self.unacked += messages
                messages = 0
            plain_from = index + 1
            if found is None:
                continue
            left, remaining = found
            consumer.hold(ledger_id, entry_id, left)
            self.unacked += left
            consumer.send_again(run, index, left, redelivered, remaining)
        if plain_from < end:
            consumer.send_first(run, plain_from, end, messages)
            self.unacked += messages

    # Redelivery

    def _send_replay(self, consumer: AnyConsumer, limit: int) -> bool:
        position, count = self.replay.first_range(limit)
        last = (position[0], position[1] + count - 1)
        reader = self._subscription.topic.managed_ledger.reader
        max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
        run = reader.read_cached(position, last, count, max_bytes)
        if run is None:
            reading = self._read_replay(position, last, count, max_bytes)
            self._start(reading, consumer, max_bytes, again=True)
            return False
        self._replay_run(consumer, run)
        return True

    async def _read_replay(self, position: Position, last: Position, count: int, max_bytes: int) -> None:
        run = await self._read_again(position, last, count, max_bytes)
        consumer = self._next_consumer()
        if run is not None and consumer is not None and not self.blocked and position in self.replay:
            self._replay_run(consumer, run)
        self.read_more()

    def _replay_run(self, consumer: AnyConsumer, run: EntryRun) -> None:
        stop = self._send(consumer, run, 0, run.count, again=True)
        for index in range(stop):
            self.replay.discard((run.ledger_id, run.first_entry_id + index))

    def _wait_again(self, consumer: AnyConsumer, position: Position) -> int | None:
        messages: int | None = consumer.let_go(*position)
        if messages is not None:
            self.replay.add(position)
        return messages

    def _wait_for_filter(self, position: Position, _slot: int) -> None:
        self.replay.add(position)

    def _wait_as_due(self, position: Position, _hashed: int) -> None:
        self.replay.add(position)
