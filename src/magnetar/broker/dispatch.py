"""What both kinds of dispatchers share: their settings, and what they ask of a subscription."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from magnetar.broker.consumer import Consumer
from magnetar.broker.loop_turn import LoopTurn
from magnetar.broker.unacked_limit import UnackedLimit
from magnetar.io.interfaces import Loop
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
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
    look_ahead_per_subscription: int = 20_000
    """The same for all of its consumers together; 0: any number."""


def bits_left(remaining: int | None, size: int) -> int | None:
    """What is still to be delivered of a batch of ``size`` messages; None for all of it.

    What the cursor keeps is what clients said, and they may have spoken of more messages than there are.
    """
    if remaining is None or remaining.bit_length() <= size:
        return remaining
    return remaining & ((1 << size) - 1)


class DispatchTopic(Protocol):
    """The topic behind a subscription, as a dispatcher sees it."""

    name: TopicName
    full_name: str
    loop: Loop
    wheel: TimerWheel
    dispatch_settings: DispatchSettings
    managed_ledger: ManagedLedger
    turn: LoopTurn
    unacked_limit: UnackedLimit | None


class DispatchedSubscription(Protocol):
    """The subscription of a dispatcher."""

    cursor: Cursor

    @property
    def topic(self) -> DispatchTopic: ...

    def go_on(self) -> None:
        """Dispatching goes on in this turn of the loop, after the last one had enough."""
        ...

    def read_failed(self, error: Exception) -> None:
        """Entries cannot be read now; the dispatcher tries again."""
        ...
