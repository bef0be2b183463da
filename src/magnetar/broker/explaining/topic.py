"""Explains the producers and subscriptions of a topic that this broker serves, and the topic's replication to
and from other clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from magnetar.broker.explaining.answer import MOST_NAMED, Explanation, command, counted
from magnetar.broker.explaining.producers import explain_producers, refusals_of
from magnetar.broker.explaining.subscriptions import explain_subscription
from magnetar.broker.explaining.transactions import HidingTransaction
from magnetar.broker.service import BrokerService
from magnetar.broker.subscriptions.cursor_kinds import SUBSCRIPTION
from magnetar.broker.system_topics.transactions_off import others_that_get
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.base import AnyReplicating
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import SubscriptionNotFound
from magnetar.naming.replicators import remote_cluster_of

if TYPE_CHECKING:
    from magnetar.broker.replication.passing_on import PassingReplicator
    from magnetar.broker.replication.replicator import Replicator


_OF_TOPICS = ("pulsar-admin topics set-", "pulsar-admin topicPolicies ")
"""Commands that are left out if topic policies are disabled."""


async def explain_topic(
    broker: BrokerService, topic: AnyTopic, subscription: str | None
) -> dict[str, object]:
    """Explains why messages of a topic wait, or cannot be published.

    :param subscription: the name of the only subscription to explain; None: all subscriptions are explained
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

    def told(side: Explanation) -> dict[str, object]:
        if broker.policies.topics is None and side.attempt.startswith(_OF_TOPICS):
            side = replace(side, attempt="")
        return side.json(now)

    replication: dict[str, object] = {}
    if subscription is not None:
        pass
    elif isinstance(topic, Topic):
        replication = {each.remote: told(explain_replication(each)) for each in topic.all_replicators()}
    else:
        replication = {name: told(explain_passing_on(each)) for name, each in topic.replicators.items()}
    dropped = {}
    if subscription is None and isinstance(topic, Topic):
        dropped = {name: told(each) for name, each in explain_dropped(topic).items()}
    transaction = HidingTransaction(broker, topic)
    subscriptions = {
        name: told(await transaction.explain(explain_subscription(each))) for name, each in chosen.items()
    }
    return {
        "topic": topic.full_name,
        "servedBy": broker.settings.service_url,
        "producers": {**told(producers), "refused": refusals_of(topic)},
        "subscriptions": subscriptions,
        **({} if subscription is not None else _left_by_transactions(broker, topic, told)),
        **({} if subscription is not None else _not_offloaded(topic, told)),
        **({"replication": dict(sorted(replication.items()))} if replication else {}),
        **({"replicatedFrom": dict(sorted(dropped.items()))} if dropped else {}),
    }


def _left_by_transactions(
    broker: BrokerService, topic: AnyTopic, told: Callable[[Explanation], dict[str, object]]
) -> Mapping[str, object]:
    """Returns the explanation's section about earlier transactions of a topic; empty if transactions are
    enabled, or if the topic has never had transactions.
    """
    off = broker.transactions_off
    if off is None or not isinstance(topic, Topic):
        return {}
    left = off.found.get(topic)
    if left is None:
        return {}
    sentence = "Transactions are disabled at this broker, and the topic has had some."
    figures: dict[str, object] = {}
    if left.aborted is not None:
        figures["aborted"] = left.aborted
        sentence += " Consumers get messages of aborted and of open transactions like others."
        if others := others_that_get(topic):
            figures["replicatedTo"] = ", ".join(others)
            sentence += f" So do other clusters, which keep them ({', '.join(others[:MOST_NAMED])})."
    if left.subscriptions:
        figures["subscriptions"] = ", ".join(left.subscriptions)
        sentence += (
            f" Messages that open transactions have acknowledged are delivered again "
            f"({', '.join(left.subscriptions[:MOST_NAMED])})."
        )
    sentence += " Set transactionCoordinatorEnabled=true in the broker's configuration."
    return {"transactions": told(Explanation("disabled", sentence, None, figures))}


def _not_offloaded(topic: AnyTopic, told: Callable[[Explanation], dict[str, object]]) -> Mapping[str, object]:
    """Returns the explanation's section about a failed offload; empty if the last offload did not fail."""
    offloader = topic.managed_ledger.offloader if isinstance(topic, Topic) else None
    if offloader is None or offloader.policy is None or not offloader.last_failure:
        return {}
    sentence = f"Closed ledgers stay in the ledger store: {offloader.last_failure}."
    figures = {"failures": offloader.failures, "offloadedBytes": offloader.bytes}
    look = command("pulsar-admin", "topics", "stats-internal", topic.full_name)
    since = offloader.last_failure_ms
    return {"offloading": told(Explanation("failed", sentence, since, figures, look=look))}


class Replicated(Enum):
    """The state of a topic's replication to or from another cluster."""

    AT_END = "at_end"
    REPLICATING = "replicating"
    RESTING = "resting"
    """The replicator is not connected, because the topic is not in use (and all stored messages have
    arrived)."""
    HINDERED = "not_replicated"
    PASSING_ON = "passing_on"
    """A non-persistent topic: messages are passed on as they are published."""
    DUPLICATES = "duplicates"
    """The last messages from another cluster were dropped as duplicates."""


def explain_replication(replicator: Replicator) -> Explanation:
    """Explains the state of the replicator that sends a topic to one other cluster."""
    where, backlog = replicator.where, replicator.backlog()
    figures = {
        "backlog": backlog,
        "lagSeconds": round(replicator.lag_seconds(), 3),
        "connected": replicator.connected,
        "expired": replicator.expired.messages,
        "skipped": replicator.skipped,
    }
    if not replicator.hindrance and not backlog:
        if not replicator.connected:
            sentence = (
                f"All messages have arrived in {where}; the topic is not used, so its replicator is not "
                "connected."
            )
            return Explanation(Replicated.RESTING.value, sentence, None, figures)
        return Explanation(Replicated.AT_END.value, f"All messages have arrived in {where}.", None, figures)
    entries = counted(backlog, "entry", "entries")
    if not replicator.hindrance:
        sentence = f"{where[0].upper()}{where[1:]} has not confirmed {entries} yet."
        return Explanation(Replicated.REPLICATING.value, sentence, None, figures)
    wait = "waits" if backlog == 1 else "wait"
    return _hindered(replicator, f"{entries} {wait}.", figures)


def explain_passing_on(replicator: PassingReplicator) -> Explanation:
    """Explains the state of the replicator that sends a non-persistent topic to one other cluster."""
    where, dropped = replicator.where, replicator.dropped.messages
    figures = {"connected": replicator.connected, "dropped": dropped}
    lost = f"Dropped since the topic was loaded: {counted(dropped, 'message')}."
    if replicator.hindrance:
        return _hindered(replicator, lost, figures)
    if not replicator.connected:
        sentence = f"The topic is not used, so its replicator is not connected to {where}. {lost}"
        return Explanation(Replicated.RESTING.value, sentence, None, figures)
    sentence = f"Messages are sent to {where} as they are published. {lost}"
    return Explanation(Replicated.PASSING_ON.value, sentence, None, figures)


def explain_dropped(topic: Topic) -> dict[str, Explanation]:
    """Returns an explanation for each cluster whose last messages were dropped as duplicates, by the
    cluster's name.
    """
    known = topic.deduplication
    if known is None:
        return {}
    found = {}
    for name, count in known.sources.dropped.items():
        cluster = remote_cluster_of(topic.settings.replicator_prefix, name) or name
        ledger_id, entry_id = known.sources.last(name) or (-1, -1)
        last = f"{ledger_id}:{entry_id}"
        found[cluster] = Explanation(
            Replicated.DUPLICATES.value,
            f"The last {counted(count, 'entry', 'entries')} from cluster {cluster} were dropped as "
            f"duplicates: their positions do not exceed {last}, the highest position stored here. This is "
            f"expected after a lost connection. If the topic was created again or restored in {cluster}, "
            "disable deduplication here and enable it again, which clears the stored position.",
            None,
            {"duplicates": count, "lastPosition": last},
            attempt=command(
                "pulsar-admin", "topicPolicies", "set-deduplication", "--disable", topic.full_name
            ),
        )
    return found


def _hindered(replicator: AnyReplicating, consequence: str, figures: Mapping[str, object]) -> Explanation:
    remote = replicator.remote
    look = ("topics", "stats", remote) if "://" in remote else ("clusters", "get", remote)
    return Explanation(
        Replicated.HINDERED.value,
        f"Nothing is sent to {replicator.where}: {replicator.hindrance}. {consequence}",
        None,
        figures,
        look=command("pulsar-admin", *look),
    )
