"""A non-persistent topic: messages are sent to the connected consumers at once, and not stored."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import NonPersistentRun
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.rates import Rate
from magnetar.broker.flow.resource_groups import SharedLimits
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.topics.base import BaseTopic, TopicSettings
from magnetar.broker.topics.subscribing import NonPersistentSubscriptions
from magnetar.errors import ServiceNotReady
from magnetar.invariants import BrokenInvariant
from magnetar.io.interfaces import Io
from magnetar.io.waiting import report
from magnetar.io.wheel import TimerWheel
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.hot_codec import MARKED, batch_sizes

if TYPE_CHECKING:
    from magnetar.broker.replication.passing_on import PassingReplicator


class NonPersistentTopic(BaseTopic[NonPersistentSubscription]):
    """A topic without stored data: its subscriptions are lost when it is unloaded or the broker stops."""

    subscriptions: NonPersistentSubscriptions

    def __init__(
        self,
        name: TopicName,
        io: Io,
        wheel: TimerWheel,
        settings: TopicSettings,
        budget: LoopBudget,
        policies: EffectivePolicies,
        mark_busy: Callable[[BaseTopic[NonPersistentSubscription]], None],
        shared: SharedLimits | None = None,
    ) -> None:
        self._epoch: int | None = None
        super().__init__(name, io, wheel, settings, budget, policies, mark_busy, shared)
        self.subscriptions = NonPersistentSubscriptions(self)
        self.drops = Rate()
        """The rate of messages that were dropped because too many messages of the connection were in
        flight.
        """
        self.replicators: dict[str, PassingReplicator] = {}
        """The replicators, by the name of the other cluster."""
        self.entries_added = 0
        self._sizes = array("i", bytes(4 * 256))
        self._unsettled: list[tuple[Publish, int, int]] = []

    async def prepare(self) -> None:
        self._look_at_entries()

    @property
    def terminated(self) -> bool:
        return False

    @property
    def stored_bytes(self) -> int:
        return 0

    def stored_epoch(self) -> int | None:
        return self._epoch

    async def store_epoch(self, epoch: int) -> None:
        """Keeps the epoch in memory while the topic is loaded."""
        self._epoch = epoch

    # Producers

    def producer_came(self, producer: Producer) -> None:
        """Connects the replicators, which get the messages that the producer publishes."""
        if producer.remote_cluster is None:
            for replicator in self.replicators.values():
                replicator.wake()

    def producer_left(self, producer: Producer) -> None:
        """Does nothing: the topic keeps no state of a producer."""

    # Publishing

    def publish(
        self, publish: Publish, buffer: bytes, starts: array[int], ends: array[int], size: int
    ) -> None:
        """Sends the entries ``buffer[starts[i]:ends[i]]`` to the consumers; the producer gets the outcome in
        the next turn of the loop.

        Entries beyond ``maxConcurrentNonPersistentMessagePerConnection`` are dropped. This method subtracts
        their bytes from the producer's statistics, because the caller counts all entries.

        :raises ServiceNotReady: the topic is closing
        """
        if self.closing:
            raise ServiceNotReady("Topic is temporarily unavailable")
        count = len(starts)
        if len(self._sizes) < count:
            self._sizes = array("i", bytes(4 * count))
        sizes = self._sizes
        marked = batch_sizes(buffer, starts, ends, 0, count, sizes) & MARKED
        connection = publish.producer.connection
        taken = min(count, max(0, self.settings.max_non_persistent - connection.non_persistent_pending))
        size_taken = size
        if taken < count:
            size_taken -= self._drop(publish, taken, starts, ends)
        self.entries_added += taken
        self.rate_in.messages += publish.messages
        self.rate_in.bytes += size_taken
        if not self.is_busy:
            self.busy()
        if taken and self.replicators:
            for replicator in self.replicators.values():
                replicator.pass_on(buffer, starts, ends, taken)
        if taken and self.subscriptions:
            run = NonPersistentRun(buffer, starts, ends, sizes, taken)
            if marked:
                # Consumers do not get markers of brokers.
                run = run.only([index for index in range(taken) if sizes[index]])
            for subscription in list(self.subscriptions.values()):
                subscription.deliver(run)
        connection.non_persistent_pending += taken
        self._unsettled.append((publish, taken, size))
        if len(self._unsettled) == 1:
            self.loop.call_soon(self._settle)

    def _drop(self, publish: Publish, first: int, starts: array[int], ends: array[int]) -> int:
        """Drops the entries from ``first`` on; returns their total size in bytes."""
        dropped = sum(self._sizes[first : len(starts)])
        dropped_bytes = sum(ends[first:]) - sum(starts[first:])
        publish.messages = max(0, publish.messages - dropped)
        publish.producer.rate_in.bytes -= dropped_bytes
        publish.producer.drops.messages += dropped
        self.drops.messages += dropped
        return dropped_bytes

    def _settle(self) -> None:
        """Reports the outcome of the last turn's publishes to their producers."""
        unsettled, self._unsettled = self._unsettled, []
        for publish, taken, size in unsettled:
            connection = publish.producer.connection
            connection.non_persistent_pending -= taken
            if connection.non_persistent_pending < 0:
                found, connection.non_persistent_pending = connection.non_persistent_pending, 0
                what = f"entries in flight of the connection of producer {publish.producer.name}"
                # Raises nothing: the others still get their results.
                connection.fail(BrokenInvariant(what, "at least 0", found))
            try:
                connection.publishing.on_passed(publish.producer, publish, taken, size)
            except Exception as error:  # noqa: BLE001 - reported; the others still get their results
                report(self.loop, connection.publishing.on_passed, error)
        if self.producers.waiters:
            self.producers.wake()

    # Figures

    def tick(self, seconds: float) -> bool:
        for rate in (self.rate_in, self.rate_out, self.drops):
            rate.tick(seconds)
        for producer in self.producers.values():
            producer.drops.tick(seconds)
        self.producers.tick(seconds)
        moving = self.subscriptions.tick(seconds)
        for replicator in self.replicators.values():
            moving = replicator.tick(seconds) or moving
        moving = moving or any(s.drops.per_second > 0 for s in self.subscriptions.values())
        return moving or any(r.per_second > 0 for r in (self.rate_in, self.rate_out, self.drops))

    # Ending

    async def close(self) -> None:
        """Disconnects all clients, after receipts for all published messages have been sent."""
        if not self.closing:
            await self.delete()

    async def delete(self) -> None:
        # The caller has already set this.
        self.closing = True
        self._settle()
        self._disconnect()
        self.subscriptions.clear()
        self.replicators.clear()
