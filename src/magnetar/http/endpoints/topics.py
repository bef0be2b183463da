"""Endpoints of topics and subscriptions, persistent and not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magnetar.http.endpoints.refusals_non_persistent import NOT_STORED
from magnetar.http.handlers import messages, subscriptions, topics
from magnetar.http.routing import Endpoint, Parameter
from magnetar.security.authorization import NamespaceOperation as N
from magnetar.security.authorization import TopicOperation as T

_DOMAINS = ("persistent", "non-persistent")
_SUBSCRIPTION = "/{topic}/subscription/{subscription}"

_FORCE = Parameter("force", "truth", "false")
_SYSTEM = Parameter("includeSystemTopic", "truth", "false")
_STATS = (
    Parameter("getPreciseBacklog", "truth", "false"),
    Parameter("subscriptionBacklogSize", "truth", "true"),
    Parameter("getEarliestTimeInBacklog", "truth", "false"),
    Parameter("excludePublishers", "truth", "false"),
    Parameter("excludeConsumers", "truth", "false"),
)
_LARGE = {
    413: "the uncompressed message is too large for HTTP",
    503: "there is not enough memory for a large message at present, or the broker is starting or stopping",
}
_KIND = {405: "the operation is not possible on a topic of this kind"}
_TAKEN = {409: "the object already exists"}
_NOTHING = {409: "messages cannot be acknowledged"}
_USED = {409: "the topic is partitioned", 412: "the topic has clients, or a name is invalid"}
_COUNT = {406: "the number of partitions is not allowed", 422: "the topic already has more partitions"}

_ROWS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "",
        topics.list_topics,
        "list topics; each partition is listed separately",
        N.GET_TOPICS,
        parameters=(_SYSTEM, Parameter("bundle", "text")),
    ),
    Endpoint(
        "GET",
        "/partitioned",
        topics.list_partitioned_topics,
        "list partitioned topics",
        N.GET_TOPICS,
        parameters=(_SYSTEM,),
    ),
    Endpoint(
        "PUT",
        "/{topic}",
        topics.create_topic,
        "create a topic without partitions",
        T.CREATE_TOPIC,
        body="map<string,string>",
        refusals={**_TAKEN, 406: "properties need a persistent topic"},
    ),
    Endpoint(
        "DELETE",
        "/{topic}",
        topics.delete_topic,
        "delete a topic; force disconnects its clients",
        T.DELETE_TOPIC,
        parameters=(_FORCE,),
        refusals=_USED,
    ),
    Endpoint(
        "GET",
        "/{topic}/partitions",
        topics.get_partitions,
        "number of partitions",
        T.LOOKUP,
        parameters=(Parameter("checkAllowAutoCreation", "truth", "false"),),
    ),
    Endpoint(
        "PUT",
        "/{topic}/partitions",
        topics.create_partitioned_topic,
        "create a partitioned topic",
        T.CREATE_TOPIC,
        body="PartitionedTopicMetadata",
        refusals={**_TAKEN, **_COUNT},
    ),
    Endpoint(
        "POST",
        "/{topic}/partitions",
        topics.update_partitions,
        "increase the number of partitions",
        T.CREATE_TOPIC,
        parameters=(_FORCE,),
        body="int",
        refusals={**_TAKEN, **_COUNT},
    ),
    Endpoint(
        "DELETE",
        "/{topic}/partitions",
        topics.delete_partitioned_topic,
        "delete a partitioned topic",
        T.DELETE_TOPIC,
        parameters=(_FORCE,),
        refusals=_USED,
    ),
    Endpoint(
        "POST",
        "/{topic}/createMissedPartitions",
        topics.create_missing_partitions,
        "create missing partitions",
        T.CREATE_TOPIC,
    ),
    Endpoint(
        "GET", "/{topic}/stats", topics.topic_stats, "statistics of a topic", T.GET_STATS, parameters=_STATS
    ),
    Endpoint(
        "GET",
        "/{topic}/internalStats",
        topics.internal_stats,
        "ledgers and cursors of a topic",
        T.GET_STATS,
        parameters=(Parameter("metadata", "truth", "false"),),
    ),
    Endpoint(
        "GET",
        "/{topic}/partitioned-stats",
        topics.partitioned_stats,
        "statistics of all partitions",
        T.GET_STATS,
        parameters=(Parameter("perPartition", "truth", "true"), *_STATS),
    ),
    Endpoint(
        "GET",
        "/{topic}/partitioned-internalStats",
        topics.partitioned_internal_stats,
        "ledgers and cursors of all partitions",
        T.GET_STATS,
    ),
    Endpoint(
        "GET",
        "/{topic}/explain",
        topics.explain,
        "why messages do not arrive or cannot be published; Magnetar's own",
        T.GET_STATS,
        parameters=(Parameter("subscription", "text"),),
        refusals={404: "no such topic, namespace or subscription"},
    ),
    Endpoint("PUT", "/{topic}/unload", topics.unload, "unload a topic; clients reconnect", T.UNLOAD),
    Endpoint(
        "POST",
        "/{topic}/terminate",
        topics.terminate,
        "terminate a topic; returns its last message",
        T.TERMINATE,
        success=200,
        refusals=_KIND,
    ),
    Endpoint(
        "POST",
        "/{topic}/terminate/partitions",
        topics.terminate_partitions,
        "terminate all partitions",
        T.TERMINATE,
        success=200,
        refusals=_KIND,
    ),
    Endpoint(
        "PUT",
        "/{topic}/compaction",
        topics.compact,
        "compact a topic",
        T.COMPACT,
        refusals={**_KIND, 409: "the topic is already being compacted"},
    ),
    Endpoint(
        "GET",
        "/{topic}/compaction",
        topics.compaction_status,
        "state of the compaction of a topic",
        T.COMPACT,
        refusals=_KIND,
    ),
    Endpoint("GET", "/{topic}/properties", topics.properties, "properties of a topic", T.GET_METADATA),
    Endpoint(
        "PUT",
        "/{topic}/properties",
        topics.set_properties,
        "add properties",
        T.UPDATE_METADATA,
        body="map<string,string>",
    ),
    Endpoint(
        "DELETE",
        "/{topic}/properties",
        topics.remove_property,
        "remove a property",
        T.DELETE_METADATA,
        parameters=(Parameter("key", "text"),),
    ),
    Endpoint("GET", "/{topic}/permissions", topics.permissions, "permissions of a topic", T.GET_PERMISSION),
    Endpoint(
        "POST",
        "/{topic}/permissions/{role}",
        topics.grant,
        "grant permissions to a role",
        T.GRANT_PERMISSION,
        body="array<AuthAction>",
        sets="permissions",
    ),
    Endpoint(
        "DELETE",
        "/{topic}/permissions/{role}",
        topics.revoke,
        "revoke the permissions of a role",
        T.REVOKE_PERMISSION,
    ),
    Endpoint(
        "GET", "/{topic}/lastMessageId", topics.last_message_id, "id of the last message", T.PEEK_MESSAGES
    ),
    Endpoint(
        "GET",
        "/{topic}/messageid/{timestamp}",
        topics.message_id_at,
        "the first message published since a time",
        T.PEEK_MESSAGES,
    ),
    Endpoint(
        "GET",
        "/{topic}/backlog",
        subscriptions.estimate,
        "size and backlog of a topic",
        T.GET_BACKLOG_SIZE,
        refusals={406: "the topic is not persistent"},
    ),
    Endpoint(
        "PUT",
        "/{topic}/backlogSize",
        topics.backlog_size,
        "size of the backlog from a message on, in bytes",
        T.GET_BACKLOG_SIZE,
        asks=True,
        body="MessageId",
        success=200,
    ),
    Endpoint(
        "POST",
        "/{topic}/trim",
        topics.trim,
        "delete ledgers that are no longer needed",
        T.TRIM_TOPIC,
        success=200,
    ),
    Endpoint(
        "DELETE",
        "/{topic}/truncate",
        subscriptions.truncate,
        "delete all messages; subscriptions move to the end",
        T.TRUNCATE,
    ),
    Endpoint(
        "POST",
        _SUBSCRIPTION + "/expireMessages/{expireTimeInSeconds}",
        subscriptions.expire,
        "expire messages older than a number of seconds",
        T.EXPIRE_MESSAGES,
        refusals=_NOTHING,
    ),
    Endpoint(
        "POST",
        _SUBSCRIPTION + "/expireMessages",
        subscriptions.expire_to,
        "expire messages up to a position",
        T.EXPIRE_MESSAGES,
        body="ResetCursorData",
        refusals=_NOTHING,
    ),
    Endpoint(
        "POST",
        "/{topic}/all_subscription/expireMessages/{expireTimeInSeconds}",
        subscriptions.expire_all,
        "expire messages older than a number of seconds, for all subscriptions",
        T.EXPIRE_MESSAGES,
        refusals=_NOTHING,
    ),
    Endpoint(
        "POST",
        _SUBSCRIPTION + "/analyzeBacklog",
        subscriptions.analyze,
        "analyze the backlog of a subscription",
        T.CONSUME,
        asks=True,
        body="ResetCursorData",
        success=200,
        refusals=_KIND,
    ),
    Endpoint(
        "GET",
        "/{topic}/ledger/{ledgerId}/entry/{entryId}",
        messages.by_id,
        "a message",
        T.PEEK_MESSAGES,
        refusals=_LARGE,
    ),
    Endpoint(
        "GET",
        "/{topic}/examinemessage",
        messages.examine,
        "the n-th message from the beginning or the end",
        T.PEEK_MESSAGES,
        parameters=(
            Parameter("initialPosition", "text", "latest"),
            Parameter("messagePosition", "whole", "1"),
        ),
        refusals=_LARGE,
    ),
    Endpoint(
        "GET",
        _SUBSCRIPTION + "/position/{messagePosition}",
        messages.peek,
        "the n-th unacknowledged message",
        T.PEEK_MESSAGES,
        refusals=_LARGE,
    ),
    Endpoint(
        "GET",
        "/{topic}/internal-info",
        messages.stored,
        "properties of the managed ledger in the metadata",
        T.GET_METADATA,
    ),
    Endpoint("GET", "/{topic}/subscriptions", subscriptions.names, "list subscriptions", T.GET_SUBSCRIPTIONS),
    Endpoint(
        "PUT",
        _SUBSCRIPTION,
        subscriptions.create,
        "create a subscription",
        T.SUBSCRIBE,
        parameters=(Parameter("replicated", "truth", "false"),),
        body="ResetCursorData",
        refusals={**_TAKEN, 405: "the topic has reached its limit of subscriptions"},
    ),
    Endpoint(
        "DELETE",
        _SUBSCRIPTION,
        subscriptions.delete,
        "delete a subscription",
        T.UNSUBSCRIBE,
        parameters=(_FORCE,),
    ),
    Endpoint(
        "GET",
        _SUBSCRIPTION + "/properties",
        subscriptions.properties,
        "properties of a subscription",
        T.CONSUME,
    ),
    Endpoint(
        "PUT",
        _SUBSCRIPTION + "/properties",
        subscriptions.set_properties,
        "replace the properties of a subscription",
        T.CONSUME,
        body="map<string,string>",
    ),
    Endpoint(
        "POST",
        _SUBSCRIPTION + "/skip_all",
        subscriptions.skip_all,
        "clear the backlog of a subscription",
        T.SKIP,
    ),
    Endpoint("POST", _SUBSCRIPTION + "/skip/{numMessages}", subscriptions.skip, "skip messages", T.SKIP),
    Endpoint(
        "POST",
        _SUBSCRIPTION + "/resetcursor/{timestamp}",
        subscriptions.reset_to_time,
        "reset a subscription to a time",
        T.RESET_CURSOR,
    ),
    Endpoint(
        "POST",
        _SUBSCRIPTION + "/resetcursor",
        subscriptions.reset_to,
        "reset a subscription to a message",
        T.RESET_CURSOR,
        body="ResetCursorData",
    ),
    Endpoint(
        "GET",
        _SUBSCRIPTION + "/replicatedSubscriptionStatus",
        subscriptions.replicated,
        "whether a subscription is replicated",
        T.GET_REPLICATED_SUBSCRIPTION_STATUS,
    ),
    Endpoint(
        "POST",
        _SUBSCRIPTION + "/replicatedSubscriptionStatus",
        subscriptions.set_replicated,
        "set whether a subscription is replicated",
        T.SET_REPLICATED_SUBSCRIPTION_STATUS,
        body="bool",
        sets="replicated",
    ),
)
"""Paths are relative to the namespace."""


_NOT_THERE_YET = {"/{topic}/offload": T.OFFLOAD}
"""Operations of paths without a row for persistent topics."""


_BUNDLE = Endpoint(
    "GET",
    "/{bundle}",
    topics.list_bundle,
    "list the loaded topics of a bundle",
    N.GET_BUNDLE,
    refusals={412: "the bundle does not exist"},
)
"""Of topics that exist only in the memory of the broker that serves them."""


def _rows(domain: str) -> Sequence[Endpoint]:
    if domain == "persistent":
        return _ROWS
    refused = {(method, rest): (error, reason) for method, rest, error, reason in NOT_STORED}
    known = {(row.method, row.path): row for row in (*_ROWS, _BUNDLE)}
    rows = [row for at, row in known.items() if at not in refused]
    for at, (error, reason) in refused.items():
        row = known.get(at) or Endpoint(*at, topics.refused(error, reason), "", _NOT_THERE_YET[at[1]])
        handler = topics.refused(error, reason)
        refusals = {error(reason).http_status: reason}
        rows.append(replace(row, handler=handler, description=f"refused: {reason}", refusals=refusals))
    return rows


def _endpoints() -> Sequence[Endpoint]:
    found = []
    for domain in _DOMAINS:
        new = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}"
        legacy = (
            f"/admin/{domain}/{{tenant}}/{{cluster}}/{{namespace}}",
            f"/admin/v2/{domain}/{{tenant}}/{{cluster}}/{{namespace}}",
        )
        for row in _rows(domain):
            # Elsewhere the part after a topic would read as a legacy topic, and the last part of a legacy
            # namespace as a bundle: only the old prefix has these aliases.
            bare = row.path in ("/{topic}", "/{bundle}") or (domain == "non-persistent" and not row.path)
            aliases = tuple(path + row.path for path in (legacy[:1] if bare else legacy))
            found.append(replace(row, path=new + row.path, aliases=aliases, constants={"domain": domain}))
    return found


TOPICS: Sequence[Endpoint] = _endpoints()
