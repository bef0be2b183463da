"""A persistent topic, with producers, subscriptions, and a managed ledger."""

from __future__ import annotations

import logging
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.flow.limits import UnackedLimit
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.rates import ENTRY_SIZE_BOUNDS, LATENCY_BOUNDS_MS, Distribution, Rate
from magnetar.broker.flow.resource_groups import SharedLimits
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.broker_entry_metadata import (
    BrokerEntryMetadataWriter,
    bytes_in_front,
    recovered_writer,
)
from magnetar.broker.publishing.deduplication import Deduplication, SourcePositions
from magnetar.broker.publishing.exclusive_access import EPOCH_PROPERTY
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import (
    Producer,
    Publish,
    TransactionEnd,
    sequence_marks,
    source_marks,
)
from magnetar.broker.subscriptions.cursor_kinds import COMPACTION, DEDUPLICATION
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.applied_policies import TopicDispatchRates, retention_settings, use_persistence
from magnetar.broker.topics.base import BaseTopic, TopicSettings
from magnetar.broker.topics.entries import TopicMarkers
from magnetar.broker.topics.subscribing import PendingAckLogs, PersistentSubscriptions
from magnetar.errors import (
    BrokerError,
    NotAllowed,
    PersistenceFailure,
    ServiceNotReady,
    TopicTerminated,
)
from magnetar.io.interfaces import Io
from magnetar.io.locks import Mutex
from magnetar.io.waiting import together
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import EntryTooLarge
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.cursors import AT_ONCE
from magnetar.managed_ledger.errors import ManagedLedgerClosed, ManagedLedgerTerminated
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.managed_ledger.position import LATEST, Position
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator
    from magnetar.broker.transactions import TxnId
    from magnetar.broker.transactions.buffer import TransactionBuffer

log = logging.getLogger(__name__)

_TERMINATED = "Topic was already terminated"
TRANSACTIONS_DISABLED = "Transaction buffer disable!"
"""The error text of Apache Pulsar 4.0."""


class Followers:
    """The callbacks that a loaded topic calls whenever it has stored entries."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: list[Callable[[], None]] = []

    def add(self, follower: Callable[[], None]) -> None:
        self.known.append(follower)

    def remove(self, follower: Callable[[], None]) -> None:
        # A new list: the topic may just be calling the followers.
        self.known = [each for each in self.known if each != follower]


class Topic(BaseTopic[Subscription]):
    """A topic that stores messages before their producers get receipts."""

    subscriptions: PersistentSubscriptions

    def __init__(
        self,
        name: TopicName,
        managed_ledger: ManagedLedger,
        managed_ledgers: ManagedLedgerFactory,
        io: Io,
        wheel: TimerWheel,
        settings: TopicSettings,
        budget: LoopBudget,
        policies: EffectivePolicies,
        mark_busy: Callable[[BaseTopic[Subscription]], None],
        record_latency: Callable[[float], None],
        compactor: Compactor,
        shared: SharedLimits | None = None,
    ) -> None:
        self.managed_ledger = managed_ledger
        own: Topic = weakref.proxy(self)
        self.compaction = TopicCompaction(
            name,
            managed_ledger,
            compactor,
            policies.compaction_threshold,
            lambda: own.subscriptions.cursor_of_compaction(),
        )
        super().__init__(name, io, wheel, settings, budget, policies, mark_busy, shared)
        self.subscriptions = PersistentSubscriptions(self, managed_ledgers)
        self.dispatch_rates: TopicDispatchRates = TopicDispatchRates(
            wheel, io.clock, self.rate_in, managed_ledger.cursors, self.shared
        )
        self.dispatch_rates.use(policies, self.group, self.dispatch_settings)
        self._io = io
        self._managed_ledgers = managed_ledgers
        self._record_latency = record_latency
        self.unacked_limit: UnackedLimit | None = None
        """The broker's limit of unacknowledged messages in all shared subscriptions; None: no limit."""
        self.write_latency = Distribution(LATENCY_BOUNDS_MS)
        self.entry_sizes = Distribution(ENTRY_SIZE_BOUNDS)
        self.writes = Rate()
        self.reads = Rate()
        self.misses = Rate()
        self.mark_deletes = Rate()
        self.replicators: dict[str, Replicator] = {}
        """The replicators, by the name of the other cluster."""
        self.shadow_replicators: dict[str, Replicator] = {}
        """The replicators to shadow topics, by the full name of the shadow topic."""
        self.markers = TopicMarkers(managed_ledger.ledgers)
        self._entry_metadata: BrokerEntryMetadataWriter | None = None
        self.transactions: TransactionBuffer | None = None
        """The transaction buffer; None: the topic has never had transactions."""
        self.make_transactions: Callable[[], TransactionBuffer] | None = None
        """Creates the transaction buffer; None if the topic cannot have transactions."""
        self.followers = Followers()
        self._preparing = Mutex(io.loop)
        self.pending_acks = PendingAckLogs(self, self._preparing)
        managed_ledger.listener = self
        managed_ledger.write_summaries = lambda: own.write_summaries()
        use_persistence(managed_ledger, policies)

    def apply_policies(self, policies: EffectivePolicies) -> None:
        super().apply_policies(policies)
        self.dispatch_rates.use(policies, self.group, self.dispatch_settings)
        for subscription in self.subscriptions.values():
            subscription.rates_changed()
        for replicator in self.all_replicators():
            replicator.policies_changed()
        self.compaction.threshold = policies.compaction_threshold
        self.managed_ledger.use_retention(retention_settings(policies.retention))
        use_persistence(self.managed_ledger, policies)

    def consuming(self) -> Iterator[Subscription | Replicator]:
        """Iterates over the subscriptions and replicators, each of which has a backlog."""
        yield from self.subscriptions.values()
        yield from self.all_replicators()

    def all_replicators(self) -> Iterator[Replicator]:
        """Iterates over the replicators to other clusters and the replicators to shadow topics."""
        yield from self.replicators.values()
        yield from self.shadow_replicators.values()

    def consuming_as(self, name: str) -> Subscription | Replicator | None:
        """Returns the subscription or the replicator whose cursor has that name; None: neither exists."""
        found = self.subscriptions.get(name)
        return found or next((each for each in self.all_replicators() if each.name == name), None)

    async def prepare(self) -> None:
        """Applies the policies that concern publishing; called before the first producer and after changes.

        :raises LedgerError: the last published entries cannot be read
        """
        async with self._preparing:
            if (
                self._entry_metadata is None
                and self.settings.broker_entry_metadata.wanted
                and not self.name.reserved
            ):
                self._entry_metadata = await recovered_writer(
                    self.managed_ledger, self.settings.broker_entry_metadata
                )
            wanted = self.policies.deduplication and not self.terminated
            if wanted and self.deduplication is None:
                await self._deduplicate()
            elif not wanted and DEDUPLICATION in self.managed_ledger.cursors:
                self.deduplication = None
                await self.managed_ledger.cursors.delete(DEDUPLICATION)
            if self.compaction.automatic and COMPACTION not in self.subscriptions:
                # From here on nothing is trimmed before it is compacted.
                await self.subscriptions.cursor_of_compaction()
            self._look_at_entries()

    async def _deduplicate(self) -> None:
        cursor = await self._managed_ledgers.open_cursor(self.managed_ledger, DEDUPLICATION, LATEST, {})
        sources = SourcePositions(self.settings.replicator_prefix, self.settings.cluster)
        known = Deduplication(
            self.managed_ledger, cursor, self.settings.deduplication, self.producers, sources
        )
        await known.replay(self.clock.monotonic())
        for name in self.producers:
            known.came(name)
        self.deduplication = known

    async def write_summaries(self) -> None:
        """Stores a deduplication snapshot durably, so that the next load need not read earlier entries.

        :raises LedgerError: the ledger of the deduplication cursor failed
        :raises ManagedLedgerError: the deduplication cursor cannot be written
        """
        known = self.deduplication
        if known is not None:
            known.snapshot(self.clock.monotonic())
            await known.cursor.flush()

    # Transactions

    @property
    def has_transactions(self) -> bool:
        return self.transactions is not None

    async def use_transactions(self) -> TransactionBuffer:
        """Returns the transaction buffer, ready for messages of transactions.

        :raises NotAllowed: transactions are disabled, or the topic has shadow topics
        :raises BrokerError: the state of transactions cannot be stored now
        """
        self.check_open()
        found = self._transaction_buffer()
        if not found.ready and self.policies.shadow_topics:
            shadows = ", ".join(self.policies.shadow_topics)
            raise NotAllowed(
                f"{self.full_name} has shadow topics ({shadows}), which would show messages of aborted "
                "transactions: remove them with remove-shadow-topics"
            )
        await found.start()
        return found

    def _transaction_buffer(self) -> TransactionBuffer:
        """Returns the transaction buffer, created if necessary.

        :raises NotAllowed: transactions are disabled
        """
        if self.transactions is None:
            if self.make_transactions is None:
                raise NotAllowed(TRANSACTIONS_DISABLED)
            self.transactions = self.make_transactions()
            self._look_at_entries()
        return self.transactions

    async def end_transaction(self, txn: TxnId, *, commit: bool, low_water: int) -> None:
        """Ends a transaction in this topic: a commit shows the transaction's messages, an abort hides them.

        :param low_water: all transactions of the coordinator up to this number have ended; -1: none
        :raises NotAllowed: transactions are disabled
        :raises BrokerError: the end cannot be stored now
        """
        self.check_open()
        # Without messages here it is only remembered, so that those still on their way are refused.
        await self._transaction_buffer().end(txn, commit=commit, low_water=low_water)

    def tenures(self) -> list[Tenure]:
        """Returns the :class:`Tenure` of each managed ledger that the topic writes to."""
        return [self.managed_ledger.stored_record.tenure, *self.pending_acks.tenures.values()]

    def _note_transactions(self, transactions: TransactionBuffer, appends: Sequence[Append]) -> None:
        """Passes entries that became durable to the transaction buffer, before any of them is dispatched."""
        plain = False
        for append in appends:
            publish = append.context
            txn = None if publish is None else publish.transaction
            if txn is None:
                plain = True
            elif isinstance(publish, TransactionEnd):
                transactions.ended(txn, (append.ledger_id, append.first_entry_id), commit=publish.commit)
            else:
                transactions.stored(txn, (append.ledger_id, append.first_entry_id), append.count)
        if plain:
            transactions.advanced()

    def read_more(self) -> None:
        """Sends consumers the entries that have become visible, and calls :attr:`followers`."""
        for subscription in self.subscriptions.values():
            if subscription.dispatcher is not None:
                subscription.read_more()
        for follower in self.followers.known:
            follower()

    @property
    def terminated(self) -> bool:
        return self.managed_ledger.terminated is not None

    def stored_epoch(self) -> int | None:
        text = self.managed_ledger.properties.get(EPOCH_PROPERTY)
        return int(text) if text is not None and text.isdigit() else None

    async def store_epoch(self, epoch: int) -> None:
        await self.managed_ledger.set_properties({EPOCH_PROPERTY: str(epoch)})

    def producer_came(self, producer: Producer) -> None:
        if self.deduplication is not None:
            self.deduplication.came(producer.name)

    def producer_left(self, producer: Producer) -> None:
        if self.deduplication is not None:
            self.deduplication.left(producer.name, self.clock.monotonic())

    @property
    def max_read_position(self) -> Position:
        return self.managed_ledger.max_read_position

    # Publishing

    def publish(
        self, publish: Publish, buffer: bytes, starts: array[int], ends: array[int], size: int
    ) -> None:
        """Stores the entries ``buffer[starts[i]:ends[i]]``; their producer gets receipts when they are
        durable.

        :raises TopicTerminated: the topic is terminated
        :raises ServiceNotReady: the topic is closing, or was lost to another broker
        """
        if self.closing or self.fenced:
            raise ServiceNotReady("Topic is temporarily unavailable")
        stored = size
        if self._entry_metadata is not None:
            buffer, starts, ends = self._entry_metadata.prepend(buffer, starts, ends, self.clock.wall_ms())
            stored = len(buffer)
        try:
            self.managed_ledger.append(buffer, starts, ends, len(starts), stored, publish)
        except ManagedLedgerTerminated as error:
            self.hindered(Hindrance.TERMINATED, _TERMINATED)
            raise TopicTerminated(_TERMINATED) from error
        except ManagedLedgerClosed as error:
            raise ServiceNotReady("Topic is temporarily unavailable") from error
        if publish.messages:
            if (txn := publish.transaction) is not None and self.transactions is not None:
                self.transactions.writing(txn, len(starts))
            self.rate_in.messages += publish.messages
            self.rate_in.bytes += size
        if not self.is_busy:
            self.busy()

    def on_durable(self, appends: Sequence[Append]) -> None:
        now = self.clock.monotonic()
        for operation in appends:
            publish = operation.context
            if publish is None:
                continue
            publish.producer.connection.publishing.on_durable(
                publish.producer,
                publish,
                operation.ledger_id,
                operation.first_entry_id,
                operation.first,
                operation.count,
                self._sent_size(operation),
            )
            if self.deduplication is not None:
                publish.note_stored(self.deduplication, operation.first, operation.count)
            milliseconds = (now - publish.started) * 1000.0
            self.write_latency.add(milliseconds, operation.count)
            self._record_latency(milliseconds)
            self.writes.messages += operation.count
            self.entry_sizes.add(operation.size / operation.count, operation.count)
        if self.deduplication is not None and self.deduplication.full():
            # After all entries of the commit: the position of a snapshot is the end of the commit.
            self.deduplication.snapshot(now)
        if self.transactions is not None:
            self._note_transactions(self.transactions, appends)
        if self.markers.on_their_way:
            self.markers.durable(appends, list(self.subscriptions.values()))
        self.read_more()
        if self.producers.waiters:
            self.producers.wake()

    def _sent_size(self, operation: Append) -> int:
        """Returns the size of entries as their producer sent them, in bytes."""
        if self._entry_metadata is None:
            return operation.size
        marks = bytes_in_front(operation.buffer, operation.starts, operation.first, operation.count)
        return operation.size - marks

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        """Reports entries that were not stored. An entry that is too large fails alone, with an error after
        which clients do not send it again."""
        reason: BrokerError
        too_large = isinstance(error, EntryTooLarge)
        if too_large:
            reason = NotAllowed(f"Exceed maximum message size: {error}")
            self.hindered(Hindrance.MESSAGE_REFUSED, str(reason))
        elif isinstance(error, ManagedLedgerTerminated):
            reason = TopicTerminated(_TERMINATED)
            self.hindered(Hindrance.TERMINATED, _TERMINATED)
        else:
            reason = PersistenceFailure(f"Cannot store the message: {error}")
            self.hindered(Hindrance.NOT_STORED, str(reason))
        # A message that cannot be published is the client's error and not the broker's.
        level = logging.ERROR if isinstance(reason, PersistenceFailure) else logging.INFO
        log.log(level, "entries not stored", extra={"topic": self.full_name, "error": str(error)})
        self.markers.failed(appends)
        known, transactions = self.deduplication, self.transactions
        for operation in appends:
            publish = operation.context
            if publish is not None:
                txn = publish.transaction
                if txn is not None and transactions is not None and not isinstance(publish, TransactionEnd):
                    transactions.not_stored(txn, operation.count)
                publish.producer.connection.publishing.on_failed(
                    publish.producer,
                    publish,
                    operation.first,
                    operation.count,
                    self._sent_size(operation),
                    reason,
                )
                if known is not None:
                    publish.note_failed(known, operation.first, operation.count)
        if known is not None:
            known.failed(sequence_marks(self.managed_ledger.appends))
            known.sources.failed(source_marks(self.managed_ledger.appends))
        if not too_large:
            self.producers.disconnect()
        self.producers.wake()

    def on_fenced(self) -> None:
        """Closes the topic, because another broker owns its ledgers; the next request loads it again."""
        self.fenced = True
        self.producers.wake()
        self.producers.disconnect()
        # Subscriptions of readers are dropped with them.
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect_all()

    @property
    def stored_bytes(self) -> int:
        return self.managed_ledger.ledgers.total_size()

    # Figures

    def tick(self, seconds: float) -> bool:
        """Updates the rates over the last ``seconds``; returns whether there is still traffic."""
        reader = self.managed_ledger.reader
        self.reads.messages, self.reads.bytes = reader.entries_read, reader.bytes_read
        self.misses.messages = reader.entries_missed
        self.mark_deletes.messages = self.managed_ledger.cursors.mark_deletes
        rates = (self.rate_in, self.rate_out, self.writes, self.reads, self.misses, self.mark_deletes)
        for rate in rates:
            rate.tick(seconds)
        self.producers.tick(seconds)
        acknowledged = self.subscriptions.tick(seconds)
        for replicator in self.all_replicators():
            acknowledged = replicator.tick(seconds) or acknowledged
        # Without one more update after its last window, a rate would keep its value.
        return acknowledged or any(rate.per_second > 0 for rate in rates)

    # Ending

    def disown(self) -> None:
        super().disown()
        self.managed_ledger.disown()
        for ledger in self.pending_acks.managed_ledgers():
            ledger.disown()

    def fail(self, error: BaseException) -> None:
        # Before anything else: a wrong state must not be written, not even in this turn of the loop.
        self.managed_ledger.abandon()
        for ledger in self.pending_acks.managed_ledgers():
            ledger.abandon()
        super().fail(error)

    async def terminate(self) -> Position:
        """Terminates the topic; returns the position of its last entry."""
        self.check_open()
        if self.transactions is not None:
            await self.transactions.drained()
            self.check_open()
        last = await self.managed_ledger.terminate()
        self.producers.disconnect()
        for subscription in self.subscriptions.values():
            subscription.check_end_of_topic()
        return last

    async def close(self) -> None:
        """Disconnects all clients and closes the managed ledger; then all acknowledgements are durable.

        Producers first get the receipts of pending entries; otherwise they would send the entries again.
        """
        if self.closing:
            return
        self.closing = True
        await self.compaction.stop()
        await self.subscriptions.made()
        await self.producers.drained(list(self.producers.values()))
        await together(self.loop, list(self.subscriptions.values()), lambda each: each.save(), AT_ONCE)
        self._disconnect()
        if self.transactions is not None:
            self.transactions.close()
        # From here on none is loaded any more.
        async with self._preparing:
            logs = [each.pending for each in self.subscriptions.values() if each.pending is not None]
        await together(self.loop, logs, lambda each: each.close(), AT_ONCE)
        if self.deduplication is not None:
            self.deduplication.snapshot(self.clock.monotonic())
        await self._managed_ledgers.close(self.managed_ledger)
        self._let_go()

    async def delete(self) -> None:
        """Disconnects all clients, and deletes the topic with all its data."""
        self.closing = True
        await self.compaction.stop()
        await self.subscriptions.made()
        self._disconnect()
        if self.transactions is not None:
            self.transactions.close()
        async with self._preparing:
            for subscription in self.subscriptions.values():
                await self.pending_acks.delete_loaded(subscription)
        await self._managed_ledgers.delete(self.managed_ledger)
        self._let_go()

    def _let_go(self) -> None:
        """Breaks reference cycles, so that reference counting frees the topic."""
        for subscription in self.subscriptions.values():
            subscription.dispatcher = None
        self.subscriptions.clear()
        self.replicators.clear()
        self.shadow_replicators.clear()
        self.markers.reader = None
        self.transactions = self.make_transactions = self.pending_acks.open = None
        self.followers.known = []
