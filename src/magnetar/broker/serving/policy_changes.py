"""Applies changed policies to the loaded topics of a broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import BrokerError, NamespaceNotFound
from magnetar.io.slices import Slice, each, next_turn
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.serving.topics import ServedTopics

log = logging.getLogger(__name__)


async def apply_changed(
    served: ServedTopics, namespace: NamespaceName | None, topic: TopicName | None
) -> None:
    """Applies changed policies to the topics of a namespace, or to one topic and its partitions.

    If this fails for one topic, the other topics are processed before the error is raised.

    :param namespace: the namespace; None: the policies of all namespaces may have changed
    :param topic: the topic; None: the policies of all topics of the namespace may have changed
    """
    affected: list[AnyTopic] = []

    def take(live: AnyTopic) -> None:
        if namespace in (None, live.name.namespace_name):
            affected.append(live)

    if topic is None:
        await each(served.io, "policies", list(served.loaded.values()), take)
    else:
        # Texts are compared first, because thousands of topics may be loaded.
        name = str(topic)
        affected += [
            live
            for known, live in served.loaded.items()
            if known.startswith(name) and live.name.base == topic
        ]
    running = Slice(served.io, "policies")
    failure: Exception | None = None
    for live in affected:
        if live.closing:
            continue
        try:
            if not await served.serving_clusters.include(live.name.namespace_name):
                await leave(served, live)
                continue
            live.apply_policies(await served.policies.of_topic(live.name))
            await live.prepare()
            served.replicate(live)
        except NamespaceNotFound:
            # The namespace is being deleted, together with its topics.
            continue
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            failure = failure or error
        if running.is_over():
            running.end()
            await next_turn(served.io)
            running.begin()
    if failure is not None:
        raise failure


async def leave(served: ServedTopics, topic: AnyTopic) -> None:
    """Closes a topic whose namespace no longer lists the local cluster; the topic keeps its data."""
    log.warning(
        "topic closed: its namespace no longer lists the local cluster",
        extra={"topic": topic.full_name, "cluster": served.settings.cluster},
    )
    await served.unload_topic(topic)
