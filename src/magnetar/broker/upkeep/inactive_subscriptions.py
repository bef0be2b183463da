"""Deletion of inactive subscriptions, where policies say so.

Only loaded topics are checked. A subscription is in use while consumers are connected; its time starts when
the last one left, or when its topic was loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import SubscriptionNotFound
from magnetar.io.slices import PAUSE_SECONDS, each
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError

log = logging.getLogger(__name__)

_MINUTE_MS = 60_000


def is_due(topic: Topic, subscription: Subscription) -> bool:
    """Whether the subscription has been inactive for as long as the topic's policies say."""
    minutes = topic.policies.subscription_expiration_minutes
    if minutes <= 0 or subscription.consumers or subscription.closing or subscription.replicated:
        return False
    if not subscription.durable or not subscription.kind.expires:
        return False
    last = max(subscription.last_active_ms, subscription.last_consumed_ms, subscription.last_acked_ms)
    return topic.clock.wall_ms() - last > minutes * _MINUTE_MS


class InactiveSubscriptionsCheck:
    def __init__(self, served: ServedTopics) -> None:
        self._served = served

    async def run(self) -> None:
        """Deletes inactive subscriptions, one after the other."""
        due: list[tuple[Topic, Subscription]] = []

        def look(topic: AnyTopic) -> None:
            if isinstance(topic, Topic) and topic.policies.subscription_expiration_minutes > 0:
                due.extend((topic, found) for found in topic.subscriptions.values() if is_due(topic, found))

        topics: Mapping[str, AnyTopic] = self._served.topics
        await each(
            self._served.io, "inactive subscriptions", list(topics.values()), look, pause=PAUSE_SECONDS
        )
        for topic, subscription in due:
            # A consumer may have joined meanwhile. From here to the deletion none can.
            known = topics.get(topic.full_name) is topic and not topic.closing
            if known and is_due(topic, subscription):
                await self._delete(topic, subscription)

    @staticmethod
    async def _delete(topic: Topic, subscription: Subscription) -> None:
        names = {"topic": topic.full_name, "subscription": subscription.name}
        try:
            await topic.unsubscribe(subscription.name)
        except SubscriptionNotFound:
            return
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            log.warning("cannot delete an inactive subscription", extra={**names, "error": str(error)})
            return
        log.info("deleted an inactive subscription", extra=names)
