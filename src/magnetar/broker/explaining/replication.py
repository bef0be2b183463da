"""Why a topic does not arrive in another cluster, in words."""

from __future__ import annotations

from enum import Enum

from magnetar.broker.explaining.answer import Explanation, command, counted
from magnetar.broker.topics.replicating import Replicating


class Replicated(Enum):
    """How it stands with a topic in another cluster."""

    AT_END = "at_end"
    REPLICATING = "replicating"
    RESTING = "resting"
    """Everything has arrived, and the topic is not used."""
    HINDERED = "not_replicated"


def explain_replication(replicator: Replicating) -> Explanation:
    """Of a topic's replicator to one other cluster."""
    cluster, backlog = replicator.remote, replicator.backlog()
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
                f"Everything has arrived in cluster {cluster}; the topic is not used, so nobody is connected."
            )
            return Explanation(Replicated.RESTING.value, sentence, None, figures)
        return Explanation(
            Replicated.AT_END.value, f"Everything has arrived in cluster {cluster}.", None, figures
        )
    entries = counted(backlog, "entry", "entries")
    if not replicator.hindrance:
        sentence = f"Cluster {cluster} has not confirmed {entries} yet."
        return Explanation(Replicated.REPLICATING.value, sentence, None, figures)
    wait = "waits" if backlog == 1 else "wait"
    sentence = f"Nothing is sent to cluster {cluster}: {replicator.hindrance}. {entries} {wait}."
    return Explanation(
        Replicated.HINDERED.value,
        sentence,
        None,
        figures,
        look=command("pulsar-admin", "clusters", "get", cluster),
    )
