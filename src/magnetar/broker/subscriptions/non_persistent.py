"""A subscription of a non-persistent topic: consumers receive the messages published while they are
connected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker import events
from magnetar.broker.consumers.consumer import AnyConsumer, NonPersistentRun
from magnetar.broker.dispatch.contract import DispatchTopic
from magnetar.broker.dispatch.non_persistent import (
    NonPersistentExclusive,
    NonPersistentFailover,
    NonPersistentKeyShared,
    NonPersistentShared,
)
from magnetar.broker.flow.connection import Assigned
from magnetar.broker.flow.rates import Rate
from magnetar.broker.subscriptions.base import (
    BaseSubscription,
    BatchAck,
    SubscriptionType,
    redirect,
)
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import AckRun

Dispatcher = NonPersistentExclusive | NonPersistentShared | NonPersistentKeyShared
_DISPATCHERS: dict[SubscriptionType, Callable[[DispatchTopic], Dispatcher]] = {
    SubscriptionType.Exclusive: NonPersistentExclusive,
    SubscriptionType.Failover: NonPersistentFailover,
    SubscriptionType.Shared: NonPersistentShared,
    SubscriptionType.Key_Shared: NonPersistentKeyShared,
}


class NonPersistentSubscription(BaseSubscription):
    """A subscription of a non-persistent topic. It exists until a client unsubscribes or the topic is closed;
    a non-durable subscription only until its last consumer leaves.

    Acknowledgements, redeliveries and seeks are accepted without an effect, because no messages are kept.
    """

    topic: DispatchTopic
    dispatcher: Dispatcher | None

    def __init__(self, topic: DispatchTopic, name: str, properties: dict[str, str], *, durable: bool) -> None:
        super().__init__(name, properties, topic.clock.wall_ms())
        self.topic = topic
        self._durable = durable
        self.drops = Rate()
        """The rate of messages that no consumer accepted."""

    @property
    def durable(self) -> bool:
        return self._durable

    def _new_dispatcher(self, kind: SubscriptionType) -> Dispatcher:
        return _DISPATCHERS[kind](self.topic)

    def add(self, consumer: AnyConsumer, kind: SubscriptionType, max_consumers: int) -> None:
        self._check_joins(kind, max_consumers)
        self._dispatcher_for(kind).add(consumer)
        events.consumer_came(self.topic.full_name, self.name, kind.name, consumer)

    def remove(self, consumer: AnyConsumer) -> None:
        self._left(consumer)
        if self.dispatcher is None:
            return
        self.dispatcher.remove(consumer)
        if not self.dispatcher.consumers and not self._durable and not self.closing:
            self.topic.subscriptions.forget(self)

    def drop_if_unused(self) -> None:
        if not self._durable and not self.consumers:
            self.topic.subscriptions.forget(self)

    def close(self) -> None:
        self.fence()

    # Delivery

    def deliver(self, run: NonPersistentRun) -> None:
        """Delivers a run of messages to the connected consumers; messages that no consumer accepts are
        counted as dropped."""
        if self.dispatcher is not None and not self.closing:
            dropped = self.dispatcher.deliver(run)
            if dropped:
                self.drops.messages += dropped

    def read_more(self) -> None:
        """Does nothing: no messages wait."""

    def check_end_of_topic(self) -> None:
        if self.topic.moved is not None:
            self.topic.loop.call_soon(redirect, self)

    def moved_to(self) -> Assigned | None:
        return self.topic.moved

    # Acknowledgement

    def _acked(self, consumer: AnyConsumer, messages: int) -> None:
        consumer.last_acked_ms = self.last_acked_ms = self.topic.clock.wall_ms()
        consumer.acks.messages += messages
        self.acks.messages += messages
        self.topic.busy()

    def acknowledge_run(self, consumer: AnyConsumer, run: AckRun) -> None:
        self._acked(consumer, run.count)

    def acknowledge(
        self, consumer: AnyConsumer, positions: Sequence[Position], batches: Sequence[BatchAck]
    ) -> None:
        self._acked(consumer, len(positions) + len(batches))

    def acknowledge_cumulative(
        self, consumer: AnyConsumer, position: Position, batch: BatchAck | None
    ) -> None:
        self._acked(consumer, 1)

    def redeliver(self, consumer: AnyConsumer, positions: Sequence[Position] | None) -> None:
        """Does nothing: no messages are kept."""

    # Figures

    def backlog(self) -> int:
        return 0

    def tick(self, seconds: float) -> bool:
        moving = super().tick(seconds)
        self.drops.tick(seconds)
        return moving
