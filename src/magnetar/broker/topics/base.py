"""The common part of persistent and non-persistent topics: producers, subscriptions, policies, rates."""

from __future__ import annotations

import logging
import weakref
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from magnetar.broker import events
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import FindFilters, no_filters
from magnetar.broker.flow.connection import Assigned, Departure
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.rate_limits import subscribe_limiter
from magnetar.broker.flow.rates import Rate
from magnetar.broker.flow.resource_groups import SharedLimits
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.admission import Admission
from magnetar.broker.publishing.broker_entry_metadata import BrokerEntryMetadataSettings
from magnetar.broker.publishing.deduplication import Deduplication, DeduplicationSettings
from magnetar.broker.publishing.exclusive_access import ExclusiveAccess
from magnetar.broker.publishing.hindrances import Hindrance, Refusals
from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.broker.publishing.producers import Producers
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.topics.applied_policies import (
    dispatch_settings,
    resource_group,
    topic_publish_limiter,
)
from magnetar.broker.topics.subscribing import Subscriptions
from magnetar.errors import (
    ServiceNotReady,
)
from magnetar.invariants import BrokenInvariant
from magnetar.io.interfaces import Io
from magnetar.io.tasks import TaskScope
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.replicators import DEFAULT_PREFIX
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.transactions import TransactionSettings

log = logging.getLogger(__name__)

S = TypeVar("S", bound=BaseSubscription)


@dataclass(frozen=True)
class TopicSettings:
    """Settings that are the same for all topics; settings that can differ between topics are policies."""

    dispatch: DispatchSettings
    batch_index_acks: bool = False
    max_non_persistent: int = 1_000
    """``maxConcurrentNonPersistentMessagePerConnection``: the maximum number of entries of non-persistent
    topics in flight on a connection; further entries are dropped."""
    deduplication: DeduplicationSettings = field(default_factory=DeduplicationSettings)
    max_same_address_producers: int = 0
    """The maximum number of producers per topic from one host; 0: no limit. ``max_same_address_consumers`` is
    the same for consumers."""
    max_same_address_consumers: int = 0
    max_subscriptions: int = 0
    """The maximum number of durable subscriptions per topic, if no policy sets the limit; 0 for no limit."""
    broker_entry_metadata: BrokerEntryMetadataSettings = field(default_factory=BrokerEntryMetadataSettings)
    """The metadata that the broker writes in front of entries of persistent topics."""
    override_filters: bool = False
    """Whether the filters of namespaces and topics apply instead of the broker's own filters."""
    find_filters: FindFilters = no_filters
    """Returns the filters with the given names."""
    cluster: str = "standalone"
    """The name of the broker's cluster."""
    replicator_prefix: str = DEFAULT_PREFIX
    """``replicatorPrefix``: the prefix of the names of replicators' producers and cursors."""
    transactions: TransactionSettings | None = None
    """The settings of transactions; None: transactions are disabled."""


class AnyReplicating(Protocol):
    """A replicator that sends one topic, persistent or not, to one other cluster or to one shadow topic."""

    remote: str
    """The name of the cluster, or the full name of the shadow topic."""
    sent: Rate
    """Messages and bytes that were sent, including messages that were sent again."""

    @property
    def where(self) -> str:
        """The destination in texts for users: a cluster or a shadow topic."""
        ...

    @property
    def hindrance(self) -> str:
        """The reason why nothing is sent, as a sentence; empty if sending is possible."""
        ...

    @property
    def connected_ms(self) -> int:
        """The time of the connection in milliseconds since 1970; 0: not connected."""
        ...

    @property
    def connected(self) -> bool: ...
    def link(self) -> tuple[str, str] | None:
        """``host:port`` of both ends of the connection, this broker's first; None while it is
        disconnected."""
        ...

    def delay_seconds(self) -> float:
        """Returns how many seconds the oldest entry without a receipt has been in flight; 0 if no entry is in
        flight.
        """
        ...

    def rest(self) -> None:
        """Disconnects until the topic is used again."""
        ...

    def tick(self, seconds: float) -> bool:
        """Updates the rates over the last ``seconds``; returns whether there is still traffic."""
        ...


class BaseTopic(ABC, Generic[S]):
    """A topic. The broker owns the topic as long as it is open; all methods run on the event loop."""

    subscriptions: Subscriptions[S]

    def __init__(
        self,
        name: TopicName,
        io: Io,
        wheel: TimerWheel,
        settings: TopicSettings,
        budget: LoopBudget,
        policies: EffectivePolicies,
        mark_busy: Callable[[BaseTopic[S]], None],
        shared: SharedLimits | None = None,
    ) -> None:
        """:param shared: limits that are shared with other topics; None: there are no shared limits"""
        self.name = name
        self.full_name = str(name)
        self.bundle_hash = name.bundle_hash
        self.loop = io.loop
        own: BaseTopic[S] = weakref.proxy(self)
        self.tasks = TaskScope(io.loop, self.full_name, lambda _work, error: own.fail(error))
        self.clock = io.clock
        self.wheel = wheel
        self.settings = settings
        self.budget = budget
        self.policies = policies
        self.shared = None if name.reserved else shared
        self.group = resource_group(policies, self.shared)
        self.dispatch_settings = dispatch_settings(self.full_name, settings, policies)
        self.batch_index_acks = settings.batch_index_acks
        self._mark_busy = mark_busy
        self.is_busy = False
        self.producers = Producers(
            own, lambda: (own.policies.max_producers, own.settings.max_same_address_producers)
        )
        self.access = ExclusiveAccess(own)
        self.deduplication: Deduplication | None = None
        self.admission: Admission | None = None
        self.closing = False
        self.departure: Departure | None = None
        """Tells clients which broker will serve the topic next; None: clients look the topic up."""
        self.moved: Assigned | None = None
        """The cluster to which clients are redirected; None: clients stay in this cluster."""
        self.fenced = False
        self.failure: BaseException | None = None
        """The internal error that closed the topic; None: no error."""
        self.on_failure: Callable[[BaseTopic[S]], object] | None = None
        """Closes the topic; called in a later turn of the loop after the topic has failed. None: nothing is
        called."""
        self.refusals: Refusals | None = None
        """Refusals of producers and messages; None if nothing was refused."""
        self.rate_in = Rate()
        self.rate_out = Rate()
        self.created_ms = io.clock.wall_ms()
        self.last_active = io.clock.monotonic()
        """The time when the topic was last known to be in use; seconds of the monotonic clock."""
        self.publish_limiter = topic_publish_limiter(policies, io.clock.monotonic())
        self.subscribe_limiter = subscribe_limiter(policies.subscribe_rate)

    # Policies

    def apply_policies(self, policies: EffectivePolicies) -> None:
        """Applies policies; connected clients stay connected."""
        former, self.policies = self.policies, policies
        self.group = resource_group(policies, self.shared)
        self.dispatch_settings = dispatch_settings(self.full_name, self.settings, policies)
        self._look_at_entries()
        if policies.publish_rate != former.publish_rate:
            self.publish_limiter = topic_publish_limiter(policies, self.clock.monotonic())
        if policies.subscribe_rate != former.subscribe_rate:
            self.subscribe_limiter = subscribe_limiter(policies.subscribe_rate)
        for subscription in self.subscriptions.values():
            subscription.policies_changed()

    def _look_at_entries(self) -> None:
        policies, known = self.policies, self.deduplication
        delays = policies.delayed_delivery
        longest = delays.max_delay_ms if delays.active and self.name.persistent else 0
        transactions = self.has_transactions
        limited = policies.encryption_required or policies.max_message_size > 0 or longest > 0
        if known is not None or limited or transactions:
            self.admission = Admission(
                known,
                encrypted=policies.encryption_required,
                max_size=policies.max_message_size,
                max_delay_ms=longest,
                transactions=transactions,
            )
        else:
            self.admission = None

    @property
    def has_transactions(self) -> bool:
        """Whether messages of transactions are, or were, published to the topic."""
        return False

    @abstractmethod
    async def prepare(self) -> None:
        """Applies the policies for publishing; called before the first producer joins, and after changes."""

    @property
    @abstractmethod
    def terminated(self) -> bool: ...

    @property
    @abstractmethod
    def stored_bytes(self) -> int: ...

    @abstractmethod
    def stored_epoch(self) -> int | None:
        """Returns the epoch of the last producer with exclusive access; None if no epoch is stored."""

    @abstractmethod
    async def store_epoch(self, epoch: int) -> None:
        """Stores the epoch of a producer with exclusive access."""

    @property
    def is_awaited(self) -> bool:
        """Whether a client is about to use the topic: a subscription is being created, or a producer waits
        for access."""
        return bool(self.subscriptions.making) or self.access.is_awaited

    def busy(self) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._mark_busy(self)

    # Producers

    def hindered(self, kind: Hindrance, text: str) -> None:
        """Records that a producer or a message was refused, with the reason."""
        if self.refusals is None:
            self.refusals = Refusals()
        self.refusals.note(kind, text, self.clock.wall_ms())

    def check_open(self) -> None:
        """Checks that the topic accepts requests.

        :raises ServiceNotReady: the topic is closing or lost; the client looks it up again
        """
        if self.closing or self.fenced:
            raise ServiceNotReady("Topic is temporarily unavailable")

    def takes_announcements_of(self, producer: Producer) -> bool:
        """Whether a producer only announces entries that another topic has stored; such a producer may
        connect even if the topic is terminated."""
        return False

    @property
    def schema_path(self) -> str:
        """Returns the metadata path of the topic's schemas."""
        return self.name.schema_path

    def last_sequence_id(self, name: str) -> int:
        """Returns the highest durable sequence id of a producer; -1 if unknown."""
        return -1 if self.deduplication is None else self.deduplication.last_sequence_id(name)

    @abstractmethod
    def producer_came(self, producer: Producer) -> None:
        """Called when a producer was admitted."""

    @abstractmethod
    def producer_left(self, producer: Producer) -> None:
        """Called when a connected producer has left."""

    @abstractmethod
    def publish(
        self, publish: Publish, buffer: bytes, starts: array[int], ends: array[int], size: int
    ) -> None:
        """Accepts the entries ``buffer[starts[i]:ends[i]]``; the producer gets the outcome later.

        :raises TopicTerminated: the topic is terminated
        :raises ServiceNotReady: the topic is closing, or was lost to another broker
        """

    def dispatched(self, messages: int, size: int) -> None:
        self.rate_out.messages += messages
        self.rate_out.bytes += size
        if not self.is_busy:
            self.busy()

    # Figures

    @abstractmethod
    def tick(self, seconds: float) -> bool:
        """Updates the rates over the last ``seconds``; returns whether there is still traffic."""

    # Ending

    def disown(self) -> None:
        """Stops all writes, because another broker may own the topic."""
        self.fenced = True

    def fail(self, error: BaseException) -> None:
        """Closes the topic after an internal error, which may have left its state wrong.

        The topic writes nothing more. In a later turn of the loop its clients are disconnected, and the topic
        is closed; after a pause, the next request loads the topic again. Later calls have no effect.
        """
        if self.failure is not None:
            return
        self.failure = error
        self.fenced = True
        events.topic_failed(self.full_name, error)
        if isinstance(error, BrokenInvariant):
            # Others report their errors themselves; this one may come from a request that answers it.
            self.loop.call_exception_handler({"message": f"{self.full_name} failed", "exception": error})
        self.producers.wake()
        if self.on_failure is not None:
            self.loop.call_soon(self.on_failure, self)

    @abstractmethod
    async def close(self) -> None:
        """Disconnects all clients."""

    @abstractmethod
    async def delete(self) -> None:
        """Disconnects all clients, and deletes the topic with all its data."""

    def _disconnect(self) -> None:
        self.producers.disconnect()
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect_all(self.departure)
            subscription.close()
