"""Migrated topics, whose clients are redirected to another cluster (PIP-188).

Such a topic accepts no messages any more. Its producers are redirected when every replicator has sent
everything that was published, so that what they publish in the other cluster comes after it. Its consumers
are redirected when they have acknowledged everything.
"""

from __future__ import annotations

from magnetar.broker.flow.connection import Assigned
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError, ServiceNotReady, TopicMigrated
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError

_MIGRATED = "migrated"
"""Property of the managed ledger of a migrated topic, as Apache Pulsar writes it."""


async def move(topic: AnyTopic, there: Assigned) -> None:
    """Terminates a topic in this cluster and redirects its clients to another one; producers get their
    receipts first.

    :raises LedgerError, ManagedLedgerError, MetadataError: the topic cannot be terminated, and stays in use
        here
    """
    topic.moved = there
    await topic.close_producers_in_order()
    if isinstance(topic, Topic):
        try:
            if topic.managed_ledger.properties.get(_MIGRATED) != "true":
                await topic.managed_ledger.set_properties({_MIGRATED: "true"})
            await topic.terminate()
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError):
            topic.moved = None
            raise
    else:
        for subscription in list(topic.subscriptions.values()):
            subscription.check_end_of_topic()


def check_not_moved(topic: AnyTopic) -> None:
    """Checks a topic before a producer is admitted.

    :raises TopicMigrated: clients are redirected to another cluster
    :raises ServiceNotReady: they will be, when its replicators have sent what was published here
    """
    there = topic.moved
    if there is None:
        return
    text = moved_text(topic, there)
    topic.hindered(Hindrance.MIGRATED, text)
    if _unreplicated(topic):
        raise ServiceNotReady(text)
    raise TopicMigrated(text, there.url, there.url_tls)


def moved_text(topic: AnyTopic, there: Assigned) -> str:
    """Returns where the topic is, and what producers wait for if they are not redirected yet."""
    text = f"The topic has moved to {there.url or there.url_tls}"
    backlog = _unreplicated(topic)
    if backlog:
        left = "1 remaining entry" if backlog == 1 else f"{backlog:,} remaining entries"
        text += f"; producers are redirected when the replicators have sent the {left}"
    return text


def _unreplicated(topic: AnyTopic) -> int:
    if not isinstance(topic, Topic):
        return 0
    return sum(replicator.backlog() for replicator in topic.replicators.values())
