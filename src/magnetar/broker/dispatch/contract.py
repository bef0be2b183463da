"""The common part of all dispatchers: their settings, and the interface of their subscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.delays.tracker import DelaySettings
from magnetar.broker.dispatch.filters import EntryFilter, FilterContext, FilterResult
from magnetar.broker.flow.connection import Assigned
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.tasks import TaskScope
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.acknowledged import WHOLE
from magnetar.managed_ledger.position import Position
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.persistent import Subscription


@dataclass(frozen=True)
class DispatchSettings:
    max_read_entries: int = 100
    max_read_bytes: int = 5 * 1024 * 1024
    round_robin_entries: int = 20
    max_unacked_per_consumer: int = 50_000
    max_unacked_per_subscription: int = 200_000
    read_retry_seconds: float = 1.0
    failover_delay_seconds: float = 1.0
    failover_consistent_hashing: bool = False
    key_shared_points: int = 100
    """Points of each consumer on the hash ring of a Key_Shared subscription; 0: no ring, ranges are
    halved."""
    look_ahead_per_consumer: int = 2_000
    """The number of waiting entries per consumer of a Key_Shared subscription at which reading pauses; 0: no
    limit."""
    filters: Sequence[EntryFilter] = ()
    """The filters that decide which entries are sent; usually empty."""
    filter_again_seconds: float = 1.0
    """The seconds until an entry that a filter rescheduled is passed to the filters again."""
    look_ahead_per_subscription: int = 20_000
    """The number of waiting entries of a Key_Shared subscription at which reading pauses; 0: no limit."""
    throttle_filtered: bool = False
    """Whether entries that filters reject count for dispatch rates like entries that were sent."""
    throttle_by_message: bool = True
    """Whether a batch counts for dispatch rates as its number of messages, instead of as one message."""
    pause_on_ack_state: bool = False
    """Whether dispatch pauses while the cursor has more individual acknowledgements than can be stored."""
    throttle_caught_up: bool = True
    """Whether dispatch rates also limit subscriptions that are near the end of their topic."""
    delays: DelaySettings = field(default_factory=DelaySettings)
    """Delayed delivery on Shared and Key_Shared subscriptions; other types do not delay messages."""


def filter_verdict(
    subscription: Subscription, consumer: AnyConsumer, run: EntryRun, index: int, messages: int
) -> FilterResult:
    """Returns the filters' verdict on an entry that is about to be sent to a consumer."""
    filters = subscription.filters
    if filters is None:
        return FilterResult.ACCEPT
    context = FilterContext(
        subscription.topic.full_name,
        subscription.name,
        subscription.properties,
        consumer.name,
        consumer.metadata,
    )
    position = (run.ledger_id, run.first_entry_id + index)
    return filters.judge(position, run.entry(index), messages, context)


def charge_rejected(
    subscription: Subscription, settings: DispatchSettings, run: EntryRun, index: int, messages: int
) -> None:
    """Takes tokens of the dispatch rates for an entry that a filter rejected, if the settings require it."""
    if settings.throttle_filtered and subscription.throttle is not None:
        subscription.throttle.take(1, messages, run.ends[index] - run.starts[index])


def bits_not_pending(remaining: int | None, size: int, pending: int) -> int | None:
    """Returns the bits of ``remaining`` that no open transaction has acknowledged; None: all ``size`` bits.

    :param remaining: the bits of the entry's messages that are not acknowledged; None: all
    :param size: the number of messages in the entry
    :param pending: the bits of messages that open transactions have acknowledged;
        :data:`~magnetar.managed_ledger.acknowledged.WHOLE`: all
    """
    if not pending:
        return remaining
    if pending == WHOLE:
        return 0
    return ((1 << size) - 1 if remaining is None else remaining) & ~pending


def bits_left(remaining: int | None, size: int) -> int | None:
    """Returns the bits of a batch's messages that are still to be delivered; None: all ``size`` messages.

    The cursor keeps the acknowledgements as clients sent them, possibly for more messages than the batch has.
    """
    if remaining is None or remaining.bit_length() <= size:
        return remaining
    return remaining & ((1 << size) - 1)


class TopicSubscriptions(Protocol):
    """The methods of a topic's collection of subscriptions that a subscription calls; a higher layer
    implements them."""

    async def unsubscribe(self, name: str) -> None: ...
    def forget(self, subscription: Any) -> None:
        """Removes a non-durable subscription."""
        ...


class DispatchTopic(Protocol):
    """The topic of a subscription, persistent or not; a higher layer implements both kinds."""

    name: TopicName
    full_name: str
    loop: Loop
    tasks: TaskScope
    wheel: TimerWheel
    clock: Clock
    dispatch_settings: DispatchSettings
    closing: bool
    fenced: bool
    budget: LoopBudget
    moved: Assigned | None
    """The cluster to which clients of the topic migrate; None: clients stay in this cluster."""

    @property
    def terminated(self) -> bool: ...
    @property
    def subscriptions(self) -> TopicSubscriptions: ...

    def busy(self) -> None: ...
    def fail(self, error: BaseException) -> None:
        """Closes the topic after an internal error; a later request loads it again after a pause."""
        ...

    def dispatched(self, messages: int, size: int) -> None: ...


class EntrySource(Protocol):
    """The source of a dispatcher's entries: a cursor, or an object of a higher layer that replaces the
    cursor."""

    def has_more(self) -> bool: ...
    def read_cached(self, max_entries: int, max_bytes: int) -> EntryRun | None: ...
    async def read(self, max_entries: int, max_bytes: int) -> EntryRun | None: ...
    def unconsumed_parts(self, run: EntryRun) -> list[tuple[int, int]]: ...
    def rewind(self) -> None: ...


class Replay(Protocol):
    """The positions that wait to be delivered, again or for the first time."""

    def __len__(self) -> int: ...
    def __contains__(self, position: Position) -> bool: ...
    def __iter__(self) -> Iterator[Position]: ...
    def discard(self, position: Position) -> None: ...
    def drop_through(self, last: Position) -> None: ...
    def clear(self) -> None: ...
