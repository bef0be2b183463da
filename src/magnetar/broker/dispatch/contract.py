"""What both kinds of dispatchers share: their settings, and what they ask of a subscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.delays.tracker import DelaySettings
from magnetar.broker.dispatch.filters import EntryFilter, EntryFilters, FilterContext, FilterResult
from magnetar.broker.flow.departure import Assigned
from magnetar.broker.flow.dispatch_rates import Throttle
from magnetar.broker.flow.loop_budget import LoopBudget
from magnetar.broker.flow.unacked_limit import UnackedLimit
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.entry_run import EntryRun
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.naming.topic_name import TopicName

AnyConsumer: TypeAlias = Consumer[Any]
"""A consumer of whatever subscription: dispatchers do not ask which."""


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
    """Entries of a Key_Shared subscription that may wait, for each of its consumers; 0: any number."""
    filters: Sequence[EntryFilter] = ()
    """Say which entries are sent; usually there are none."""
    filter_again_seconds: float = 1.0
    """After which a filter is asked again about an entry that it put off."""
    look_ahead_per_subscription: int = 20_000
    """The same for all of its consumers together; 0: any number."""
    throttle_filtered: bool = False
    """What filters reject counts for rates of dispatch as if it had been sent."""
    throttle_by_message: bool = True
    """A batch counts as its messages where dispatch has a rate; else as one."""
    pause_on_ack_state: bool = False
    """Nothing new is sent while the cursor cannot be written with all that was acknowledged."""
    throttle_caught_up: bool = True
    """Rates of dispatch bound subscriptions that are near the end of their topic, too."""
    delays: DelaySettings = field(default_factory=DelaySettings)
    """Of Shared and Key_Shared subscriptions: on others nothing waits."""


def filter_verdict(
    subscription: DispatchedSubscription, consumer: AnyConsumer, run: EntryRun, index: int, messages: int
) -> FilterResult:
    """What the subscription's filters say of an entry that would be sent to a consumer."""
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
    """Counts an entry that a filter rejected for rates of dispatch, where the settings say so."""
    if settings.throttle_filtered and subscription.throttle is not None:
        subscription.throttle.take(1, messages, run.ends[index] - run.starts[index])


def bits_left(remaining: int | None, size: int) -> int | None:
    """What is still to be delivered of a batch of ``size`` messages; None for all of it.

    What the cursor keeps is what clients said, and they may have spoken of more messages than there are.
    """
    if remaining is None or remaining.bit_length() <= size:
        return remaining
    return remaining & ((1 << size) - 1)


class DispatchTopic(Protocol):
    """The topic behind a subscription, whether it stores anything or not; a room above has both kinds."""

    name: TopicName
    full_name: str
    loop: Loop
    wheel: TimerWheel
    clock: Clock
    dispatch_settings: DispatchSettings
    closing: bool
    fenced: bool
    budget: LoopBudget
    moved: Assigned | None
    """The cluster in which clients find the topic from now on; None: this one."""

    @property
    def terminated(self) -> bool: ...

    def busy(self) -> None: ...
    def dispatched(self, messages: int, size: int) -> None: ...
    async def unsubscribe(self, name: str) -> None: ...
    def forget_subscription(self, subscription: Any) -> None:
        """Drops one that is not durable; it is of the topic's kind."""
        ...


class StoredTopic(DispatchTopic, Protocol):
    """The topic of a subscription with a cursor."""

    managed_ledger: ManagedLedger
    batch_index_acks: bool
    unacked_limit: UnackedLimit | None

    def throttle_of(self, subscription: Any, known: Throttle | None) -> Throttle | None:
        """What bounds how fast a subscription of its kind is sent; None: nothing does.

        :param known: what bounded it until now
        """
        ...

    def keep_for_return(self, subscription: Any) -> None:
        """Keeps one that is not durable a little longer: its consumer may come back."""
        ...

    async def position_at(self, publish_time_ms: int) -> Position: ...
    async def last_message(self) -> tuple[Position, int]: ...


class EntrySource(Protocol):
    """What a dispatcher reads: a cursor, or what stands in for one; a room above this one has the others."""

    def has_more(self) -> bool: ...
    def read_cached(self, max_entries: int, max_bytes: int) -> EntryRun | None: ...
    async def read(self, max_entries: int, max_bytes: int) -> EntryRun | None: ...
    def unconsumed_parts(self, run: EntryRun) -> list[tuple[int, int]]: ...
    def rewind(self) -> None: ...


class CompactedSource(EntrySource, Protocol):
    def close(self) -> None:
        """It is not read on."""
        ...


class Replay(Protocol):
    """Positions that wait to be delivered again, or for the first time."""

    def __len__(self) -> int: ...
    def __contains__(self, position: Position) -> bool: ...
    def __iter__(self) -> Iterator[Position]: ...
    def discard(self, position: Position) -> None: ...
    def drop_through(self, last: Position) -> None: ...
    def clear(self) -> None: ...


class DispatchedSubscription(Protocol):
    """The subscription of a dispatcher: a room above this one has subscriptions."""

    name: str
    cursor: Cursor
    properties: dict[str, str]
    filters: EntryFilters | None
    throttle: Throttle | None
    """What bounds how fast it is sent; usually nothing does."""
    awaits_acks: bool
    """Nothing new is sent until enough was acknowledged; its dispatcher says so."""

    @property
    def topic(self) -> StoredTopic: ...

    def read_compacted(self) -> CompactedSource:
        """Stands in for the cursor, for a consumer that reads compacted."""
        ...

    def meets_marker(self, run: EntryRun, index: int) -> None:
        """An entry is a marker, which brokers write for each other and no consumer gets."""
        ...

    def filtered_out(self, before: Position) -> None:
        """Entries were rejected by a filter and are acknowledged; the mark-delete position was ``before``."""
        ...

    def go_on(self) -> None:
        """Dispatching goes on in this turn of the loop, after the last one had enough."""
        ...

    def read_failed(self, error: Exception) -> None:
        """Entries cannot be read now; the dispatcher tries again."""
        ...
