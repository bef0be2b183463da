"""The reasons why a dispatcher sends nothing, recorded where the dispatcher decides.

A decision is one of the constants in this module. Recording it costs an assignment and a comparison for each
run of entries, and nothing per message. The clock is only read when the decision changes. Details (which
consumer, how many, until when) follow from the dispatcher's state and are determined on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from magnetar.broker.consumers.consumer import AnyConsumer
from magnetar.io.interfaces import Clock


class Reason(Enum):
    """The reason why nothing is sent to a subscription; the value is its name in answers and metrics."""

    NO_CONSUMER = "no_consumer"
    """No consumer is connected."""
    TAKEOVER = "takeover"
    """The active consumer of a Failover subscription has changed: the new active consumer is served after a
    delay.
    """
    NO_PERMITS = "no_permits"
    """Consumers have no permits: they are slow, paused, or have not received what was sent."""
    CONNECTION_FULL = "connection_full"
    """A consumer has permits, but does not read what was written to its connection."""
    UNACKED_CONSUMER = "unacked_consumer"
    """A consumer has reached its limit of unacknowledged messages. The next two reasons mean that the
    subscription or the broker has reached its limit."""
    UNACKED_SUBSCRIPTION = "unacked_subscription"
    UNACKED_BROKER = "unacked_broker"
    KEY_HELD = "key_held"
    """Keys were reassigned, and their former consumer has not acknowledged all its messages with these
    keys."""
    KEY_UNASSIGNED = "key_unassigned"
    """No consumer has the slots of the keys of the waiting messages."""
    LOOK_AHEAD = "look_ahead"
    """So many messages wait for certain consumers of a Key_Shared subscription that reading pauses."""
    RATE_LIMIT = "rate_limit"
    """A dispatch rate is used up."""
    DELAYED = "delayed"
    """All remaining messages have a delivery time in the future."""
    ACK_STATE = "ack_state"
    """More messages are acknowledged individually than can be stored; dispatch pauses until the number
    falls.
    """
    FILTER = "filter"
    """Entry filters rescheduled the remaining messages."""
    READING = "reading"
    """A read from the ledger store is in progress."""
    READ_FAILED = "read_failed"
    """Entries cannot be read; the dispatcher tries again."""
    TURN = "turn"
    """The loop budget of this turn is used up; dispatching continues in one of the next turns."""
    MOVING = "moving"
    """A seek is in progress, the subscription is being deleted, or its topic is closing."""
    OPEN_TRANSACTION = "open_transaction"
    """Everything before the first message of an open transaction was delivered."""
    AT_END = "at_end"
    """Everything was delivered."""
    NOBODY_READY = "nobody_ready"
    """None of several consumers is ready; the reason of one of the consumers is reported."""
    KEYS_WAIT = "keys_wait"
    """All entries were read, and the unsent entries wait for certain consumers.

    The reason of one of these consumers is reported.
    """


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
OPEN_TRANSACTION = Reason.OPEN_TRANSACTION
AT_END = Reason.AT_END
NOBODY_READY = Reason.NOBODY_READY
KEYS_WAIT = Reason.KEYS_WAIT

WHATEVER_IS_LEFT = frozenset(
    {NO_CONSUMER, TAKEOVER, READING, READ_FAILED, TURN, FILTER, DELAYED, AT_END, MOVING}
)
"""The reasons that apply even if no entries are left to send; other reasons require that entries are left."""


class Waiting:
    """The last decision of a dispatcher, and the time of the decision."""

    __slots__ = ("_clock", "reason", "since_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reason = NO_CONSUMER
        self.since_ms = clock.wall_ms()
        """The time of the decision, in ms since 1970."""

    def because(self, reason: Reason) -> None:
        """Records the reason why nothing more is sent now."""
        if reason is not self.reason:
            self.reason = reason
            self.since_ms = self._clock.wall_ms()


def lack_of(consumer: AnyConsumer) -> Reason:
    """Returns the reason why nothing is sent to a consumer that is not ready."""
    if consumer.permits <= 0:
        return NO_PERMITS
    return UNACKED_CONSUMER if consumer.blocked else CONNECTION_FULL


def lack_of_all(consumers: Iterable[AnyConsumer]) -> Reason:
    """Returns the reason why nothing is sent to several consumers: the reason of a consumer with permits, if
    there is one."""
    found = NO_PERMITS
    for consumer in consumers:
        lack = lack_of(consumer)
        if lack is UNACKED_CONSUMER:
            return lack
        if lack is CONNECTION_FULL and not consumer.ready:
            found = lack
    return found
