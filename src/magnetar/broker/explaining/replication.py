"""Explains why a topic does not arrive in another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from magnetar.broker.explaining.answer import Explanation, command, counted
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.replicating import AnyReplicating, PassingOn, Replicating
from magnetar.naming.replicators import remote_cluster_of


class Replicated(Enum):
    """The state of a topic's replication to or from another cluster."""

    AT_END = "at_end"
    REPLICATING = "replicating"
    RESTING = "resting"
    """Everything was replicated, and the topic is not in use."""
    HINDERED = "not_replicated"
    PASSING_ON = "passing_on"
    """A non-persistent topic: messages are passed on as they are published."""
    DUPLICATES = "duplicates"
    """From another cluster: the last messages were dropped as duplicates."""


def explain_replication(replicator: Replicating) -> Explanation:
    """Explains a topic's replicator to one other cluster."""
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


def explain_passing_on(replicator: PassingOn) -> Explanation:
    """Explains a non-persistent topic's replicator to one other cluster."""
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
    """Returns explanations for the clusters whose last messages were dropped here as duplicates, by name."""
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
