"""Time to live: what a subscription has not consumed in time is consumed for it.

An entry's age is that of its publish time, as its producer says. Entries of a ledger that was closed longer
ago than that have expired whatever they say: a producer whose clock is wrong keeps nothing for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.entries import last_before, published_at
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.replicating import Replicating
from magnetar.io.slices import PAUSE_SECONDS, each, let_others
from magnetar.ledger.interface import LedgerError, NoSuchLedger
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position

log = logging.getLogger(__name__)


async def last_published_before(ledger: ManagedLedger, start: Position, time_ms: int) -> Position:
    """The last position of those behind ``start`` that were published before a time; ``start`` without one.

    Where publish times do not ascend, any position behind which one follows that is younger may be found.

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
        return start
    return await last_before(ledger, first, time_ms)


async def has_expired(subscription: Subscription | Replicating, time_ms: int) -> bool:
    """Whether anything that a subscription has not consumed was published before a time.

    :raises LedgerError: it cannot be read
    """
    cursor, ledger = subscription.cursor, subscription.topic.managed_ledger
    while cursor.backlog():
        position = cursor.first_unconsumed()
        try:
            return await published_at(ledger, position) < time_ms
        except NoSuchLedger:
            # It was consumed and trimmed while it was looked at; what is next now?
            if position[0] in ledger.ledgers:
                raise
    return False


async def expire(subscription: Subscription | Replicating, time_ms: int) -> int:
    """Consumes what was published before a time (ms since 1970); returns how many entries that were.

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
        # It was consumed and trimmed while it was looked at.
        return 0
    finally:
        subscription.expiring = False
    if subscription.closing or cursor.mark_delete < start or last <= start:
        # It ends, or was moved back meanwhile; or nothing has expired.
        return 0
    return count_expired(subscription, last)


def count_expired(subscription: Subscription | Replicating, last: Position) -> int:
    """Consumes everything up to a position as expired; returns how many entries that were."""
    expired = subscription.skip_to(last)
    if expired and not isinstance(subscription, Subscription):
        subscription.skipped -= expired
    if expired:
        subscription.expired.messages += expired
        subscription.topic.busy()
    return expired


async def expire_topic(topic: Topic) -> None:
    """Consumes what is older than the topic's time to live, for all durable subscriptions and replicators."""
    seconds = topic.policies.message_ttl_seconds
    if seconds <= 0 or topic.closing or topic.fenced:
        return
    time_ms = topic.clock.wall_ms() - seconds * 1000
    for subscription in list(topic.subscriptions.values()):
        if subscription.durable and subscription.kind.expires and not subscription.closing:
            await expire(subscription, time_ms)
    for replicator in list(topic.replicators.values()):
        await expire(replicator, time_ms)


class ExpiryCheck:
    def __init__(self, served: ServedTopics) -> None:
        self._served = served

    async def run(self) -> None:
        """Looks at all topics with a time to live, one after the other."""
        due: list[Topic] = []

        def look(topic: AnyTopic) -> None:
            if isinstance(topic, Topic) and topic.policies.message_ttl_seconds > 0:
                due.append(topic)

        topics: Mapping[str, AnyTopic] = self._served.topics
        await each(self._served.io, "expiry", list(topics.values()), look, pause=PAUSE_SECONDS)
        for topic in due:
            try:
                await expire_topic(topic)
            except (LedgerError, ManagedLedgerError) as error:
                log.warning(
                    "cannot tell what has expired", extra={"topic": topic.full_name, "error": str(error)}
                )
            await let_others(self._served.io.loop)
