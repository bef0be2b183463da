"""Dispatching to the active consumer of a Failover subscription; the others are on standby."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.dispatch.active_consumer import in_order, pick_active
from magnetar.broker.dispatch.contract import AnyConsumer, DispatchedSubscription
from magnetar.broker.dispatch.single import SingleConsumerDispatcher
from magnetar.broker.dispatch.waiting import TAKEOVER
from magnetar.io.interfaces import Cancellable
from magnetar.managed_ledger.position import Position


class FailoverDispatcher(SingleConsumerDispatcher):
    """A consumer that becomes active is served after a delay, from the first unacknowledged message on,
    because its predecessor may still be processing and acknowledging messages."""

    def __init__(self, subscription: DispatchedSubscription) -> None:
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
        """Only for the active consumer: messages of the others are delivered to it anyway."""
        if consumer is self._served:
            super().redeliver_all(consumer)

    def redeliver(self, consumer: AnyConsumer, _positions: Sequence[Position]) -> None:
        self.redeliver_all(consumer)

    def close(self) -> None:
        super().close()
        self._cancel_takeover()
