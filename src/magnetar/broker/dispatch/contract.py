"""What both kinds of dispatchers share: their settings, and what they need of a subscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.broker.delays.tracker import DelaySettings
from magnetar.broker.dispatch.filters import EntryFilter, EntryFilters, FilterContext, FilterResult
from magnetar.broker.flow.connection import Assigned
from magnetar.broker.flow.dispatch_rates import Throttle
from magnetar.broker.flow.limits import UnackedLimit
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.tasks import TaskScope
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.naming.topic_name import TopicName


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
    """Points of each consumer on the ring of a Key_Shared subscription; 0: ranges are halved instead."""
    look_ahead_per_consumer: int = 2_000
    """Waiting entries of a Key_Shared subscription per consumer at which reading pauses; 0: no limit."""
    filters: Sequence[EntryFilter] = ()
    """Decide which entries are sent; usually empty."""
    filter_again_seconds: float = 1.0
    """Time until an entry that a filter put off is passed to the filters again."""
    look_ahead_per_subscription: int = 20_000
    """The same limit for all of its consumers together; 0: no limit."""
    throttle_filtered: bool = False
    """Entries that filters reject count for dispatch rates as if they had been sent."""
    throttle_by_message: bool = True
    """For dispatch rates a batch counts as its number of messages; otherwise as one."""
    pause_on_ack_state: bool = False
    """Nothing new is sent while the cursor has more individual acknowledgements than can be stored."""
    throttle_caught_up: bool = True
    """Dispatch rates also limit subscriptions that are near the end of their topic."""
    delays: DelaySettings = field(default_factory=DelaySettings)
    """Of Shared and Key_Shared subscriptions; others do not delay messages."""


def filter_verdict(
    subscription: DispatchedSubscription, consumer: AnyConsumer, run: EntryRun, index: int, messages: int
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
    subscription: DispatchedSubscription, settings: DispatchSettings, run: EntryRun, index: int, messages: int
) -> None:
    """Counts an entry that a filter rejected for dispatch rates, if the settings say so."""
    if settings.throttle_filtered and subscription.throttle is not None:
        subscription.throttle.take(1, messages, run.ends[index] - run.starts[index])


def bits_left(remaining: int | None, size: int) -> int | None:
    """Returns the bits of the messages of a batch that are still to be delivered; None: all ``size`` of them.

    The cursor keeps what clients acknowledged, which may be more messages than the batch has.
    """
    if remaining is None or remaining.bit_length() <= size:
        return remaining
    return remaining & ((1 << size) - 1)


class DispatchTopic(Protocol):
    """The topic of a subscription, persistent or not; a layer above this one implements both."""

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
    """The cluster to which clients of the topic migrate; None: they stay."""

    @property
    def terminated(self) -> bool: ...

    def busy(self) -> None: ...
    def dispatched(self, messages: int, size: int) -> None: ...
    async def unsubscribe(self, name: str) -> None: ...
    def forget_subscription(self, subscription: Any) -> None:
        """Removes a non-durable subscription of the topic."""
        ...


class StoredTopic(DispatchTopic, Protocol):
    """The topic of a subscription with a cursor."""

    managed_ledger: ManagedLedger
    batch_index_acks: bool
    unacked_limit: UnackedLimit | None

    def throttle_of(self, subscription: Any, known: Throttle | None) -> Throttle | None:
        """Returns the dispatch limits of a subscription; None: there are none.

        :param known: its limits until now
        """
        ...

    def keep_for_return(self, subscription: Any) -> None:
        """Keeps a non-durable subscription a little longer, as its consumer may reconnect."""
        ...

    async def position_at(self, publish_time_ms: int) -> Position: ...
    async def last_message(self) -> tuple[Position, int]: ...


class EntrySource(Protocol):
    """What a dispatcher reads: a cursor or a replacement for one, which layers above this one implement."""

    def has_more(self) -> bool: ...
    def read_cached(self, max_entries: int, max_bytes: int) -> EntryRun | None: ...
    async def read(self, max_entries: int, max_bytes: int) -> EntryRun | None: ...
    def unconsumed_parts(self, run: EntryRun) -> list[tuple[int, int]]: ...
    def rewind(self) -> None: ...


class CompactedSource(EntrySource, Protocol):
    def close(self) -> None:
        """Called when it is not read any more."""
        ...


class Replay(Protocol):
    """Positions that wait to be delivered, again or for the first time."""

    def __len__(self) -> int: ...
    def __contains__(self, position: Position) -> bool: ...
    def __iter__(self) -> Iterator[Position]: ...
    def discard(self, position: Position) -> None: ...
    def drop_through(self, last: Position) -> None: ...
    def clear(self) -> None: ...


class DispatchedSubscription(Protocol):
    """The subscription of a dispatcher; a layer above this one implements it."""

    name: str
    cursor: Cursor
    properties: dict[str, str]
    filters: EntryFilters | None
    throttle: Throttle | None
    """Its dispatch limits; usually None."""
    awaits_acks: bool
    """Whether dispatch pauses until enough was acknowledged; set by the dispatcher."""

    @property
    def topic(self) -> StoredTopic: ...

    def read_compacted(self) -> CompactedSource:
        """Returns the replacement of the cursor for a consumer that reads compacted."""
        ...

    def meets_marker(self, run: EntryRun, index: int) -> None:
        """Handles an entry that is a marker, which brokers write for each other and consumers never get."""
        ...

    def filtered_out(self, before: Position) -> None:
        """Called after filters rejected entries; ``before`` is the previous mark-delete position."""
        ...

    def go_on(self) -> None:
        """Continues dispatching in this turn of the loop, if the loop budget permits it."""
        ...

    def read_failed(self, error: Exception) -> None:
        """Called when entries cannot be read; the dispatcher tries again."""
        ...
