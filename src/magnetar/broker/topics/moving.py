"""Topics whose clients are sent to another cluster (PIP-188).

Nothing is published any more to such a topic. Producers are sent on when every replicator has sent all that
was published, so that what they publish in the other cluster comes behind it; consumers when they have
acknowledged all of it.
"""

from __future__ import annotations

from magnetar.broker.flow.departure import Assigned
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError, ServiceNotReady, TopicMigrated
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError

_MIGRATED = "migrated"
"""Property of a managed ledger whose topic has moved, as Apache Pulsar writes it."""


async def move(topic: AnyTopic, there: Assigned) -> None:
    """Ends a topic in this cluster and sends its clients to another one; producers get their receipts first.

    :raises LedgerError, ManagedLedgerError, MetadataError: it cannot be ended; it goes on here
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
    """Before a producer is let in.

    :raises TopicMigrated: clients find the topic in another cluster
    :raises ServiceNotReady: they will, when its replicators have sent what was published here
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
    """Where the topic is, and what producers wait for if they are not sent there yet."""
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
