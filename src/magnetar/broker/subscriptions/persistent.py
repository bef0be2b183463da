"""A subscription of a persistent topic: its cursor, its consumers, and their acknowledgements."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker import events
from magnetar.broker.compaction.reading import CompactedReading, ReadStart
from magnetar.broker.consumers.consumer import MAX_BATCH, AnyConsumer
from magnetar.broker.dispatch.filters import fitting_filters
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.dispatch.many import ManyConsumersDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.dispatch.single import FailoverDispatcher, SingleConsumerDispatcher
from magnetar.broker.dispatch.waiting import AT_END, OPEN_TRANSACTION, Reason
from magnetar.broker.flow.connection import Assigned
from magnetar.broker.flow.rates import Rate
from magnetar.broker.subscriptions.base import BaseSubscription, BatchAck, SubscriptionType, redirect
from magnetar.broker.subscriptions.cursor_kinds import COMPACTION
from magnetar.errors import NotAllowed, PersistenceFailure, ServiceNotReady
from magnetar.invariants import must, violated
from magnetar.io.interfaces import Cancellable
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.position import EARLIEST, LATEST, Position
from magnetar.protocol.hot_codec import AckRun

if TYPE_CHECKING:
    from magnetar.broker.replication.subscriptions.snapshots import CarriedSubscription
    from magnetar.broker.topics.persistent import Topic
    from magnetar.broker.transactions import TxnId
    from magnetar.broker.transactions.pending_acks import Acked, PendingAcks


log = logging.getLogger(__name__)
REPLICATED = "pulsar.replicated.subscription"
"""The property of a cursor that is 1 if the cursor's subscription is marked as replicated."""
Dispatcher = SingleConsumerDispatcher | SharedDispatcher | KeySharedDispatcher
_DISPATCHERS: dict[SubscriptionType, Callable[[Subscription], Dispatcher]] = {
    SubscriptionType.Exclusive: SingleConsumerDispatcher,
    SubscriptionType.Failover: FailoverDispatcher,
    SubscriptionType.Shared: SharedDispatcher,
    SubscriptionType.Key_Shared: KeySharedDispatcher,
}


class Subscription(BaseSubscription):
    """A durable subscription, or a non-durable subscription, which ends when its last consumer leaves."""

    topic: Topic
    dispatcher: Dispatcher | None

    def __init__(
        self,
        topic: Topic,
        name: str,
        cursor: Cursor,
        properties: dict[str, str],
        start: Position | None = None,
    ) -> None:
        """:param start: the first position to deliver, as requested by the client; None if unknown"""
        super().__init__(name, properties, topic.clock.wall_ms())
        self.topic = topic
        self.cursor = cursor
        self.start = ReadStart(cursor, topic.managed_ledger.ledgers, start)
        self.filters = fitting_filters(None, topic.dispatch_settings.filters)
        self.last_mark_delete_ms = 0
        self.last_active_ms = self.loaded_ms
        """The time when a consumer last joined, left or consumed messages, in ms since 1970; initially the
        time of the load."""
        self.expired = Rate()
        """The rate of entries that expired before they were consumed."""
        self.last_expire_ms = 0
        self.expiring = False
        """Whether a search for expired entries is in progress."""
        self.seeking = False
        self.awaiting_return: Cancellable | None = None
        """The timer of a reader's subscription whose consumer is expected to return after a seek; None: no
        consumer is expected.
        """
        self.read_errors = 0
        self.last_read_error = ""
        self.throttle = topic.dispatch_rates.throttle(self, None)
        self.awaits_acks = False
        self.carried: CarriedSubscription | None = None
        """The state of the subscription's replication to other clusters; None: it is not replicated."""
        self.pending: PendingAcks | None = None
        """Acknowledgements of open transactions; None: no transaction has ever acknowledged messages of this
        subscription, or the acknowledgements are not loaded yet."""
        self.knows_pending = False
        """Whether :attr:`pending` is final: the acknowledgements are loaded, or have turned out not to
        exist."""

    @property
    def durable(self) -> bool:
        return self.cursor.durable

    def read_compacted(self) -> CompactedReading:
        ledgers = self.topic.managed_ledger.ledgers
        return CompactedReading(self.cursor, ledgers, self.topic.compaction, self.start)

    @property
    def replicated(self) -> bool:
        """Whether the subscription is marked as replicated. The mark has no effect if the topic is not
        replicated to other clusters."""
        storage = self.cursor.storage
        return storage is not None and storage.properties.get(REPLICATED) == 1

    def replicate(self, wanted: bool) -> None:
        """Makes the subscription replicated, or no longer replicated; this is written with the cursor."""
        storage = self.cursor.storage
        if storage is None or wanted == self.replicated:
            return
        properties = {key: value for key, value in storage.properties.items() if key != REPLICATED}
        storage.properties = properties | ({REPLICATED: 1} if wanted else {})
        storage.changed()
        self.topic.markers.subscriptions_changed()

    # Consumers that join and leave

    def _new_dispatcher(self, kind: SubscriptionType) -> Dispatcher:
        return _DISPATCHERS[kind](self)

    def add(self, consumer: AnyConsumer, kind: SubscriptionType, max_consumers: int) -> None:
        self._check_joins(kind, max_consumers)
        if self.awaiting_return is not None:
            self.awaiting_return.cancel()
            self.awaiting_return = None
        known = self.topic.managed_ledger.cursors.get(self.name)
        if known is not self.cursor and self.durable:
            what = f"cursor of subscription {self.name} of {self.topic.full_name}"
            violated(self.fail, what, "that of its topic", "another one" if known is not None else "none")
        self._dispatcher_for(kind).add(consumer)
        events.consumer_came(self.topic.full_name, self.name, kind.name, consumer)
        self.last_active_ms = self.topic.clock.wall_ms()
        self.topic.managed_ledger.cursors.set_active(self.cursor, True)

    def remove(self, consumer: AnyConsumer) -> None:
        """Removes a consumer. Its unacknowledged messages go to other consumers, or wait until a consumer
        joins.
        """
        self._left(consumer)
        self.last_active_ms = self.topic.clock.wall_ms()
        if self.dispatcher is None:
            return
        self.dispatcher.remove(consumer)
        if not self.dispatcher.consumers:
            self.topic.managed_ledger.cursors.set_active(self.cursor, False)
            if not self.durable and not self.closing and self.awaiting_return is None:
                self.topic.subscriptions.forget(self)

    def drop_if_unused(self) -> None:
        if not self.durable and not self.consumers:
            self.topic.subscriptions.forget(self)

    # Delivery

    def read_more(self) -> None:
        if self.dispatcher is not None and not self.closing:
            try:
                self.dispatcher.read_more()
            except Exception as error:
                # Entries may be neither sent nor waiting.
                self.fail(error)
                raise

    def go_on(self) -> None:
        """Continues dispatching that was interrupted in an earlier turn of the loop."""
        if self.throttle is None or self.throttle.in_turn:
            self.read_more()
        else:
            self.throttle.serve()

    def sent(self, entries: int, messages: int, size: int) -> int:
        if self.throttle is not None:
            self.throttle.take(entries, messages, size)
        return super().sent(entries, messages, size)

    def policies_changed(self) -> None:
        self.filters = fitting_filters(self.filters, self.topic.dispatch_settings.filters)
        super().policies_changed()
        if self.awaits_acks:
            self.read_more()

    def rates_changed(self) -> None:
        """Applies changed dispatch rates."""
        former, self.throttle = self.throttle, self.topic.dispatch_rates.throttle(self, self.throttle)
        if former is not None:
            # The dispatcher may wait for a limit that no longer exists.
            self.read_more()

    def meets_marker(self, run: EntryRun, index: int) -> None:
        """Handles a marker that the dispatcher has read; no consumer gets it."""
        if self.carried is not None:
            self.carried.met(run.entry(index))

    def pass_markers(self, first: Position, last: Position) -> None:
        """Consumes markers if everything before them is consumed. If they stayed unconsumed, they would be a
        backlog that no consumer ever reads.

        :param first: the position of the first of the adjacent markers
        :param last: the position of the last marker
        """
        if self.closing or self.name == COMPACTION or not first <= self.cursor.first_unconsumed() <= last:
            return
        first_id = self.topic.managed_ledger.ledgers.first_id()
        if self.topic.compaction.current is not None and self.start.first_wanted()[0] < first_id:
            # Compacted messages are still to be read.
            return
        self.cursor.mark_delete_to(last)

    def read_failed(self, error: Exception) -> None:
        if self.topic.closing:
            # The stores may close before a read ends whose result is no longer needed.
            return
        self.read_errors += 1
        self.last_read_error = str(error)
        log.error(
            "cannot read entries; trying again",
            extra={"topic": self.topic.full_name, "subscription": self.name, "error": str(error)},
        )

    # Acknowledgement

    def count_acked(self, consumer: AnyConsumer, messages: int) -> None:
        """Counts messages that a consumer has acknowledged."""
        now = self.topic.clock.wall_ms()
        consumer.last_acked_ms = self.last_acked_ms = now
        consumer.acks.messages += messages
        self.acks.messages += messages
        self.topic.busy()

    def acknowledge_run(self, consumer: AnyConsumer, run: AckRun) -> None:
        """Acknowledges whole entries individually."""
        dispatcher = self.dispatcher
        before = self.cursor.mark_delete
        if isinstance(dispatcher, ManyConsumersDispatcher):
            dispatcher.let_go_run(consumer, run)
        self.cursor.delete_run(run.ledger_ids, run.entry_ids, run.count)
        self.count_acked(consumer, run.count)
        self.after_ack(before)

    def acknowledge(
        self, consumer: AnyConsumer, positions: Sequence[Position], batches: Sequence[BatchAck]
    ) -> None:
        """Acknowledges whole entries and parts of batches."""
        run = AckRun(max(1, len(positions)))
        run.count = len(positions)
        run.ledger_ids = array("q", (p[0] for p in positions))
        run.entry_ids = array("q", (p[1] for p in positions))
        if positions:
            self.acknowledge_run(consumer, run)
        before = self.cursor.mark_delete
        for ack in batches:
            if not ack.remaining:
                self.acknowledge(consumer, [ack.position], ())
            elif self.topic.batch_index_acks:
                self._acknowledge_batch(consumer, ack)
        self.after_ack(before)

    def _acknowledge_batch(self, consumer: AnyConsumer, ack: BatchAck) -> None:
        ledger_id, entry_id = ack.position
        held = consumer.messages_held(ledger_id, entry_id)
        known = self.cursor.remaining_bits(ledger_id, entry_id)
        # The delivered batch is more reliable than the client's statement.
        size = (held if known is None else 0) or ack.batch_size
        if size > MAX_BATCH:
            return
        cleared, whole = self.cursor.consume_batch_indexes(ledger_id, entry_id, ack.remaining, size)
        if isinstance(self.dispatcher, ManyConsumersDispatcher):
            if whole:
                messages = consumer.let_go(ledger_id, entry_id)
                if messages is None:
                    messages = self.dispatcher.let_go_elsewhere(ledger_id, entry_id)
                self.dispatcher.redelivery_counts.pop((ledger_id, entry_id), None)
                self.dispatcher.acknowledged(messages)
            elif cleared:
                self.dispatcher.acknowledged(consumer.reduce(ledger_id, entry_id, cleared))
        self.count_acked(consumer, cleared)

    def acknowledge_cumulative(
        self, consumer: AnyConsumer, position: Position, batch: BatchAck | None
    ) -> None:
        """Acknowledges everything up to ``position``; with ``batch``, everything before ``position`` and the
        messages of the batch whose bits are cleared.

        On a Shared or Key_Shared subscription this has no effect and raises no error, because earlier
        messages may have gone to other consumers.
        """
        if self.type in (SubscriptionType.Shared, SubscriptionType.Key_Shared):
            log.warning(
                "cumulative acknowledgement on a shared subscription ignored",
                extra={"topic": self.topic.full_name, "subscription": self.name, "consumer": consumer.name},
            )
            return
        before = self.cursor.mark_delete
        if batch is not None and batch.remaining:
            consumed = self.cursor.mark_delete_to((position[0], position[1] - 1))
            if self.topic.batch_index_acks:
                self.cursor.consume_batch_indexes(*position, batch.remaining, batch.batch_size)
        else:
            consumed = self.cursor.mark_delete_to(position)
            if self.start.passed(position) and self.topic.terminated:
                self.check_end_of_topic()
        self.count_acked(consumer, consumed)
        self.after_ack(before)

    def after_ack(self, before: Position) -> None:
        """Completes the acknowledgement of entries, including entries that no consumer gets: filtered entries
        and markers.

        :param before: the mark-delete position before these entries were acknowledged
        """
        if self.awaits_acks:
            self.awaits_acks = False
            self.read_more()
        if self.cursor.mark_delete != before:
            self.last_mark_delete_ms = self.last_acked_ms
            if self.carried is not None:
                self.carried.moved()
            if self.topic.terminated:
                self.check_end_of_topic()

    def skip_to(self, position: Position) -> int:
        """Consumes all entries up to ``position``, including entries that consumers hold; returns their
        number."""
        if self.name == COMPACTION:
            # Everything before this cursor counts as compacted: a skip would lose keys.
            return 0
        before = self.cursor.mark_delete
        count = self.cursor.mark_delete_to(position)
        if self.cursor.mark_delete != before:
            self.last_mark_delete_ms = self.topic.clock.wall_ms()
            if self.carried is not None:
                self.carried.moved()
            if isinstance(self.dispatcher, ManyConsumersDispatcher):
                self.dispatcher.consumed_elsewhere()
            if self.topic.terminated:
                self.check_end_of_topic()
            self.read_more()
        return count

    def tick(self, seconds: float) -> bool:
        moving = super().tick(seconds)
        self.expired.tick(seconds)
        return moving or self.expired.per_second > 0

    # Redelivery

    def redeliver(self, consumer: AnyConsumer, positions: Sequence[Position] | None) -> None:
        """Redelivers messages that the consumer has received and not acknowledged: the messages at
        ``positions``; None: all messages.
        """
        if self.dispatcher is None:
            return
        if positions is None:
            self.dispatcher.redeliver_all(consumer)
        else:
            self.dispatcher.redeliver(consumer, positions)

    def unfence(self) -> None:
        super().unfence()
        self.closing = self.seeking

    async def save(self) -> None:
        """Stores the state that makes the next load fast; called when the topic closes."""
        if isinstance(self.dispatcher, ManyConsumersDispatcher):
            await self.dispatcher.save_delays()

    def check_end_of_topic(self) -> None:
        if self.topic.moved is not None:
            self.topic.loop.call_soon(redirect, self)
            return
        unread = isinstance(self.dispatcher, SingleConsumerDispatcher) and self.dispatcher.has_unread()
        if not unread and not self.cursor.has_more() and not self.cursor.backlog():
            for consumer in self.consumers:
                consumer.connection.send_end_of_topic(consumer)

    def moved_to(self) -> Assigned | None:
        # More messages may come until the topic is terminated.
        left = not self.topic.terminated or self.cursor.has_more() or self.cursor.backlog()
        return None if left else self.topic.moved

    def backlog(self) -> int:
        return self.cursor.backlog()

    def why_not(self) -> Reason:
        """Returns the reason why nothing is sent to the consumers now."""
        found = super().why_not()
        return OPEN_TRANSACTION if found is AT_END and self.cursor.is_held_back else found

    def close(self) -> None:
        self.fence()
        if self.awaiting_return is not None:
            self.awaiting_return.cancel()
            self.awaiting_return = None
        if self.dispatcher is not None:
            self.dispatcher.close()
        if self.throttle is not None:
            self.throttle.close()

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: consumers, dispatcher and cursor contradict each other
        """
        if self.dispatcher is not None:
            self.dispatcher.check()
        if self.cursor.durable and not self.topic.closing:
            known = self.topic.managed_ledger.cursors.get(self.name)
            must(known is self.cursor or self.ending, self.name, "has a cursor that its topic does not know")
        if self.pending is not None:
            self.pending.check()


# Transactions: acknowledgements that a commit makes effective


async def acknowledge_in(
    subscription: Subscription,
    txn: TxnId,
    consumer: AnyConsumer,
    acked: Sequence[Acked],
    *,
    cumulative: bool,
) -> None:
    """Adds acknowledgements to a transaction; durable when this returns.

    :raises TransactionConflict: one of the messages is acknowledged already, or by another open transaction
    :raises NotAllowed: transactions are disabled, or the subscription is not durable
    :raises BrokerError: the acknowledgements cannot be stored now
    """
    pending = await subscription.topic.pending_acks.of(subscription, create=True)
    if pending is None:
        raise NotAllowed(
            "org.apache.pulsar.broker.service.BrokerServiceException$NotAllowedException: "
            "Server don't support transaction ack!"
        )
    ledger = subscription.topic.managed_ledger
    if not cumulative:
        consumed = subscription.cursor.is_consumed
        # Clients may also send positions of entries that never existed.
        known = [each for each in acked if ledger.ledgers.exists(each.position) or consumed(*each.position)]
        try:
            await pending.acknowledge(txn, known, lambda: _let_go(subscription, consumer, known))
        except PersistenceFailure:
            _give_back(subscription, [each.position for each in known])
            raise
    elif len(acked) == 1 and subscription.type not in (SubscriptionType.Shared, SubscriptionType.Key_Shared):
        last = ledger.last_confirmed
        # What is stored after it later is not acknowledged, also not when the log is read again.
        upto = acked[0] if acked[0].position <= last else replace(acked[0], position=last, remaining=None)
        await pending.acknowledge_cumulative(txn, upto)
        subscription.count_acked(consumer, 0)


def _let_go(subscription: Subscription, consumer: AnyConsumer, acked: Sequence[Acked]) -> None:
    messages = len(acked)
    if isinstance(subscription.dispatcher, ManyConsumersDispatcher):
        messages = subscription.dispatcher.let_go_pending(consumer, acked)
    subscription.count_acked(consumer, messages)


async def end_acks(subscription: Subscription, txn: TxnId, *, commit: bool, low_water: int) -> None:
    """Ends a transaction in a subscription, durably: a commit makes the transaction's acknowledgements
    effective, an abort redelivers the messages that it had acknowledged.

    :param low_water: the number up to which all transactions of the coordinator have ended; -1: none
    :raises BrokerError: the end cannot be stored now
    """
    pending = await subscription.topic.pending_acks.of(subscription, create=False)
    if pending is None:
        return
    before = subscription.cursor.mark_delete
    given_back = partial(_give_back, subscription)
    await pending.end(txn, commit=commit, low_water=low_water, given_back=given_back)
    pending.trim(subscription.topic.tasks)
    subscription.after_ack(before)


def _give_back(subscription: Subscription, positions: Sequence[Position], cumulative: bool = False) -> None:
    """Redelivers the messages that an aborted transaction had acknowledged.

    :param cumulative: whether the transaction also had a cumulative acknowledgement
    """
    dispatcher = subscription.dispatcher
    if isinstance(dispatcher, SingleConsumerDispatcher):
        if dispatcher.active is not None:
            dispatcher.redeliver_all(dispatcher.active)
    elif dispatcher is None or not dispatcher.consumers:
        return
    elif cumulative:
        # The subscription had another type then. How much was left out since is not known.
        subscription.cursor.rewind()
        dispatcher.rewound()
        subscription.read_more()
    else:
        giving = dispatcher.give_back(positions, dispatcher.held_in_part(positions))
        subscription.topic.tasks.start(giving, "delivering what a transaction gave back")


# Seeks: the cursor moves to any position while the consumers are disconnected


def begin_seek(subscription: Subscription) -> None:
    """Begins a seek: until :func:`end_seek` is called, consumers cannot join, and the subscription does
    not end although its consumers leave.

    :raises ServiceNotReady: another seek is in progress, or the subscription is being closed
    """
    if subscription.closing:
        raise ServiceNotReady(
            "Subscription is fenced: a seek is in progress, or it is being closed; try again"
        )
    subscription.seeking = subscription.closing = True


def end_seek(subscription: Subscription) -> None:
    subscription.seeking = False
    if not subscription.ending:
        # Otherwise the end of the subscription has begun meanwhile, and it must not be reopened.
        subscription.closing = False
        subscription.topic.subscriptions.keep_for_return(subscription)
        if subscription.carried is not None:
            subscription.carried.moved()


async def seek_to(
    subscription: Subscription, position: Position, remaining: int = 0, batch_size: int = 0
) -> None:
    """Moves the cursor, durably: disconnects the consumers, which reconnect and get ``position`` next.

    :param remaining: a bit for each message of the batch at ``position`` that is to be delivered; 0: all
        messages
    :param batch_size: the number of messages in that batch; 0 if unknown
    :raises ServiceNotReady: another seek is in progress, or the subscription is being closed
    """
    begin_seek(subscription)
    try:
        subscription.disconnect_all()
        reset(subscription, position)
        if remaining and subscription.topic.batch_index_acks and position not in (EARLIEST, LATEST):
            subscription.cursor.consume_batch_indexes(*position, remaining, batch_size)
        await subscription.cursor.flush()
    finally:
        end_seek(subscription)


def reset(subscription: Subscription, position: Position) -> None:
    """Moves the cursor so that ``position`` is delivered next; the consumers must be disconnected."""
    subscription.cursor.reset(position)
    subscription.start.begin_at(position)
    dispatcher = subscription.dispatcher
    if isinstance(dispatcher, ManyConsumersDispatcher):
        dispatcher.forget_delays(moved=True)
    if dispatcher is not None:
        dispatcher.rewound()
