"""Endpoints of topics and subscriptions, persistent and not."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.endpoints.refusals_non_persistent import NOT_STORED
from magnetar.http.handlers import backlogs, messages, subscriptions, topics
from magnetar.http.routing import Endpoint, Handler

_DOMAINS = ("persistent", "non-persistent")
_SUBSCRIPTION = "/{topic}/subscription/{subscription}"

_ROWS = (
    ("GET", "", topics.list_topics, "list topics, one for each partition"),
    ("GET", "/partitioned", topics.list_partitioned_topics, "list partitioned topics"),
    ("PUT", "/{topic}", topics.create_topic, "create a topic without partitions"),
    ("DELETE", "/{topic}", topics.delete_topic, "delete a topic; force disconnects its clients"),
    ("GET", "/{topic}/partitions", topics.get_partitions, "number of partitions"),
    ("PUT", "/{topic}/partitions", topics.create_partitioned_topic, "create a partitioned topic"),
    ("POST", "/{topic}/partitions", topics.update_partitions, "more partitions"),
    ("DELETE", "/{topic}/partitions", topics.delete_partitioned_topic, "delete a partitioned topic"),
    (
        "POST",
        "/{topic}/createMissedPartitions",
        topics.create_missing_partitions,
        "make partitions that are missing",
    ),
    ("GET", "/{topic}/stats", topics.topic_stats, "statistics of a topic"),
    ("GET", "/{topic}/internalStats", topics.internal_stats, "ledgers and cursors of a topic"),
    ("GET", "/{topic}/partitioned-stats", topics.partitioned_stats, "statistics of all partitions"),
    (
        "GET",
        "/{topic}/partitioned-internalStats",
        topics.partitioned_internal_stats,
        "ledgers and cursors of all partitions",
    ),
    ("PUT", "/{topic}/unload", topics.unload, "close a topic; clients come back"),
    ("POST", "/{topic}/terminate", topics.terminate, "end a topic for ever; answers the last message"),
    ("POST", "/{topic}/terminate/partitions", topics.terminate_partitions, "end all partitions for ever"),
    ("GET", "/{topic}/properties", topics.properties, "properties of a topic"),
    ("PUT", "/{topic}/properties", topics.set_properties, "add properties"),
    ("DELETE", "/{topic}/properties", topics.remove_property, "remove a property"),
    ("GET", "/{topic}/permissions", topics.permissions, "who may do what"),
    ("POST", "/{topic}/permissions/{role}", topics.grant, "allow a role something"),
    ("DELETE", "/{topic}/permissions/{role}", topics.revoke, "allow a role nothing"),
    ("GET", "/{topic}/lastMessageId", topics.last_message_id, "id of the last message"),
    ("GET", "/{topic}/messageid/{timestamp}", topics.message_id_at, "first message published since"),
    ("GET", "/{topic}/backlog", backlogs.estimate, "size and backlog of a topic"),
    ("PUT", "/{topic}/backlogSize", topics.backlog_size, "bytes behind a message"),
    ("POST", "/{topic}/trim", topics.trim, "remove ledgers that nobody needs"),
    (
        "DELETE",
        "/{topic}/truncate",
        backlogs.truncate,
        "remove everything; subscriptions go to the end",
    ),
    (
        "POST",
        _SUBSCRIPTION + "/expireMessages/{expireTimeInSeconds}",
        backlogs.expire,
        "acknowledge what is older than that",
    ),
    ("POST", _SUBSCRIPTION + "/expireMessages", backlogs.expire_to, "acknowledge everything up to a message"),
    (
        "POST",
        "/{topic}/all_subscription/expireMessages/{expireTimeInSeconds}",
        backlogs.expire_all,
        "acknowledge what is older than that, for all subscriptions",
    ),
    ("POST", _SUBSCRIPTION + "/analyzeBacklog", backlogs.analyze, "read a backlog and count it"),
    ("GET", "/{topic}/ledger/{ledgerId}/entry/{entryId}", messages.by_id, "a message"),
    ("GET", "/{topic}/examinemessage", messages.examine, "the n-th message from either end"),
    ("GET", _SUBSCRIPTION + "/position/{messagePosition}", messages.peek, "the n-th unacknowledged one"),
    ("GET", "/{topic}/internal-info", messages.stored, "what the metadata has of a topic"),
    ("GET", "/{topic}/subscriptions", subscriptions.names, "list subscriptions"),
    ("PUT", _SUBSCRIPTION, subscriptions.create, "create a subscription"),
    ("DELETE", _SUBSCRIPTION, subscriptions.delete, "delete a subscription"),
    ("GET", _SUBSCRIPTION + "/properties", subscriptions.properties, "properties of a subscription"),
    ("PUT", _SUBSCRIPTION + "/properties", subscriptions.set_properties, "replace them"),
    ("POST", _SUBSCRIPTION + "/skip_all", subscriptions.skip_all, "acknowledge everything"),
    ("POST", _SUBSCRIPTION + "/skip/{numMessages}", subscriptions.skip, "acknowledge the next ones"),
    ("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}", subscriptions.reset_to_time, "go back to a time"),
    ("POST", _SUBSCRIPTION + "/resetcursor", subscriptions.reset_to, "go back to a message"),
    (
        "GET",
        _SUBSCRIPTION + "/replicatedSubscriptionStatus",
        subscriptions.replicated,
        "whether it is replicated",
    ),
    (
        "POST",
        _SUBSCRIPTION + "/replicatedSubscriptionStatus",
        subscriptions.set_replicated,
        "have it replicated",
    ),
)


def _rows(domain: str) -> Sequence[tuple[str, str, Handler, str]]:
    if domain == "persistent":
        return _ROWS
    refused = {(method, rest) for method, rest, _error, _reason in NOT_STORED}
    return (
        *(row for row in _ROWS if row[:2] not in refused),
        *(
            (method, rest, topics.refused(error, reason), f"refused: {reason}")
            for method, rest, error, reason in NOT_STORED
        ),
    )


def _endpoints() -> Sequence[Endpoint]:
    found = []
    for domain in _DOMAINS:
        new = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}"
        legacy = (
            f"/admin/{domain}/{{tenant}}/{{cluster}}/{{namespace}}",
            f"/admin/v2/{domain}/{{tenant}}/{{cluster}}/{{namespace}}",
        )
        for method, rest, handler, description in _rows(domain):
            # What follows a topic would be a legacy topic of its own: there the old prefix alone has it.
            aliases = tuple(path + rest for path in (legacy[:1] if rest == "/{topic}" else legacy))
            found.append(Endpoint(method, new + rest, handler, description, aliases, {"domain": domain}))
    return found


TOPICS: Sequence[Endpoint] = _endpoints()
