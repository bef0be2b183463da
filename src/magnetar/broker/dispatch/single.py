"""Dispatching to one consumer, in order.

This is the only consumer of an Exclusive subscription, or the active consumer of a Failover subscription.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import AnyConsumer, RangedConsumer
from magnetar.broker.dispatch.contract import (
    DispatchSettings,
    bits_left,
    bits_not_pending,
    charge_rejected,
    filter_verdict,
)
from magnetar.broker.dispatch.filters import FilterResult
from magnetar.broker.dispatch.reading import ReadingDispatcher
from magnetar.broker.dispatch.waiting import (
    AT_END,
    FILTER,
    NO_CONSUMER,
    NO_PERMITS,
    RATE_LIMIT,
    TAKEOVER,
    TURN,
    WHATEVER_IS_LEFT,
    Reason,
    lack_of,
)
from magnetar.broker.flow.loop_budget import FILTER_PRICE, LOOK_PRICE
from magnetar.invariants import must
from magnetar.io.interfaces import Cancellable
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.entry_reader import slice_run
from magnetar.managed_ledger.position import Position
from magnetar.naming.hashes import murmur3_positive
from magnetar.protocol.hot_codec import TRANSACTIONAL, batch_sizes

if TYPE_CHECKING:
    from magnetar.broker.compaction.reading import CompactedReading
    from magnetar.broker.subscriptions.persistent import Subscription


_POINTS = 100
"""Points of each consumer on the hash ring."""


class SingleConsumerDispatcher(ReadingDispatcher):
    """A dispatcher that reads and sends while the consumer has permits and its connection has room."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription)
        self._compacted: CompactedReading | None = None
        """Replaces the cursor if the consumer reads the compacted topic; None: the cursor is read."""
        self.consumers: list[AnyConsumer] = []
        self._served: AnyConsumer | None = None
        """The consumer that is served now; None: no consumer is served."""
        self._sizes = array("i", bytes(4 * 256))
        self._filters = subscription.filters
        self._put_off: Cancellable | None = None
        """A timer, after which entries that a filter rescheduled are delivered again with all unacknowledged
        entries; None: no entry was rescheduled.
        """
        self._left: EntryRun | None = None
        """Entries that were read and not sent, because the consumer had no permits or its connection had no
        room; None: no entries.
        """

    def use(self, settings: DispatchSettings) -> None:
        """Applies changed settings."""
        self._settings = settings
        self._filters = self._subscription.filters

    @property
    def active(self) -> AnyConsumer | None:
        return self._served

    @property
    def is_waiting(self) -> bool:
        """Whether the consumer is ready for new entries, but the topic has none."""
        consumer = self._served
        return (
            consumer is not None
            and consumer.permits > 0
            and self._left is None
            and not self._source.has_more()
        )

    def why_not(self) -> Reason:
        """Returns the reason why nothing is sent now."""
        found = self.waits.reason
        return found if found in WHATEVER_IS_LEFT or self.has_unread() else self._nothing_new()

    def _nothing_new(self) -> Reason:
        return AT_END if self._put_off is None else FILTER

    def has_unread(self) -> bool:
        """Whether the topic has entries that were not sent to the consumer yet."""
        return self._left is not None or self._source.has_more()

    def add(self, consumer: AnyConsumer) -> None:
        self.consumers = [consumer]
        self._serve(consumer)

    def remove(self, consumer: AnyConsumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._serve(None)

    def _serve(self, consumer: AnyConsumer | None) -> None:
        """Sends entries to ``consumer``, from the first unacknowledged message on; None: stops sending."""
        if consumer is not None and consumer not in self.consumers:
            self._violated("served consumer", "a connected one", consumer.name)
        self._leave_compacted()
        self._served = consumer
        if consumer is not None and consumer.read_compacted:
            self._source = self._compacted = self._subscription.read_compacted()
        self._rewind()
        self.waits.because(NO_CONSUMER if consumer is None else NO_PERMITS)

    def _leave_compacted(self) -> None:
        if self._compacted is not None:
            self._compacted.close()
        self._source, self._compacted = self._cursor, None

    def _rewind(self) -> None:
        self._left = None
        super()._rewind()

    def flow(self, _consumer: AnyConsumer) -> None:
        self.read_more()

    def read_more(self) -> None:
        while self._reading is None:
            consumer = self._served
            if consumer is None:
                return
            if not consumer.ready:
                self.waits.because(lack_of(consumer))
                return
            entries, throttle = consumer.permits, self._subscription.throttle
            if throttle is not None:
                if not self.has_unread():
                    self.waits.because(self._nothing_new())
                    return
                if not throttle.admits():
                    self.waits.because(RATE_LIMIT)
                    return
                entries = min(entries, throttle.messages)
            if not self._budget.admits(self._subscription):
                self.waits.because(TURN)
                return
            run, self._left = self._left, None
            if run is None:
                max_bytes = consumer.read_bytes(min(self._budget.step_bytes, self._settings.max_read_bytes))
                run = self._source.read_cached(entries, max_bytes)
            if run is None:
                if self._source.has_more():
                    self._start_read(consumer)
                else:
                    self.waits.because(AT_END if self._put_off is None else FILTER)
                return
            self._send(consumer, run)
            if self._left is None and not self._source.has_more():
                # The usual end; whether there is room for more need not be determined.
                self.waits.because(self._nothing_new())
                return

    def _start_read(self, consumer: AnyConsumer) -> None:
        entries = min(consumer.permits, self._settings.max_read_entries)
        max_bytes = consumer.read_bytes(self._settings.max_read_bytes)
        self._start(self._read(entries, max_bytes), consumer, max_bytes)

    def _is_served(self) -> bool:
        return self._served is not None

    def _keep(self, run: EntryRun) -> None:
        self._left = run

    def _send(self, consumer: AnyConsumer, run: EntryRun) -> None:
        cursor = self._cursor
        if len(self._sizes) < run.count:
            self._sizes = array("i", bytes(4 * run.count))
        for first, end in self._source.unconsumed_parts(run):
            if not consumer.ready:
                self._left = slice_run(run, run.first_entry_id + first, run.count)
                return
            sizes = self._sizes
            found = batch_sizes(run.buffer, run.starts, run.ends, first, end - first, sizes)
            if found & TRANSACTIONAL:
                transactions = self._subscription.topic.transactions
                if transactions is not None:
                    transactions.mask(run, first, end - first, sizes)
            part_end, throttle = end, self._subscription.throttle
            if throttle is not None:
                end = first + throttle.fitting(run, first, end - first, sizes)
            if self._filters is not None or isinstance(consumer, RangedConsumer):
                stop = self._send_chosen(consumer, run, first, end)
            elif cursor.state.batches or 0 in sizes[: end - first] or self._has_pending():
                stop = self._send_one_by_one(consumer, run, first, end)
            else:
                stop = first + consumer.entries_within_permits(sizes, end - first)
                consumer.send_first(run, first, stop, sum(sizes[: stop - first]))
            if stop < part_end:
                self._left = slice_run(run, run.first_entry_id + stop, run.count)
                return
            if throttle is not None and part_end < run.count:
                # The limits are checked again for each part.
                self._left = slice_run(run, run.first_entry_id + part_end, run.count)
                return

    def _has_pending(self) -> bool:
        pending = self._subscription.pending
        return pending is not None and pending.any

    def _send_one_by_one(self, consumer: AnyConsumer, run: EntryRun, first: int, end: int) -> int:
        """Sends entries [first, end) within the permits; returns the index after the last sent entry."""
        before, stop = self._cursor.mark_delete, end
        for index in range(first, end):
            if consumer.permits <= 0:
                stop = index
                break
            self._send_one(consumer, run, index, self._sizes[index - first])
        if self._cursor.mark_delete != before:
            self._subscription.after_ack(before)
        return stop

    def _send_one(self, consumer: AnyConsumer, run: EntryRun, index: int, messages: int) -> None:
        entry_id = run.first_entry_id + index
        remaining = bits_left(self._cursor.remaining_bits(run.ledger_id, entry_id), messages)
        if not messages or remaining == 0:
            if not messages:
                self._subscription.meets_marker(run, index)
            self._cursor.delete(run.ledger_id, entry_id)
            return
        pending = self._subscription.pending
        if pending is not None and pending.any:
            remaining = bits_not_pending(remaining, messages, pending.bits_of(run.ledger_id, entry_id))
        if remaining == 0:
            # A transaction that is open has acknowledged it.
            return
        if remaining is None:
            consumer.send_first(run, index, index + 1, messages)
        else:
            consumer.send_again(run, index, remaining.bit_count(), 0, remaining)

    def _send_chosen(self, consumer: AnyConsumer, run: EntryRun, first: int, end: int) -> int:
        """Sends entries like :meth:`_send_one_by_one`, except entries that filters reject or that are not in
        the consumer's ranges.
        """
        before = self._cursor.mark_delete
        indexes = range(first, end)
        self._budget.spend((end - first) * LOOK_PRICE)
        wanted = consumer.wanted(run, first, end) if isinstance(consumer, RangedConsumer) else indexes
        stop = end
        for index in wanted:
            if consumer.permits <= 0:
                stop = index
                break
            messages = self._sizes[index - first]
            if not messages:
                # Filters never see markers.
                self._subscription.meets_marker(run, index)
                self._cursor.delete(run.ledger_id, run.first_entry_id + index)
                continue
            self._budget.spend(FILTER_PRICE)
            verdict = filter_verdict(self._subscription, consumer, run, index, messages)
            if verdict is FilterResult.ACCEPT:
                self._send_one(consumer, run, index, messages)
            elif verdict is FilterResult.REJECT:
                self._cursor.delete(run.ledger_id, run.first_entry_id + index)
                charge_rejected(self._subscription, self._settings, run, index, messages)
            elif self._put_off is None:
                wheel = self._subscription.topic.wheel
                self._put_off = wheel.schedule(self._settings.filter_again_seconds, self._filter_again)
        if self._cursor.mark_delete != before:
            self._subscription.after_ack(before)
        return stop

    def _filter_again(self) -> None:
        self._put_off = None
        self._rewind()
        self.read_more()

    def redeliver_all(self, consumer: AnyConsumer) -> None:
        """Redelivers all unacknowledged messages, in order from the mark-delete position on."""
        self._rewind()
        self.read_more()

    def redeliver(self, consumer: AnyConsumer, _positions: Sequence[Position]) -> None:
        self.redeliver_all(consumer)

    def rewound(self) -> None:
        """Discards the entries that were read but not sent, because the cursor has moved."""
        self._left = None
        if self._compacted is not None:
            self._compacted.rewind()

    def close(self) -> None:
        self._leave_compacted()
        self._cancel_retry()
        if self._put_off is not None:
            self._put_off.cancel()
            self._put_off = None

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the served consumer is not connected, or states are inconsistent
        """
        must(self._served is None or self._served in self.consumers, "one is served who is not connected")
        nobody = self.waits.reason is NO_CONSUMER
        must(nobody == (not self.consumers), self._subscription.name, "waits:", self.waits.reason)
        for consumer in self.consumers:
            consumer.check()
            must(not consumer.closed, consumer.name, "is connected and closed")


class FailoverDispatcher(SingleConsumerDispatcher):
    """The dispatcher of a Failover subscription. It serves the active consumer; the other consumers are on
    standby.

    A new active consumer is served after a delay, from the first unacknowledged message on, because the
    former active consumer may still be processing and acknowledging messages.
    """

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription)
        self._picked: AnyConsumer | None = None
        self._takeover: Cancellable | None = None

    @property
    def active(self) -> AnyConsumer | None:
        return self._picked

    def add(self, consumer: AnyConsumer) -> None:
        self.consumers = in_order([*self.consumers, consumer])
        if not self._pick() and self._picked is not None:
            consumer.connection.send_active_consumer_change(consumer, False)

    def remove(self, consumer: AnyConsumer) -> None:
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        if self.consumers:
            self._pick()
            return
        self._picked = None
        self._cancel_takeover()
        self._serve(None)

    def _pick(self) -> bool:
        """Chooses the active consumer; returns whether it has changed."""
        topic = self._subscription.topic
        picked = pick_active(
            self.consumers,
            topic.full_name,
            topic.name.partition_index,
            consistent_hashing=self._settings.failover_consistent_hashing,
        )
        if picked is self._picked:
            return False
        self._picked = picked
        self._served = None
        self._left = None
        self.waits.because(TAKEOVER)
        delay = self._settings.failover_delay_seconds
        if delay <= 0:
            self._cancel_takeover()
            self._take_over()
        elif self._takeover is None:
            self._takeover = topic.wheel.schedule(delay, self._take_over)
        return True

    def _take_over(self) -> None:
        self._takeover = None
        self._serve(self._picked)
        for consumer in self.consumers:
            consumer.connection.send_active_consumer_change(consumer, consumer is self._picked)
        self.read_more()

    def _cancel_takeover(self) -> None:
        if self._takeover is not None:
            self._takeover.cancel()
            self._takeover = None

    def redeliver_all(self, consumer: AnyConsumer) -> None:
        """Redelivers messages of the active consumer. Messages of other consumers go to the active consumer
        in any case."""
        if consumer is self._served:
            super().redeliver_all(consumer)

    def redeliver(self, consumer: AnyConsumer, _positions: Sequence[Position]) -> None:
        self.redeliver_all(consumer)

    def close(self) -> None:
        super().close()
        self._cancel_takeover()


def in_order(consumers: Sequence[AnyConsumer]) -> list[AnyConsumer]:
    """Returns the consumers ordered by priority level, then by name, compared as Java compares strings."""
    return sorted(consumers, key=lambda c: (c.priority, c.name.encode("utf-16-be", "surrogatepass")))


def pick_active(
    consumers: Sequence[AnyConsumer], topic: str, partition: int, *, consistent_hashing: bool
) -> AnyConsumer:
    """Returns the active consumer: a consumer of the highest priority, chosen by partition index or the
    topic's name.

    :param consumers: at least one, in the order of :func:`in_order`
    :param topic: the full name
    :param partition: the partition index; -1 for a topic that is not partitioned
    """
    best = consumers[0].priority
    eligible = [consumer for consumer in consumers if consumer.priority == best]
    if partition >= 0 and not consistent_hashing:
        return eligible[partition % len(eligible)]
    ring: dict[int, AnyConsumer] = {}
    for consumer in eligible:
        for point in range(_POINTS):
            ring[murmur3_positive(f"{consumer.name}{point}".encode())] = consumer
    points = sorted(ring)
    index = bisect_left(points, murmur3_positive(topic.encode()))
    return ring[points[index % len(points)]]
