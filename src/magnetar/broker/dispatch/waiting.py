"""Why a dispatcher sends nothing: said by itself, at the place where it decides so.

A decision is one of the constants here, so that it costs a store and a comparison for each run of entries and
nothing for a message; only another decision than the last one looks at the clock. What belongs to it (which
consumer, how many, until when) is a function of the dispatcher's state and worked out when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from magnetar.broker.consumers.consumer import Consumer
from magnetar.io.interfaces import Clock


class Reason(Enum):
    """Why nothing is sent to a subscription; the value is its name in answers and metrics."""

    NO_CONSUMER = "no_consumer"
    """Nobody is connected."""
    TAKEOVER = "takeover"
    """The active consumer of a Failover subscription has changed: the next one is served after a delay."""
    NO_PERMITS = "no_permits"
    """Consumers asked for no more messages: they are slow, paused, or have not received what they got."""
    CONNECTION_FULL = "connection_full"
    """A consumer has permits, and does not read what was written to its connection."""
    UNACKED_CONSUMER = "unacked_consumer"
    """A consumer holds as many unacknowledged messages as it may. So do the next two in their turn."""
    UNACKED_SUBSCRIPTION = "unacked_subscription"
    UNACKED_BROKER = "unacked_broker"
    KEY_HELD = "key_held"
    """Keys have changed hands, and their former consumer has not acknowledged all it holds of them."""
    KEY_UNASSIGNED = "key_unassigned"
    """No consumer takes these keys."""
    LOOK_AHEAD = "look_ahead"
    """So many messages wait for single consumers of a Key_Shared subscription that no more are read."""
    RATE_LIMIT = "rate_limit"
    """Dispatch has a rate, and it is used up."""
    DELAYED = "delayed"
    """All that is left has a delivery time that is to come."""
    ACK_STATE = "ack_state"
    """More is acknowledged out of order than can be kept, and dispatch pauses until it is less."""
    FILTER = "filter"
    """Entry filters put off what is left."""
    READING = "reading"
    """A read from the ledger store is on its way."""
    READ_FAILED = "read_failed"
    """Entries cannot be read; it is tried again."""
    TURN = "turn"
    """The loop has others to serve first; it goes on in one of its next turns."""
    MOVING = "moving"
    """The subscription is being moved or ended, or its topic is."""
    AT_END = "at_end"
    """All was delivered."""
    NOBODY_READY = "nobody_ready"
    """None of several consumers takes more; asked why, it is one of those that say of a consumer why."""
    KEYS_WAIT = "keys_wait"
    """All was read, and what was not sent waits for single consumers; likewise."""


NO_CONSUMER = Reason.NO_CONSUMER
TAKEOVER = Reason.TAKEOVER
NO_PERMITS = Reason.NO_PERMITS
CONNECTION_FULL = Reason.CONNECTION_FULL
UNACKED_CONSUMER = Reason.UNACKED_CONSUMER
UNACKED_SUBSCRIPTION = Reason.UNACKED_SUBSCRIPTION
UNACKED_BROKER = Reason.UNACKED_BROKER
KEY_HELD = Reason.KEY_HELD
KEY_UNASSIGNED = Reason.KEY_UNASSIGNED
LOOK_AHEAD = Reason.LOOK_AHEAD
MOVING = Reason.MOVING
RATE_LIMIT = Reason.RATE_LIMIT
DELAYED = Reason.DELAYED
ACK_STATE = Reason.ACK_STATE
FILTER = Reason.FILTER
READING = Reason.READING
READ_FAILED = Reason.READ_FAILED
TURN = Reason.TURN
AT_END = Reason.AT_END
NOBODY_READY = Reason.NOBODY_READY
KEYS_WAIT = Reason.KEYS_WAIT

WHATEVER_IS_LEFT = frozenset(
    {NO_CONSUMER, TAKEOVER, READING, READ_FAILED, TURN, FILTER, DELAYED, AT_END, MOVING}
)
"""These hold whether there is anything to send or not; the others are the reason only if there is."""


class Waiting:
    """The decision that a dispatcher made last, and since when it is this one."""

    __slots__ = ("_clock", "reason", "since_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reason = NO_CONSUMER
        self.since_ms = clock.wall_ms()
        """Since 1970."""

    def because(self, reason: Reason) -> None:
        """Nothing more is sent now, for this reason."""
        if reason is not self.reason:
            self.reason = reason
            self.since_ms = self._clock.wall_ms()


def lack_of(consumer: Consumer[Any]) -> Reason:
    """Why a consumer that is not ready is sent nothing."""
    if consumer.permits <= 0:
        return NO_PERMITS
    return UNACKED_CONSUMER if consumer.blocked else CONNECTION_FULL


def lack_of_all(consumers: Iterable[Consumer[Any]]) -> Reason:
    """Why none of several is sent anything: what is the matter with one that has permits, if there is one."""
    found = NO_PERMITS
    for consumer in consumers:
        lack = lack_of(consumer)
        if lack is UNACKED_CONSUMER:
            return lack
        if lack is CONNECTION_FULL and not consumer.ready:
            found = lack
    return found
