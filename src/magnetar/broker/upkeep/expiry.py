"""Time to live: old messages of a backlog are consumed on behalf of the subscription.

An entry's age follows from its publish time, which its producer sets. If its ledger was closed longer ago
than the time to live, the entry has expired regardless of its publish time, so that a producer with a wrong
clock cannot keep messages forever.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.entries import last_before, published_at
from magnetar.broker.topics.persistent import Topic
from magnetar.io.slices import PAUSE_SECONDS, each, let_others
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.ledger.interface import LedgerError, NoSuchLedger
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator


log = logging.getLogger(__name__)


async def last_published_before(ledger: ManagedLedger, start: Position, time_ms: int) -> Position:
    """Returns the position of the last visible entry after ``start`` that was published before a time (ms
    since 1970); if there is no such entry, a position at or below ``start``. If publish times do not ascend,
    the result may be any entry that was published before the time and is followed by an entry that was
    published at or after this time.

    :raises LedgerError: an entry cannot be read
    """
    ledgers, last = ledger.ledgers, ledger.max_read_position
    for summary in ledgers:
        if not summary.closed_ms or summary.closed_ms >= time_ms:
            break
        if summary.entries and summary.ledger_id >= start[0]:
            start = max(start, (summary.ledger_id, summary.entries - 1))
    first = ledgers.after(start)
    if first > last or await published_at(ledger, first) >= time_ms:
        # A closed ledger may hold messages of open transactions.
        return min(start, last)
    return await last_before(ledger, first, last, time_ms)


async def has_expired(subscription: Subscription | Replicator, time_ms: int) -> bool:
    """Whether a subscription has an unconsumed message that was published before a time (ms since 1970).

    :raises LedgerError: the entry cannot be read
    """
    cursor, ledger = subscription.cursor, subscription.topic.managed_ledger
    while cursor.backlog():
        position = cursor.first_unconsumed()
        try:
            return await published_at(ledger, position) < time_ms
        except NoSuchLedger:
            # The entry was consumed and trimmed meanwhile; try what is next now.
            if position[0] in ledger.ledgers:
                raise
    return False


async def expire(subscription: Subscription | Replicator, time_ms: int) -> int:
    """Consumes the messages that were published before a time (ms since 1970); returns the number of entries.

    :raises LedgerError: an entry cannot be read
    """
    cursor, topic = subscription.cursor, subscription.topic
    if subscription.expiring or not cursor.backlog():
        return 0
    subscription.expiring = True
    subscription.last_expire_ms = topic.clock.wall_ms()
    try:
        start = cursor.mark_delete
        last = await last_published_before(topic.managed_ledger, start, time_ms)
    except NoSuchLedger as error:
        if error.ledger_id in topic.managed_ledger.ledgers:
            raise
        # The entry was consumed and trimmed meanwhile.
        return 0
    finally:
        subscription.expiring = False
    if subscription.closing or cursor.mark_delete < start or last <= start:
        # The subscription is ending or was moved back meanwhile, or nothing has expired.
        return 0
    return count_expired(subscription, last)


def count_expired(subscription: Subscription | Replicator, last: Position) -> int:
    """Consumes everything up to a position as expired; returns the number of entries."""
    expired = subscription.skip_to(last)
    if expired and not isinstance(subscription, Subscription):
        subscription.skipped -= expired
    if expired:
        subscription.expired.messages += expired
        subscription.topic.busy()
    return expired


def due(topic: Topic) -> list[Subscription | Replicator]:
    """Returns the durable subscriptions and replicators to which the topic's time to live applies now."""
    if topic.policies.message_ttl_seconds <= 0 or topic.closing or topic.fenced:
        return []
    found: list[Subscription | Replicator] = [
        each
        for each in topic.subscriptions.values()
        if each.durable and each.kind.expires and not each.closing
    ]
    return [*found, *topic.replicators.values()]


class ExpiryCheck:
    def __init__(self, served: ServedTopics) -> None:
        self._served = served
        self._tasks = TaskScope(served.io.loop, "expiry", owner_goes_on)
        self._apart: KeyedTasks[Subscription | Replicator, None] = KeyedTasks(self._tasks)
        """Checks of backlogs in tiered storage, in tasks of their own, so that a store that does not answer
        delays no other check."""

    async def run(self) -> None:
        """Checks all topics with a time to live, one after another."""
        topics: list[Topic] = []

        def look(topic: AnyTopic) -> None:
            if isinstance(topic, Topic) and topic.policies.message_ttl_seconds > 0:
                topics.append(topic)

        loaded: Mapping[str, AnyTopic] = self._served.loaded
        await each(self._served.io, "expiry", list(loaded.values()), look, pause=PAUSE_SECONDS)
        for topic in topics:
            for subscription in due(topic):
                reader = topic.managed_ledger.reader
                if reader.tiered_place(subscription.cursor.first_unconsumed()) is None:
                    await self._expire(subscription)
                else:
                    self._apart.start(subscription, partial(self._expire, subscription), "an expiry check")
            await let_others(self._served.io.loop)

    def stop(self) -> None:
        """Ends the checks that wait for tiered storage."""
        self._tasks.cancel()

    async def _expire(self, subscription: Subscription | Replicator) -> None:
        topic = subscription.topic
        time_ms = topic.clock.wall_ms() - topic.policies.message_ttl_seconds * 1000
        try:
            await expire(subscription, time_ms)
        except (LedgerError, ManagedLedgerError) as error:
            log.warning(
                "cannot check for expired messages", extra={"topic": topic.full_name, "error": str(error)}
            )
