"""Explains both sides of a topic that is served here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from magnetar.broker.explaining.answer import Explanation
from magnetar.broker.explaining.producers import explain_producers, refusals_of
from magnetar.broker.explaining.replication import (
    explain_dropped,
    explain_passing_on,
    explain_replication,
)
from magnetar.broker.explaining.subscriptions import explain_subscription
from magnetar.broker.service import BrokerService
from magnetar.broker.subscriptions.cursor_kinds import SUBSCRIPTION
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import SubscriptionNotFound

_OF_TOPICS = ("pulsar-admin topics set-", "pulsar-admin topicPolicies ")
"""Commands that are left out where topic policies are disabled."""


async def explain_topic(broker: BrokerService, topic: AnyTopic, subscription: str | None) -> dict[str, Any]:
    """:param subscription: only this one; None: all of them

    :raises SubscriptionNotFound: no such subscription
    """
    # The others are the broker's own cursors, and have no consumers.
    chosen = {name: each for name, each in topic.subscriptions.items() if each.kind is SUBSCRIPTION}
    if subscription is not None:
        if subscription not in chosen:
            raise SubscriptionNotFound(f"Subscription {subscription} does not exist")
        chosen = {subscription: chosen[subscription]}
    producers = await explain_producers(broker, topic)
    now = broker.io.clock.wall_ms()

    def told(side: Explanation) -> dict[str, Any]:
        if broker.policies.topics is None and side.attempt.startswith(_OF_TOPICS):
            side = replace(side, attempt="")
        return side.json(now)

    replication: dict[str, Any] = {}
    if subscription is not None:
        pass
    elif isinstance(topic, Topic):
        replication = {each.remote: told(explain_replication(each)) for each in topic.all_replicators()}
    else:
        replication = {name: told(explain_passing_on(each)) for name, each in topic.replicators.items()}
    dropped = {}
    if subscription is None and isinstance(topic, Topic):
        dropped = {name: told(each) for name, each in explain_dropped(topic).items()}
    return {
        "topic": topic.full_name,
        "servedBy": broker.settings.service_url,
        "producers": {**told(producers), "refused": refusals_of(topic)},
        "subscriptions": {name: told(explain_subscription(each)) for name, each in chosen.items()},
        **({"replication": dict(sorted(replication.items()))} if replication else {}),
        **({"replicatedFrom": dict(sorted(dropped.items()))} if dropped else {}),
    }
