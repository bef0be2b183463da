"""What all subscriptions have, whether they have a cursor or not: their consumers, permits, and figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import Protocol

from magnetar.broker import events
from magnetar.broker.dispatch.contract import AnyConsumer, DispatchSettings, DispatchTopic
from magnetar.broker.dispatch.waiting import MOVING, NO_CONSUMER, Reason, Waiting
from magnetar.broker.flow.departure import Assigned, Departure
from magnetar.broker.flow.loop_budget import RUN_PRICE
from magnetar.broker.flow.rates import Rate
from magnetar.broker.subscriptions.cursor_kinds import subscription_kind
from magnetar.errors import ConsumerBusy, MetadataFailure, ServiceNotReady, SubscriptionNotFound
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import AckRun


class SubscriptionType(IntEnum):
    """``CommandSubscribe.SubType``."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    Key_Shared = 3


@dataclass(frozen=True, slots=True)
class BatchAck:
    """One message id of an ACK that names messages inside a batch: a set bit is *not* acknowledged."""

    position: Position
    remaining: int
    batch_size: int
    """0 where the client did not say."""


class AnyDispatcher(Protocol):
    """Who gives entries to the consumers of a subscription."""

    waits: Waiting

    @property
    def consumers(self) -> Sequence[AnyConsumer]: ...
    @property
    def active(self) -> AnyConsumer | None: ...
    def why_not(self) -> Reason: ...
    def add(self, consumer: AnyConsumer) -> None: ...
    def remove(self, consumer: AnyConsumer) -> None: ...
    def flow(self, _consumer: AnyConsumer) -> None: ...
    def use(self, settings: DispatchSettings) -> None: ...
    def close(self) -> None: ...


class BaseSubscription(ABC):
    """Consumers of one type at a time share what is published, or one of them gets it."""

    topic: DispatchTopic

    def __init__(self, name: str, properties: dict[str, str], loaded_ms: int) -> None:
        """:param loaded_ms: now, in ms since 1970"""
        self.name = name
        self.loaded_ms = loaded_ms
        self.kind = subscription_kind(name)
        self.properties = properties
        self.type: SubscriptionType | None = None
        self.dispatcher: AnyDispatcher | None = None
        self.rate_out = Rate()
        self.redelivered = Rate()
        self.acks = Rate()
        self.last_consumed_ms = 0
        self.last_consumed_flow_ms = 0
        self.last_acked_ms = 0
        self.closing = False
        """Nobody joins, and nothing is read: it is being ended, or moved."""
        self.ending = False

    @property
    @abstractmethod
    def durable(self) -> bool: ...

    @property
    def consumers(self) -> Sequence[AnyConsumer]:
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    # Consumers come and go

    def check_type(self, kind: SubscriptionType) -> None:
        """:raises ConsumerBusy: consumers of another type are connected"""
        if self.consumers and self.type is not None and kind is not self.type:
            raise ConsumerBusy(
                f"Subscription is of different type. Active subscription type of '{self.type.name}' is "
                f"different than the connecting consumer's type '{kind.name}'."
            )

    def _came(self, kind: SubscriptionType, consumer: AnyConsumer) -> None:
        events.consumer_came(self.topic.full_name, self.name, kind.name, consumer)

    def _left(self, consumer: AnyConsumer) -> None:
        if not consumer.closed:
            consumer.closed = True
            events.consumer_left(self.topic.full_name, self.name, consumer)

    def fence(self) -> None:
        """It is being ended."""
        self.ending = self.closing = True

    def unfence(self) -> None:
        """It could not be ended."""
        self.ending = self.closing = False

    def _check_joins(self, kind: SubscriptionType, max_consumers: int) -> None:
        """:raises ConsumerBusy: taken, of another type, or full

        :raises ServiceNotReady: it is closing, or a seek is going on: the client comes again
        """
        if self.closing:
            raise ServiceNotReady("Subscription is fenced: it is being closed or moved")
        self.check_type(kind)
        if kind is SubscriptionType.Exclusive and self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")
        if max_consumers and len(self.consumers) >= max_consumers:
            raise ConsumerBusy("Subscription reached max consumers limit")

    @abstractmethod
    def _new_dispatcher(self, kind: SubscriptionType) -> AnyDispatcher: ...

    def _dispatcher_for(self, kind: SubscriptionType) -> AnyDispatcher:
        """The dispatcher to consumers of a type; another one when they were of another type before."""
        if self.dispatcher is None or self.type is not kind:
            if self.dispatcher is not None:
                self.dispatcher.close()
            self.dispatcher = self._new_dispatcher(kind)
            self.type = kind
        return self.dispatcher

    @abstractmethod
    def add(self, consumer: AnyConsumer, kind: SubscriptionType, max_consumers: int) -> None:
        """:raises ConsumerBusy: taken, of another type, or full

        :param max_consumers: 0 for no cap
        :raises ServiceNotReady: it is closing, or a seek is going on: the client comes again
        """

    def drop_gone(self) -> None:
        """Consumers whose connection is closed go now; of a client with many they may still be here."""
        for consumer in [one for one in self.consumers if one.connection.closed]:
            self.remove(consumer)

    @abstractmethod
    def remove(self, consumer: AnyConsumer) -> None:
        """It has gone, or is being closed."""

    def policies_changed(self) -> None:
        """The topic has other settings of dispatch now."""
        if self.dispatcher is not None:
            self.dispatcher.use(self.topic.dispatch_settings)

    def stop_sending(self) -> None:
        """All consumers will be closed: none gets what another one held."""
        for consumer in self.consumers:
            consumer.permits = 0

    def disconnect_all(self, departure: Departure | None = None) -> None:
        """Closes all consumers; their clients come back.

        :param departure: by which they are told where to; None: at once, that they have to look up
        """
        self.stop_sending()
        for consumer in list(self.consumers):
            if departure is None:
                consumer.connection.close_consumer(consumer)
            else:
                consumer.connection.stop_consumer(consumer)
                departure.add(partial(consumer.connection.close_consumer, consumer))
            self.remove(consumer)

    def check_unsubscribe(self, consumer: AnyConsumer, *, force: bool) -> None:
        """:raises MetadataFailure: others are connected and ``force`` is false: Pulsar answers so"""
        if consumer not in self.consumers:
            raise SubscriptionNotFound("The consumer is no longer connected to the subscription")
        if len(self.consumers) > 1 and not force:
            raise MetadataFailure(
                "Unconnected or shared consumer attempting to unsubscribe: other consumers are connected"
            )

    @abstractmethod
    def drop_if_unused(self) -> None:
        """A non-durable subscription goes when the consumer it was made for did not join."""

    @abstractmethod
    def close(self) -> None:
        """Nobody joins any more."""

    # Delivery

    def flow(self, consumer: AnyConsumer, permits: int) -> None:
        now = self.topic.clock.wall_ms()
        consumer.last_consumed_flow_ms = self.last_consumed_flow_ms = now
        consumer.permits += permits
        if self.dispatcher is not None:
            self.dispatcher.flow(consumer)

    def why_not(self) -> Reason:
        """Why its consumers are sent nothing now."""
        if self.closing or self.topic.closing or self.topic.fenced:
            return MOVING
        return NO_CONSUMER if self.dispatcher is None else self.dispatcher.why_not()

    def waits_since_ms(self) -> int:
        """Since when that is so, and nothing was sent; in ms since 1970."""
        if self.dispatcher is None:
            return self.loaded_ms
        return max(self.dispatcher.waits.since_ms, self.last_consumed_ms)

    @abstractmethod
    def read_more(self) -> None:
        """A consumer has room again."""

    def sent(self, entries: int, messages: int, size: int) -> int:
        """A consumer was sent so much; returns the time."""
        self.topic.budget.spend(RUN_PRICE + size)
        now_ms = self.topic.clock.wall_ms()
        self.rate_out.messages += messages
        self.rate_out.bytes += size
        self.last_consumed_ms = now_ms
        self.topic.dispatched(messages, size)
        return now_ms

    @abstractmethod
    def check_end_of_topic(self) -> None:
        """Tells consumers of a topic that is terminated, or has moved, when they have had everything."""

    @abstractmethod
    def moved_to(self) -> Assigned | None:
        """The cluster to which its consumers are sent; None: none, or something is left for them here."""

    def send_on(self) -> None:
        """Sends its consumers to the other cluster if nothing is left for them here; those whose clients
        cannot go there hear of the end.

        In a turn of its own: a dispatcher may be at work with them, or an acknowledgement not answered yet.
        """
        self.topic.loop.call_soon(self._send_on)

    def _send_on(self) -> None:
        there = self.moved_to()
        if there is None:
            return
        for consumer in list(self.consumers):
            if consumer.connection.send_migrated(consumer, there):
                consumer.connection.close_consumer(consumer)
                self.remove(consumer)
            else:
                consumer.connection.send_end_of_topic(consumer)

    # Acknowledgement

    @abstractmethod
    def acknowledge_run(self, consumer: AnyConsumer, run: AckRun) -> None:
        """Whole entries, one by one."""

    @abstractmethod
    def acknowledge(
        self, consumer: AnyConsumer, positions: Sequence[Position], batches: Sequence[BatchAck]
    ) -> None:
        """Whole entries and parts of batches."""

    @abstractmethod
    def acknowledge_cumulative(
        self, consumer: AnyConsumer, position: Position, batch: BatchAck | None
    ) -> None:
        """Everything up to ``position``; with ``batch``, everything before it and the bits cleared in it.

        On a shared subscription it acknowledges nothing, and is no error: what is before it went to others.
        """

    @abstractmethod
    def redeliver(self, consumer: AnyConsumer, positions: Sequence[Position] | None) -> None:
        """Delivers again what the consumer did not acknowledge: all (None) or these positions."""

    # Figures

    @abstractmethod
    def backlog(self) -> int:
        """Messages that wait to be consumed."""

    def unacked_messages(self) -> int:
        return sum(consumer.unacked for consumer in self.consumers)

    def tick(self, seconds: float) -> bool:
        """Works out rates; returns whether anything was consumed."""
        for rate in (self.rate_out, self.redelivered, self.acks):
            rate.tick(seconds)
        for consumer in self.consumers:
            for rate in (consumer.rate_out, consumer.redelivered, consumer.acks):
                rate.tick(seconds)
        return self.acks.per_second > 0
