"""The common part of subscriptions with and without a cursor: consumers, permits, and statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import Protocol

from magnetar.broker import events
from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.dispatch.contract import DispatchSettings, DispatchTopic
from magnetar.broker.dispatch.waiting import MOVING, NO_CONSUMER, Reason, Waiting
from magnetar.broker.flow.connection import Assigned, Departure
from magnetar.broker.flow.loop_budget import RUN_PRICE
from magnetar.broker.flow.rates import Rate
from magnetar.broker.subscriptions.cursor_kinds import subscription_kind
from magnetar.errors import ConsumerBusy, ServiceNotReady
from magnetar.io.waiting import tell
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import AckRun


class SubscriptionType(IntEnum):
    """The subscription types, with the values of ``CommandSubscribe.SubType``."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    Key_Shared = 3


@dataclass(frozen=True, slots=True)
class BatchAck:
    """One message id of an ACK that names messages inside a batch.
    A set bit of ``remaining`` means that the message is *not* acknowledged.
    """

    position: Position
    remaining: int
    batch_size: int
    """The number of messages in the batch; 0 if the client did not send it."""


class AnyDispatcher(Protocol):
    """Delivers entries to the consumers of a subscription."""

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
    """A subscription. All its consumers have the same type, which determines how messages are divided among
    them."""

    topic: DispatchTopic

    def __init__(self, name: str, properties: dict[str, str], loaded_ms: int) -> None:
        """:param loaded_ms: the current time, in milliseconds since 1970"""
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
        """Whether a seek is in progress or the subscription is ending, so that consumers cannot join and
        nothing is read."""
        self.ending = False

    @property
    @abstractmethod
    def durable(self) -> bool: ...

    @property
    def consumers(self) -> Sequence[AnyConsumer]:
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    # Consumers that join and leave

    def check_type(self, kind: SubscriptionType) -> None:
        """Checks that a consumer of type ``kind`` may join.

        :raises ConsumerBusy: consumers of another type are connected
        """
        if self.consumers and self.type is not None and kind is not self.type:
            raise ConsumerBusy(
                f"Subscription is of different type. Active subscription type of '{self.type.name}' is "
                f"different than the connecting consumer's type '{kind.name}'."
            )

    def _left(self, consumer: AnyConsumer) -> None:
        if not consumer.closed:
            consumer.closed = True
            events.consumer_left(self.topic.full_name, self.name, consumer)

    def fence(self) -> None:
        """Marks the subscription as ending."""
        self.ending = self.closing = True

    def unfence(self) -> None:
        """Undoes :meth:`fence` after a failure."""
        self.ending = self.closing = False

    def _check_joins(self, kind: SubscriptionType, max_consumers: int) -> None:
        """Checks that a consumer may join.

        :raises ConsumerBusy: the subscription is exclusive and has a consumer, has consumers of another type,
            or is full
        :raises ServiceNotReady: the subscription is closing, or a seek is in progress; the client tries again
        """
        if self.closing:
            raise ServiceNotReady(
                "Subscription is fenced: a seek is in progress, or it is being closed; try again"
            )
        self.check_type(kind)
        if kind is SubscriptionType.Exclusive and self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")
        if max_consumers and len(self.consumers) >= max_consumers:
            raise ConsumerBusy("Subscription reached max consumers limit")

    @abstractmethod
    def _new_dispatcher(self, kind: SubscriptionType) -> AnyDispatcher: ...

    def _dispatcher_for(self, kind: SubscriptionType) -> AnyDispatcher:
        """Returns the dispatcher for consumers of a type; a new dispatcher if the previous consumers had
        another type.
        """
        if self.dispatcher is None or self.type is not kind:
            if self.dispatcher is not None:
                self.dispatcher.close()
            self.dispatcher = self._new_dispatcher(kind)
            self.type = kind
        return self.dispatcher

    @abstractmethod
    def add(self, consumer: AnyConsumer, kind: SubscriptionType, max_consumers: int) -> None:
        """Adds a consumer to the subscription.

        :param max_consumers: the maximum number of consumers; 0: no limit
        :raises ConsumerBusy: the subscription is exclusive and has a consumer, has consumers of another type,
            or is full
        :raises ServiceNotReady: the subscription is closing, or a seek is in progress; the client tries again
        """

    @abstractmethod
    def remove(self, consumer: AnyConsumer) -> None:
        """Removes a consumer that has left or is being closed."""

    def policies_changed(self) -> None:
        """Applies changed dispatch settings of the topic."""
        if self.dispatcher is not None:
            self.dispatcher.use(self.topic.dispatch_settings)

    def stop_sending(self) -> None:
        """Stops deliveries before all consumers are closed; otherwise, a consumer could receive messages of
        another consumer that is closed earlier.
        """
        for consumer in self.consumers:
            consumer.permits = 0

    def disconnect_all(self, departure: Departure | None = None) -> None:
        """Closes all consumers; their clients reconnect.

        :param departure: tells clients where to reconnect; None: clients are told at once to look up the
            topic
        """
        self.stop_sending()
        # One that is closed already could not be removed.
        for consumer in [each for each in self.consumers if not each.closed]:
            if departure is None:
                consumer.connection.close_consumer(consumer)
            else:
                consumer.connection.stop_consumer(consumer)
                departure.add(partial(consumer.connection.close_consumer, consumer))
            # Whatever is wrong with one of them, the others are closed.
            tell(self.topic.loop, self.remove, consumer)

    @abstractmethod
    def drop_if_unused(self) -> None:
        """Ends a non-durable subscription if the consumer for which it was created did not join."""

    @abstractmethod
    def close(self) -> None:
        """Closes the subscription: consumers cannot join any more."""

    # Delivery

    def flow(self, consumer: AnyConsumer, permits: int) -> None:
        now = self.topic.clock.wall_ms()
        consumer.last_consumed_flow_ms = self.last_consumed_flow_ms = now
        consumer.permits += permits
        if self.dispatcher is not None:
            try:
                self.dispatcher.flow(consumer)
            except Exception as error:
                # Entries may be neither sent nor waiting.
                self.fail(error)
                raise

    def fail(self, error: BaseException) -> None:
        """Closes the topic after an internal error; a later request loads it again after a pause."""
        self.topic.fail(error)

    def why_not(self) -> Reason:
        """Returns the reason why nothing is sent to the consumers now."""
        if self.closing or self.topic.closing or self.topic.fenced:
            return MOVING
        return NO_CONSUMER if self.dispatcher is None else self.dispatcher.why_not()

    def waits_since_ms(self) -> int:
        """Returns the time since which the reason that :meth:`why_not` returns applies, in ms since 1970."""
        if self.dispatcher is None:
            return self.loaded_ms
        return max(self.dispatcher.waits.since_ms, self.last_consumed_ms)

    @abstractmethod
    def read_more(self) -> None:
        """Called when a consumer can receive messages again."""

    def sent(self, entries: int, messages: int, size: int) -> int:
        """Counts entries that were sent to a consumer; returns the current time, in ms since 1970."""
        self.topic.budget.spend(RUN_PRICE + size)
        now_ms = self.topic.clock.wall_ms()
        self.rate_out.messages += messages
        self.rate_out.bytes += size
        self.last_consumed_ms = now_ms
        self.topic.dispatched(messages, size)
        return now_ms

    @abstractmethod
    def check_end_of_topic(self) -> None:
        """Notifies consumers of a terminated or migrated topic once they have received everything."""

    @abstractmethod
    def moved_to(self) -> Assigned | None:
        """Returns the cluster to which consumers are redirected; None if the topic was not migrated, or if
        messages are left for the consumers in this cluster."""

    # Acknowledgement

    @abstractmethod
    def acknowledge_run(self, consumer: AnyConsumer, run: AckRun) -> None:
        """Acknowledges whole entries individually."""

    @abstractmethod
    def acknowledge(
        self, consumer: AnyConsumer, positions: Sequence[Position], batches: Sequence[BatchAck]
    ) -> None:
        """Acknowledges whole entries and parts of batches."""

    @abstractmethod
    def acknowledge_cumulative(
        self, consumer: AnyConsumer, position: Position, batch: BatchAck | None
    ) -> None:
        """Acknowledges everything up to ``position``; with ``batch``, everything before ``position`` and the
        messages of the batch whose bits are cleared.

        On a Shared or Key_Shared subscription this has no effect and raises no error, because earlier
        messages may have gone to other consumers.
        """

    @abstractmethod
    def redeliver(self, consumer: AnyConsumer, positions: Sequence[Position] | None) -> None:
        """Redelivers messages that the consumer has received and not acknowledged: the messages at
        ``positions``; None: all messages.
        """

    # Figures

    @abstractmethod
    def backlog(self) -> int:
        """Returns the number of messages that wait to be consumed."""

    def unacked_messages(self) -> int:
        return sum(consumer.unacked for consumer in self.consumers)

    def tick(self, seconds: float) -> bool:
        """Updates the rates; returns whether anything was acknowledged in the last period.

        :param seconds: the length of the period, in seconds
        """
        for rate in (self.rate_out, self.redelivered, self.acks):
            rate.tick(seconds)
        for consumer in self.consumers:
            for rate in (consumer.rate_out, consumer.redelivered, consumer.acks):
                rate.tick(seconds)
        return self.acks.per_second > 0


def redirect(subscription: BaseSubscription) -> None:
    """Redirects the consumers to the cluster to which the topic was migrated, if no messages are left for
    them in this cluster. Consumers whose clients cannot be redirected are notified of the end of the topic.
    The event loop must call this directly (``call_soon``): otherwise a delivery may be in progress, or an
    acknowledgement may not be answered yet.
    """
    there = subscription.moved_to()
    if there is None:
        return
    for consumer in list(subscription.consumers):
        if consumer.connection.send_migrated(consumer, there):
            consumer.connection.close_consumer(consumer)
            subscription.remove(consumer)
        else:
            consumer.connection.send_end_of_topic(consumer)
