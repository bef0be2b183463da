"""The subscriptions of one topic: how they are created, limited and deleted."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from magnetar.broker import events
from magnetar.broker.flow.limits import of_host
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.subscriptions.cursor_kinds import COMPACTION, check_new_subscription, kind_of
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.errors import BrokerError, ConsumerBusy, NotAllowed, ServiceNotReady, SubscriptionNotFound
from magnetar.io.interfaces import Io, Task
from magnetar.io.locks import Mutex
from magnetar.io.slices import each
from magnetar.io.waiting import finished, outcome
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.side_ledgers import users_own
from magnetar.metadata.interface import BadVersion, MetadataError
from magnetar.security.authentication import BROKER, Principal

if TYPE_CHECKING:
    from magnetar.broker.topics.base import BaseTopic
    from magnetar.broker.topics.non_persistent import NonPersistentTopic
    from magnetar.broker.topics.persistent import Topic
    from magnetar.broker.transactions.pending_acks import PendingAcks

    OpenPending = Callable[[Subscription, Tenure, bool], Awaitable[PendingAcks | None]]

S = TypeVar("S", bound=BaseSubscription)
T = TypeVar("T")

SEEK_RETURN_SECONDS = 60.0
"""How long a reader's cursor waits for its consumer to return from a seek, in seconds."""


def _present(topic: Callable[[], T | None]) -> T:
    """Returns the topic that a weak reference refers to.

    :raises ServiceNotReady: the topic was closed, and no object refers to the topic any more
    """
    found = topic()
    if found is None:
        raise ServiceNotReady("Topic is temporarily unavailable")
    return found


class Subscriptions(dict[str, S], ABC):
    """The subscriptions of a topic, by name."""

    def __init__(self, topic: BaseTopic[S]) -> None:
        """:param topic: the topic that owns this object; only a weak reference to the topic is kept"""
        super().__init__()
        self._topic: Callable[[], BaseTopic[S] | None] = weakref.ref(topic)
        self.making: dict[str, Task[S]] = {}
        """Durable subscriptions that are being created, by name."""

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
        """Returns the subscription of that name, created if it is missing.

        :param start: first position to deliver on a new subscription
        :param principal: the principal of the client that subscribes
        :raises SubscriptionNotFound: the subscription is missing and ``create`` is false
        :raises magnetar.errors.InvalidName: the subscription is missing, and its name is not valid
        :raises ProducerBusy: the subscription is missing, and its name is reserved
        :raises NotAllowed: only one of the existing and the requested subscription is durable; or a limit is
            reached
        :raises ServiceNotReady: the subscription is missing, and the topic is closing or lost
        """
        known = self.get(name)
        if known is None:
            topic = _present(self._topic)
            if not create:
                # A closed topic has no subscriptions: they are where it is loaded next.
                topic.check_open()
                raise SubscriptionNotFound(f"Subscription {name} does not exist")
            check_new_subscription(name, topic.settings.replicator_prefix)
            topic.check_open()
            if durable:
                self._check_room_for(name, topic)
            if name in self.making and not durable:
                raise NotAllowed("Durable subscription with the same name is being created.")
            known = await self._make(name, start, dict(properties), durable=durable)
        elif known.durable and not durable:
            raise NotAllowed("NonDurable subscription with the same name already exists as a durable one.")
        elif durable and not known.durable:
            raise NotAllowed("Durable subscription with the same name already exists as a non-durable one.")
        return known

    def _check_room_for(self, name: str, topic: BaseTopic[S]) -> None:
        """Checks that a subscription may be added.

        :raises NotAllowed: the limit of durable subscriptions is reached
        """
        cap = topic.policies.max_subscriptions
        if not cap and not topic.name.reserved:
            cap = topic.settings.max_subscriptions
        if not cap or len(self) + len(self.making) < cap:
            return
        made = sum(each.durable for each in self.values())
        if made + len(self.making.keys() - {name}) >= cap:
            if topic.shared is not None:
                topic.shared.refused.subscriptions += 1
            raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {topic.full_name}")

    @abstractmethod
    async def _make(self, name: str, start: Position, properties: dict[str, str], *, durable: bool) -> S: ...

    @abstractmethod
    def forget(self, subscription: S) -> None:
        """Removes a non-durable subscription."""

    @abstractmethod
    async def unsubscribe(self, name: str) -> None:
        """Deletes a subscription and its cursor, if any; its consumers must have been disconnected.

        :raises SubscriptionNotFound: the subscription does not exist
        """

    def check_consumers_of(self, address: str) -> None:
        """Checks that one more consumer may connect from an address.

        :raises ConsumerBusy: too many consumers are connected from that host
        """
        cap = _present(self._topic).settings.max_same_address_consumers
        consumers = (consumer.address for each in self.values() for consumer in each.consumers)
        if cap and of_host(address, consumers) >= cap:
            raise ConsumerBusy("Topic reached max same address consumers limit")

    def consumer_count(self) -> int:
        return sum(len(each.consumers) for each in self.values())

    def tick(self, seconds: float) -> bool:
        """Updates all rates over the last ``seconds``; returns whether anything was acknowledged in
        that time."""
        moving = False
        for subscription in self.values():
            moving = subscription.tick(seconds) or moving
        return moving


class NonPersistentSubscriptions(Subscriptions[NonPersistentSubscription]):
    """The subscriptions of a non-persistent topic."""

    _topic: Callable[[], NonPersistentTopic | None]

    async def _make(
        self, name: str, start: Position, properties: dict[str, str], *, durable: bool
    ) -> NonPersistentSubscription:
        topic = _present(self._topic)
        made = self[name] = NonPersistentSubscription(topic, name, properties, durable=durable)
        events.subscription_made(topic.full_name, name, durable=durable)
        return made

    def forget(self, subscription: NonPersistentSubscription) -> None:
        subscription.close()
        if self.get(subscription.name) is subscription:
            del self[subscription.name]
            events.subscription_deleted(subscription.topic.full_name, subscription.name)

    async def unsubscribe(self, name: str) -> None:
        subscription = self.get(name)
        if subscription is None:
            raise SubscriptionNotFound(f"Subscription {name} does not exist")
        self.forget(subscription)


class PersistentSubscriptions(Subscriptions[Subscription]):
    """The subscriptions of a persistent topic, each with a cursor."""

    _topic: Callable[[], Topic | None]

    def __init__(self, topic: Topic, managed_ledgers: ManagedLedgerFactory) -> None:
        super().__init__(topic)
        self._managed_ledgers = managed_ledgers

    async def load(self, io: Io) -> None:
        """Creates a subscription for each recovered cursor; called before the first client is admitted."""
        topic = _present(self._topic)
        prefix = topic.settings.replicator_prefix

        def take(cursor: Cursor) -> None:
            if kind_of(cursor.name, prefix).subscribed:
                properties = cursor.storage.cursor_properties if cursor.storage is not None else {}
                self[cursor.name] = Subscription(topic, cursor.name, cursor, properties)

        await each(io, "loading", list(topic.managed_ledger.cursors.values()), take)

    async def cursor_of_compaction(self) -> Cursor:
        """Returns the cursor of the topic's compaction; creates its subscription if it is missing."""
        known = self.get(COMPACTION)
        if known is None:
            # Whatever the limit of subscriptions: it does not belong to a consumer.
            known = await self._make(COMPACTION, EARLIEST, {}, durable=True)
        return known.cursor

    async def _make(
        self, name: str, start: Position, properties: dict[str, str], *, durable: bool
    ) -> Subscription:
        topic = _present(self._topic)
        if durable:
            # Consumers that subscribe at the same time want the same subscription.
            making = self.making.get(name)
            if making is None:
                making = topic.tasks.answer(self._make_durable(topic, name, start, properties))
                self.making[name] = making
                making.add_done_callback(lambda _done: self.making.pop(name, None))
            made: Subscription = await outcome(topic.loop, making)
            return made
        cursor = self._managed_ledgers.open_reader_cursor(topic.managed_ledger, name, start)
        return self._add(topic, name, cursor, properties, start)

    async def _make_durable(
        self, topic: Topic, name: str, start: Position, properties: dict[str, str]
    ) -> Subscription:
        try:
            cursor = await self._managed_ledgers.open_cursor(topic.managed_ledger, name, start, properties)
        except BadVersion as error:
            raise ServiceNotReady(f"Subscription {name} is being created by another client") from error
        return self._add(topic, name, cursor, users_own(properties), start)

    def _add(
        self, topic: Topic, name: str, cursor: Cursor, properties: dict[str, str], start: Position
    ) -> Subscription:
        subscription = self[name] = Subscription(topic, name, cursor, properties, start)
        events.subscription_made(topic.full_name, name, durable=cursor.durable)
        return subscription

    async def made(self) -> None:
        """Waits for the subscriptions that are being created: a cursor that is created after the topic has
        ended would outlive the topic."""
        for making in list(self.making.values()):
            await finished(_present(self._topic).loop, making)

    def forget(self, subscription: Subscription) -> None:
        subscription.close()
        if self.get(subscription.name) is subscription:
            topic = subscription.topic
            topic.dispatch_rates.forget(subscription.name)
            del self[subscription.name]
            topic.managed_ledger.cursors.remove(subscription.cursor)
            events.subscription_deleted(topic.full_name, subscription.name)

    async def unsubscribe(self, name: str) -> None:
        subscription = self.get(name)
        if subscription is None:
            raise SubscriptionNotFound(f"Subscription {name} does not exist")
        if not subscription.durable:
            self.forget(subscription)
            return
        subscription.close()
        topic = subscription.topic
        if name == COMPACTION:
            await topic.compaction.stop()
        try:
            await topic.pending_acks.delete(subscription)
            await topic.managed_ledger.cursors.delete(name)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError):
            subscription.unfence()
            if name == COMPACTION and not topic.closing:
                topic.compaction.go_on()
            raise
        if self.get(name) is not subscription:
            # Another request has deleted the subscription meanwhile; a new one of that name is not affected.
            return
        if name == COMPACTION:
            topic.compaction.forget()
        del self[name]
        topic.dispatch_rates.forget(name)
        events.subscription_deleted(topic.full_name, name)
        topic.last_active = topic.clock.monotonic()

    def keep_for_return(self, subscription: Subscription) -> None:
        """Keeps cursor and position of a reader that disconnected because of a seek, for a limited time."""
        if not subscription.durable and not subscription.consumers:
            subscription.awaiting_return = subscription.topic.wheel.schedule(
                SEEK_RETURN_SECONDS, self.forget, subscription
            )


class PendingAckLogs:
    """The pending acknowledgements of the subscriptions of one topic, in a log for each subscription."""

    def __init__(self, topic: Topic, preparing: Mutex) -> None:
        """:param topic: the topic that owns this object; only a weak reference to the topic is kept

        :param preparing: the topic's lock, which is held while logs are loaded or deleted
        """
        self._topic = weakref.ref(topic)
        self._preparing = preparing
        self.open: OpenPending | None = None
        """Opens the pending acknowledgements of a subscription; if they do not exist and the last argument is
        False, returns None instead of creating them. None: the topic cannot have transactions."""
        self.tenures: dict[str, Tenure] = {}
        """For each log, the :class:`Tenure` in which it may be written, by subscription name."""

    async def of(self, subscription: Subscription, *, create: bool) -> PendingAcks | None:
        """Returns the pending acknowledgements of a subscription, loaded if necessary.

        :return: None if the subscription has no pending acknowledgements and ``create`` is false, or if it
            cannot have them
        :raises ServiceNotReady: the pending acknowledgements cannot be loaded now, or the topic is closing
        """
        known = subscription.knows_pending and not create
        if self.open is None or known or subscription.pending is not None:
            return subscription.pending
        async with self._preparing:
            _present(self._topic).check_open()
            return await self._loaded(subscription, create=create)

    async def _loaded(self, subscription: Subscription, *, create: bool) -> PendingAcks | None:
        if self.open is None or not subscription.durable:
            return None
        if subscription.pending is None and (create or not subscription.knows_pending):
            topic = _present(self._topic)
            # A deletion ends the tenure of what it deletes, so it is not that of the topic.
            tenure = self.tenures[subscription.name] = Tenure(topic.loop)
            if topic.managed_ledger.stored_record.tenure.ended:
                raise ServiceNotReady("Topic is temporarily unavailable")
            subscription.pending = await self.open(subscription, tenure, create)
            subscription.knows_pending = True
        return subscription.pending

    def lost(self, error: BaseException) -> None:
        """Handles a log that another broker has taken over, or that has failed."""
        topic = self._topic()
        if topic is not None and isinstance(error, ManagedLedgerFenced):
            topic.on_fenced()
        elif topic is not None:
            topic.fail(error)

    async def delete(self, subscription: Subscription) -> None:
        """Deletes the pending acknowledgements of a subscription that is being deleted."""
        async with self._preparing:
            _present(self._topic).check_open()
            await self.delete_loaded(subscription)

    async def delete_loaded(self, subscription: Subscription) -> None:
        """Like :meth:`delete`, for callers that hold the topic's lock."""
        pending = await self._loaded(subscription, create=False)
        if pending is not None:
            subscription.pending = None
            await pending.log.delete()

    def managed_ledgers(self) -> list[ManagedLedger]:
        """Returns the managed ledgers of all loaded logs."""
        pending = (each.pending for each in _present(self._topic).subscriptions.values())
        return [each.log.managed_ledger for each in pending if each is not None]
