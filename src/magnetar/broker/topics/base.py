"""What all topics have, whether they store anything or not: producers, subscriptions, policies, rates."""

from __future__ import annotations

import logging
import weakref
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Generic, TypeVar

from magnetar.broker import events
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import FindFilters, no_filters
from magnetar.broker.flow.departure import Assigned, Departure
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.publish_rates import PublishLimiter, publish_limiter
from magnetar.broker.flow.rates import Rate
from magnetar.broker.flow.resource_groups import ResourceGroup, SharedLimits
from magnetar.broker.flow.subscribe_rates import subscribe_limiter
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.admission import Admission
from magnetar.broker.publishing.broker_entry_metadata import BrokerEntryMetadataSettings
from magnetar.broker.publishing.deduplication import Deduplication, DeduplicationSettings
from magnetar.broker.publishing.exclusive_access import ExclusiveAccess
from magnetar.broker.publishing.hindrances import Hindrance, Refusals
from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.subscriptions.cursor_kinds import check_new_subscription
from magnetar.broker.topics.dispatching import dispatch_settings
from magnetar.broker.topics.producer_caps import of_host, reached_by_producer
from magnetar.errors import (
    ConsumerBusy,
    NotAllowed,
    ProducerBusy,
    ServiceNotReady,
    SubscriptionNotFound,
    TopicTerminated,
)
from magnetar.io.interfaces import Io
from magnetar.io.waiting import settle
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.position import Position
from magnetar.naming.replicators import DEFAULT_PREFIX
from magnetar.naming.topic_name import TopicName
from magnetar.security.principal import BROKER, Principal

log = logging.getLogger(__name__)

S = TypeVar("S", bound=BaseSubscription)


@dataclass(frozen=True)
class TopicSettings:
    """What is the same for all topics; what differs are policies."""

    dispatch: DispatchSettings
    batch_index_acks: bool = False
    max_non_persistent: int = 1_000
    """``maxConcurrentNonPersistentMessagePerConnection``: entries of non-persistent topics in flight on a
    connection; what goes beyond is dropped."""
    deduplication: DeduplicationSettings = field(default_factory=DeduplicationSettings)
    max_same_address_producers: int = 0
    """Of a topic; 0 for any number. So is the next."""
    max_same_address_consumers: int = 0
    max_subscriptions: int = 0
    """Durable ones of a topic, where no policy says how many; 0 for any number."""
    broker_entry_metadata: BrokerEntryMetadataSettings = field(default_factory=BrokerEntryMetadataSettings)
    """What is written in front of entries of persistent topics."""
    override_filters: bool = False
    """What namespaces and topics name as filters counts, and not the broker's own."""
    find_filters: FindFilters = no_filters
    """Finds those."""
    cluster: str = "standalone"
    """The name of this one."""
    replicator_prefix: str = DEFAULT_PREFIX
    """``replicatorPrefix``: how names of producers and cursors of replication begin."""


class BaseTopic(ABC, Generic[S]):
    """Owned by this broker as long as it is open; everything here runs in the loop."""

    def __init__(
        self,
        name: TopicName,
        io: Io,
        wheel: TimerWheel,
        settings: TopicSettings,
        budget: LoopBudget,
        policies: EffectivePolicies,
        mark_busy: Callable[[BaseTopic[Any]], None],
        shared: SharedLimits | None = None,
    ) -> None:
        """:param shared: what bounds other topics, too; None: there is no such thing"""
        self.name = name
        self.full_name = str(name)
        self.bundle_hash = name.bundle_hash
        self.loop = io.loop
        self.clock = io.clock
        self.wheel = wheel
        self.settings = settings
        self.budget = budget
        self.policies = policies
        self.shared = None if name.reserved else shared
        self.group = self._group()
        self.dispatch_settings = dispatch_settings(self.full_name, settings, policies)
        self.batch_index_acks = settings.batch_index_acks
        self._mark_busy = mark_busy
        self.is_busy = False
        self.producers: dict[str, Producer] = {}
        self.remote_producers = 0
        """How many of them belong to replicators of other clusters."""
        self.subscriptions: dict[str, S] = {}
        self.access = ExclusiveAccess(weakref.proxy(self))
        self.deduplication: Deduplication | None = None
        self.admission: Admission | None = None
        self.closing = False
        self.departure: Departure | None = None
        """By which clients are told where the topic goes; None: they look it up."""
        self.moved: Assigned | None = None
        """The cluster in which clients find it from now on; None: this one."""
        self.fenced = False
        self.refusals: Refusals | None = None
        """Of producers and of what they publish; None: there were none."""
        self.chunks_published = False
        """Whether a producer that has left published chunks."""
        self.rate_in = Rate()
        self.rate_out = Rate()
        self.created_ms = io.clock.wall_ms()
        self.last_active = io.clock.monotonic()
        """When it was last known to be used; seconds of the monotonic clock."""
        self._drain_waiters: list[Any] = []
        self._making: dict[str, Any] = {}
        self.publish_limiter = self._new_publish_limiter()
        self.subscribe_limiter = subscribe_limiter(policies.subscribe_rate)

    # Policies

    def apply_policies(self, policies: EffectivePolicies) -> None:
        """Goes by these from now on; who is connected already stays."""
        former, self.policies = self.policies, policies
        self.group = self._group()
        self.dispatch_settings = dispatch_settings(self.full_name, self.settings, policies)
        self._look_at_entries()
        if policies.publish_rate != former.publish_rate:
            self.publish_limiter = self._new_publish_limiter()
        if policies.subscribe_rate != former.subscribe_rate:
            self.subscribe_limiter = subscribe_limiter(policies.subscribe_rate)
        for subscription in self.subscriptions.values():
            subscription.policies_changed()

    def _look_at_entries(self) -> None:
        policies, known = self.policies, self.deduplication
        delays = policies.delayed_delivery
        longest = delays.max_delay_ms if delays.active and self.name.persistent else 0
        if known is not None or policies.encryption_required or policies.max_message_size > 0 or longest > 0:
            self.admission = Admission(
                known,
                encrypted=policies.encryption_required,
                max_size=policies.max_message_size,
                max_delay_ms=longest,
            )
        else:
            self.admission = None

    def _group(self) -> ResourceGroup | None:
        """The resource group whose bounds it shares."""
        name = self.policies.resource_group
        return self.shared.groups.of(name) if name and self.shared is not None else None

    def _new_publish_limiter(self) -> PublishLimiter | None:
        rate = self.policies.publish_rate
        return publish_limiter(rate.messages, rate.size, self.clock.monotonic())

    @abstractmethod
    async def prepare(self) -> None:
        """Goes by the policies on publishing; before anybody publishes, and when they have changed."""

    @property
    @abstractmethod
    def terminated(self) -> bool: ...

    @property
    @abstractmethod
    def stored_bytes(self) -> int: ...

    @abstractmethod
    def stored_epoch(self) -> int | None:
        """The epoch of the last producer with exclusive access; None when there was none."""

    @abstractmethod
    async def store_epoch(self, epoch: int) -> None:
        """Keeps the epoch of a producer with exclusive access."""

    @property
    def is_awaited(self) -> bool:
        """Whether somebody is just about to use it: a subscription is being made, a producer waits."""
        return bool(self._making) or self.access.is_awaited

    def busy(self) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._mark_busy(self)

    # Producers

    def hindered(self, kind: Hindrance, text: str) -> None:
        """A producer, or something that it published, is refused."""
        if self.refusals is None:
            self.refusals = Refusals()
        self.refusals.note(kind, text, self.clock.wall_ms())

    def check_open(self) -> None:
        """:raises ServiceNotReady: it is closing or lost; the client looks it up again"""
        if self.closing or self.fenced:
            raise ServiceNotReady("Topic is temporarily unavailable")

    async def add_producer(self, producer: Producer) -> Any:
        """Admits a producer; returns None, or, with WaitForExclusive, a future of whether its turn came.

        :raises ProducerBusy: the name is taken, or a cap is reached
        :raises ProducerFenced: another one has exclusive access
        :raises TopicTerminated: nothing can be published any more
        """
        self.check_open()
        if self.terminated:
            text = "Topic was already terminated"
            self.hindered(Hindrance.TERMINATED, text)
            raise TopicTerminated(text)
        self._check_caps(producer)
        while (known := self.producers.get(producer.name)) is not None:
            await self._replace(known, producer)
            self.check_open()
        admitted = await self.access.enter(producer)
        self.producer_came(producer)
        if self.closing or self.fenced:
            self.access.leave(producer)
            self.check_open()
        if admitted is None:
            self.admit(producer)
        return admitted

    def local_producers(self) -> Collection[Producer]:
        """Those of clients: limits and statistics of producers leave replicators of other clusters out."""
        connected = self.producers.values()
        if not self.remote_producers:
            return connected
        return [each for each in connected if each.remote_cluster is None]

    def _check_caps(self, producer: Producer) -> None:
        """:raises ProducerBusy: there are as many as may be"""
        text = reached_by_producer(self, producer)
        if text:
            self.hindered(Hindrance.MAX_PRODUCERS, text)
            raise ProducerBusy(text)

    async def _replace(self, known: Producer, producer: Producer) -> None:
        if producer.replaces(known):
            self._drop_producer(known)
            self.access.forget(known)
            return
        if known.connection is not producer.connection and not await known.connection.is_alive():
            # It may still be here, of a CLOSE_PRODUCER that waits for the last publishes.
            self.remove_producer(known)
            return
        text = f"Producer with name '{producer.name}' is already connected to topic '{self.full_name}'"
        self.hindered(Hindrance.NAME_TAKEN, text)
        raise ProducerBusy(text)

    def _drop_producer(self, producer: Producer) -> None:
        producer.closed = producer.apart = True
        self.chunks_published = self.chunks_published or producer.chunks.messages > 0
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            events.producer_left(self.full_name, producer)
            if producer.remote_cluster is None:
                self.last_active = self.clock.monotonic()
            else:
                self.remote_producers -= 1
            self.producer_left(producer)

    @property
    def schema_path(self) -> str:
        """Where its schemas are kept."""
        return self.name.schema_path

    @abstractmethod
    def last_sequence_id(self, name: str) -> int:
        """Of what is durable of a producer; -1 when it is not known."""

    @abstractmethod
    def producer_came(self, producer: Producer) -> None:
        """It was let in."""

    @abstractmethod
    def producer_left(self, producer: Producer) -> None:
        """It was connected, and is not any more."""

    def admit(self, producer: Producer) -> None:
        """From now on it publishes; it may have waited for exclusive access."""
        self.producers[producer.name] = producer
        if producer.remote_cluster is not None:
            self.remote_producers += 1
        events.producer_came(self.full_name, producer)

    def remove_producer(self, producer: Producer) -> None:
        self._drop_producer(producer)
        self.access.leave(producer)

    def disconnect_producers(self) -> None:
        """Closes all producers; their clients come back."""
        for producer in list(self.producers.values()):
            self.remove_producer(producer)
            self._dismiss_producer(producer)
        self.access.disconnect_waiting()

    def _dismiss_producer(self, producer: Producer) -> None:
        if self.departure is None:
            producer.connection.close_producer(producer)
            return
        producer.connection.stop_producer(producer)
        self.departure.add(partial(producer.connection.close_producer, producer))

    async def close_producers_in_order(self) -> None:
        """Closes all producers, each when it has its receipts: else it would send again what is stored."""
        producers = list(self.producers.values())
        for producer in producers:
            producer.connection.stop_producer(producer)
        await self.drained(producers)
        for producer in producers:
            if not producer.closed:
                self.remove_producer(producer)
                producer.connection.close_producer(producer)
        self.access.disconnect_waiting()

    @abstractmethod
    def publish(
        self, publish: Publish, buffer: bytes, starts: array[int], ends: array[int], size: int
    ) -> None:
        """Takes entries ``buffer[starts[i]:ends[i]]``; the producer hears of them later.

        :raises TopicTerminated: the topic is terminated
        :raises ServiceNotReady: it is closing, or lost to another broker
        """

    def _wake_drained(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            settle(waiter)

    async def drained(self, producers: Sequence[Producer]) -> None:
        """Returns when all that these producers published is durable or has failed."""
        while not self.fenced and any(producer.pending for producer in producers):
            waiter = self.loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def dispatched(self, messages: int, size: int) -> None:
        self.rate_out.messages += messages
        self.rate_out.bytes += size
        if not self.is_busy:
            self.busy()

    # Subscriptions

    async def subscribe(
        self,
        name: str,
        start: Position,
        properties: Mapping[str, str],
        *,
        durable: bool,
        create: bool,
        principal: Principal = BROKER,
    ) -> S:
        """The subscription of that name, made when missing.

        :param start: first position to deliver of a new one
        :param principal: who asks
        :raises SubscriptionNotFound: it is missing and ``create`` is false
        :raises magnetar.errors.InvalidName: it is missing, and none may have such a name
        :raises ProducerBusy: it is missing, and its name is reserved
        :raises NotAllowed: durable and non-durable do not match, or a cap is reached
        :raises ServiceNotReady: it is missing, and the topic is closing or lost
        """
        known = self.subscriptions.get(name)
        if known is None:
            if not create:
                # A closed topic has let go of its subscriptions: they are where it is loaded next.
                self.check_open()
                raise SubscriptionNotFound(f"Subscription {name} does not exist")
            check_new_subscription(name, self.settings.replicator_prefix)
            self.check_open()
            if durable:
                self._check_room_for(name)
            if name in self._making and not durable:
                raise NotAllowed("Durable subscription with the same name is being created.")
            known = await self._make_subscription(name, start, dict(properties), durable=durable)
        elif known.durable and not durable:
            raise NotAllowed("NonDurable subscription with the same name already exists as a durable one.")
        elif durable and not known.durable:
            raise NotAllowed("Durable subscription with the same name already exists as a non-durable one.")
        return known

    def _check_room_for(self, name: str) -> None:
        """:raises NotAllowed: the topic has as many durable subscriptions as it may"""
        cap = self.policies.max_subscriptions
        if not cap and not self.name.reserved:
            cap = self.settings.max_subscriptions
        if not cap or len(self.subscriptions) + len(self._making) < cap:
            return
        if self._others(name) >= cap:
            if self.shared is not None:
                self.shared.refused.subscriptions += 1
            raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {self.full_name}")

    def _others(self, name: str) -> int:
        """How many durable subscriptions there are, or are just being made, besides one."""
        made = sum(s.durable for s in self.subscriptions.values())
        return made + len(self._making.keys() - {name})

    @abstractmethod
    async def _make_subscription(
        self, name: str, start: Position, properties: dict[str, str], *, durable: bool
    ) -> S: ...

    @abstractmethod
    def forget_subscription(self, subscription: S) -> None:
        """Drops a non-durable subscription."""

    @abstractmethod
    async def unsubscribe(self, name: str) -> None:
        """Deletes a subscription; consumers must have been disconnected.

        :raises SubscriptionNotFound: there is none
        """

    def check_consumers_of(self, address: str) -> None:
        """:raises ConsumerBusy: too many come from that host"""
        cap = self.settings.max_same_address_consumers
        if cap and of_host(address, (c for s in self.subscriptions.values() for c in s.consumers)) >= cap:
            raise ConsumerBusy("Topic reached max same address consumers limit")

    def consumer_count(self) -> int:
        return sum(len(s.consumers) for s in self.subscriptions.values())

    # Figures

    @abstractmethod
    def tick(self, seconds: float) -> bool:
        """Works out rates over the last window; returns whether anything is still moving."""

    def _tick_clients(self, seconds: float) -> bool:
        """Those of producers and subscriptions; returns whether anything was consumed."""
        for producer in self.producers.values():
            producer.rate_in.tick(seconds)
            producer.chunks.tick(seconds)
        moving = False
        for subscription in self.subscriptions.values():
            moving = subscription.tick(seconds) or moving
        return moving

    # Ending

    def disown(self) -> None:
        """It may belong to another broker by now: from here on nothing of it is stored."""
        self.fenced = True

    @abstractmethod
    async def close(self) -> None:
        """Disconnects everybody."""

    @abstractmethod
    async def delete(self) -> None:
        """Disconnects everybody and removes the topic with all it stored."""

    def _disconnect(self) -> None:
        self.disconnect_producers()
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect_all(self.departure)
            subscription.close()
